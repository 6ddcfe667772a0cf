//! The fast path between two polls: for coroutines that only yield, block and exit while nothing
//! else happens. The slow path is `schedule`, which is always right.
//!
//! The fast path requeues or removes the polled coroutine and begins the next one, under the
//! worker's lock, as `schedule` does. It leaves to `schedule` everything that takes more than a few
//! comparisons: a request for the coroutine or for the next, a filled inbox, another worker with
//! something more urgent, the end of the budget. Then it returns either before it has changed
//! anything, with the polled coroutine still the head of its list, or after that coroutine was
//! requeued or removed, with nothing.

use ::core::ptr;

use super::atomic::Ordering;

use super::executor::{ATTENTION_EXTERNAL, ATTENTION_OTHER_WORKERS, ATTENTION_STOP, Executor};
use super::locked::Locked;
use super::priority::Priority;
use super::ready::List;
use super::record::WorkerState;
use super::schedule::{
    Begun, Outcome, Polled, call_external, drop_future, pending, poll_current, woke_itself,
};
use super::slot::Slot;
use super::snapshot::Snapshot;
use super::worker::Worker;

/// What `poll_on_fast_path` keeps from poll to poll. Together in memory, because registers are few.
pub(super) struct FastPath<'a> {
    /// Polls that may still be made; not 0.
    pub left: u64,
    /// The priority of the list that it polls.
    priority: Priority,
    list: &'a List,
    /// The low half of the words that may take part there.
    pub plain: u64,
    /// What is left to the next complete scheduling point when the fast path ends.
    pub polled: Option<Polled<'a>>,
    /// It has ended because no coroutine was ready here, which was seen under the lock after the
    /// last poll.
    pub is_out_of_work: bool,
}

impl<'a> FastPath<'a> {
    pub fn new(worker: &'a Worker, priority: Priority, left: u64) -> FastPath<'a> {
        let plain = Snapshot::plain(priority, worker.number());
        let list = worker.list(priority);
        FastPath { left, priority, list, plain, polled: None, is_out_of_work: false }
    }

    /// Publishes a coroutine that takes part as the current one. Returns its id.
    #[inline(always)]
    fn publish_current(&self, state: &WorkerState, slot: &Slot, word: Snapshot) -> u64 {
        let id = word.id_high_of(self.plain) | slot.handle() as u64;
        state.current_id.store(id, Ordering::Relaxed);
        id
    }

    /// Leaves a coroutine that takes part to the next scheduling point.
    #[inline(always)]
    fn leave(&mut self, slot: &'a Slot, id: u64, outcome: Outcome) {
        let begun = Begun { slot, word: Snapshot::plain_of(id, self.plain) };
        self.polled = Some(Polled { begun, outcome });
    }
}

impl Executor {
    /// Polls the coroutine that has begun and has a plain word, and then one after another of its
    /// list and of others: the main loop of an executor. `ALONE`: only this worker's own record
    /// must be checked in between.
    ///
    /// What follows a block, an exit or another level is apart, so that the registers are for a
    /// yield to the next of the same list.
    #[inline(never)]
    pub(super) fn poll_on_fast_path<'a, const ALONE: bool>(
        &'a self,
        worker: &'a Worker,
        begun: Begun<'a>,
        path: &mut FastPath<'a>,
    ) {
        let state = worker.state();
        // Not checked again: a request may have been made since the word was found to be plain,
        // which has the same effect as a request during the poll.
        let Begun { mut slot, word } = begun;
        let mut id = path.publish_current(state, slot, word);
        loop {
            let is_finished = poll_current(state, slot, id);
            if is_finished || !woke_itself(state, id) {
                // Hooks and futures are called here, because what calls nothing saves no registers.
                let outcome = if is_finished {
                    drop_future(state, slot);
                    Outcome::Ended
                } else {
                    pending(state, id)
                };
                path.left = path.left.wrapping_sub(1);
                if outcome == Outcome::Yields
                    || path.left == 0
                    || self.has_more_after_wait::<ALONE>(worker, state, path.priority)
                {
                    path.leave(slot, id, outcome);
                    return;
                }
                let next = if is_finished {
                    self.begin_without::<ALONE, true>(worker, slot, id, path)
                } else {
                    self.begin_without::<ALONE, false>(worker, slot, id, path)
                };
                let Some(Begun { slot: next, word }) = next else { return };
                slot = next;
                id = path.publish_current(state, slot, word);
                continue;
            }
            path.left = path.left.wrapping_sub(1);
            if path.left == 0 || self.has_more_to_do::<ALONE>(worker, state, path.priority) {
                break;
            }
            // While it waits for the lock it publishes no current coroutine: a host that uses this
            // would otherwise prefer it to the thief that it waits for.
            let Some(locked) = worker.try_lock() else { break };
            let next = slot.next(&self.slab);
            let word = next.state.peek();
            if !locked.is_fast_path_open() || !word.is(path.plain) {
                let next = self.begin_after_yield::<ALONE>(worker, locked, slot, id, path);
                let Some(Begun { slot: next, word }) = next else { return };
                slot = next;
                id = path.publish_current(state, slot, word);
                continue;
            }
            path.list.rotate_to(slot, next);
            slot = next;
            // Before the lock is free: then a thief may take, poll and block the one that has
            // yielded, and an interrupt handler here that wakes it must not find it published as
            // the current one (`wakes_itself`).
            id = path.publish_current(state, slot, word);
        }
        state.current_id.store(0, Ordering::Relaxed);
        path.leave(slot, id, Outcome::Yields);
    }

