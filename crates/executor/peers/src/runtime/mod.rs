//! What an operation may ask of a runtime, and one module for each that answers.
//!
//! Each is driven in the cheapest way that its documentation offers; what that is, its module says.

pub mod async_executor;
pub mod cops;
pub mod cops_runtime;
pub mod cops_slots;
pub mod embassy;
pub mod local_pool;
pub mod raw;
pub mod threads;
pub mod tokio;

use std::future::Future;

/// What can be spawned everywhere.
pub trait Task: Future<Output = ()> + Send + 'static {}

impl<F: Future<Output = ()> + Send + 'static> Task for F {}

/// How an operation wants its runtime.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Threads that poll.
    pub workers: u32,
    /// Whether there are moments in which nothing is ready and another thread will wake a task:
    /// then a worker must sleep, and be woken.
    pub sleeps: bool,
}

impl Setup {
    /// One thread on which something is always ready.
    pub const ALONE: Setup = Setup { workers: 1, sleeps: false };
}

/// A runtime that was started; a copy of it spawns from anywhere.
pub trait Runtime: Copy + Send + 'static {
    /// Where tasks of one type live, if the program must provide that.
    type Slots<F: Task>: Copy + Send + 'static;

    /// Starts one. Never ended: a measurement is a process.
    fn start(setup: Setup) -> Self;

    /// Provides for `count` tasks of a type that are alive at the same time.
    fn slots<F: Task>(self, count: usize) -> Self::Slots<F>;

    /// Starts a task, from within [`run`](Runtime::run). `number` is its slot, free at this moment.
    /// Levels are 0 (most urgent) to 63, where there are any.
    fn spawn<F: Task>(self, slots: Self::Slots<F>, number: usize, future: F, level: u32);

    /// Drives `parent`, and what it spawns, on this thread and on those of the setup, until
    /// `parent` has finished.
    fn run<P: Task>(self, parent: P);
}

/// A runtime with join handles.
pub trait Joins: Runtime {
    /// Starts a task; the future that this returns yields its output.
    fn spawn_join<F>(self, future: F) -> impl Future<Output = F::Output> + Send
    where
        F: Future<Output = u64> + Send + 'static;
}
