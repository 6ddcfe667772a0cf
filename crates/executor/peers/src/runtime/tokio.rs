//! tokio: the current-thread runtime by `block_on`, the multi-thread runtime with the parent as a
//! task of its own (a parent in `block_on` would be polled outside of the workers). Neither I/O nor
//! time are enabled.

use std::future::Future;

use tokio::runtime::{Builder, Runtime as TokioRuntime};

use super::{Joins, Runtime, Setup, Task};

/// tokio, multi-thread if `MULTI`.
#[derive(Clone, Copy)]
pub struct Tokio<const MULTI: bool>(&'static TokioRuntime);

impl<const MULTI: bool> Runtime for Tokio<MULTI> {
    type Slots<F: Task> = ();

    fn start(setup: Setup) -> Self {
        let runtime = if MULTI {
            Builder::new_multi_thread().worker_threads(setup.workers as usize).build()
        } else {
            assert_eq!(setup.workers, 1, "the current-thread runtime has one");
            Builder::new_current_thread().build()
        };
        Tokio(Box::leak(Box::new(runtime.expect("threads can be started"))))
    }

    fn slots<F: Task>(self, _: usize) {}

    fn spawn<F: Task>(self, (): (), _: usize, future: F, _: u32) {
        drop(self.0.spawn(future));
    }

    fn run<P: Task>(self, parent: P) {
        if MULTI {
            self.0.block_on(self.0.spawn(parent)).expect("the parent does not panic");
        } else {
            self.0.block_on(parent);
        }
    }
}

impl<const MULTI: bool> Joins for Tokio<MULTI> {
    fn spawn_join<F>(self, future: F) -> impl Future<Output = u64> + Send
    where
        F: Future<Output = u64> + Send + 'static,
    {
        let handle = self.0.spawn(future);
        async { handle.await.expect("it does not panic") }
    }
}