    /// Begins what follows on a yield, if that is not the next of the same list: the head of the
    /// most urgent of all lists. Usually something more urgent has become ready.
    #[inline(never)]
    fn begin_after_yield<'a, const ALONE: bool>(
        &'a self,
        worker: &'a Worker,
        locked: Locked<'_>,
        slot: &'a Slot,
        id: u64,
        path: &mut FastPath<'a>,
    ) -> Option<Begun<'a>> {
        // Before the lock is free, as in `poll_on_fast_path`.
        worker.state().current_id.store(0, Ordering::Relaxed);
        if !slot.state.peek().is(path.plain) {
            path.leave(slot, id, Outcome::Yields);
            return None;
        }
        locked.end_and_rotate(&self.slab);
        self.begin_most_urgent::<ALONE>(worker, locked, path)
    }

    /// Takes the polled coroutine out of its list, because it is finished, or else pending and has
    /// not woken itself. Begins the next.
    #[inline(never)]
    fn begin_without<'a, const ALONE: bool, const IS_FINISHED: bool>(
        &'a self,
        worker: &'a Worker,
        slot: &'a Slot,
        id: u64,
        path: &mut FastPath<'a>,
    ) -> Option<Begun<'a>> {
        let outcome = if IS_FINISHED { Outcome::Ended } else { Outcome::Waits };
        let Some(locked) = worker.try_lock() else {
            path.leave(slot, id, outcome);
            return None;
        };
        // Before it is blocked: from then on a wake may push it into an inbox, which uses the same
        // field.
        let next = slot.next(&self.slab);
        if !IS_FINISHED && !slot.state.block(Snapshot::plain_of(id, path.plain)) {
            path.leave(slot, id, outcome);
            return None;
        }
        let word = next.state.peek();
        let is_next = locked.is_fast_path_open() && word.is(path.plain) && !ptr::eq(next, slot);
        let begun = if is_next {
            let next = locked.remove_and_begin(&self.slab, path.list, path.priority, next);
            if IS_FINISHED {
                locked.free(slot);
            }
            drop(locked);
            next.map(|slot| Begun { slot, word })
        } else {
            self.begin_elsewhere::<ALONE, IS_FINISHED>(worker, locked, slot, next, path)
        };
        if IS_FINISHED {
            // Without the lock, since it may notify.
            self.one_less();
        }
        begun
    }

    /// Takes the polled coroutine out of its list; `next` is what came after it there, which
    /// cannot follow. Begins the head of the most urgent of all lists.
    ///
    /// Out of line, because it needs more registers than to begin the next of the list.
    #[inline(never)]
    fn begin_elsewhere<'a, const ALONE: bool, const IS_FINISHED: bool>(
        &'a self,
        worker: &'a Worker,
        locked: Locked<'_>,
        slot: &Slot,
        next: &Slot,
        path: &mut FastPath<'a>,
    ) -> Option<Begun<'a>> {
        locked.end_and_remove(&self.slab, next);
        if IS_FINISHED {
            locked.free(slot);
        }
        self.begin_most_urgent::<ALONE>(worker, locked, path)
    }

    /// Begins the head of the most urgent of all lists; nothing is being polled. `None` if the
    /// complete scheduling point is needed.
    #[inline(always)]
    fn begin_most_urgent<'a, const ALONE: bool>(
        &'a self,
        worker: &'a Worker,
        locked: Locked<'_>,
        path: &mut FastPath<'a>,
    ) -> Option<Begun<'a>> {
        let Some(priority) = Priority::most_urgent_in(locked.bitmap()) else {
            path.is_out_of_work = true;
            return None;
        };
        let list = worker.list(priority);
        let (plain, word) =
            (Snapshot::plain(priority, worker.number()), list.first(&self.slab).state.peek());
        if !word.is(plain) || self.must_look_round::<ALONE>(worker, priority) {
            return None;
        }
        (path.priority, path.list, path.plain) = (priority, list, plain);
        Some(Begun { slot: locked.begin(&self.slab, priority), word })
    }

    /// Whether a stop is requested, or another worker publishes something more urgent than
    /// `priority`.
    #[inline(always)]
    fn must_look_round<const ALONE: bool>(&self, worker: &Worker, priority: Priority) -> bool {
        let attention = self.attention.load(Ordering::Relaxed);
        attention != 0
            && (ALONE
                || attention & ATTENTION_STOP != 0
                || attention & ATTENTION_OTHER_WORKERS != 0
                    && self.others_publish(worker, priority.bit().wrapping_sub(1)))
    }

    /// Whether a worker must do more at a scheduling point than look at its own lists.
    #[inline(always)]
    fn has_more_to_do<const ALONE: bool>(
        &self,
        worker: &Worker,
        state: &WorkerState,
        priority: Priority,
    ) -> bool {
        let others = !ALONE
            && if self.attention.load(Ordering::Relaxed) == ATTENTION_OTHER_WORKERS {
                self.others_publish(worker, priority.bit().wrapping_sub(1))
            } else {
                self.attend(worker, priority)
            };
        others || state.posted.load(Ordering::Relaxed) != 0
    }

    /// As `has_more_to_do`, after a poll that does not yield. The hook is called here: `attend`
    /// would save registers for it that its caller has saved already.
    #[inline(always)]
    fn has_more_after_wait<const ALONE: bool>(
        &self,
        worker: &Worker,
        state: &WorkerState,
        priority: Priority,
    ) -> bool {
        !ALONE && {
            self.attend_external(worker);
            self.must_look_round::<ALONE>(worker, priority)
        } || state.posted.load(Ordering::Relaxed) != 0
    }

    /// Calls the hook `external`; true if a stop is requested, or another worker publishes
    /// something more urgent.
    ///
    /// Out of line, because what it needs of registers would be saved in each poll of a coroutine
    /// that yields.
    #[inline(never)]
    fn attend(&self, worker: &Worker, priority: Priority) -> bool {
        self.attend_external(worker);
        self.must_look_round::<false>(worker, priority)
    }

    /// Calls the hook `external`, if there is one.
    #[inline(always)]
    fn attend_external(&self, worker: &Worker) {
        if self.attention.load(Ordering::Relaxed) & ATTENTION_EXTERNAL != 0
            && let Some(hooks) = worker.hooks()
            && let Some(external) = hooks.external
        {
            call_external(external, hooks, worker);
        }
    }
}
