//! Running: pick the most urgent coroutine, poll it, see to what became of it.
//!
//! `run_marked` is the loop. `schedule` is the scheduling point, under the worker's own lock: it
//! requeues or removes what was polled, drains the inbox into the lists, compares these with the
//! bitmaps of the other workers (`steal`), and begins the most urgent coroutine. `fast_path` does
//! most of the time what it would do.

use super::atomic::{Ordering, compiler_fence};

use super::executor::{ATTENTION_OTHER_WORKERS, ATTENTION_STOP, Executor};
use super::fast_path::FastPath;
use super::hooks::Hooks;
use super::interface::{RUN_BUDGET_USED, RUN_REFUSED, RUN_STALLED, RUN_STOP_REQUESTED};
use super::locked::Locked;
use super::priority::Priority;
use super::record::{NO_PRIORITY, PHASE_OUTSIDE, PHASE_RUNNING, WorkerState};
use super::slot::Slot;
use super::snapshot::Snapshot;
use super::state::Settled;
use super::worker::Worker;

/// After so many polls on the fast path a worker looks at everything, whatever happens.
const POLLS_ON_FAST_PATH: u64 = 256;

/// A coroutine that this worker polls: the head of one of its lists. Its future is ours.
#[derive(Clone, Copy)]
pub(super) struct Begun<'a> {
    pub slot: &'a Slot,
    /// The state word with which the poll begins.
    pub word: Snapshot,
}

/// A coroutine that has been polled, still the head of its list, and what became of it.
#[derive(Clone, Copy)]
pub(super) struct Polled<'a> {
    pub begun: Begun<'a>,
    pub outcome: Outcome,
}

/// What became of a coroutine.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Pending, and it has not woken itself.
    Waits,
    /// Pending, and it has woken itself.
    Yields,
    /// Its future was dropped: finished, or cancelled.
    Ended,
}

