//! The LocalPool of futures: `run_until`, with the parent as its main future.

use std::cell::{OnceCell, RefCell};
use std::future::Future;

use futures_executor::{LocalPool as Pool, LocalSpawner};
use futures_util::task::{LocalFutureObj, LocalSpawn, LocalSpawnExt};

use super::{Joins, Runtime, Setup, Task};

thread_local! {
    static POOL: RefCell<Option<Pool>> = const { RefCell::new(None) };
    static SPAWNER: OnceCell<LocalSpawner> = const { OnceCell::new() };
}

/// futures-executor's LocalPool, of this thread.
#[derive(Clone, Copy)]
pub struct LocalPool;

impl Runtime for LocalPool {
    type Slots<F: Task> = ();

    fn start(setup: Setup) -> Self {
        assert_eq!(setup.workers, 1, "a pool belongs to a thread");
        let pool = Pool::new();
        SPAWNER.with(|spawner| assert!(spawner.set(pool.spawner()).is_ok(), "one for each thread"));
        POOL.set(Some(pool));
        LocalPool
    }

    fn slots<F: Task>(self, _: usize) {}

    fn spawn<F: Task>(self, (): (), _: usize, future: F, _: u32) {
        SPAWNER.with(|spawner| {
            let spawner = spawner.get().expect("started on this thread");
            spawner.spawn_local_obj(LocalFutureObj::new(Box::new(future))).expect("the pool runs");
        });
    }

    fn run<P: Task>(self, parent: P) {
        let mut pool = POOL.take().expect("started on this thread");
        pool.run_until(parent);
    }
}

impl Joins for LocalPool {
    fn spawn_join<F>(self, future: F) -> impl Future<Output = u64> + Send
    where
        F: Future<Output = u64> + Send + 'static,
    {
        SPAWNER.with(|spawner| {
            let spawner = spawner.get().expect("started on this thread");
            spawner.spawn_local_with_handle(future).expect("the pool runs")
        })
    }
}
