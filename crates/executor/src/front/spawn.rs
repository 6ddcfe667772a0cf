//! Spawning on an executor: boxed futures, with and without a handle, and futures that the caller
//! keeps.

#[cfg(feature = "alloc")]
use ::core::future::Future;

use super::calls;
use super::executor::Executor;
use super::outcome::SpawnError;
#[cfg(feature = "alloc")]
use super::{cell, join::JoinHandle};
use crate::core::{CoroutineId, FutureVTable, Priority, STATUS_NO_MEMORY};

impl Executor {
    /// Makes a coroutine of `future`, ready to run. It runs until it ends or is cancelled, whatever
    /// becomes of the id. Its output is dropped.
    ///
    /// Boxes the future; may call `Hooks::grow`. Otherwise lock-free. Not in interrupt handlers,
    /// because of the box: [`spawn_static`](Executor::spawn_static) makes none.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, RunOutcome};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let id = EXECUTOR.spawn(async { println!("on a worker") }, Priority::DEFAULT)?;
    /// assert_eq!(cops_executor::priority(id), Some(Priority::DEFAULT));
    /// assert_eq!(EXECUTOR.run_until_stalled(0), RunOutcome::Stalled);
    /// assert_eq!(cops_executor::priority(id), None, "it has exited");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SpawnError::OutOfMemory`], [`SpawnError::NotStarted`]: the future has been dropped.
    #[cfg(feature = "alloc")]
    #[inline]
    pub fn spawn<F>(&self, future: F, priority: Priority) -> Result<CoroutineId, SpawnError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn_of_kind::<F, 0>(future, priority)
    }

    /// As [`spawn`](Executor::spawn), of a kind that [inspection](crate::Inspection::kind) shows.
    /// All other functions that spawn make coroutines of kind 0, but for those with a table.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// const CHORE: usize = 7;
    /// let chore = EXECUTOR.spawn_of_kind::<_, CHORE>(async {}, Priority::LEAST_URGENT)?;
    /// let other = EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
    /// let kind = |id| EXECUTOR.inspect(id).map(|one| one.kind);
    /// assert_eq!((kind(chore), kind(other)), (Some(CHORE), Some(0)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SpawnError::OutOfMemory`], [`SpawnError::NotStarted`]: the future has been dropped.
    #[cfg(feature = "alloc")]
    #[inline]
    pub fn spawn_of_kind<F, const KIND: usize>(
        &self,
        future: F,
        priority: Priority,
    ) -> Result<CoroutineId, SpawnError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (data, vtable) = cell::boxed::<F, KIND>(future).ok_or(SpawnError::OutOfMemory)?;
        // SAFETY: `boxed` makes what `spawn` of the core asks for of a future that is Send and
        // 'static.
        #[allow(unsafe_code)]
        let raw =
            unsafe { calls::spawn(&self.core, data, vtable, priority.level() as u32, self.here()) };
        // SAFETY: on an error it is still ours.
        #[allow(unsafe_code)]
        CoroutineId::from_raw(raw).ok_or_else(|| unsafe { refused::<F>(data, raw) })
    }

    /// As [`spawn`](Executor::spawn), with a handle that yields the output and can cancel.
    ///
    /// ```
    /// # use cops_executor::{Executor, JoinError, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let product = EXECUTOR.spawn_join(async { 6 * 7 }, Priority::DEFAULT)?;
    /// let endless = EXECUTOR.spawn_join(std::future::pending::<()>(), Priority::DEFAULT)?;
    /// endless.abort();
    /// assert_eq!(EXECUTOR.block_on(product), Ok(42));
    /// assert_eq!(EXECUTOR.block_on(endless), Err(JoinError::Cancelled));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As `spawn`.
    #[cfg(feature = "alloc")]
    #[inline]
    pub fn spawn_join<F>(
        &self,
        future: F,
        priority: Priority,
    ) -> Result<JoinHandle<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_join_on(future, priority, self.here())
    }

    /// As `spawn_join`, by a caller that knows which worker of this executor it is.
    #[cfg(feature = "alloc")]
    #[inline(always)]
    pub(crate) fn spawn_join_on<F>(
        &self,
        future: F,
        priority: Priority,
        here: u32,
    ) -> Result<JoinHandle<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // SAFETY: any worker may poll and drop what is Send.
        #[allow(unsafe_code)]
        unsafe {
            self.spawn_join_unchecked(future, priority, here)
        }
    }

    /// As `spawn_join_on`, of a future that need not be Send.
    ///
    /// # Safety
    ///
    /// If the future or its output is not Send, this thread alone runs workers of this executor,
    /// as long as the coroutine lives.
    #[cfg(feature = "alloc")]
    #[allow(unsafe_code)]
    #[inline(always)]
    pub(crate) unsafe fn spawn_join_unchecked<F>(
        &self,
        future: F,
        priority: Priority,
        here: u32,
    ) -> Result<JoinHandle<F::Output>, SpawnError>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let (data, vtable, handle) = JoinHandle::prepare(future).ok_or(SpawnError::OutOfMemory)?;
        // SAFETY: `prepare` makes what `spawn` of the core asks for of a future that is 'static,
        // and by contract it is polled and dropped where it may be.
        let raw = unsafe { calls::spawn(&self.core, data, vtable, priority.level() as u32, here) };
        if let Some(id) = CoroutineId::from_raw(raw) {
            return Ok(handle.finish(id));
        }
        // SAFETY: it was not spawned, so it is ours to drop, once.
        unsafe { (vtable.drop)(data) };
        Err(refusal(raw))
    }

    /// Makes a coroutine of a future that the caller keeps in its own way.
    ///
    /// # Safety
    ///
    /// `data` and `vtable` obey the rules of [`FutureVTable`], and may be polled and dropped on any
    /// worker. On an error `data` is still the caller's.
    ///
    /// # Errors
    ///
    /// [`SpawnError::OutOfMemory`], [`SpawnError::NotStarted`].
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// use cops_executor::FutureVTable;
    /// # unsafe extern "C" fn poll(_data: *mut (), _id: u64) -> bool { true }
    /// # unsafe extern "C" fn drop_future(_data: *mut ()) {}
    /// // Of functions that poll and drop what `data` points to; here it is ready at once.
    /// static READY: FutureVTable = FutureVTable { poll, drop: drop_future, kind: 0 };
    /// // SAFETY: they need no data, and any worker may call them.
    /// let id = unsafe { EXECUTOR.spawn_raw(std::ptr::null_mut(), &READY, Priority::DEFAULT) }?;
    /// EXECUTOR.run_until_stalled(0);
    /// assert!(!cops_executor::wake_up(id), "it has exited");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(unsafe_code)]
    #[inline]
    pub unsafe fn spawn_raw(
        &self,
        data: *mut (),
        vtable: &'static FutureVTable,
        priority: Priority,
    ) -> Result<CoroutineId, SpawnError> {
        // SAFETY: this function has the same contract for `data` and `vtable`.
        spawned(unsafe {
            calls::spawn(&self.core, data, vtable, priority.level() as u32, self.here())
        })
    }

    /// As [`spawn_raw`](Executor::spawn_raw), but the coroutine is not polled before it is woken:
    /// for a caller that knows the future to be pending and registers the id where it waits. A wake
    /// that comes before the registration is the caller's to find, by looking again after it.
    ///
    /// # Safety
    ///
    /// As `spawn_raw`.
    ///
    /// # Errors
    ///
    /// As `spawn_raw`; `data` is still the caller's then.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// use cops_executor::FutureVTable;
    /// # unsafe extern "C" fn poll(_data: *mut (), _id: u64) -> bool { true }
    /// # unsafe extern "C" fn drop_future(_data: *mut ()) {}
    /// // As for `spawn_raw`.
    /// static READY: FutureVTable = FutureVTable { poll, drop: drop_future, kind: 0 };
    /// // SAFETY: they need no data, and any worker may call them.
    /// let (data, priority) = (std::ptr::null_mut(), Priority::DEFAULT);
    /// let id = unsafe { EXECUTOR.spawn_raw_blocked(data, &READY, priority) }?;
    /// EXECUTOR.run_until_stalled(0);
    /// assert_eq!(EXECUTOR.live_count(), 1, "it waits");
    /// assert!(cops_executor::wake_up(id));
    /// EXECUTOR.run_until_stalled(0);
    /// assert_eq!(EXECUTOR.live_count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(unsafe_code)]
    pub unsafe fn spawn_raw_blocked(
        &self,
        data: *mut (),
        vtable: &'static FutureVTable,
        priority: Priority,
    ) -> Result<CoroutineId, SpawnError> {
        let level = priority.level() as u32;
        // SAFETY: this function has the same contract for `data` and `vtable`.
        spawned(unsafe { calls::spawn_blocked(&self.core, data, vtable, level, self.here()) })
    }
}

/// Why the future of `data` was not spawned; drops it.
///
/// # Safety
///
/// `data` is from `cell::boxed::<F>`, and the caller's.
#[cfg(feature = "alloc")]
#[allow(unsafe_code)]
#[cold]
unsafe fn refused<F>(data: *mut (), status: u64) -> SpawnError {
    // SAFETY: by contract `data` is from `cell::boxed::<F>`, and nothing else uses it after the
    // refused spawn.
    unsafe { cell::unbox::<F>(data) };
    refusal(status)
}

/// What a status of the core's spawns means.
#[cold]
fn refusal(status: u64) -> SpawnError {
    if status == STATUS_NO_MEMORY as u64 { SpawnError::OutOfMemory } else { SpawnError::NotStarted }
}

/// What the core's spawns return: an id, or a status.
#[inline]
fn spawned(raw: u64) -> Result<CoroutineId, SpawnError> {
    CoroutineId::from_raw(raw).ok_or_else(|| refusal(raw))
}
