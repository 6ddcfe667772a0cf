//! What comes of asking an executor: why it does not do it, and why `run` returned.

use ::core::fmt;

/// Why an executor does not start.
///
/// ```
/// use cops_executor::{Executor, StartError};
/// static ONE: Executor = Executor::with_number(1);
/// static OTHER: Executor = Executor::with_number(1);
/// ONE.start_on_host(1)?;
/// assert_eq!(ONE.start_on_host(1), Err(StartError::NumberTaken));
/// assert_eq!(OTHER.start_on_host(1), Err(StartError::NumberTaken));
/// # Ok::<(), StartError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StartError {
    /// It was started before, another executor has its number, or all numbers are taken.
    NumberTaken,
    /// Another executor has this [`StaticMemory`](super::StaticMemory).
    MemoryTaken,
}

/// Why a worker cannot be added.
///
/// ```
/// # use cops_executor::Executor;
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// use cops_executor::{AddWorkerError, WorkerState};
/// static WORKER: WorkerState = WorkerState::new();
/// assert_eq!(EXECUTOR.add_worker(0, &WORKER), Err(AddWorkerError::NumberTaken));
/// assert_eq!(EXECUTOR.add_worker(64, &WORKER), Err(AddWorkerError::NumberOutOfRange));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddWorkerError {
    /// The executor was not started.
    NotStarted,
    /// The worker's number is above 63.
    NumberOutOfRange,
    /// There is a worker of this number.
    NumberTaken,
    /// `Hooks::grow` returned null.
    OutOfMemory,
}

/// Why a coroutine is not spawned. Its future has been dropped.
///
/// ```
/// use cops_executor::{Executor, Priority, SpawnError};
/// static EXECUTOR: Executor = Executor::new();
/// assert_eq!(EXECUTOR.spawn(async {}, Priority::DEFAULT), Err(SpawnError::NotStarted));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpawnError {
    /// `Hooks::grow` returned null, or there are 2^24 - 1 coroutines (2^12 - 1 where pointers have
    /// 32 bits).
    OutOfMemory,
    /// The executor was not started, or has no worker.
    NotStarted,
    /// A coroutine is in this [`StaticTask`](super::StaticTask).
    Occupied,
}

/// Why `run` returned.
///
/// ```
/// # use cops_executor::{Executor, Priority};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// use cops_executor::RunOutcome;
/// EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
/// assert_eq!(EXECUTOR.run(0, 1), RunOutcome::BudgetUsed);
/// assert_eq!(EXECUTOR.run(0, 1), RunOutcome::Stalled);
/// assert_eq!(EXECUTOR.run(7, 1), RunOutcome::Refused, "there is no worker 7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunOutcome {
    /// Nothing is ready.
    Stalled,
    /// The polls that were allowed have been made.
    BudgetUsed,
    /// `request_stop` was called.
    StopRequested,
    /// There is no such worker, or it is running already (`run` was called inside a coroutine).
    Refused,
}

impl fmt::Display for StartError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            StartError::NumberTaken => "the executor was started before, or its number is taken",
            StartError::MemoryTaken => "another executor has this memory",
        })
    }
}

impl fmt::Display for AddWorkerError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            AddWorkerError::NotStarted => "the executor has not been started",
            AddWorkerError::NumberOutOfRange => "worker numbers are 0 to 63",
            AddWorkerError::NumberTaken => "there is a worker of this number",
            AddWorkerError::OutOfMemory => "no memory for another worker",
        })
    }
}

impl fmt::Display for SpawnError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            SpawnError::OutOfMemory => "no memory for another coroutine",
            SpawnError::NotStarted => "the executor has not been started or has no worker",
            SpawnError::Occupied => "a coroutine is in this static task",
        })
    }
}

impl ::core::error::Error for SpawnError {}

impl ::core::error::Error for StartError {}

impl ::core::error::Error for AddWorkerError {}
