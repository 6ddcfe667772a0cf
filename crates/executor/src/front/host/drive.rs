//! The loop of a worker: run coroutines, look up in between, sleep when nothing is ready.
//!
//! It is a future, so that whatever polls it (`park`) decides how its thread sleeps. It is pending for two
//! reasons: it has marked itself as parked and shall sleep, or it has woken itself and shall be polled again after
//! a look at the reactor.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::thread;
use std::time::Instant;

use super::clock;
use super::pace::Pace;
use super::park::{self, Alarm};
use super::record::Record;
use crate::front::current;
use crate::front::executor::Executor;
use crate::front::outcome::RunOutcome;

/// When a worker asks whether its goal is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Before each batch of polls.
    Awake,
    /// Marked as parked, before it sleeps. No foreign code may run: its panic would leave the mark.
    Parking,
}

/// Makes this thread worker `worker` until `goal` says what to return. Err if it cannot go on: a stop was
/// requested, there is no such worker, or it runs already.
pub(super) fn drive<T>(
    executor: &'static Executor,
    worker: u32,
    mut goal: impl FnMut(Moment) -> Option<T>,
) -> Result<T, RunOutcome> {
    let Some(record) = Record::of(executor.number()).filter(|record| worker < record.workers()) else {
        return Err(RunOutcome::Refused);
    };
    // Also while it is in the reactor: what that wakes goes to this worker's own list and runs on this thread.
    let _entered =
        current::enter(current::encode_current_worker(executor.number(), worker), executor.state(worker));
    let alarm = Alarm::default();
    let mut driver = Driver {
        record,
        worker,
        pace: Pace::new(Instant::now()),
        alarm: &alarm,
        is_bound: false,
        is_parked: false,
    };
    park::block_on_worker(poll_fn(|context| driver.poll(context, &mut goal)), &alarm)
}

struct Driver<'a> {
    record: &'static Record,
    worker: u32,
    pace: Pace,
    alarm: &'a Alarm,
    is_bound: bool,
    is_parked: bool,
}

impl Driver<'_> {
    fn poll<T>(
        &mut self,
        context: &mut Context<'_>,
        goal: &mut impl FnMut(Moment) -> Option<T>,
    ) -> Poll<Result<T, RunOutcome>> {
        let (record, worker) = (self.record, self.worker);
        let executor = record.executor;
        if !self.is_bound {
            // `park` polls with one waker. Before the first mark: head of `record`.
            record.bind(worker, context.waker());
            self.is_bound = true;
        }
        if self.is_parked {
            executor.finish_park(worker);
            record.leave(worker);
            self.is_parked = false;
        }
        self.pace.resume(Instant::now());
        loop {
            if let Some(result) = goal(Moment::Awake) {
                return Poll::Ready(Ok(result));
            }
            clock::fire(self.pace.now());
            if cfg!(feature = "reactor") || clock::is_in_use() {
                // This worker may be gone for long with its next poll.
                record.pass_watch_on_if_long(self.pace.now());
            }
            let outcome = executor.run(worker, self.pace.polls());
            if self.pace.end_batch(Instant::now()) {
                record.note_long(self.pace.now());
            }
            match outcome {
                RunOutcome::BudgetUsed => {}
                RunOutcome::Stalled if executor.prepare_park(worker) => {
                    // Whoever reaches the goal notifies those it sees marked, or we see it reached: after the mark.
                    if let Some(result) = goal(Moment::Parking) {
                        executor.finish_park(worker);
                        return Poll::Ready(Ok(result));
                    }
                    let watches = record.watch(worker);
                    self.alarm.set(if watches { clock::next_deadline() } else { None });
                    self.is_parked = true;
                    return Poll::Pending;
                }
                // There is something that we could not get: its worker was at a scheduling point, perhaps
                // suspended by the host there. Let it go on.
                RunOutcome::Stalled => thread::yield_now(),
                refused => return Poll::Ready(Err(refused)),
            }
            if cfg!(feature = "reactor") && record.is_look_due(self.pace.now()) {
                self.alarm.set(None);
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
        }
    }
}

impl Drop for Driver<'_> {
    /// The thread is a worker no more; others may be, and sleep.
    fn drop(&mut self) {
        self.record.pass_watch_on();
    }
}
