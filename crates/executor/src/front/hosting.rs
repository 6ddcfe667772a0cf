//! Functions for the host of an executor: to stop it, to decide whether to sleep, to inspect it.

use super::calls;
use super::executor::Executor;
use crate::core::{
    self, CoroutineId, INSPECT_COROUTINE, INSPECT_END, Inspected, Inspection, Priority,
    RawInspection,
};

impl Executor {
    /// With true, makes every `run` return at its next scheduling point and notifies parked
    /// workers, until called with false.
    ///
    /// In any context in which the hook `notify` may be called.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, RunOutcome};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// EXECUTOR.request_stop(true);
    /// assert_eq!(EXECUTOR.run_until_stalled(0), RunOutcome::StopRequested);
    /// EXECUTOR.request_stop(false);
    /// assert_eq!(EXECUTOR.run_until_stalled(0), RunOutcome::Stalled);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn request_stop(&self, stop: bool) {
        calls::request_stop(&self.core, stop);
    }

    /// To be called before worker `worker` sleeps. True: sleep until notified (`Hooks::notify`,
    /// which may come before the sleep begins and must not be lost), then call
    /// [`finish_park`](Executor::finish_park). False: call `run` again.
    ///
    /// On that worker, outside of `run`; not in interrupt handlers, which may wake coroutines
    /// between this and the sleep. [`run_until_empty`](Executor::run_until_empty) is the loop that
    /// calls it.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// assert!(!EXECUTOR.prepare_park(0), "a coroutine is ready");
    /// EXECUTOR.run_until_stalled(0);
    /// if EXECUTOR.prepare_park(0) {
    ///     // `wfi`, or the park of a thread.
    ///     EXECUTOR.finish_park(0);
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn prepare_park(&self, worker: u32) -> bool {
        calls::prepare_park(&self.core, worker)
    }

    /// As [`prepare_park`](Self::prepare_park), for a worker that is to sleep although there is
    /// work: all that waits for it goes to worker `heir`, which the caller sees run. True: sleep
    /// until notified, then call [`finish_park`](Self::finish_park). False: go on with `run`; the
    /// heir could not take everything now, or polls something less urgent, or a stop is requested.
    ///
    /// For an executor that [relies on offers](Self::rely_on_offers): in others, what waits at the
    /// heir notifies the worker at once. On that worker, outside of `run`; not in interrupt
    /// handlers. Takes time proportional to what waits.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(2)?;
    /// EXECUTOR.rely_on_offers();
    /// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// if EXECUTOR.prepare_leave(0, 1) {
    ///     // The park of a thread.
    ///     EXECUTOR.finish_park(0);
    /// }
    /// EXECUTOR.run_until_stalled(1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn prepare_leave(&self, worker: u32, heir: u32) -> bool {
        calls::prepare_leave(&self.core, worker, heir)
    }

    /// To be called after the sleep. Returns whether the hook `notify` was called for the worker
    /// since `prepare_park`. Harmless otherwise.
    ///
    /// On that worker.
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// EXECUTOR.finish_park(0); // It was not parked.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn finish_park(&self, worker: u32) -> bool {
        calls::finish_park(&self.core, worker)
    }

    /// Says whether worker `worker`, while it is parked, looks for work by itself before long,
    /// because its host's sleep has a limit of about a millisecond. Then the first coroutine that
    /// becomes ready in a poll on another worker does not notify it. For a worker that was notified
    /// and has found nothing.
    ///
    /// On that worker, outside of `run`.
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// EXECUTOR.set_quiet(0, true);
    /// if EXECUTOR.prepare_park(0) {
    ///     std::thread::park_timeout(std::time::Duration::from_millis(1));
    ///     EXECUTOR.finish_park(0);
    /// }
    /// EXECUTOR.set_quiet(0, false);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_quiet(&self, worker: u32, quiet: bool) {
        calls::set_quiet(&self.core, worker, quiet);
    }

    /// To be called inside a poll that goes on to something long: notifies a parked worker if
    /// anything waits here.
    ///
    /// With [`NO_WORKER`](core::NO_WORKER), if anything waits for any worker: for a thread that has
    /// been a worker, may have been notified as one, and does not call `run` again. Takes no lock.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let long = async {
    ///     EXECUTOR.offer(0);
    ///     // What takes long follows.
    /// };
    /// EXECUTOR.spawn(long, Priority::DEFAULT)?;
    /// EXECUTOR.run_until_stalled(0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn offer(&self, worker: u32) {
        calls::offer(&self.core, worker);
    }

    /// From now on no wake notifies a parked worker of what waits elsewhere than on that worker:
    /// the host calls [`offer`](Self::offer) when one is to come for what waits. For a host that
    /// knows better when that pays; it looks before anything long, and after some time within it.
    ///
    /// Except what becomes ready, from elsewhere, on a worker that is neither parked nor in `run`.
    /// One that does not call `run` again soon offers what it has, with
    /// [`NO_WORKER`](core::NO_WORKER), after a sequentially consistent fence.
    ///
    /// Before the first worker parks.
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// EXECUTOR.rely_on_offers();
    /// EXECUTOR.offer(cops_executor::core::NO_WORKER);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rely_on_offers(&self) {
        calls::rely_on_offers(&self.core);
    }

    /// The most urgent level at which anything waits for any worker; `None` if nothing does. What
    /// is being polled does not count. For a long poll to decide whether to end.
    ///
    /// In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// assert_eq!(EXECUTOR.most_urgent(0), None);
    /// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// assert_eq!(EXECUTOR.most_urgent(0), Some(Priority::DEFAULT));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn most_urgent(&self, worker: u32) -> Option<Priority> {
        Priority::new(calls::most_urgent(&self.core, worker) as u8)
    }

    /// The core's half, for inspection from outside
    /// ([`inspect_remote`](core::Executor::inspect_remote)).
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// assert_eq!(EXECUTOR.core().live_count(), EXECUTOR.live_count());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn core(&self) -> &core::Executor {
        &self.core
    }

    /// Coroutines that have been spawned and have not exited.
    ///
    /// In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// assert_eq!(EXECUTOR.live_count(), 1);
    /// EXECUTOR.run_until_stalled(0);
    /// assert_eq!(EXECUTOR.live_count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn live_count(&self) -> u64 {
        calls::live_count(&self.core)
    }

    /// Describes a coroutine; `None` if it has exited.
    ///
    /// In any context, interrupt handlers included. It takes no lock: what it says may be over when
    /// it returns.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// use cops_executor::Phase;
    /// let id = EXECUTOR.spawn(std::future::pending(), Priority::DEFAULT)?;
    /// EXECUTOR.run_until_stalled(0);
    /// assert_eq!(EXECUTOR.inspect(id).map(|seen| seen.phase), Some(Phase::Blocked));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inspect(&self, id: CoroutineId) -> Option<Inspection> {
        match self.inspect_slot(id.index()) {
            Inspected::Coroutine(found) if found.id == id => Some(found),
            _ => None,
        }
    }

    /// Describes all coroutines, as [`inspect`](Executor::inspect) does. In any context. One that
    /// begins or exits meanwhile may be missing.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// EXECUTOR.spawn(async {}, Priority::MOST_URGENT)?;
    /// let levels: Vec<_> = EXECUTOR.coroutines().map(|one| one.priority.level()).collect();
    /// assert_eq!(levels, [32, 0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn coroutines(&self) -> impl Iterator<Item = Inspection> {
        (1..)
            .map(|index| self.inspect_slot(index))
            .take_while(|slot| *slot != Inspected::End)
            .filter_map(|slot| match slot {
                Inspected::Coroutine(found) => Some(found),
                Inspected::Empty | Inspected::End => None,
            })
    }

    /// Describes what is in slot `index`, from 1 on: for a caller that takes some at a time, where
    /// [`coroutines`](Executor::coroutines) would be too long. In any context.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// use cops_executor::core::Inspected;
    /// assert_eq!(EXECUTOR.inspect_slot(1), Inspected::End);
    /// let id = EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// assert!(matches!(EXECUTOR.inspect_slot(id.index()), Inspected::Coroutine(found) if found.id == id));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inspect_slot(&self, index: u32) -> Inspected {
        let mut out = RawInspection::default();
        match calls::inspect(&self.core, index, &mut out) {
            INSPECT_END => Inspected::End,
            INSPECT_COROUTINE => out.decode(),
            _ => Inspected::Empty,
        }
    }
}
