//! Parking: how a worker with nothing to do goes to sleep without missing work, and which worker is
//! notified of what.
//!
//! A worker parks in three steps: `prepare_park` marks it and looks everywhere once more; the host
//! puts the thread or hart to sleep; `finish_park` takes the mark away. A caller that makes work
//! looks at the marks *after* it has published the work.
//!
//! Lost-wake argument, parking side: setting the mark, a push into an inbox (or taking the lock
//! under which a coroutine is linked), and each side's look at the other's are sequentially
//! consistent. In their one order either the mark comes before the waker's look, then the waker
//! sees it and notifies by the table below, or the push comes before the parking worker's look,
//! then that worker does not park. `notify` may arrive before the host's sleep begins: the host's
//! park must keep it (a token, as of `std::thread::park`; `wfi` with interrupts masked).
//!
//! # One searcher at a time
//!
//! A worker that is marked both in `parked` and in `notified` is a *searcher*: it is about to wake
//! up, and looks at all workers then. While there is one, work that any worker may take notifies no
//! second one, so a burst of spawns costs one notification for each wake-up and not one for each
//! spawn. A searcher that begins something, and sees that more waits anywhere, notifies the next
//! one (`offer_rest`, at the start of `run`).
//!
//! Nothing is lost by leaving work to a searcher S. All accesses named here are sequentially
//! consistent. The waker has published its work before it found S in `parked`. S leaves `parked` in
//! `finish_park`, and looks after that: so S sees the work, and takes it or, if it has found
//! something else, offers it. And S wakes up: the waker that sets a bit in `notified` calls
//! `notify` after that. A bit that a slow waker sets after S has gone is no harm: S is not in
//! `parked` then, and `prepare_park` clears the bit before it marks S again.
//!
//! # Which worker is notified
//!
//! | work becomes ready | notified |
//! | --- | --- |
//! | on a parked worker | that worker |
//! | on another worker than the waker's, or on the waker's own while that has other work waiting | a parked worker, unless there is a searcher |
//! | as the first on the waker's own worker, between two polls | none: this worker begins it next |
//! | as the first on the waker's own worker, during a poll, which may be long | a parked worker that is not quiet, unless there is a searcher |
//!
//! The last line is not for hosts with a hook `preempt` (see there). Two coroutines that wake each
//! other in turn would notify a parked worker again and again, which finds nothing, since the other
//! one begins as soon as the poll ends. Such a worker is to be made quiet by its host:
//! [`Executor::set_quiet`].
//!
//! In an executor that [relies on offers](Executor::rely_on_offers) only the first line holds. Its
//! host decides when a parked worker comes for what is left on others, and calls `offer` then: it
//! knows how long work has waited, and what it costs to wake a hart. Nothing is lost by that: a
//! worker does not park before it has looked at all others, so work waits only behind workers that
//! are awake, and there the host looks. But a worker may also be neither parked nor in `run`, and
//! not come back: for what becomes ready there from elsewhere, a parked worker is notified. One
//! that stops calling `run` says so (a sequentially consistent fence), and offers what waits then:
//! one of the two sides sees the other.

use super::atomic::Ordering;

use super::executor::{ATTENTION_OTHER_WORKERS, ATTENTION_STOP, Executor};
use super::priority::Priority;
use super::record::{PHASE_OUTSIDE, PHASE_PARKED, PHASE_RUNNING};
use super::worker::{MAX_WORKERS, Worker};

/// What a worker that is about to park finds.
enum Found {
    Nothing,
    /// Something that can be taken, or could be a moment ago.
    Work,
    /// Only locks that stay held: there may be something behind them.
    Locked,
}

