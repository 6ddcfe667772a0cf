//! Handles: spawning from wherever one is.

use std::fmt;
use std::future::Future;

use super::context::Context;
use super::lease;
use super::park;
use super::record::Record;
use crate::core::{CoroutineId, Inspection, NO_WORKER, Priority};
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
/// let answer = std::thread::spawn(move || {
///     let sum = handle.spawn_at(async { 40 + 2 }, Priority::MOST_URGENT);
///     handle.block_on(sum)
/// });
/// assert_eq!(answer.join().unwrap(), Ok(42));
/// # Ok::<(), cops_executor::BuildError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Handle {
    pub(super) record: &'static Record,
    pub(super) tenancy: u64,
}

impl Handle {
    /// The runtime that the caller is in: that of the innermost `block_on` of this thread, or the
    /// one (or the executor in a static) that the thread is a worker of; `None` elsewhere.
    ///
    /// ```
    /// use cops_executor::{Handle, Runtime};
    ///
    /// let runtime = Runtime::new(1)?;
    /// let outer = async { Handle::current().unwrap().spawn(async { "inner" }).await };
    /// let outer = runtime.spawn(outer);
    /// assert_eq!(runtime.block_on(outer)?, Ok("inner"));
    /// assert!(Handle::current().is_none(), "this thread is in no runtime");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn current() -> Option<Handle> {
        if let Some(handle) = Context::current() {
            return Some(handle);
        }
        let record = Record::of_this_thread()?;
        let tenancy = record.tenancy.load(Ordering::Relaxed);
        // Even: it has ended, and this is one of the last polls or destructors.
        let ended = tenancy != 0 && tenancy.is_multiple_of(2);
        Some(Handle { record, tenancy: tenancy - u64::from(ended) })
    }

    /// Makes a coroutine of `future`, ready to run on any of the workers, with the priority that
    /// the calling coroutine was given (without what it inherits for a mutex that it holds now);
    /// [`Priority::DEFAULT`] outside of coroutines. It runs until it ends or is aborted; dropping
    /// the handle that this returns detaches it.
    ///
    /// The child's priority is its own from then on: it does not follow the parent's. If the
    /// runtime has ended: see [`spawn_at`](Handle::spawn_at). On any thread, in coroutines and
    /// outside of them; not in interrupt handlers.
    ///
    /// # Panics
    ///
    /// If there are 2^24 - 1 coroutines. [`Executor::spawn_join`](crate::Executor::spawn_join)
    /// returns an error.
    ///
    /// ```
    /// use cops_executor::{Handle, Priority, Runtime, current, priority};
    ///
    /// let runtime = Runtime::new(1)?;
    /// let parent = async {
    ///     let child = async { current().and_then(priority) };
    ///     Handle::current().unwrap().spawn(child).await
    /// };
    /// let parent = runtime.spawn_at(parent, Priority::LEAST_URGENT);
    /// assert_eq!(runtime.block_on(parent)?, Ok(Some(Priority::LEAST_URGENT)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_if_open(future, inherited())
    }

    /// As [`spawn`](Handle::spawn), with the priority of the caller's choice.
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
    /// let spawns = move || handle.spawn_at(async { 2 + 2 }, Priority::DEFAULT);
    /// let sum = std::thread::spawn(spawns).join().unwrap();
    /// assert_eq!(handle.block_on(sum), Ok(4));
    /// drop(runtime);
    /// let late = handle.spawn_at(async { 2 + 2 }, Priority::DEFAULT);
    /// assert_eq!(handle.block_on(late), Err(JoinError::Cancelled));
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    ///
    /// # Panics
    ///
    /// As `spawn`.
    #[inline]
    pub fn spawn_at<F>(&self, future: F, priority: Priority) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_if_open(future, priority)
    }

    #[inline(always)]
    fn spawn_if_open<F>(&self, future: F, priority: Priority) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (record, executor) = (self.record, self.record.executor);
        let here = current::current_worker_of(record.number);
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
            return refused(future, record.number);
        }
        let handle = record
            .executor
            .spawn_join(future, priority)
            .unwrap_or_else(|error| cannot_spawn(error));
        // It may have ended meanwhile.
        lease::check(record, self.tenancy, handle.id());
        handle
    }

    /// Polls `future` on this thread, which sleeps in between, until it is finished; returns its
    /// output.
    ///
    /// In `future`, [`Handle::current`] and the free functions ([`spawn`](crate::spawn)) mean this
    /// runtime. This thread does not become a worker, and never drives the reactor.
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
    /// let four = handle.spawn_at(async { 2 + 2 }, Priority::DEFAULT);
    /// assert_eq!(handle.block_on(async { four.await.map(|four| four + 1) }), Ok(5));
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        assert!(
            current::current_worker_of(self.record.number) == NO_WORKER,
            "block_on on a worker of the same runtime: await instead"
        );
        // A worker of another runtime does not look at the clock meanwhile.
        if let Some(record) = Record::of_this_thread() {
            record.pass_watch_on();
        }
        let _context = Context::of(*self);
        park::block_on(future)
    }

    /// Coroutines that have been spawned and have not exited.
    ///
    /// 0 once the runtime has ended.
    ///
    /// ```
    /// # use cops_executor::{Priority, Runtime};
    /// # let runtime = Runtime::new(1)?;
    /// let endless = runtime.spawn_at(std::future::pending::<()>(), Priority::DEFAULT);
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

    /// Describes the coroutines of the runtime: see
    /// [`Executor::coroutines`](crate::Executor::coroutines). None once it has ended. In any
    /// context.
    ///
    /// ```
    /// # use cops_executor::{Priority, Runtime};
    /// # let runtime = Runtime::new(1)?;
    /// let endless = runtime.spawn_at(std::future::pending::<()>(), Priority::LEAST_URGENT);
    /// let handle = runtime.handle();
    /// let seen: Vec<_> = handle.coroutines().map(|one| (one.id, one.priority)).collect();
    /// assert_eq!(seen, [(endless.id(), Priority::LEAST_URGENT)]);
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn coroutines(&self) -> impl Iterator<Item = Inspection> {
        let is_there = self.record.tenancy.load(Ordering::Relaxed) == self.tenancy;
        is_there.then(|| self.record.executor.coroutines()).into_iter().flatten()
    }
}

#[cold]
#[inline(never)]
pub(super) fn cannot_spawn(error: SpawnError) -> ! {
    panic!("cannot spawn: {error}")
}

/// Drops the future, and makes a handle to no coroutine.
#[cold]
pub(super) fn refused<F: Future>(future: F, executor: u8) -> JoinHandle<F::Output> {
    // No slot has index 0, so this id never names a coroutine.
    let id = CoroutineId::from_raw(1 << 32 | u64::from(executor) << 24);
    JoinHandle::cancelled(future, id.expect("a generation of 1 is one"))
}

impl fmt::Debug for Handle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Handle")
            .field("executor", &self.record.number)
            .field("tenancy", &self.tenancy)
            .finish()
    }
}
