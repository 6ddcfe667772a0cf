//! Threads of the program as workers of an executor in a static.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::drive::{Moment, drive};
use super::record::Record;
use super::sleeper::Claim;
use crate::core::MAX_WORKERS;
use crate::front::executor::Executor;
use crate::front::outcome::{RunOutcome, StartError};

impl Executor {
    /// Starts it with workers 0 to `workers - 1` (1 to 64) that are to be threads of this program.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, RunOutcome};
    /// static EXECUTOR: Executor = Executor::new();
    ///
    /// EXECUTOR.start_on_host(2)?;
    /// EXECUTOR.spawn(async { println!("on one of two threads") }, Priority::DEFAULT)?;
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| EXECUTOR.run_until_done());
    ///     assert_eq!(EXECUTOR.run_until_done(), RunOutcome::Stalled);
    /// });
    /// assert_eq!(EXECUTOR.live_count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If `workers` is not 1 to 64.
    ///
    /// # Errors
    ///
    /// [`StartError::NumberTaken`].
    pub fn start_on_host(&'static self, workers: u32) -> Result<(), StartError> {
        assert!((1..=MAX_WORKERS).contains(&workers), "1 to 64 workers, not {workers}");
        Record::start(self, workers).map(|_| ())
    }

    /// Runs coroutines on this thread, as the first worker that no thread is, sleeping while
    /// nothing is ready, until all have exited (`Stalled`) or a stop is requested. `Refused` if
    /// there is a thread for each worker, or the executor was not started by
    /// [`start_on_host`](Executor::start_on_host). (Threads in [`run`](Executor::run) are not
    /// counted: a program uses one or the other.)
    ///
    /// With feature `reactor` the thread sleeps in the reactor, and a busy one looks at it now and
    /// then.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, RunOutcome, yield_now};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let sum = EXECUTOR.spawn_join(async { yield_now().await; 2 + 2 }, Priority::DEFAULT)?;
    /// assert_eq!(EXECUTOR.run_until_done(), RunOutcome::Stalled);
    /// assert!(sum.is_finished());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn run_until_done(&'static self) -> RunOutcome {
        let Some((record, worker, claim)) = self.claim() else { return RunOutcome::Refused };
        // A worker that sees others alive sleeps marked, and the thread that lets the last one exit
        // notifies those it sees marked.
        let all_exited = |_| (self.live_count() == 0).then_some(RunOutcome::Stalled);
        drive(record, worker, claim, all_exited).unwrap_or_else(|refused| refused)
    }

    /// Runs coroutines on this thread, as the first worker that no thread is, until `future`, which
    /// is polled in between on this thread and outside of any coroutine, is finished; returns its
    /// output.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let answer = EXECUTOR.spawn_join(async { 6 * 7 }, Priority::DEFAULT)?;
    /// assert_eq!(EXECUTOR.block_on(async { answer.await.map(|answer| answer + 1) }), Ok(43));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If a stop is requested, there is a thread for each worker, or the executor was not started
    /// by [`start_on_host`](Executor::start_on_host): then `future` cannot be finished.
    pub fn block_on<F: Future>(&'static self, future: F) -> F::Output {
        let Some((record, worker, claim)) = self.claim() else {
            panic!("block_on: the executor has no worker that is not a thread already")
        };
        block_on(record, worker, claim, future)
    }

    fn claim(&self) -> Option<(&'static Record, u32, Claim)> {
        let record = Record::of_executor(self)?;
        let (worker, claim) = record.claim_any()?;
        Some((record, worker, claim))
    }
}

/// Drives `worker` on this thread until `future` is finished.
///
/// # Panics
///
/// If a stop is requested, or a thread runs the worker without having claimed it.
pub(super) fn block_on<F: Future>(
    record: &'static Record,
    worker: u32,
    claim: Claim,
    future: F,
) -> F::Output {
    let main = Arc::new(MainWaker { woken: AtomicBool::new(true), record, worker });
    let waker = Waker::from(main.clone());
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let finished = drive(record, worker, claim, |moment| {
        // A wake after this look leaves a token in the worker's sleep, so there is no need to
        // look while parking.
        if moment == Moment::Parking || !main.woken.swap(false, Ordering::Acquire) {
            return None;
        }
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    });
    finished.unwrap_or_else(|outcome| panic!("block_on cannot go on: {outcome:?}"))
}

/// Wakes the future of `block_on`.
struct MainWaker {
    woken: AtomicBool,
    record: &'static Record,
    worker: u32,
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::Release) {
            self.record.wake(self.worker);
        }
    }
}