impl Executor {
    /// Polls coroutines on worker `number` until nothing is ready, `max_polls` polls were made, or
    /// a stop is requested; which of them, is the result.
    ///
    /// Must be called by one thread or hart at a time for each worker. Called again from inside a
    /// poll on the same worker it returns `RUN_REFUSED` and does nothing.
    ///
    /// Not in interrupt handlers, unless the executor is used in interrupt handlers only.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// use cops_executor::core::{RUN_BUDGET_USED, RUN_STALLED};
    /// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// assert_eq!(EXECUTOR.core().run(0, 1), RUN_BUDGET_USED);
    /// assert_eq!(EXECUTOR.core().run(0, u64::MAX), RUN_STALLED);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run(&self, number: u32, max_polls: u64) -> u32 {
        let (Some(worker), Some(hooks)) = (self.worker(number), self.hooks()) else {
            return RUN_REFUSED;
        };
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
        let state = worker.state();
        let mut polled = None;
        let mut budget = max_polls;
        let mut has_offered = false;
        loop {
            if let Some(external) = hooks.external {
                call_external(external, hooks, worker);
            }
            let stop = self.attention.load(Ordering::Relaxed) & ATTENTION_STOP != 0;
            if budget == 0 || stop {
                self.settle_last(worker, polled);
                return if budget == 0 { RUN_BUDGET_USED } else { RUN_STOP_REQUESTED };
            }
            let until_aged = self.polls_until_aged(worker);
            let Some(begun) = self.schedule(worker, polled, until_aged == 0) else {
                return RUN_STALLED;
            };
            if !has_offered {
                has_offered = true;
                self.offer_rest();
            }
            let allowed = budget.min(POLLS_ON_FAST_PATH).min(until_aged).max(1);
            let mut path = FastPath::new(worker, begun.word.listed_at(), allowed);
            // Read after `schedule` has recorded that nothing happened: a request for attention
            // clears that.
            let attention = self.attention.load(Ordering::Relaxed);
            if attention & ATTENTION_STOP != 0 || !begun.word.is(path.plain) {
                path.left = allowed.wrapping_sub(1);
                path.polled = Some(Polled { begun, outcome: poll_once(state, begun) });
            } else if attention == 0 {
                self.poll_on_fast_path::<true>(worker, begun, &mut path);
            } else {
                self.poll_on_fast_path::<false>(worker, begun, &mut path);
            }
            polled = path.polled;
            let made = allowed.wrapping_sub(path.left);
            budget = budget.wrapping_sub(made);
            worker.note_polls(made, until_aged == 0);
            // A complete scheduling point would find the same. What has come since then is for
            // `prepare_park`, as what comes after this function is.
            let attention = self.attention.load(Ordering::Relaxed);
            if path.is_out_of_work && attention & (ATTENTION_STOP | ATTENTION_OTHER_WORKERS) == 0 {
                return RUN_STALLED;
            }
        }
    }

    /// One scheduling point: settles `polled`, drains the inbox, and begins the most urgent
    /// coroutine or, if `aged`, a less urgent one.
    #[inline(always)]
    fn schedule<'a>(
        &'a self,
        worker: &'a Worker,
        polled: Option<Polled<'a>>,
        aged: bool,
    ) -> Option<Begun<'a>> {
        let mut locked = worker.lock();
        // What became ready during the poll is enqueued before `polled` is: that one yields to it.
        locked.drain(&self.slab);
        let mut has_ended = false;
        if let Some(polled) = polled {
            if !self.settle(&locked, polled) {
                drop(locked);
                drop_as_current(worker.state(), polled.begun);
                locked = worker.lock();
                locked.drain(&self.slab);
                locked.exited(&self.slab, polled.begun.slot);
                has_ended = true;
            }
            has_ended |= polled.outcome == Outcome::Ended;
        }
        // Isolates the lowest bit; one less is all more urgent levels, and all levels if there is
        // no bit.
        let own = locked.bitmap();
        let more_urgent = (own & own.wrapping_neg()).wrapping_sub(1);
        let aged = if aged { worker.next_aged_level(own) } else { None };
        let begun = if own == 0
            || aged.is_none()
                && self.worker_limit() != 1
                && self.others_publish(worker, more_urgent)
        {
            self.pick(worker, locked)
        } else {
            let priority = aged.or(Priority::most_urgent_in(own));
            priority.map(|priority| begin(&locked, &self.slab, priority))
        };
        if has_ended {
            // Without the lock, since it may notify.
            self.one_less();
        }
        begun
    }

    /// Puts what was polled, the head of its list, where it belongs now. False if its future is to
    /// be dropped first, without the lock: it was cancelled during its poll.
    #[inline(always)]
    fn settle(&self, locked: &Locked<'_>, polled: Polled<'_>) -> bool {
        let slot = polled.begun.slot;
        // Before it can be blocked: from then on a wake may push it into an inbox, which uses the
        // same field.
        let next = slot.next(&self.slab);
        let woken = match polled.outcome {
            Outcome::Ended => {
                locked.exited(&self.slab, slot);
                return true;
            }
            Outcome::Yields => true,
            Outcome::Waits => false,
        };
        match slot.state.settle(polled.begun.word, woken) {
            Settled::Stays => locked.end_and_rotate(&self.slab),
            Settled::Moves { to } => {
                locked.end_and_remove(&self.slab, next);
                locked.enqueue(slot, to);
            }
            Settled::Blocks => locked.end_and_remove(&self.slab, next),
            Settled::Ends => return false,
        }
        true
    }

    /// The last scheduling point of a `run` that shall not poll any more: drains the inbox and
    /// settles what was polled.
    #[cold]
    fn settle_last(&self, worker: &Worker, polled: Option<Polled<'_>>) {
        let locked = worker.lock();
        locked.drain(&self.slab);
        let Some(polled) = polled else { return };
        let has_settled = self.settle(&locked, polled);
        drop(locked);
        if !has_settled {
            drop_as_current(worker.state(), polled.begun);
            worker.lock().exited(&self.slab, polled.begun.slot);
        }
        if !has_settled || polled.outcome == Outcome::Ended {
            self.one_less();
        }
    }

    #[cold]
    fn none_left(&self) {
        if self.parked.load(Ordering::SeqCst) != 0 {
            self.unpark_all();
        }
    }

    /// A coroutine has exited.
    #[inline(always)]
    pub(super) fn one_less(&self) {
        // Sequentially consistent, as are the look at `parked` that follows and those of a worker
        // that parks unless all have exited: one of the two sees the other.
        if self.live.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.none_left();
        }
    }
}

