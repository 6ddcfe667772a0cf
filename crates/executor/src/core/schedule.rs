//! Running: pick the most urgent coroutine, poll it, see to what became of it.
//!
//! Between two polls a worker takes its own lock once: it requeues what it has polled, files its inbox,
//! compares its lists with its fellows' bitmaps, and pops.

use ::core::hint;
use ::core::sync::atomic::Ordering;

use super::executor::{Executor, WorkerRef};
use super::hooks::Hooks;
use super::id::CoroutineId;
use super::interface::{RUN_BUDGET_USED, RUN_REFUSED, RUN_STALLED, RUN_STOP_REQUESTED};
use super::priority::Priority;
use super::slot::Slot;
use super::state::{Popped, Settled, Vacated};
use super::worker::{Locked, NO_PRIORITY, PHASE_OUTSIDE, PHASE_RUNNING};

/// How often a worker looks again when it is kept from something more urgent by a lock, before it runs
/// what it has. A holder is in the middle of a scheduling point, a fraction of a microsecond, unless its
/// host has suspended it there: then progress counts for more than order.
const LOOKS_AT_LOCKED_WORKERS: u32 = 200;

/// What came of looking at the other workers.
enum Stolen<'a> {
    Coroutine(&'a Slot, Popped),
    /// They show something, but it could not be had now.
    Contended,
    Nothing,
}

/// Bits of the ids of one executor that are the same in all of them.
fn id_of(executor: u32, slot: &Slot) -> u64 {
    let generation = slot.state.load().generation();
    CoroutineId::compose(generation, executor as u8, slot.index()).map_or(0, CoroutineId::raw)
}

impl Executor {
    /// Polls coroutines on worker `number` until nothing is ready, `max_polls` polls were made, or a stop
    /// is requested; which of them, is the result.
    ///
    /// Must be called by one thread or hart at a time for each worker. Called again from inside a poll on
    /// the same worker it returns `RUN_REFUSED` and does nothing.
    pub fn run(&self, number: u32, max_polls: u64) -> u32 {
        let (Some(worker), Some(hooks)) = (self.worker(number), self.hooks()) else { return RUN_REFUSED };
        if worker.private.running.swap(true, Ordering::Acquire) {
            return RUN_REFUSED;
        }
        worker.state.phase.store(PHASE_RUNNING, Ordering::Relaxed);
        let outcome = self.run_marked(worker, hooks, max_polls);
        worker.state.phase.store(PHASE_OUTSIDE, Ordering::Relaxed);
        worker.private.running.store(false, Ordering::Release);
        outcome
    }

    fn run_marked(&self, worker: WorkerRef<'_>, hooks: &Hooks, max_polls: u64) -> u32 {
        let mut polled = None;
        let mut budget = max_polls;
        loop {
            self.call_external(worker, hooks);
            let may_pick = budget != 0 && !self.stop_requested.load(Ordering::Relaxed);
            let picked = self.schedule(worker, polled.take(), may_pick);
            let Some((slot, popped)) = picked else {
                return if may_pick {
                    RUN_STALLED
                } else if budget == 0 {
                    RUN_BUDGET_USED
                } else {
                    RUN_STOP_REQUESTED
                };
            };
            budget = budget.wrapping_sub(1);
            if self.poll(worker, slot, popped) {
                polled = Some(slot);
            }
        }
    }

    #[allow(unsafe_code)]
    fn call_external(&self, worker: WorkerRef<'_>, hooks: &Hooks) {
        if let Some(external) = hooks.external {
            // SAFETY: contract of `Hooks`: called on its worker, between polls, with no lock held.
            unsafe { external(hooks.context, worker.number) };
        }
    }

