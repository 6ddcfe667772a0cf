//! Running: pick the most urgent coroutine, poll it, see to what became of it.
//!
//! Between two polls a worker takes its own lock once: it requeues what it has polled, files its inbox,
//! compares its lists with its fellows' bitmaps, and pops.
//!
//! That is `schedule`, which is always right. `poll_in_turn` is what it comes to while nothing changes but that one
//! coroutine of a level gives way to the next; it sees by a few comparisons that this is so, and otherwise
//! leaves the rest to `schedule`.

use super::atomic::{Ordering, compiler_fence, spin_loop};

use super::executor::{ATTENTION_EXTERNAL, ATTENTION_FELLOWS, ATTENTION_STOP, Executor};
use super::hooks::Hooks;
use super::interface::{RUN_BUDGET_USED, RUN_REFUSED, RUN_STALLED, RUN_STOP_REQUESTED};
use super::ready::Rotation;
use super::slot::Slot;
use super::state::{Settled, Snapshot, Vacated};
use super::worker::{Locked, NO_PRIORITY, PHASE_OUTSIDE, PHASE_RUNNING, Worker, WorkerState};

/// How often a worker looks again when it is kept from something more urgent by a lock, before it runs
/// what it has. A holder is in the middle of a scheduling point, a fraction of a microsecond, unless its
/// host has suspended it there: then progress counts for more than order.
const LOOKS_AT_LOCKED_WORKERS: u32 = if cfg!(loom) { 2 } else { 200 };

/// What came of looking at the other workers.
enum Stolen<'a> {
    Coroutine(Taken<'a>),
    /// They show something, but it could not be had now.
    Contended,
    Nothing,
}

/// A coroutine that this worker has popped: it is RUNNING, its future is ours.
#[derive(Clone, Copy)]
struct Taken<'a> {
    slot: &'a Slot,
    /// The state word after the pop.
    word: Snapshot,
}

/// What came of a poll.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Finished,
    Pending,
    /// Pending, and it has woken itself.
    Yielded,
}

/// What `poll_in_turn` goes by. Together in memory, because registers are few.
struct Turns<'a> {
    /// Polls that may still be made; not 0.
    budget: u64,
    rotation: Rotation<'a>,
    /// All levels more urgent than that of the rotation.
    more_urgent: u64,
}

/// A coroutine whose poll is pending, to be settled at the scheduling point.
#[derive(Clone, Copy)]
struct Polled<'a> {
    taken: Taken<'a>,
    /// It has woken itself.
    woken: bool,
}

impl Executor {
    /// Polls coroutines on worker `number` until nothing is ready, `max_polls` polls were made, or a stop
    /// is requested; which of them, is the result.
    ///
    /// Must be called by one thread or hart at a time for each worker. Called again from inside a poll on
    /// the same worker it returns `RUN_REFUSED` and does nothing.
    pub fn run(&self, number: u32, max_polls: u64) -> u32 {
        let (Some(worker), Some(hooks)) = (self.worker(number), self.hooks()) else { return RUN_REFUSED };
        if worker.running.swap(true, Ordering::Acquire) {
            return RUN_REFUSED;
        }
        worker.state().phase.store(PHASE_RUNNING, Ordering::Relaxed);
        let outcome = self.run_marked(worker, hooks, max_polls);
        worker.state().current_priority.store(NO_PRIORITY, Ordering::Relaxed);
        worker.state().phase.store(PHASE_OUTSIDE, Ordering::Relaxed);
        worker.running.store(false, Ordering::Release);
        outcome
    }

