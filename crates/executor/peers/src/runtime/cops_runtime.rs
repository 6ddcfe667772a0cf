//! Ours as most programs use it: a `Runtime`, which has threads of its own, and a handle to each
//! coroutine. The parent is a coroutine of the runtime, as with tokio's multi-thread runtime.

use std::future::Future;

use cops_executor::{Priority, Runtime as CopsExecutorRuntime};

use super::{Joins, Runtime, Setup, Task};

/// cops-executor's `Runtime`.
#[derive(Clone, Copy)]
pub struct CopsRuntime(&'static CopsExecutorRuntime);

impl Runtime for CopsRuntime {
    type Slots<F: Task> = ();

    fn start(setup: Setup) -> CopsRuntime {
        let runtime = CopsExecutorRuntime::new(setup.workers).expect("threads can be started");
        CopsRuntime(Box::leak(Box::new(runtime)))
    }

    fn slots<F: Task>(self, _: usize) {}

    fn spawn<F: Task>(self, (): (), _: usize, future: F, level: u32) {
        drop(self.0.spawn_at(future, Priority::saturating(level)));
    }

    fn run<P: Task>(self, parent: P) {
        self.0
            .block_on(self.0.spawn_at(parent, Priority::DEFAULT))
            .expect("the parent does not panic");
    }
}

impl Joins for CopsRuntime {
    fn spawn_join<F>(self, future: F) -> impl Future<Output = u64> + Send
    where
        F: Future<Output = u64> + Send + 'static,
    {
        let handle = self.0.spawn_at(future, Priority::DEFAULT);
        async { handle.await.expect("it was neither cancelled nor did it panic") }
    }
}
