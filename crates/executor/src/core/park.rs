//! Parking: how a worker with nothing to do goes to sleep without missing work, and who wakes whom.
//!
//! A worker parks in three steps: `prepare_park` marks it and looks everywhere once more; the host puts
//! the thread or hart to sleep; `finish_park` takes the mark away. Whoever makes work looks at the marks
//! *after* it has published the work.
//!
//! Lost-wake argument, parking side: setting the mark, a push into an inbox (or taking the lock under which
//! a coroutine is linked), and each side's look at the other's are sequentially consistent. In their one order either the mark comes before the waker's look,
//! then the waker takes the mark and calls `notify`, or the push comes before the parking worker's look,
//! then that worker does not park. `notify` may arrive before the host's sleep begins: the host's park must
//! keep it (a token, as of `std::thread::park`; `wfi` with interrupts masked).

use super::atomic::Ordering;

use super::executor::{ATTENTION_STOP, Executor};
use super::priority::Priority;
use super::record::{PHASE_OUTSIDE, PHASE_PARKED};
use super::worker::Worker;

impl Executor {
    /// Marks worker `number` as parked and looks for work once more. True: the caller shall sleep until
    /// notified, then call `finish_park`. False: there may be work (or a stop request), call `run` again.
    ///
    /// Interrupt handlers on this worker may wake coroutines at any time between this and the sleep.
    ///
    /// On that worker, outside of `run`; not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new(1);
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
        worker.state().phase.store(PHASE_PARKED, Ordering::Relaxed);
        self.parked.fetch_or(1 << number, Ordering::SeqCst);
        if self.attention.load(Ordering::SeqCst) & ATTENTION_STOP != 0 || self.finds_work() {
            self.finish_park(number);
            return false;
        }
        true
    }

    /// Ends what a true `prepare_park` began. Harmless otherwise.
    ///
    /// On that worker; see [`prepare_park`](Self::prepare_park).
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// # static EXECUTOR: Executor = Executor::new(1);
    /// # EXECUTOR.start_on_host(1)?;
    /// EXECUTOR.core().finish_park(0); // Harmless: it was not parked.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn finish_park(&self, number: u32) {
        let Some(worker) = self.worker(number) else { return };
        self.parked.fetch_and(!(1 << number), Ordering::SeqCst);
        worker.state().phase.store(PHASE_OUTSIDE, Ordering::Relaxed);
    }

    /// Whether anything is ready anywhere, or may be.
    ///
    /// The order matters: a worker moves coroutines from its inbox to its lists under its lock and
    /// publishes the bitmap before it unlocks. If we find the inbox emptied, we find the lock held, or free
    /// again and the bitmap true.
    fn finds_work(&self) -> bool {
        (0..self.worker_limit()).filter_map(|number| self.worker(number)).any(|worker| {
            !worker.inbox.is_empty()
                || worker.is_locked()
                || worker.state().ready.load(Ordering::Acquire) != 0
        })
    }

    /// Makes it known that something of `priority` waits for worker `target`. `busy`: the target has other
    /// things waiting.
    ///
    /// Who is notified: the target if it is parked. Otherwise the target will come to it, but if it has
    /// other work, or we are not on it and cannot know when its present poll ends, a parked worker is
    /// notified to take the coroutine over. The first coroutine that a worker wakes on itself notifies
    /// nobody: it runs next anyway, and two that wake each other in turn shall stay on one worker.
    #[inline]
    pub(super) fn announce(&self, target: &Worker, priority: Priority, here: u32, busy: bool) {
        if target.state().posted.load(Ordering::SeqCst) & priority.bit() == 0 {
            target.state().posted.fetch_or(priority.bit(), Ordering::SeqCst);
        }
        self.tell(target, priority, here, busy, ());
    }

    /// The second half of `announce`: notifies and interrupts. What waits has been marked before. Returns `result`: so
    /// the callers end with this call, and save no registers for it.
    #[inline(always)]
    pub(super) fn tell<R>(&self, target: &Worker, priority: Priority, here: u32, busy: bool, result: R) -> R {
        let parked = self.parked.load(Ordering::SeqCst);
        if parked != 0 || self.preempts.load(Ordering::Relaxed) {
            return self.tell_others(target, priority, here, busy, result);
        }
        result
    }

    /// Apart, since usually there is nobody to be told.
    #[inline(never)]
    fn tell_others<R>(&self, target: &Worker, priority: Priority, here: u32, busy: bool, result: R) -> R {
        let parked = self.parked.load(Ordering::SeqCst);
        if parked != 0 && self.unpark_for(target, parked, here, busy) {
            return result;
        }
        if self.preempts.load(Ordering::Relaxed) {
            self.preempt_for(target, priority, here);
        }
        result
    }

    /// True if it has notified somebody.
    #[cold]
    fn unpark_for(&self, target: &Worker, parked: u64, here: u32, busy: bool) -> bool {
        if parked & 1 << target.number() != 0 {
            self.unpark(target.number())
        } else {
            (busy || here != target.number()) && self.unpark(parked.trailing_zeros())
        }
    }

    /// Notifies parked workers if worker `number` has more waiting than it can run at once: to be called
    /// before a poll goes on to something long (entering user mode).
    ///
    /// On that worker, in a poll. Takes no lock.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new(1);
    /// # EXECUTOR.start_on_host(1)?;
    /// let long = async {
    ///     EXECUTOR.core().offer(0);
    ///     // Something long follows.
    /// };
    /// let long = EXECUTOR.spawn_join(long, Priority::DEFAULT)?;
    /// EXECUTOR.block_on(0, long)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn offer(&self, number: u32) {
        let parked = self.parked.load(Ordering::SeqCst);
        if parked == 0 {
            return;
        }
        let Some(worker) = self.worker(number) else { return };
        if worker.state().waiting() != 0 {
            self.unpark(parked.trailing_zeros());
        }
    }

    /// Takes the mark of a parked worker and notifies it. False if somebody else has.
    #[allow(unsafe_code)]
    fn unpark(&self, number: u32) -> bool {
        let bit = 1 << (number & 63);
        if self.parked.fetch_and(!bit, Ordering::SeqCst) & bit == 0 {
            return false;
        }
        if let Some(hooks) = self.hooks() {
            // SAFETY: contract of `Hooks`: `notify` may be called from anywhere.
            unsafe { (hooks.notify)(hooks.context, number) };
        }
        true
    }

    pub(super) fn unpark_all(&self) {
        for number in 0..self.worker_limit() {
            self.unpark(number);
        }
    }

    /// Asks the worker that runs the least urgent coroutine to look up, if that is less urgent than
    /// `priority`. A target that polls nothing is about to pick, and nobody need be asked.
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
            // The target is preferred among equals, and the caller before all: it need not be interrupted.
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

    /// The most urgent level at which anything waits, on `number` or on another worker: 64 if nothing does.
    /// The coroutine that `number` polls does not count.
    ///
    /// For a long poll to decide whether to end early. May see something that is gone already; misses only
    /// what is being announced at this moment.
    ///
    /// In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new(1);
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
