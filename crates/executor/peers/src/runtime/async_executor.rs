//! async-executor: its `StaticExecutor`, which spares a lock and an allocation for each task, under
//! the `block_on` of futures-lite, with the parent as a task of its own (which is cheaper than a
//! main future); more workers are more threads that `run` it.

use std::future::Future;
use std::thread;

use async_executor::StaticExecutor;
use futures_lite::future::{block_on, pending};

use super::{Joins, Runtime, Setup, Task};

/// async-executor.
#[derive(Clone, Copy)]
pub struct AsyncExecutor {
    executor: &'static StaticExecutor,
    workers: u32,
}

impl Runtime for AsyncExecutor {
    type Slots<F: Task> = ();

    fn start(setup: Setup) -> Self {
        AsyncExecutor {
            executor: Box::leak(Box::new(StaticExecutor::new())),
            workers: setup.workers,
        }
    }

    fn slots<F: Task>(self, _: usize) {}

    fn spawn<F: Task>(self, (): (), _: usize, future: F, _: u32) {
        self.executor.spawn(future).detach();
    }

    fn run<P: Task>(self, parent: P) {
        for _ in 1..self.workers {
            // It ends with the process.
            thread::spawn(move || block_on(self.executor.run(pending::<()>())));
        }
        block_on(self.executor.run(self.executor.spawn(parent)));
    }
}

impl Joins for AsyncExecutor {
    fn spawn_join<F>(self, future: F) -> impl Future<Output = u64> + Send
    where
        F: Future<Output = u64> + Send + 'static,
    {
        self.executor.spawn(future)
    }
}
