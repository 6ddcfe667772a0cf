//! Handles: spawning from wherever one is.

use std::fmt;
use std::future::Future;

use super::lease;
use super::park;
use super::record::Record;
use crate::core::{CoroutineId, NO_WORKER, Priority};
use crate::front::child::inherited;
use crate::front::{JoinHandle, SpawnError, current};

use ::core::sync::atomic::Ordering;

/// Spawns on a [`Runtime`](super::Runtime), from any thread. A copy of two words; does not keep the
/// runtime alive.
///
/// ```
/// use cops_executor::{Handle, Priority, Runtime};
/// let runtime = Runtime::new(1)?;
/// let handle: Handle = runtime.handle();
/// let answer = std::thread::spawn(move || handle.block_on(handle.spawn(async { 42 }, Priority::DEFAULT)));
/// assert_eq!(answer.join().unwrap(), Ok(42));
/// # Ok::<(), cops_executor::BuildError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Handle {
    pub(super) record: &'static Record,
    pub(super) tenancy: u64,
}

impl Handle {
    /// The runtime, or the executor of a static, that this thread is a worker of; `None` on other
    /// threads.
    ///
    /// ```
    /// use cops_executor::{Handle, Priority, Runtime};
    ///
    /// let runtime = Runtime::new(1)?;
    /// let outer = runtime.spawn(
    ///     async { Handle::current().unwrap().spawn(async { "inner" }, Priority::DEFAULT).await },
    ///     Priority::DEFAULT,
    /// );
    /// assert_eq!(runtime.block_on(outer)?, Ok("inner"));
    /// assert!(Handle::current().is_none(), "this thread is no worker");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn current() -> Option<Handle> {
        let record = Record::of_this_thread()?;
        let tenancy = record.tenancy.load(Ordering::Relaxed);
        // Even: it has ended, and this is one of the last polls or destructors.
        let ended = tenancy != 0 && tenancy.is_multiple_of(2);
        Some(Handle { record, tenancy: tenancy - u64::from(ended) })
    }

    /// Makes a coroutine of `future`, ready to run on any of the workers. It runs until it ends or
    /// is aborted; dropping the handle that this returns detaches it.
    ///
    /// If the runtime has ended, the future is dropped without being polled, and the handle yields
    /// [`JoinError::Cancelled`](crate::JoinError::Cancelled). If it ends at this moment, the future
    /// may be polled before it is dropped.
    ///
    /// ```
    /// use cops_executor::{JoinError, Priority, Runtime};
    ///
    /// let runtime = Runtime::new(1)?;
    /// let handle = runtime.handle();
    /// let sum = std::thread::spawn(move || handle.spawn(async { 2 + 2 }, Priority::DEFAULT)).join().unwrap();
    /// assert_eq!(handle.block_on(sum), Ok(4));
    /// drop(runtime);
    /// let late = handle.spawn(async { 2 + 2 }, Priority::DEFAULT);
    /// assert_eq!(handle.block_on(late), Err(JoinError::Cancelled));
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If there are 2^24 - 1 coroutines. [`Executor::spawn_join`](crate::Executor::spawn_join)
    /// returns an error.
    #[inline]
    pub fn spawn<F>(&self, future: F, priority: Priority) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_if_open(future, priority)
    }

    /// As [`spawn`](Handle::spawn), with the priority of the coroutine that calls: see
    /// [`Executor::spawn_inheriting`](crate::Executor::spawn_inheriting).
    ///
    /// ```
    /// use cops_executor::{Handle, Priority, Runtime, current, priority};
    ///
    /// let runtime = Runtime::new(1)?;
    /// let parent = async {
    ///     let child = async { current().and_then(priority) };
    ///     Handle::current().unwrap().spawn_inheriting(child).await
    /// };
    /// let parent = runtime.spawn(parent, Priority::LEAST_URGENT);
    /// assert_eq!(runtime.block_on(parent)?, Ok(Some(Priority::LEAST_URGENT)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// As `spawn`.
    pub fn spawn_inheriting<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_if_open(future, inherited())
    }

    #[inline(always)]
    fn spawn_if_open<F>(&self, future: F, priority: Priority) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (record, executor) = (self.record, self.record.executor);
        let here = current::current_worker_of(executor.number());
        if here == NO_WORKER || record.tenancy.load(Ordering::Acquire) != self.tenancy {
            return self.spawn_from_outside(future, priority);
        }
        // If another thread ends the runtime now: the sweep comes after this worker has left, and
        // finds the newcomer.
        executor.spawn_join_on(future, priority, here).unwrap_or_else(|error| cannot_spawn(error))
    }

    /// On a thread that is no worker of this executor, or is one no more. Apart, so that workers
    /// have less to remember.
    #[cold]
    #[inline(never)]
    fn spawn_from_outside<F>(&self, future: F, priority: Priority) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let record = self.record;
        if record.tenancy.load(Ordering::Acquire) != self.tenancy {
            return refused(future, record.executor.number());
        }
        let handle = record.executor.spawn_join(future, priority).unwrap_or_else(|error| cannot_spawn(error));
        // It may have ended meanwhile.
        lease::check(record, self.tenancy, handle.id());
        handle
    }

    /// Polls `future` on this thread, which sleeps in between, until it is finished; returns its
    /// output.
    ///
    /// This thread does not become a worker, and never drives the reactor.
    ///
    /// # Panics
    ///
    /// On a worker of the same runtime: it would keep the worker from what `future` may wait for.
    /// Await instead. On a worker of another runtime it works, and blocks that worker.
    ///
    /// ```
    /// # use cops_executor::{Priority, Runtime};
    /// # let runtime = Runtime::new(1)?;
    /// let handle = runtime.handle();
    /// let four = handle.spawn(async { 2 + 2 }, Priority::DEFAULT);
    /// assert_eq!(handle.block_on(async { four.await.map(|four| four + 1) }), Ok(5));
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        assert!(
            current::current_worker_of(self.record.executor.number()) == NO_WORKER,
            "block_on on a worker of the same runtime: await instead"
        );
        park::block_on(future)
    }

    /// Coroutines that have been spawned and have not exited.
    ///
    /// 0 once the runtime has ended.
    ///
    /// ```
    /// # use cops_executor::{Priority, Runtime};
    /// # let runtime = Runtime::new(1)?;
    /// let endless = runtime.spawn(std::future::pending::<()>(), Priority::DEFAULT);
    /// assert_eq!(runtime.handle().live_count(), 1);
    /// endless.abort();
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn live_count(&self) -> u64 {
        if self.record.tenancy.load(Ordering::Relaxed) == self.tenancy {
            self.record.executor.live_count()
        } else {
            0
        }
    }
}

#[cold]
#[inline(never)]
fn cannot_spawn(error: SpawnError) -> ! {
    panic!("cannot spawn: {error}")
}

/// Drops the future, and makes a handle to no coroutine.
#[cold]
fn refused<F: Future>(future: F, executor: u8) -> JoinHandle<F::Output> {
    // No slot has index 0, so this id never names a coroutine.
    let id = CoroutineId::from_raw(1 << 32 | u64::from(executor) << 24);
    JoinHandle::cancelled(future, id.expect("a generation of 1 is one"))
}

impl fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Handle")
            .field("executor", &self.record.executor.number())
            .field("tenancy", &self.tenancy)
            .finish()
    }
}
