//! What is done under a worker's lock: its lists, and moving what is in its inbox into them.

use super::atomic::{Ordering, compiler_fence};

use super::priority::Priority;
use super::ready::List;
use super::slab::Slab;
use super::slot::Slot;
use super::snapshot::Place;
use super::worker::{NO_LEVEL, Worker};

/// Bounds the time that two locks are held.
const MIGRATED_AT_ONCE: u32 = 32;

/// The lock of a worker, held.
pub(crate) struct Locked<'a>(pub(super) &'a Worker);

impl Locked<'_> {
    /// Levels that are not empty, that of the coroutine being polled among them.
    #[inline(always)]
    pub fn bitmap(&self) -> u64 {
        self.0.lists.bitmap()
    }

    /// Levels at which a coroutine waits, not counting the one that is being polled. Exact.
    ///
    /// This is the worker's own bitmap. The record has a copy for other workers; nothing here
    /// relies on that copy, because safe code outside of this crate can write to it.
    #[inline(always)]
    pub fn waiting(&self) -> u64 {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Sets the levels at which a coroutine waits, and publishes them.
    #[inline(always)]
    fn set_waiting(&self, levels: u64) {
        self.0.waiting.store(levels, Ordering::Relaxed);
        self.0.state().ready.store(levels, Ordering::Relaxed);
    }

    /// Publishes that a coroutine waits at `priority`. True if any waited before, at any level.
    #[inline(always)]
    fn publish(&self, priority: Priority) -> bool {
        let waiting = self.waiting();
        // The record's line, which other workers read, is written only if it changes.
        if waiting & priority.bit() == 0 {
            self.set_waiting(waiting | priority.bit());
        }
        waiting != 0
    }

    /// Publishes that no coroutine waits at `priority`.
    #[inline(always)]
    fn withdraw(&self, priority: Priority) {
        let waiting = self.waiting();
        if waiting & priority.bit() != 0 {
            self.set_waiting(waiting & !priority.bit());
        }
    }

    /// Enqueues a coroutine that is not linked yet, although its state word names the list of
    /// `priority` of this worker as its place. True if others wait here.
    #[inline(always)]
    pub fn enqueue(&self, slot: &Slot, priority: Priority) -> bool {
        self.enqueue_unpublished(slot, priority);
        self.publish(priority)
    }

    /// As `enqueue`, for a caller that publishes the level itself.
    #[inline(always)]
    fn enqueue_unpublished(&self, slot: &Slot, priority: Priority) {
        self.0.lists.enqueue(slot, priority);
        if (priority.level() as u32) < self.0.running_level.load(Ordering::Relaxed) {
            self.0.close_fast_path();
        }
    }

    /// Moves a waiting coroutine from the list of `from` to the tail of the list of `to`. True if
    /// others wait here.
    ///
    /// The new level is published before the old one is withdrawn, so that a worker that looks
    /// without the lock, to park, sees at least one of the two.
    fn move_to_list(&self, slab: &Slab, slot: &Slot, from: Priority, to: Priority) -> bool {
        let has_peers = self.waiting() & to.bit() != 0;
        self.publish(to);
        self.remove(slab, slot, from);
        self.enqueue_unpublished(slot, to);
        has_peers || self.waiting() & !to.bit() != 0
    }

    /// Begins the poll of the head of the list of `priority`, which is not empty. The head stays
    /// there until it is settled.
    ///
    /// That the worker polls at this level is published before the level is withdrawn from those at
    /// which something waits. In between the worker may be stopped: what decides when it continues
    /// must not take it for one that has nothing as urgent.
    #[inline(always)]
    pub fn begin<'s>(&self, slab: &'s Slab, priority: Priority) -> &'s Slot {
        self.0.state().current_priority.store(priority.level() as u32, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        self.0.running_level.store(priority.level() as u32, Ordering::Relaxed);
        self.0.fast_path_open.store(1, Ordering::Relaxed);
        let slot = self.0.lists.list(priority).first(slab);
        if slot.is_alone() {
            self.withdraw(priority);
        }
        slot
    }

    /// Ends the state of being polled. The coroutine is still the head of its list; returns the
    /// priority of that list.
    #[inline(always)]
    pub fn end(&self) -> Priority {
        let level = self.0.running_level.load(Ordering::Relaxed);
        self.0.running_level.store(NO_LEVEL, Ordering::Relaxed);
        Priority::saturating(level)
    }

    /// Ends the poll of the head of a list, and requeues it at the tail.
    pub fn end_and_rotate(&self, slab: &Slab) {
        let priority = self.end();
        let list = self.0.lists.list(priority);
        let first = list.first(slab);
        list.rotate_to(first, first.next(slab));
        self.publish(priority);
    }

    /// Takes a waiting coroutine out of the list of `priority`.
    fn remove(&self, slab: &Slab, slot: &Slot, priority: Priority) {
        self.0.lists.remove(slab, slot, priority);
        let polled = self.0.running_level.load(Ordering::Relaxed) == priority.level() as u32;
        if self.bitmap() & priority.bit() == 0
            || polled && self.0.lists.list(priority).first(slab).is_alone()
        {
            self.withdraw(priority);
        }
    }

    /// Whether nothing has happened since the worker last looked at everything, except what the
    /// fast path does.
    #[inline(always)]
    pub fn is_fast_path_open(&self) -> bool {
        self.0.fast_path_open.load(Ordering::Relaxed) != 0
    }

    /// If the fast path is open: takes out what was polled, the head of `list`, and begins `next`,
    /// which came after it. `None` if it was alone: then nothing begins.
    #[inline(always)]
    pub fn remove_and_begin<'s>(
        &self,
        slab: &'s Slab,
        list: &List,
        priority: Priority,
        next: &'s Slot,
    ) -> Option<&'s Slot> {
        let next = self.0.lists.remove_followed(slab, list, priority.bit(), next);
        match next {
            Some(next) if next.is_alone() => self.withdraw(priority),
            Some(_) => {}
            None => {
                self.end();
            }
        }
        next
    }

    /// What was polled has exited, and its future was dropped: its slot is free then. Nothing
    /// begins.
    #[inline(never)]
    pub fn exited(&self, slab: &Slab, polled: &Slot) {
        self.end_and_remove(slab, polled.next(slab));
        self.free(polled);
    }

    /// Takes what was polled, the head of its list, out. `next` is what came after it. Nothing
    /// begins.
    pub fn end_and_remove(&self, slab: &Slab, next: &Slot) {
        let priority = self.end();
        self.0.lists.remove_followed(slab, self.0.lists.list(priority), priority.bit(), next);
    }

    /// Makes the slot of a coroutine that has exited, and is in no list any more, free.
    ///
    /// If its generations are used up, it is retired instead.
    #[inline(always)]
    pub fn free(&self, slot: &Slot) {
        // Under the lock: a word that says List is of a slot that is in that list.
        if slot.state.vacate() {
            slot.next.store(self.0.free.load(Ordering::Relaxed), Ordering::Relaxed);
            self.0.free.store(::core::ptr::from_ref(slot).cast_mut(), Ordering::Relaxed);
        }
    }

    /// A free slot of this worker's, if it has one. From now on it is the caller's alone.
    #[allow(unsafe_code)]
    #[inline(always)]
    pub fn take_free<'s>(&self, _: &'s Slab) -> Option<&'s Slot> {
        // SAFETY: null, or a slot of this slab that `free` has put there; slots are never freed,
        // and the lock orders that before this.
        let slot: &'s Slot = unsafe { self.0.free.load(Ordering::Relaxed).as_ref() }?;
        self.0.free.store(slot.next.load(Ordering::Relaxed), Ordering::Relaxed);
        Some(slot)
    }

    /// Takes over all free slots of `from`, if this worker has none.
    pub fn take_all_free(&self, from: &Locked<'_>) {
        if self.0.free.load(Ordering::Relaxed).is_null() {
            self.0.free.store(from.0.free.load(Ordering::Relaxed), Ordering::Relaxed);
            from.0.free.store(::core::ptr::null_mut(), Ordering::Relaxed);
        }
    }

    /// Migrates the first coroutine that waits in the list of `priority`, which is one of
    /// `waiting`, to the worker `to`. Returns the priority of the list in which it is there.
    ///
    /// That is another list if the coroutine's priority was changed a moment ago by a caller that
    /// could not take the lock here. That caller's note is at this worker, which no longer has the
    /// coroutine, so the note would have no effect: the change is made during the move instead. A
    /// change that comes after the transition finds the coroutine at its new worker.
    #[must_use]
    pub fn migrate(&self, slab: &Slab, priority: Priority, to: &Locked<'_>) -> Priority {
        let head = self.0.lists.list(priority).first(slab);
        let polled = self.0.running_level.load(Ordering::Relaxed) == priority.level() as u32;
        let slot = if polled { head.next(slab) } else { head };
        // Published there before it is withdrawn here: either worker may be stopped in between.
        let is_first = to.waiting() & priority.bit() == 0;
        to.publish(priority);
        compiler_fence(Ordering::SeqCst);
        self.remove(slab, slot, priority);
        let word = slot.state.migrate(self.0.number(), to.0.number());
        let moved = if word.is_misplaced() {
            slot.state.relevel(word.generation(), to.0.number())
        } else {
            None
        };
        let list = moved.map_or(priority, |(_, priority)| priority);
        to.enqueue(slot, list);
        if is_first && list != priority {
            to.withdraw(priority);
        }
        list
    }

    /// Migrates up to half of what waits here, most urgent first, to the worker `to`.
    pub fn migrate_half(&self, slab: &Slab, to: &Locked<'_>) {
        self.migrate_up_to(self.count_waiting(slab, 2 * MIGRATED_AT_ONCE) / 2, slab, to);
    }

    /// Migrates as much as one does at once of what waits here, most urgent first, to the worker
    /// `to`.
    pub fn migrate_some(&self, slab: &Slab, to: &Locked<'_>) {
        self.migrate_up_to(MIGRATED_AT_ONCE, slab, to);
    }

    fn migrate_up_to(&self, mut left: u32, slab: &Slab, to: &Locked<'_>) {
        while left != 0
            && let Some(priority) = Priority::most_urgent_in(self.waiting())
        {
            // Which list it came to makes no difference: the other worker begins with the most
            // urgent of all that it has then.
            let _list = self.migrate(slab, priority, to);
            left = left.wrapping_sub(1);
        }
    }

    /// How many wait here, counted up to `limit`.
    fn count_waiting(&self, slab: &Slab, limit: u32) -> u32 {
        let mut count: u32 = 0;
        let mut levels = self.bitmap();
        let running = self.0.running_level.load(Ordering::Relaxed);
        while let Some(priority) = Priority::most_urgent_in(levels) {
            levels &= !priority.bit();
            let head = self.0.lists.list(priority).first(slab);
            let mut slot = head;
            if running != priority.level() as u32 {
                count = count.wrapping_add(1);
            }
            while count < limit && !::core::ptr::eq(slot.next(slab), head) {
                slot = slot.next(slab);
                count = count.wrapping_add(1);
            }
        }
        count
    }

    /// Requeues a coroutine that is in a list of this worker, but not that of its priority: it
    /// moves to the tail of the latter.
    pub fn requeue(&self, slab: &Slab, slot: &Slot, generation: u32) -> Requeued {
        let word = slot.state.load();
        if word.names(generation) && word.place() == Place::List && word.worker() != self.0.number()
        {
            return Requeued::Elsewhere;
        }
        if self.is_polled(slab, slot) {
            // It settles before anything else happens here.
            self.0.publish_polled(slot);
            self.0.close_fast_path();
            return Requeued::Done;
        }
        // Those that became ready before shall come first.
        self.drain(slab);
        match slot.state.relevel(generation, self.0.number()) {
            Some((from, to)) => {
                let busy = self.move_to_list(slab, slot, from, to);
                Requeued::Moved { priority: to, busy }
            }
            None => Requeued::Done,
        }
    }

    fn is_polled(&self, slab: &Slab, slot: &Slot) -> bool {
        let running = self.0.running_level.load(Ordering::Relaxed);
        running != NO_LEVEL
            && ::core::ptr::eq(self.0.lists.list(Priority::saturating(running)).first(slab), slot)
    }

    /// Moves everything in the inbox to the list of its priority. May miss what is just being
    /// announced.
    #[inline(always)]
    pub fn drain(&self, slab: &Slab) {
        if self.0.state().posted.load(Ordering::Relaxed) != 0 {
            self.drain_now(slab);
        }
    }

    /// As `drain`, and misses nothing; true if there was anything.
    #[cold]
    pub fn drain_unannounced(&self, slab: &Slab) -> bool {
        let filled = !self.0.inbox.is_empty();
        if filled {
            self.drain_now(slab);
        }
        filled
    }

    #[inline(never)]
    fn drain_now(&self, slab: &Slab) {
        let (state, number) = (self.0.state(), self.0.number());
        let posted = state.posted.load(Ordering::Relaxed);
        // The marks in `posted` move to `ready` before the coroutines do, so that a worker that
        // looks now misses none (`WorkerState::waiting`). That is too much if one of them has got
        // another priority on the way.
        let mut waiting = self.waiting();
        state.ready.store(waiting | posted, Ordering::Relaxed);
        // Cleared before the inbox is emptied: a pusher marks its level after its push, so a mark
        // that is cleared here belongs to a slot that is taken out here.
        if posted != 0 {
            state.posted.fetch_and(!posted, Ordering::SeqCst);
        }
        self.0.inbox.drain(slab, |slot| {
            let priority = slot.state.take_from_inbox(number);
            self.enqueue_unpublished(slot, priority);
            waiting |= priority.bit();
        });
        self.set_waiting(waiting);
        if self.0.misplaced.load(Ordering::Relaxed) != 0 {
            self.requeue_noted(slab);
        }
    }

    /// Requeues the coroutines that are in another list than that of their priority. Takes time
    /// proportional to the length of these lists; needed only if an interrupt or a thief came in
    /// the middle of a scheduling point.
    #[cold]
    fn requeue_noted(&self, slab: &Slab) {
        let mut levels = self.0.misplaced.swap(0, Ordering::SeqCst) & self.bitmap();
        while let Some(priority) = Priority::most_urgent_in(levels) {
            levels &= !priority.bit();
            let head = self.0.lists.list(priority).first(slab);
            // From the second to the last, then the head: what is moved away has been passed by
            // then, and what is moved into the list comes after the last.
            let mut slot = head.next(slab);
            let last = self.0.lists.list(priority).last(slab);
            while !::core::ptr::eq(slot, head) {
                let (next, was_last) = (slot.next(slab), ::core::ptr::eq(slot, last));
                self.requeue_one(slab, slot);
                if was_last {
                    break;
                }
                slot = next;
            }
            if self.is_polled(slab, head) {
                self.0.publish_polled(head);
                self.0.close_fast_path();
            } else {
                self.requeue_one(slab, head);
            }
        }
    }

    fn requeue_one(&self, slab: &Slab, slot: &Slot) {
        let generation = slot.state.peek().generation();
        if let Some((from, to)) = slot.state.relevel(generation, self.0.number()) {
            self.move_to_list(slab, slot, from, to);
        }
    }
}

/// What came of `Locked::requeue`.
#[must_use]
pub(crate) enum Requeued {
    /// It is in a list of another worker now.
    Elsewhere,
    /// There is nothing to be done, or the worker does it when the present poll has ended.
    Done,
    /// It waits in the list of `priority` now; `busy`: so do others on this worker.
    Moved { priority: Priority, busy: bool },
}

impl Drop for Locked<'_> {
    /// Release: a worker that finds the lock free also finds the record true (`prepare_park`).
    #[inline(always)]
    fn drop(&mut self) {
        self.0.lock.store(0, Ordering::Release);
    }
}
