//! The loop of a worker: run coroutines, look up in between, sleep when nothing is ready.
//!
//! A worker that was notified, and has found nothing, dozes: it sleeps for a millisecond at most,
//! and the core does not notify it meanwhile for what another worker is likely to begin itself
//! (`core::park`, the last line of the table there). So two coroutines that wake each other on one
//! worker cost another worker a few wake-ups in a millisecond, and what becomes ready in a long
//! poll waits for a millisecond at the very most.

use std::thread;
use std::time::{Duration, Instant};

use super::clock;
use super::context::Context;
use super::pace::Pace;
use super::record::Record;
use super::sleeper::Claim;
use crate::core::NO_WORKER;
use crate::front::current;
use crate::front::outcome::RunOutcome;
#[cfg(feature = "reactor")]
use crate::front::yield_now;

/// How long a worker dozes.
const DOZE: Duration = Duration::from_millis(1);

/// When a worker asks whether its goal is reached.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Moment {
    /// Before each batch of polls.
    Awake,
    /// Marked as parked, before it sleeps.
    Parking,
}

/// Makes this thread worker `worker`, which it has claimed, until `goal` says what to return. Err
/// if it cannot go on: a stop was requested, or a thread runs the worker without having claimed it.
pub(super) fn drive<T>(
    record: &'static Record,
    worker: u32,
    mut claim: Claim,
    mut goal: impl FnMut(Moment) -> Option<T>,
) -> Result<T, RunOutcome> {
    let executor = record.executor;
    let _context = Context::of_worker();
    // Also while it is in the reactor: what that wakes goes to this worker's own list and runs on
    // this thread.
    let _entered = current::enter(executor.word(worker), executor.state(worker));
    let _leaving = Leaving { record, worker };
    let mut pace = Pace::new(Instant::now());
    let mut was_notified = false;
    loop {
        if let Some(result) = goal(Moment::Awake) {
            return Ok(result);
        }
        clock::fire(pace.now());
        let looks = cfg!(feature = "reactor") || clock::is_in_use();
        if looks {
            // This worker may be gone for long with its next poll.
            record.pass_watch_on_if_long(pace.now());
        }
        let polls_before = executor.polls(worker);
        let outcome = executor.run(worker, pace.polls());
        if pace.end_batch(Instant::now(), looks) {
            record.note_long(pace.now());
        }
        match outcome {
            RunOutcome::BudgetUsed => was_notified = false,
            RunOutcome::Stalled => {
                let dozes = was_notified && executor.polls(worker) == polls_before;
                was_notified = false;
                executor.set_quiet(worker, dozes);
                if executor.prepare_park(worker) {
                    // The thread that reaches the goal notifies those it sees marked, or we see it
                    // reached: after the mark.
                    if let Some(result) = goal(Moment::Parking) {
                        return Ok(result);
                    }
                    let watches = record.watch(worker);
                    let mut until = if watches { clock::next_deadline(record) } else { None };
                    if dozes {
                        let end = pace.now() + DOZE;
                        until = Some(until.map_or(end, |until| until.min(end)));
                    }
                    claim.sleep(watches, until);
                    was_notified = executor.finish_park(worker);
                    record.leave(worker);
                    pace.resume(Instant::now());
                    continue;
                }
                // There is something that we could not get: its worker was at a scheduling point,
                // perhaps suspended by the host there. Let it go on.
                thread::yield_now();
            }
            refused => return Err(refused),
        }
        if cfg!(feature = "reactor") && record.is_look_due(pace.now()) {
            look_at_reactor();
            pace.resume(Instant::now());
        }
    }
}

/// Handles what has happened in the reactor, and waits for nothing: so does `async-io` for a future
/// that wakes itself.
#[cfg(feature = "reactor")]
fn look_at_reactor() {
    async_io::block_on(yield_now());
}

#[cfg(not(feature = "reactor"))]
fn look_at_reactor() {}

/// Undoes what a worker has said of itself, when its thread stops being one, also by a panic.
struct Leaving {
    record: &'static Record,
    worker: u32,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let (record, worker) = (self.record, self.worker);
        let executor = record.executor;
        executor.set_quiet(worker, false);
        executor.finish_park(worker);
        record.leave(worker);
        // Others may sleep: one of them watches now, and takes what this worker was notified for.
        record.pass_watch_on();
        executor.offer(NO_WORKER);
    }
}
