//! Ours: boxed futures. Where something is always ready, `run_until_stalled` on this thread; where
//! workers sleep or are several, one `run_until_done` for each.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use cops_executor::{Executor, Priority, RunOutcome};

use super::{Joins, Runtime, Setup, Task};

static EXECUTORS: [Executor; 2] = [Executor::with_number(0), Executor::with_number(1)];
static STARTED: AtomicUsize = AtomicUsize::new(0);

/// cops-executor.
#[derive(Clone, Copy)]
pub struct Cops {
    pub(super) executor: &'static Executor,
    setup: Setup,
}

impl Runtime for Cops {
    type Slots<F: Task> = ();

    fn start(setup: Setup) -> Cops {
        let executor = &EXECUTORS[STARTED.fetch_add(1, Ordering::Relaxed)];
        executor.start_on_host(setup.workers).expect("each is started once");
        Cops { executor, setup }
    }

    fn slots<F: Task>(self, _: usize) {}

    fn spawn<F: Task>(self, (): (), _: usize, future: F, level: u32) {
        self.executor.spawn(future, Priority::saturating(level)).expect("there is memory");
    }

    fn run<P: Task>(self, parent: P) {
        let executor = self.executor;
        let ends = async move {
            parent.await;
            executor.request_stop(true);
        };
        executor.spawn(ends, Priority::DEFAULT).expect("there is memory");
        let outcome = if self.setup.sleeps || self.setup.workers > 1 {
            thread::scope(|scope| {
                for _ in 1..self.setup.workers {
                    scope.spawn(|| executor.run_until_done());
                }
                executor.run_until_done()
            })
        } else {
            executor.run_until_stalled(0)
        };
        // Stalled: the parent was the last, and the stop was not seen.
        assert!(matches!(outcome, RunOutcome::StopRequested | RunOutcome::Stalled), "{outcome:?}");
    }
}

impl Joins for Cops {
    fn spawn_join<F>(self, future: F) -> impl Future<Output = u64> + Send
    where
        F: Future<Output = u64> + Send + 'static,
    {
        let handle = self.executor.spawn_join(future, Priority::DEFAULT).expect("there is memory");
        async { handle.await.expect("it was neither cancelled nor did it panic") }
    }
}