    fn run_marked(&self, worker: &Worker, hooks: &Hooks, max_polls: u64) -> u32 {
        let mut polled = None;
        let mut budget = max_polls;
        loop {
            if let Some(external) = hooks.external {
                call_external(external, hooks, worker);
            }
            let stop = self.attention.load(Ordering::Relaxed) & ATTENTION_STOP != 0;
            if budget == 0 || stop {
                self.settle_last(worker, polled);
                return if budget == 0 { RUN_BUDGET_USED } else { RUN_STOP_REQUESTED };
            }
            let Some(taken) = self.schedule(worker, polled) else { return RUN_STALLED };
            let level = taken.word.priority();
            worker.state().current_priority.store(level.level() as u32, Ordering::Relaxed);
            polled = match worker.rotation(level) {
                Some(rotation) if taken.word.is_plain() => {
                    let mut turns = Turns { budget, rotation, more_urgent: level.bit().wrapping_sub(1) };
                    let polled = self.poll_in_turn(worker, taken, &mut turns);
                    budget = turns.budget;
                    polled
                }
                _ => {
                    budget = budget.wrapping_sub(1);
                    self.poll_once(worker, taken)
                }
            };
        }
    }

    /// Polls `taken`, whose word is plain, and then, as long as each only yields and nothing else is to be seen to,
    /// one after the other of its list: the loop that an executor lives in.
    #[inline(never)]
    fn poll_in_turn<'a>(
        &'a self,
        worker: &'a Worker,
        mut taken: Taken<'a>,
        turns: &mut Turns<'_>,
    ) -> Option<Polled<'a>> {
        let state = worker.state();
        loop {
            let outcome = self.poll(state, taken);
            turns.budget = turns.budget.wrapping_sub(1);
            let next = match outcome {
                Outcome::Yielded => {
                    if turns.budget == 0 || self.has_more_to_do(worker, state, turns) {
                        return Some(Polled { taken, woken: true });
                    }
                    let next = worker.lock().exchange(&self.slab, taken.slot, taken.word, turns.rotation);
                    if next.is_none() {
                        return Some(Polled { taken, woken: true });
                    }
                    next
                }
                Outcome::Pending => {
                    if turns.budget == 0 || self.has_more_to_do(worker, state, turns) {
                        return Some(Polled { taken, woken: false });
                    }
                    let locked = worker.lock();
                    if !taken.slot.state.block(taken.word) {
                        return Some(Polled { taken, woken: false });
                    }
                    locked.pop_in_turn(&self.slab, turns.rotation)
                }
                Outcome::Finished => {
                    self.finish_here(state, taken);
                    if turns.budget == 0 || self.has_more_to_do(worker, state, turns) {
                        return None;
                    }
                    // It may have changed its own, and was not asked.
                    let level = taken.word.priority().level();
                    state.current_priority.store(level as u32, Ordering::Relaxed);
                    worker.lock().pop_in_turn(&self.slab, turns.rotation)
                }
            };
            let (slot, word) = next?;
            taken = Taken { slot, word };
            if !word.is_plain() {
                turns.budget = turns.budget.wrapping_sub(1);
                return self.poll_once(worker, taken);
            }
        }
    }

    /// Polls a coroutine, or drops it if it is cancelled.
    #[inline(never)]
    fn poll_once<'a>(&self, worker: &Worker, taken: Taken<'a>) -> Option<Polled<'a>> {
        if taken.word.is_cancelled() {
            self.finish(worker, taken);
            return None;
        }
        let outcome = self.poll(worker.state(), taken);
        self.after(worker, taken, outcome)
    }

    #[inline(always)]
    fn after<'a>(&self, worker: &Worker, taken: Taken<'a>, outcome: Outcome) -> Option<Polled<'a>> {
        if outcome == Outcome::Finished {
            self.finish(worker, taken);
            return None;
        }
        Some(Polled { taken, woken: outcome == Outcome::Yielded })
    }

    /// Whether a worker must do more at a scheduling point than look at its own lists.
    #[inline(always)]
    fn has_more_to_do(&self, worker: &Worker, state: &WorkerState, turns: &Turns<'_>) -> bool {
        // Read again rather than kept: usually there is nothing to attend to.
        self.attention.load(Ordering::Relaxed) != 0 && self.attend(worker, turns)
            || state.posted.load(Ordering::Relaxed) != 0
    }

    /// Calls the hook `external`; true if a stop is requested, or another worker shows something more
    /// urgent.
    #[inline(never)]
    fn attend(&self, worker: &Worker, turns: &Turns<'_>) -> bool {
        let attention = self.attention.load(Ordering::Relaxed);
        if attention & ATTENTION_EXTERNAL != 0
            && let Some(hooks) = self.hooks()
            && let Some(external) = hooks.external
        {
            call_external(external, hooks, worker);
        }
        attention & ATTENTION_STOP != 0
            || attention & ATTENTION_FELLOWS != 0 && self.others_show(worker, turns.more_urgent)
    }

    /// One scheduling point: files the inbox, requeues `polled`, and pops the most urgent.
    #[inline(always)]
    fn schedule<'a>(&'a self, worker: &'a Worker, polled: Option<Polled<'a>>) -> Option<Taken<'a>> {
        let locked = worker.lock();
        locked.drain(&self.slab);
        if let Some(polled) = polled
            && !self.settle(&locked, polled)
        {
            drop(locked);
            self.finish(worker, polled.taken);
            return self.pick(worker, worker.lock());
        }
        // Isolates the lowest bit; one less is all more urgent levels, and all levels if there is no bit.
        let own = locked.bitmap();
        let more_urgent = (own & own.wrapping_neg()).wrapping_sub(1);
        if own == 0 || self.worker_limit() != 1 && self.others_show(worker, more_urgent) {
            return self.pick(worker, locked);
        }
        let (slot, word) = locked.pop(&self.slab, worker.number())?;
        Some(Taken { slot, word })
    }

    /// Whether any other worker shows one of `levels`.
    #[inline(always)]
    fn others_show(&self, worker: &Worker, levels: u64) -> bool {
        let me = worker.number();
        self.records().any(|(number, state)| number != me && state.waiting() & levels != 0)
    }

    /// The rest of a scheduling point, if there is something to steal, or nothing to pop.
    #[inline(never)]
    fn pick<'a>(&'a self, worker: &'a Worker, mut locked: Locked<'a>) -> Option<Taken<'a>> {
        let mut looks = LOOKS_AT_LOCKED_WORKERS;
        loop {
            let own = locked.bitmap();
            match self.steal(worker, &locked, (own & own.wrapping_neg()).wrapping_sub(1)) {
                Stolen::Coroutine(taken) => return Some(taken),
                Stolen::Contended if looks != 0 => {
                    // Something more urgent waits where somebody is just picking. Rather than run something
                    // less urgent, unlock (others may want our lock) and look again.
                    looks = looks.wrapping_sub(1);
                    drop(locked);
                    spin_loop();
                    locked = worker.lock();
                    locked.drain(&self.slab);
                    continue;
                }
                _ => {}
            }
            if let Some((slot, word)) = locked.pop(&self.slab, worker.number()) {
                return Some(Taken { slot, word });
            }
            if !locked.drain_unannounced(&self.slab) {
                return None;
            }
        }
    }

    /// Settles what was polled. First what became ready during the poll was filed: it yields to them. False
    /// if it is to be dropped instead, without the lock.
    #[inline(always)]
    fn settle(&self, locked: &Locked<'_>, polled: Polled<'_>) -> bool {
        match polled.taken.slot.state.settle(polled.taken.word, polled.woken) {
            Settled::Leave => true,
            Settled::Link(level) => {
                locked.push(polled.taken.slot, level);
                true
            }
            Settled::Drop => false,
        }
    }

    /// The last scheduling point of a `run` that shall not poll any more: files what there is.
    #[cold]
    fn settle_last(&self, worker: &Worker, polled: Option<Polled<'_>>) {
        let locked = worker.lock();
        locked.drain(&self.slab);
        if let Some(polled) = polled
            && !self.settle(&locked, polled)
        {
            drop(locked);
            self.finish(worker, polled.taken);
        }
    }

    /// Takes the most urgent coroutine that waits on another worker, if its level is one of `levels`; and half
    /// of what else waits there, if the thief, whose lock is held, has nothing.
    fn steal<'a>(&'a self, thief: &'a Worker, own: &Locked<'_>, levels: u64) -> Stolen<'a> {
        let Some(victim) = self.most_urgent_victim(thief.number(), levels) else { return Stolen::Nothing };
        let Some(locked) = victim.try_lock() else {
            return Stolen::Contended;
        };
        locked.drain(&self.slab);
        let lowest = locked.bitmap() & locked.bitmap().wrapping_neg();
        if lowest & levels == 0 {
            // What was shown is gone; there may be others.
            return Stolen::Contended;
        }
        let Some((slot, word)) = locked.pop(&self.slab, thief.number()) else { return Stolen::Contended };
        if own.bitmap() == 0 {
            locked.hand_over(&self.slab, own);
        }
        let steals = thief.state().steals.load(Ordering::Relaxed);
        thief.state().steals.store(steals.wrapping_add(1), Ordering::Relaxed);
        Stolen::Coroutine(Taken { slot, word })
    }

    /// The worker other than `thief` that shows the most urgent of `levels`.
    fn most_urgent_victim(&self, thief: u32, levels: u64) -> Option<&Worker> {
        let mut best = None;
        let mut wanted = levels;
        for (number, state) in self.records() {
            let shown = state.waiting() & wanted;
            if number != thief && shown != 0 {
                best = Some(number);
                wanted = (shown & shown.wrapping_neg()).wrapping_sub(1);
            }
        }
        self.worker(best?)
    }

    /// Polls a coroutine that is not cancelled.
    #[allow(unsafe_code)]
    #[inline(always)]
    fn poll(&self, state: &WorkerState, taken: Taken<'_>) -> Outcome {
        let slot = taken.slot;
        let id = taken.word.id_high() | slot.handle() as u64;
        state.current_id.store(id, Ordering::Relaxed);
        let polls = state.polls.load(Ordering::Relaxed);
        state.polls.store(polls.wrapping_add(1), Ordering::Relaxed);
        // SAFETY: spawn's caller vouched for the table, and the pop acquired its stores. Popped, so this
        // worker alone has the future; it has not finished before, or it would have been dropped and its slot
        // vacated.
        let ready = unsafe { ((*slot.vtable()).poll)(slot.data(), id) };
        // The order matters: `WorkerState::wakes_itself`.
        state.current_id.store(0, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        if ready {
            return Outcome::Finished;
        }
        if state.woken.load(Ordering::Relaxed) == 0 {
            return Outcome::Pending;
        }
        state.woken.store(0, Ordering::Relaxed);
        Outcome::Yielded
    }

    /// Drops the future of a coroutine that is finished or cancelled, and gives its slot back.
    #[inline(never)]
    fn finish(&self, worker: &Worker, taken: Taken<'_>) {
        let state = worker.state();
        state.current_priority.store(taken.word.priority().level() as u32, Ordering::Relaxed);
        self.finish_here(state, taken);
    }

    /// As `finish`, of a coroutine whose priority the worker shows.
    #[allow(unsafe_code)]
    #[inline(always)]
    fn finish_here(&self, state: &WorkerState, taken: Taken<'_>) {
        let slot = taken.slot;
        // From memory, so that the loop of `poll_in_turn` need not keep a register for it.
        let id = slot.state.load().id_high() | slot.handle() as u64;
        state.current_id.store(id, Ordering::Relaxed);
        // SAFETY: as for the poll; not dropped before, since that vacates the slot.
        unsafe { ((*slot.vtable()).drop)(slot.data()) };
        state.current_id.store(0, Ordering::Relaxed);
        // It may have woken itself in its destructor.
        state.woken.store(0, Ordering::Relaxed);
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
}

#[allow(unsafe_code)]
fn call_external(external: unsafe extern "C" fn(*mut (), u32), hooks: &Hooks, worker: &Worker) {
    // SAFETY: contract of `Hooks`: called on its worker, between polls, with no lock held.
    unsafe { external(hooks.context, worker.number()) };
}
