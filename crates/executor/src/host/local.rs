//! Coroutines that stay on the thread that spawned them: a runtime with one worker, the calling
//! thread.
//!
//! # Why a future that is not Send never leaves its thread
//!
//! Only a thread that runs a worker of an executor polls or drops futures there. The executor of a
//! `LocalRuntime` is leased for it alone (`lease`), and is run in two places: `block_on`, and the
//! sweep at the end. The runtime is not Send, so both are on the thread that made it. Handles of
//! other threads may spawn on the executor, and a late one sweeps it again; they bring futures that
//! are Send, and what is not was dropped by the first sweep. What a destructor spawns during a
//! sweep is refused, and dropped where it is, because the tenancy is closed by then.
//!
//! Other workers do not steal from it: stealing is between the workers of one executor.
#![allow(unsafe_code)]

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::atomic::Ordering;

use super::handle::{self, Handle};
use super::lease;
use super::lend;
use super::record::Record;
use super::runtime::BuildError;
use crate::core::Priority;
use crate::front::JoinHandle;
use crate::front::child::inherited;

/// The worker that the thread is.
const WORKER: u32 = 0;

/// A runtime of one thread, the one that makes it: its coroutines need not be `Send`.
///
/// They run while the thread is in [`block_on`](LocalRuntime::block_on), in order of priority. The
/// future of `block_on` itself is polled before them, whenever it has been woken.
///
/// # The end
///
/// Dropping it drops every coroutine that is left, on this thread, without polling it again; its
/// join handle yields [`JoinError::Cancelled`](crate::JoinError::Cancelled).
///
/// ```
/// use cops_executor::{LocalRuntime, spawn_local};
/// use std::{cell::Cell, rc::Rc};
///
/// let runtime = LocalRuntime::new()?;
/// let count = Rc::new(Cell::new(0));
/// runtime.block_on(async {
///     let counted = count.clone();
///     spawn_local(async move { counted.set(counted.get() + 1) }).await
/// })?;
/// assert_eq!(count.get(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It stays on its thread:
///
/// ```compile_fail
/// let runtime = cops_executor::LocalRuntime::new().unwrap();
/// std::thread::spawn(move || drop(runtime));
/// ```
pub struct LocalRuntime {
    handle: Handle,
    /// Neither Send nor Sync.
    stays: PhantomData<*const ()>,
}

impl LocalRuntime {
    /// A runtime of the calling thread. A thread may have several.
    ///
    /// # Errors
    ///
    /// [`BuildError::NumbersExhausted`].
    ///
    /// ```
    /// # use cops_executor::LocalRuntime;
    /// assert_eq!(LocalRuntime::new()?.block_on(async { 42 }), 42);
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn new() -> Result<LocalRuntime, BuildError> {
        let (record, tenancy) = lease::take(1, true).ok_or(BuildError::NumbersExhausted)?;
        Ok(LocalRuntime { handle: Handle { record, tenancy }, stays: PhantomData })
    }

    /// A handle to spawn with from other threads: what is `Send`.
    ///
    /// ```
    /// # use cops_executor::LocalRuntime;
    /// let runtime = LocalRuntime::new()?;
    /// let handle = runtime.handle();
    /// let spawns = move || handle.spawn(async { "from elsewhere" });
    /// let spawned = std::thread::spawn(spawns).join().unwrap();
    /// assert_eq!(runtime.block_on(spawned), Ok("from elsewhere"));
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Makes a coroutine of `future` that runs on this thread only, with the caller's priority: see
    /// [`Handle::spawn`].
    ///
    /// # Panics
    ///
    /// If there are 2^24 - 1 coroutines.
    ///
    /// ```
    /// # use cops_executor::LocalRuntime;
    /// let runtime = LocalRuntime::new()?;
    /// let text = std::rc::Rc::new("not Send");
    /// let length = runtime.spawn_local(async move { text.len() });
    /// assert_eq!(runtime.block_on(length), Ok(8));
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn spawn_local<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.spawn_local_at(future, inherited())
    }

    /// As [`spawn_local`](LocalRuntime::spawn_local), with the priority of the caller's choice.
    ///
    /// # Panics
    ///
    /// As `spawn_local`.
    ///
    /// ```
    /// # use cops_executor::{LocalRuntime, Priority, current, priority};
    /// let runtime = LocalRuntime::new()?;
    /// let urgent = async { current().and_then(priority) };
    /// let urgent = runtime.spawn_local_at(urgent, Priority::MOST_URGENT);
    /// assert_eq!(runtime.block_on(urgent), Ok(Some(Priority::MOST_URGENT)));
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn spawn_local_at<F>(&self, future: F, priority: Priority) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        // SAFETY: the runtime is not Send, so this is its thread.
        unsafe { spawn(self.handle.record, future, priority) }
    }

    /// Runs coroutines on this thread until `future` is finished; returns its output. Coroutines
    /// that are left run on in the next `block_on`.
    ///
    /// In `future`, and in the coroutines, the free functions ([`spawn`](crate::spawn),
    /// [`spawn_local`](crate::spawn_local)) mean this runtime.
    ///
    /// # Panics
    ///
    /// In a coroutine, or the `block_on`, of the same runtime.
    ///
    /// ```
    /// # use cops_executor::LocalRuntime;
    /// let runtime = LocalRuntime::new()?;
    /// assert_eq!(runtime.block_on(async { 2 + 2 }), 4);
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let record = self.handle.record;
        let Some(claim) = record.claim(WORKER) else {
            panic!("block_on in a block_on of the same runtime: await instead")
        };
        lend::block_on(record, WORKER, claim, future)
    }
}

impl Drop for LocalRuntime {
    fn drop(&mut self) {
        let Handle { record, tenancy } = self.handle;
        // In this order: head of `lease`.
        lease::close(record, tenancy);
        lease::leave(record);
    }
}

impl fmt::Debug for LocalRuntime {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("LocalRuntime").field("handle", &self.handle).finish()
    }
}

/// Spawns on the `LocalRuntime` that this thread is in; gives the future back if there is none.
pub(super) fn spawn_here<F>(future: F, priority: Priority) -> Result<JoinHandle<F::Output>, F>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let record = Record::of_this_thread().filter(|record| record.is_local.load(Ordering::Relaxed));
    let Some(record) = record else { return Err(future) };
    // SAFETY: this thread is a worker of the executor, so by the head of this file it is the
    // runtime's thread, or sweeps, and then the future is refused.
    Ok(unsafe { spawn(record, future, priority) })
}

/// Spawns on the executor of a `LocalRuntime`, unless it has ended.
///
/// # Safety
///
/// This is the runtime's thread, or its tenancy is closed.
unsafe fn spawn<F>(record: &'static Record, future: F, priority: Priority) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    if record.tenancy.load(Ordering::Acquire).is_multiple_of(2) {
        return handle::refused(future, record.number);
    }
    // SAFETY: head of this file: as long as the tenancy is open only this thread runs the worker,
    // and at its end this thread drops what is left.
    let spawned = unsafe { record.executor.spawn_join_unchecked(future, priority, WORKER) };
    spawned.unwrap_or_else(|error| handle::cannot_spawn(error))
}