/// Begins the head of the list of `priority`.
#[inline(always)]
pub(super) fn begin<'a>(
    locked: &Locked<'_>,
    slab: &'a super::slab::Slab,
    priority: Priority,
) -> Begun<'a> {
    let slot = locked.begin(slab, priority);
    let word = slot.state.peek();
    // Woken while it waited: this poll is what the wake asked for.
    let word = if word.is_untouched() { word } else { slot.state.begin() };
    Begun { slot, word }
}

/// Polls a coroutine, or drops it if it is cancelled.
#[inline(never)]
fn poll_once(state: &WorkerState, begun: Begun<'_>) -> Outcome {
    if begun.word.is_cancelled() {
        drop_as_current(state, begun);
        return Outcome::Ended;
    }
    let id = begun.word.id_high() | begun.slot.handle() as u64;
    state.current_id.store(id, Ordering::Relaxed);
    if poll_current(state, begun.slot, id) {
        drop_future(state, begun.slot);
        Outcome::Ended
    } else {
        pending(state, id)
    }
}

/// What became of the coroutine of a poll that is pending. It is no longer published.
#[inline(always)]
pub(super) fn pending(state: &WorkerState, id: u64) -> Outcome {
    // The order matters: `WorkerState::wakes_itself`.
    state.current_id.store(0, Ordering::Relaxed);
    compiler_fence(Ordering::SeqCst);
    if woke_itself(state, id) { Outcome::Yields } else { Outcome::Waits }
}

/// Polls the future of `slot`, which is published as the current coroutine and not cancelled; true
/// if it is finished.
#[allow(unsafe_code)]
#[inline(always)]
pub(super) fn poll_current(state: &WorkerState, slot: &Slot, id: u64) -> bool {
    let polls = state.polls.load(Ordering::Relaxed);
    state.polls.store(polls.wrapping_add(1), Ordering::Relaxed);
    // SAFETY: spawn's caller vouched for the table, and the lock under which the coroutine was
    // listed, or its inbox, acquired its stores. At the head of this worker's list and begun, so
    // this worker alone has the future; it has not finished before, or it would have been dropped
    // and its slot vacated.
    unsafe { ((*slot.vtable()).poll)(slot.data(), id) }
}

/// Whether the coroutine that was polled has woken itself; uses the note up.
#[inline(always)]
pub(super) fn woke_itself(state: &WorkerState, id: u64) -> bool {
    if state.woken.load(Ordering::Relaxed) != id as u32 {
        return false;
    }
    state.woken.store(0, Ordering::Relaxed);
    true
}

/// Publishes a cancelled coroutine as the current one, and drops its future.
fn drop_as_current(state: &WorkerState, begun: Begun<'_>) {
    state.current_id.store(begun.word.id_high() | begun.slot.handle() as u64, Ordering::Relaxed);
    drop_future(state, begun.slot);
}

/// Drops the future of `slot`, which is finished or cancelled and is published as the current
/// coroutine. It is the head of its list until the next scheduling point.
#[allow(unsafe_code)]
#[inline(always)]
pub(super) fn drop_future(state: &WorkerState, slot: &Slot) {
    // SAFETY: as for the poll; not dropped before, since that vacates the slot.
    unsafe { ((*slot.vtable()).drop)(slot.data()) };
    state.current_id.store(0, Ordering::Relaxed);
    // It may have woken itself in its destructor.
    state.woken.store(0, Ordering::Relaxed);
}

#[allow(unsafe_code)]
pub(super) fn call_external(
    external: unsafe extern "C" fn(*mut (), u32),
    hooks: &Hooks,
    worker: &Worker,
) {
    // SAFETY: contract of `Hooks`: called on its worker, between polls, with no lock held.
    unsafe { external(hooks.context, worker.number()) };
}