impl Executor {
    /// Marks worker `number` as parked and looks for work once more. True: the caller shall sleep
    /// until notified, then call `finish_park`. False: there may be work (or a stop request), call
    /// `run` again.
    ///
    /// Interrupt handlers on this worker may wake coroutines at any time between this and the
    /// sleep.
    ///
    /// On that worker, outside of `run`; not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let core = EXECUTOR.core();
    /// let id = EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// assert!(!core.prepare_park(0), "there is something to do");
    /// core.run(0, u64::MAX);
    /// assert!(core.prepare_park(0));
    /// // Here it would sleep until notified.
    /// core.finish_park(0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prepare_park(&self, number: u32) -> bool {
        let Some(worker) = self.worker(number) else { return false };
        self.mark_parked(worker);
        let stop = self.attention.load(Ordering::SeqCst) & ATTENTION_STOP != 0;
        let found = if stop { Found::Work } else { self.find_work() };
        if matches!(found, Found::Nothing) {
            return true;
        }
        self.finish_park(number);
        if matches!(found, Found::Locked) {
            // `run` would find nothing, and the caller would come back at once. The holder may have
            // lost its processor to this worker.
            worker.relax();
        }
        false
    }

    /// The caller's `worker` is about to park: from now on it is notified of what becomes ready.
    pub(super) fn mark_parked(&self, worker: &Worker) {
        worker.state().phase.store(PHASE_PARKED, Ordering::Relaxed);
        let bit = bit_of(worker.number());
        // In this order: "One searcher at a time".
        self.notified.fetch_and(!bit, Ordering::SeqCst);
        self.parked.fetch_or(bit, Ordering::SeqCst);
    }

    /// Ends what a true `prepare_park` began; true if `notify` was called for the worker since.
    /// Harmless otherwise.
    ///
    /// On that worker; see [`prepare_park`](Self::prepare_park).
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// EXECUTOR.core().finish_park(0); // Harmless: it was not parked.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn finish_park(&self, number: u32) -> bool {
        let Some(worker) = self.worker(number) else { return false };
        self.parked.fetch_and(!bit_of(number), Ordering::SeqCst);
        worker.state().phase.store(PHASE_OUTSIDE, Ordering::Relaxed);
        self.notified.load(Ordering::Relaxed) & bit_of(number) != 0
    }

    /// Whether anything is ready anywhere, or may be.
    ///
    /// The order matters: a worker moves coroutines from its inbox to its lists under its lock and
    /// publishes the bitmap before it unlocks. If we find the inbox emptied, we find the lock held,
    /// or free again and the bitmap true.
    fn find_work(&self) -> Found {
        let mut found = Found::Nothing;
        for worker in (0..self.worker_limit()).filter_map(|number| self.worker(number)) {
            let is_filled = !worker.inbox.is_empty();
            if worker.stays_locked() {
                found = Found::Locked;
            } else if is_filled || worker.state().ready.load(Ordering::Acquire) != 0 {
                return Found::Work;
            }
        }
        found
    }

    /// Says whether worker `number`, while it is parked, looks for work by itself before long: its
    /// host's sleep has a limit of about a millisecond. Then the first coroutine that becomes ready
    /// in a poll on another worker does not notify it. For a worker that was notified and has found
    /// nothing.
    ///
    /// On that worker, before [`prepare_park`](Self::prepare_park) or after
    /// [`finish_park`](Self::finish_park).
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let core = EXECUTOR.core();
    /// core.set_quiet(0, true);
    /// if core.prepare_park(0) {
    ///     std::thread::park_timeout(std::time::Duration::from_millis(1));
    ///     core.finish_park(0);
    /// }
    /// core.set_quiet(0, false);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_quiet(&self, number: u32, quiet: bool) {
        if quiet {
            self.quiet.fetch_or(bit_of(number), Ordering::Relaxed);
        } else if self.quiet.load(Ordering::Relaxed) & bit_of(number) != 0 {
            self.quiet.fetch_and(!bit_of(number), Ordering::Relaxed);
        }
    }

    /// Makes it known that something of `priority` waits for worker `target`. `busy`: the target
    /// has other things waiting. Notifies by the table at the head of this file.
    #[inline]
    pub(super) fn announce(&self, target: &Worker, priority: Priority, here: u32, busy: bool) {
        if target.state().posted.load(Ordering::SeqCst) & priority.bit() == 0 {
            target.state().posted.fetch_or(priority.bit(), Ordering::SeqCst);
        }
        self.tell(target, priority, here, busy, ());
    }

    /// The workers other than `number` that may publish something, a bit for each: not those that
    /// are parked and were not notified since. Such a worker had nothing when it parked, and what
    /// has become ready for it since then notifies it before the wake returns.
    #[inline(always)]
    pub(super) fn awake_others(&self, number: u32) -> u64 {
        let parked = self.parked.load(Ordering::Relaxed);
        let asleep = parked & !self.notified.load(Ordering::Relaxed);
        // The limit is at least 1: there is a worker that calls this.
        let all = u64::MAX.wrapping_shr(MAX_WORKERS.wrapping_sub(self.worker_limit_relaxed()));
        all & !asleep & !bit_of(number)
    }

    /// The second half of `announce`: notifies and interrupts. What waits has been marked before.
    /// Returns `result`: so the callers end with this call, and save no registers for it.
    #[inline(always)]
    pub(super) fn tell<R>(
        &self,
        target: &Worker,
        priority: Priority,
        here: u32,
        busy: bool,
        result: R,
    ) -> R {
        let parked = self.parked.load(Ordering::SeqCst);
        if self.preempts.load(Ordering::Relaxed) {
            if parked != 0 || here != target.number() || self.has_other_workers() {
                return self.tell_others(target, priority, here, busy, result);
            }
        } else if parked != 0 {
            // Those that `unpark_for` would not notify.
            let left = if self.relies_on_offers.load(Ordering::Relaxed) {
                if is_left_alone(target, here) { 0 } else { !bit_of(target.number()) }
            } else if busy || here != target.number() {
                0
            } else {
                self.quiet.load(Ordering::Relaxed) & !bit_of(target.number())
            };
            if parked & !left != 0 {
                return self.tell_others(target, priority, here, busy, result);
            }
        }
        result
    }

    /// Whether there is more than one worker.
    #[inline(always)]
    fn has_other_workers(&self) -> bool {
        self.attention.load(Ordering::Relaxed) & ATTENTION_OTHER_WORKERS != 0
    }

    /// Apart, since usually there is no worker to notify or interrupt.
    #[inline(never)]
    fn tell_others<R>(
        &self,
        target: &Worker,
        priority: Priority,
        here: u32,
        busy: bool,
        result: R,
    ) -> R {
        let parked = self.parked.load(Ordering::SeqCst);
        if parked != 0 && self.unpark_for(target, parked, here, busy) {
            return result;
        }
        // Otherwise there is nothing to interrupt: this worker looks up by itself, and no other one
        // is awake.
        if self.preempts.load(Ordering::Relaxed)
            && (here != target.number() || self.awake_others(here) != 0)
        {
            self.preempt_for(target, priority, here);
        }
        result
    }

    /// True if a parked worker looks at what waits, or will: no other one need be interrupted.
    #[cold]
    fn unpark_for(&self, target: &Worker, parked: u64, here: u32, busy: bool) -> bool {
        if parked & bit_of(target.number()) != 0 {
            self.unpark(target.number());
            return true;
        }
        if self.relies_on_offers.load(Ordering::Relaxed) && !is_left_alone(target, here) {
            return false;
        }
        let mut idle = parked;
        if !busy && here == target.number() {
            if self.preempts.load(Ordering::Relaxed) || is_between_polls(target) {
                return false;
            }
            idle &= !self.quiet.load(Ordering::Relaxed);
        }
        self.unpark_one(parked, idle)
    }

    /// Notifies one of `idle`, which are of `parked`, unless there is a searcher. False if there is
    /// none either way.
    fn unpark_one(&self, parked: u64, idle: u64) -> bool {
        if parked & self.notified.load(Ordering::SeqCst) != 0 {
            return true;
        }
        if idle != 0 {
            self.unpark(idle.trailing_zeros());
        }
        idle != 0
    }

    /// At the start of `run`, when the worker has begun something: if more waits, here or
    /// elsewhere, a parked worker is notified. So each worker that wakes up wakes the next, as long
    /// as there is more.
    #[inline(always)]
    pub(super) fn offer_rest(&self) {
        let parked = self.parked.load(Ordering::SeqCst);
        if parked != 0 && !self.relies_on_offers.load(Ordering::Relaxed) {
            self.offer_to(parked);
        }
    }

    /// From now on no wake notifies a parked worker of what waits elsewhere than on that worker,
    /// nor does a worker that has begun something: the host calls [`offer`](Self::offer) when a
    /// parked worker is to come for what waits. For a host that knows better when that pays; it
    /// looks before it enters anything long, and after some time within it.
    ///
    /// Except what becomes ready, from elsewhere, on a worker that is neither parked nor in `run`.
    /// One that does not call `run` again soon offers what it has, with
    /// [`NO_WORKER`](super::NO_WORKER), after a sequentially consistent fence.
    ///
    /// Before the first worker parks.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, core::NO_WORKER};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let core = EXECUTOR.core();
    /// core.rely_on_offers();
    /// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// // Before something long:
    /// if core.any_asleep() {
    ///     core.offer(NO_WORKER);
    /// }
    /// # core.run(0, u64::MAX);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rely_on_offers(&self) {
        self.relies_on_offers.store(true, Ordering::Relaxed);
    }

    /// Whether a worker is parked, and was not notified since.
    ///
    /// In any context. A hint: it may change at any time.
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let core = EXECUTOR.core();
    /// assert!(!core.any_asleep());
    /// assert!(core.prepare_park(0) && core.any_asleep());
    /// core.finish_park(0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline(always)]
    pub fn any_asleep(&self) -> bool {
        self.parked.load(Ordering::Relaxed) & !self.notified.load(Ordering::Relaxed) != 0
    }

    #[cold]
    fn offer_to(&self, parked: u64) {
        if self.records().any(|(_, state)| state.waiting() != 0) {
            let _ = self.unpark_one(parked, parked);
        }
    }

    /// Notifies a parked worker if anything waits for worker `number`: to be called before a poll
    /// goes on to something long (entering user mode).
    ///
    /// With [`NO_WORKER`](super::NO_WORKER), if anything waits for any worker: to be called by a
    /// thread that has been a worker, may have been notified as one, and does not call `run` again.
    ///
    /// Takes no lock.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let long = async {
    ///     EXECUTOR.core().offer(0);
    ///     // Something long follows.
    /// };
    /// let long = EXECUTOR.spawn_join(long, Priority::DEFAULT)?;
    /// EXECUTOR.block_on(long)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn offer(&self, number: u32) {
        let parked = self.parked.load(Ordering::SeqCst);
        if parked == 0 {
            return;
        }
        match self.worker(number) {
            None => self.offer_to(parked),
            Some(worker) if worker.state().waiting() != 0 => {
                let _ = self.unpark_one(parked, parked);
            }
            Some(_) => {}
        }
    }

    /// Notifies a worker that was seen parked, once for each time it parks.
    #[allow(unsafe_code)]
    fn unpark(&self, number: u32) {
        let bit = bit_of(number);
        if self.notified.fetch_or(bit, Ordering::SeqCst) & bit != 0 {
            return;
        }
        if let Some(hooks) = self.hooks() {
            // SAFETY: contract of `Hooks`: `notify` may be called from anywhere.
            unsafe { (hooks.notify)(hooks.context, number) };
        }
    }

    pub(super) fn unpark_all(&self) {
        let mut parked = self.parked.load(Ordering::SeqCst);
        while parked != 0 {
            self.unpark(parked.trailing_zeros());
            parked &= parked.wrapping_sub(1);
        }
    }

    /// Asks the worker that runs the least urgent coroutine to look up, if that is less urgent than
    /// `priority`. A target that polls nothing is about to pick; then no worker is asked.
    #[allow(unsafe_code)]
    fn preempt_for(&self, target: &Worker, priority: Priority, here: u32) {
        let Some(hooks) = self.hooks() else { return };
        let Some(preempt) = hooks.preempt else { return };
        if target.state().current_id.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut victim = None;
        let mut least = priority.level() as u32;
        for (number, state) in self.records() {
            let level = state.current_priority.load(Ordering::Relaxed);
            let polls = state.current_id.load(Ordering::Relaxed) != 0;
            if !polls || level <= priority.level() as u32 {
                continue;
            }
            // The target is preferred among peers, and the caller before all: it need not be
            // interrupted.
            if level > least || level == least && (number == here || number == target.number()) {
                least = level;
                victim = Some(number);
            }
        }
        if let Some(victim) = victim
            && victim != here
        {
            // SAFETY: contract of `Hooks`: `preempt` may be called from anywhere.
            unsafe { preempt(hooks.context, victim) };
        }
    }

    /// The most urgent level at which anything waits, on `number` or on another worker: 64 if
    /// nothing does. The coroutine that `number` polls does not count.
    ///
    /// For a long poll to decide whether to end early. May see something that is gone already;
    /// misses only what is being announced at this moment.
    ///
    /// In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// assert_eq!(EXECUTOR.core().most_urgent(0), 64);
    /// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// assert_eq!(EXECUTOR.core().most_urgent(0), 32);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn most_urgent(&self, number: u32) -> u32 {
        let _ = number;
        let waiting = self.records().fold(0, |levels, (_, state)| levels | state.waiting());
        waiting.trailing_zeros()
    }
}

/// The bit of a worker in `parked` and its like.
#[inline(always)]
const fn bit_of(number: u32) -> u64 {
    1 << (number & (MAX_WORKERS - 1))
}

/// Whether the worker is neither parked nor in `run`, and not the caller's: it may not look at what
/// waits for it.
fn is_left_alone(worker: &Worker, here: u32) -> bool {
    here != worker.number() && worker.state().phase.load(Ordering::SeqCst) == PHASE_OUTSIDE
}

/// Whether the worker is in `run` and polls nothing: then it looks at what waits for it before
/// long.
fn is_between_polls(worker: &Worker) -> bool {
    let state = worker.state();
    state.current_id.load(Ordering::Relaxed) == 0
        && state.phase.load(Ordering::Relaxed) == PHASE_RUNNING
}
