//! Histories: what is done to an executor and inside its coroutines, step by step, on one thread.
//! They are played on the real core and on a model at once (`play`). `tests/model.rs` makes them at
//! random, `fuzz/` of bytes.
#![allow(dead_code)]

mod bytes;
mod exact;
mod model;
mod play;
mod several;

pub use bytes::history_of;
pub use play::play;

/// `whom` names a coroutine by counting round all coroutines that ever were; dead ones are of
/// interest too.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    Spawn {
        priority: u8,
    },
    /// Not ready before it is woken.
    SpawnBlocked {
        priority: u8,
    },
    Wake {
        whom: usize,
    },
    Cancel {
        whom: usize,
    },
    SetPriority {
        whom: usize,
        priority: u8,
    },
    /// As the front's waker does it.
    WakeSelf,
    CancelSelf,
    /// Inside a poll: run a worker, which is refused if that is in a poll itself.
    RunInside {
        worker: usize,
        polls: u64,
    },
    /// Park and unpark a worker, which must not be said to be possible while anything is ready.
    Park {
        worker: usize,
    },
    /// Inside a poll: ask all to stop.
    Stop,
}

/// What a coroutine does in one poll.
#[derive(Clone, Debug)]
pub struct Script {
    pub operations: Vec<Operation>,
    pub ready: bool,
}

#[derive(Clone, Debug)]
pub enum Step {
    /// From a context that is no worker.
    Outside(Operation),
    /// The scripts are those of the polls in their order; without one a coroutine finishes.
    Run { worker: usize, polls: u64, scripts: Vec<Script> },
}

#[derive(Clone, Debug)]
pub struct History {
    pub workers: usize,
    pub steps: Vec<Step>,
}