    /// One scheduling point: requeues `polled`, files the inbox, and, if `may_pick`, pops the most urgent.
    #[inline]
    fn schedule<'a>(
        &'a self,
        worker: WorkerRef<'a>,
        mut polled: Option<&'a Slot>,
        may_pick: bool,
    ) -> Option<(&'a Slot, Popped)> {
        let mut looks = LOOKS_AT_LOCKED_WORKERS;
        loop {
            let Some(locked) = worker.private.try_lock(worker.state, worker.number) else {
                // Only thieves compete, and they hold it for as long as we do.
                hint::spin_loop();
                continue;
            };
            // First what became ready during the poll, then what was polled: it yields to them.
            locked.drain(&self.slab);
            if let Some(slot) = polled.take()
                && let Settled::Link(level) = slot.state.settle()
            {
                locked.worker.lists.push(&self.slab, slot, level);
            }
            if !may_pick {
                return None;
            }
            // Isolates the lowest bit; one less is all more urgent levels, and all levels if there is no bit.
            let own = locked.bitmap();
            let more_urgent = (own & own.wrapping_neg()).wrapping_sub(1);
            match self.steal(worker, more_urgent) {
                Stolen::Coroutine(slot, popped) => return Some((slot, popped)),
                Stolen::Contended if looks != 0 => {
                    // Something more urgent waits where somebody is just picking. Rather than run something
                    // less urgent, unlock (others may want our lock) and look again.
                    looks = looks.wrapping_sub(1);
                    drop(locked);
                    hint::spin_loop();
                }
                _ => return self.pop(&locked, worker.number),
            }
        }
    }

    /// Pops the most urgent of a locked worker's lists, for worker `number`.
    fn pop<'a>(&'a self, locked: &Locked<'_>, number: u32) -> Option<(&'a Slot, Popped)> {
        let level = Priority::most_urgent_in(locked.bitmap())?;
        let slot = locked.worker.lists.pop(&self.slab, level)?;
        Some((slot, slot.state.pop(number)))
    }

    /// Takes the most urgent coroutine that waits on another worker, if its level is one of `levels`.
    #[inline]
    fn steal<'a>(&'a self, thief: WorkerRef<'a>, levels: u64) -> Stolen<'a> {
        if self.worker_limit() <= 1 {
            return Stolen::Nothing;
        }
        match self.most_urgent_victim(thief.number, levels) {
            Some(victim) => self.steal_from(victim, thief, levels),
            None => Stolen::Nothing,
        }
    }

    fn steal_from<'a>(&'a self, victim: WorkerRef<'a>, thief: WorkerRef<'a>, levels: u64) -> Stolen<'a> {
        let Some(locked) = victim.private.try_lock(victim.state, victim.number) else {
            return Stolen::Contended;
        };
        locked.drain(&self.slab);
        let lowest = locked.bitmap() & locked.bitmap().wrapping_neg();
        if lowest & levels == 0 {
            // What was shown is gone; there may be others.
            return Stolen::Contended;
        }
        let Some((slot, popped)) = self.pop(&locked, thief.number) else { return Stolen::Contended };
        let steals = thief.state.steals.load(Ordering::Relaxed);
        thief.state.steals.store(steals.wrapping_add(1), Ordering::Relaxed);
        Stolen::Coroutine(slot, popped)
    }

    /// The worker other than `thief` that shows the most urgent of `levels`.
    fn most_urgent_victim(&self, thief: u32, levels: u64) -> Option<WorkerRef<'_>> {
        let mut best = None;
        let mut wanted = levels;
        for worker in (0..self.worker_limit()).filter_map(|number| self.worker(number)) {
            let shown = worker.state.waiting() & wanted;
            if worker.number != thief && shown != 0 {
                best = Some(worker);
                wanted = (shown & shown.wrapping_neg()).wrapping_sub(1);
            }
        }
        best
    }

    /// Polls or drops a popped coroutine. True if it is pending, to be settled at the scheduling point.
    #[allow(unsafe_code)]
    fn poll(&self, worker: WorkerRef<'_>, slot: &Slot, popped: Popped) -> bool {
        let id = id_of(self.number(), slot);
        let state = worker.state;
        // SAFETY: spawn's caller vouched for the table, and its stores are seen since the pop (state, rules).
        let vtable = unsafe { &*slot.vtable() };
        let data = slot.data();
        let pending = match popped {
            Popped::Drop(priority) => {
                state.publish_current(id, priority.level() as u32);
                false
            }
            Popped::Poll(priority) => {
                state.publish_current(id, priority.level() as u32);
                let polls = state.polls.load(Ordering::Relaxed);
                state.polls.store(polls.wrapping_add(1), Ordering::Relaxed);
                // SAFETY: popped, so this worker alone has the future; and it has not finished before, or
                // it would have been dropped and its slot vacated.
                let ready = unsafe { (vtable.poll)(data, id) };
                !ready && !slot.state.load().is_cancelled()
            }
        };
        if !pending {
            // SAFETY: finished or cancelled, not dropped before (it was READY), and nobody polls it.
            unsafe { (vtable.drop)(data) };
            // Sequentially consistent, as are the look at `parked` that follows and those of a worker that parks
            // unless all have exited: one of the two sees the other.
            let was_last = self.live.fetch_sub(1, Ordering::SeqCst) == 1;
            if slot.state.vacate() == Vacated::Recycle {
                self.slab.recycle(slot);
            }
            if was_last && self.parked.load(Ordering::SeqCst) != 0 {
                self.unpark_all();
            }
        }
        state.publish_current(0, NO_PRIORITY);
        pending
    }
}
