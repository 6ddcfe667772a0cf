//! The operations: each a small program, written once for all runtimes, that checks its own
//! answers.

pub mod bytes;
pub mod join;
pub mod mixed;
pub mod ping;
pub mod ring;
pub mod spawn;
pub mod urgent;
pub mod wake;
pub mod yields;

use std::task::Waker;

use cops_executor::CoroutineId;

use crate::contender::Contender;
use crate::runtime::async_executor::AsyncExecutor;
use crate::runtime::cops::Cops;
use crate::runtime::cops_runtime::CopsRuntime;
use crate::runtime::cops_slots::CopsSlots;
use crate::runtime::embassy::{Embassy, EmbassyBoxed};
use crate::runtime::local_pool::LocalPool;
use crate::runtime::raw::Raw;
use crate::runtime::tokio::Tokio;
use crate::runtime::{Joins, Runtime, Setup, Task, threads};
use crate::sample::Sample;

/// The level of all coroutines where priorities are not the matter.
const DEFAULT_LEVEL: u32 = 32;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Yield among many, on so many levels.
    Yield { coroutines: u32, levels: u32 },
    /// The same among 1,000, on so many workers; each poll does some 50 ns of work, or none.
    Contended { workers: u32, works: bool },
    /// Spawn, run and exit, so many at a time.
    Spawn { batch: u32 },
    /// Wake the next by its waker and block.
    Ring,
    /// Wake the next by its id and block.
    RingById,
    /// Spawn and await the output.
    Join,
    /// Random priorities, yields and wakes.
    Mixed,
    /// Polls before the most urgent one's.
    Urgent { workers: u32, is_foreign: bool },
    /// A wake of another thread's task.
    Ping { is_foreign: bool },
    /// A wake by a plain thread; the worker of the woken task is parked, or busy.
    Wake { is_busy: bool },
    /// Memory.
    Bytes,
}

impl Operation {
    /// Whether it runs on one thread, so that instructions can be counted and repeat.
    pub fn counts_instructions(self) -> bool {
        matches!(
            self,
            Self::Yield { .. }
                | Self::Spawn { .. }
                | Self::Ring
                | Self::RingById
                | Self::Join
                | Self::Mixed
        )
    }

    /// Whether time is what it is about.
    pub fn is_timed(self) -> bool {
        !matches!(self, Self::Urgent { .. } | Self::Bytes)
    }

    /// Whether what is counted depends on what else the machine does: polls that several threads
    /// make side by side.
    pub fn count_depends_on_load(self) -> bool {
        matches!(self, Self::Urgent { workers, is_foreign } if workers > 1 || is_foreign)
    }

    /// Operations in a round.
    pub fn per_round(self) -> u64 {
        match self {
            Self::Yield { coroutines, .. } => u64::from(coroutines),
            Self::Spawn { batch } => u64::from(batch),
            Self::Contended { .. } | Self::Ring | Self::RingById | Self::Mixed => 1_000,
            Self::Ping { .. } => 2,
            Self::Join | Self::Urgent { .. } | Self::Wake { .. } | Self::Bytes => 1,
        }
    }
}

/// Runs an operation that the contender takes, in this process. `live` tells how many bytes live on
/// the heap.
pub fn measure(
    contender: Contender,
    operation: Operation,
    rounds: u64,
    live: fn() -> u64,
) -> Sample {
    assert!(contender.takes(operation), "{} does not take {operation:?}", contender.key());
    match contender {
        Contender::Cops => joining::<Cops>(operation, rounds, live),
        Contender::CopsRuntime => joining::<CopsRuntime>(operation, rounds, live),
        Contender::CopsSlots => plain::<CopsSlots>(operation, rounds, live),
        Contender::Raw => plain::<Raw>(operation, rounds, live),
        Contender::TokioCurrent => joining::<Tokio<false>>(operation, rounds, live),
        Contender::TokioMulti => joining::<Tokio<true>>(operation, rounds, live),
        Contender::AsyncExecutor => joining::<AsyncExecutor>(operation, rounds, live),
        Contender::Embassy | Contender::EmbassyPriority => {
            plain::<Embassy>(operation, rounds, live)
        }
        Contender::EmbassyBoxed => plain::<EmbassyBoxed>(operation, rounds, live),
        Contender::LocalPool => joining::<LocalPool>(operation, rounds, live),
        Contender::Threads => threads::measure(operation, rounds),
    }
}

fn joining<R: Joins>(operation: Operation, rounds: u64, live: fn() -> u64) -> Sample {
    match operation {
        Operation::Join => join::run(R::start(Setup::ALONE), rounds),
        other => plain::<R>(other, rounds, live),
    }
}

fn plain<R: Runtime>(operation: Operation, rounds: u64, live: fn() -> u64) -> Sample {
    let alone = || R::start(Setup::ALONE);
    match operation {
        Operation::Yield { coroutines, levels } => {
            yields::run::<R, false>(alone(), coroutines, levels, rounds)
        }
        Operation::Contended { workers, works } => {
            let runtime = R::start(Setup { workers, sleeps: true });
            if works {
                yields::run::<R, true>(runtime, 1_000, 1, rounds)
            } else {
                yields::run::<R, false>(runtime, 1_000, 1, rounds)
            }
        }
        Operation::Spawn { batch } => spawn::run(alone(), batch, rounds),
        Operation::Ring => ring::run::<R, Waker>(alone(), rounds),
        Operation::RingById => ring::run::<R, CoroutineId>(alone(), rounds),
        Operation::Mixed => mixed::run(alone(), rounds),
        Operation::Urgent { workers, is_foreign } => {
            urgent::run(R::start(Setup { workers, sleeps: true }), is_foreign, rounds)
        }
        Operation::Ping { is_foreign } => ping::run::<R>(is_foreign, rounds),
        Operation::Wake { is_busy } => wake::run::<R>(is_busy, rounds),
        Operation::Bytes => bytes::run(alone(), live),
        Operation::Join => unreachable!("only what joins takes it"),
    }
}

/// Slots for one future of a type that has no name.
fn slot_for<R: Runtime, F: Task>(runtime: R, _: &F) -> R::Slots<F> {
    runtime.slots(1)
}
