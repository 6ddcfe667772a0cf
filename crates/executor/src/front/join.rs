//! Join handles: await a coroutine's output, or abort it.
//!
//! A coroutine with a handle is one block of memory: what the two sides share, and the future. The sides are the handle, and the
//! coroutine, by the vtable in this file. The side that goes last frees the block.
//!
//! Unsafe: that block by hand. Both sides hold a pointer to it while `sides` counts them; `phase` says which of them may touch
//! which cell; the future is the coroutine's alone.
#![allow(unsafe_code)]

use ::core::cell::UnsafeCell;
use ::core::future::Future;
use ::core::mem::ManuallyDrop;
use ::core::pin::Pin;
use ::core::ptr::NonNull;
use ::core::sync::atomic::{AtomicU8, Ordering, fence};
use ::core::task::{Context, Poll, Waker};

use super::cell::{place, unbox};
use super::join_error::JoinError;
use super::registry;
use super::waker::waker_of_raw;
use crate::core::{CoroutineId, FutureVTable};

/// A future of a coroutine's output.
///
/// Dropping it detaches the coroutine, which runs on. Awaiting is cancel-safe: the output stays until a
/// poll of the handle returns it. Polling again after that panics.
///
/// ```
/// # use cops_executor::{Executor, Priority};
/// # static EXECUTOR: Executor = Executor::new(1);
/// # EXECUTOR.start_on_host(1)?;
/// let mut handle = EXECUTOR.spawn_join(async { 6 * 7 }, Priority::DEFAULT)?;
/// // By reference, as in a `select`: if it is dropped before it is ready, nothing is lost.
/// assert_eq!(EXECUTOR.block_on(0, &mut handle)?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "await it, or drop it to detach the coroutine"]
pub struct JoinHandle<T> {
    id: CoroutineId,
    side: Side<T>,
}

/// The handle does not wait: `waker` is the handle's to write.
const EMPTY: u8 = 0;
/// The handle has left a waker and will take it back before it touches it.
const WAITING: u8 = 1;
/// `value` is there: it is the handle's, and `waker` is the coroutine's if it was WAITING before.
const DONE: u8 = 2;

/// What the two sides share.
struct Shared<T> {
    phase: AtomicU8,
    /// How many of the two are left.
    sides: AtomicU8,
    waker: UnsafeCell<Option<Waker>>,
    value: UnsafeCell<Option<Result<T, JoinError>>>,
    /// Frees the block: the handle does not know its full type.
    free: unsafe fn(NonNull<Shared<T>>),
}

/// The block. `Shared` comes first, so a pointer to one is a pointer to the other.
#[repr(C)]
struct Block<F: Future> {
    shared: Shared<F::Output>,
    future: UnsafeCell<ManuallyDrop<F>>,
}

impl<T> Shared<T> {
    /// The coroutine's side, once.
    fn complete(&self, value: Result<T, JoinError>) {
        // SAFETY: not DONE yet, so the value is ours.
        unsafe { *self.value.get() = Some(value) };
        // Release: the value. Acquire: the waker.
        if self.phase.swap(DONE, Ordering::AcqRel) == WAITING {
            // SAFETY: it was WAITING and is DONE: the waker is ours.
            if let Some(waker) = unsafe { (*self.waker.get()).take() } {
                waker.wake();
            }
        }
    }

    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<T, JoinError>> {
        let retracted = self.phase.compare_exchange(WAITING, EMPTY, Ordering::Acquire, Ordering::Acquire);
        if retracted != Err(DONE) {
            // SAFETY: EMPTY, and only the handle, which is borrowed exclusively, leaves EMPTY for WAITING.
            unsafe { (*self.waker.get()).get_or_insert_with(|| context.waker().clone()) }
                .clone_from(context.waker());
            let left = self.phase.compare_exchange(EMPTY, WAITING, Ordering::AcqRel, Ordering::Acquire);
            if left.is_ok() {
                return Poll::Pending;
            }
        }
        // SAFETY: DONE, so the value is the handle's, which is borrowed exclusively.
        let value = unsafe { (*self.value.get()).take() };
        Poll::Ready(value.expect("a join handle was polled after it had returned the output"))
    }
}

/// One of the two that `Shared::sides` counts.
struct Side<T>(NonNull<Shared<T>>);

// SAFETY: `phase` says which side owns each cell (constants above); the value goes from one thread to another.
unsafe impl<T: Send> Send for Side<T> {}
// SAFETY: as above; what a shared handle gives access to is `phase`.
unsafe impl<T: Send> Sync for Side<T> {}

impl<T> Side<T> {
    fn shared(&self) -> &Shared<T> {
        // SAFETY: this side is counted, so the block is there.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Side<T> {
    fn drop(&mut self) {
        // Release: what this side did comes before the block is freed, by either side.
        if self.shared().sides.fetch_sub(1, Ordering::Release) == 1 {
            fence(Ordering::Acquire);
            // SAFETY: the other side is gone, and this one touches nothing after this.
            unsafe { (self.shared().free)(self.0) };
        }
    }
}

impl<F: Future> Block<F> {
    const VTABLE: &'static FutureVTable = &FutureVTable { poll: poll::<F>, drop: drop_future::<F> };
}

/// Drops what is left of the shared part, and frees the block.
///
/// # Safety
///
/// `shared` is that of a `Block<F>` from `JoinHandle::prepare`. Its future was dropped, and both sides are gone.
unsafe fn free<F: Future>(shared: NonNull<Shared<F::Output>>) {
    // SAFETY: by contract it is used no more, and `prepare` made it by `place`. The future is not dropped again: `ManuallyDrop`.
    unsafe { unbox::<Block<F>>(shared.as_ptr().cast()) };
}

/// `FutureVTable::poll` of coroutines with a handle.
///
/// # Safety
///
/// `data` is from `JoinHandle::prepare` with a future of type `F`, which nothing else uses during the call.
unsafe extern "C" fn poll<F: Future>(data: *mut (), id: u64) -> bool {
    // SAFETY: the coroutine's side is counted until `drop_future`.
    let block = unsafe { &*data.cast::<Block<F>>() };
    // SAFETY: the future is the coroutine's alone, and stays where it is: so it is pinned.
    let future = unsafe { Pin::new_unchecked(&mut **block.future.get()) };
    // Not dropped: there is nothing to drop (`front::poll`).
    let waker = ManuallyDrop::new(waker_of_raw(id));
    let mut context = Context::from_waker(&waker);
    #[cfg(not(feature = "std"))]
    let polled = future.poll(&mut context).map(Ok);
    // A panic must not cross into the core. The future is not polled again, so its broken state is not seen.
    #[cfg(feature = "std")]
    let polled =
        match std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || future.poll(&mut context))) {
            Ok(polled) => polled.map(Ok),
            Err(payload) => Poll::Ready(Err(JoinError::panicked(payload))),
        };
    match polled {
        Poll::Pending => false,
        Poll::Ready(value) => {
            block.shared.complete(value);
            true
        }
    }
}

/// `FutureVTable::drop` of coroutines with a handle: the end of the coroutine's side.
///
/// # Safety
///
/// As `poll`, and once.
unsafe extern "C" fn drop_future<F: Future>(data: *mut ()) {
    // SAFETY: `prepare` made it, and counted this side.
    let side = unsafe { Side(NonNull::new_unchecked(data.cast::<Shared<F::Output>>())) };
    // SAFETY: dropped here and never again; it is not polled any more.
    unsafe { ManuallyDrop::drop(&mut *(*data.cast::<Block<F>>()).future.get()) };
    // Relaxed: this side alone sets it.
    if side.shared().phase.load(Ordering::Relaxed) != DONE {
        side.shared().complete(Err(JoinError::Cancelled));
    }
}

impl<T> JoinHandle<T> {
    /// Boxes a future for `spawn_raw`, so that its output goes to the handle that `finish` makes.
    #[inline]
    pub(super) fn prepare<F: Future<Output = T>>(
        future: F,
    ) -> (*mut (), &'static FutureVTable, PendingHandle<T>) {
        let shared = Shared {
            phase: AtomicU8::new(EMPTY),
            sides: AtomicU8::new(2),
            waker: UnsafeCell::new(None),
            value: UnsafeCell::new(None),
            free: free::<F>,
        };
        let block = place(Block { shared, future: UnsafeCell::new(ManuallyDrop::new(future)) });
        (block.as_ptr().cast(), Block::<F>::VTABLE, PendingHandle(Side(block.cast())))
    }

    /// Drops a future that is not spawned after all. The handle yields `Cancelled`.
    #[cfg(feature = "std")]
    pub(super) fn cancelled<F: Future<Output = T>>(future: F, id: CoroutineId) -> JoinHandle<T> {
        let (data, vtable, handle) = JoinHandle::prepare(future);
        // SAFETY: from `prepare`, and not spawned: dropped here and never again.
        unsafe { (vtable.drop)(data) };
        handle.finish(id)
    }

    /// The coroutine's id.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new(1);
    /// # EXECUTOR.start_on_host(1)?;
    /// let handle = EXECUTOR.spawn_join(async {}, Priority::DEFAULT)?;
    /// assert_eq!(cops_executor::priority(handle.id()), Some(Priority::DEFAULT));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn id(&self) -> CoroutineId {
        self.id
    }

    /// Cancels the coroutine, see [`cancel`](super::cancel). Awaiting the handle then yields
    /// [`JoinError::Cancelled`], or the output if that came first.
    ///
    /// In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::{Executor, JoinError, Priority};
    /// # static EXECUTOR: Executor = Executor::new(1);
    /// # EXECUTOR.start_on_host(1)?;
    /// let handle = EXECUTOR.spawn_join(std::future::pending::<()>(), Priority::DEFAULT)?;
    /// handle.abort();
    /// assert_eq!(EXECUTOR.block_on(0, handle), Err(JoinError::Cancelled));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn abort(&self) {
        registry::cancel(self.id);
    }

    /// Whether the output, or the reason why there is none, is there.
    ///
    /// In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new(1);
    /// # EXECUTOR.start_on_host(1)?;
    /// let handle = EXECUTOR.spawn_join(async {}, Priority::DEFAULT)?;
    /// assert!(!handle.is_finished());
    /// EXECUTOR.run_until_stalled(0);
    /// assert!(handle.is_finished());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_finished(&self) -> bool {
        self.side.shared().phase.load(Ordering::Acquire) == DONE
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.side.shared().poll(context)
    }
}

/// A handle whose coroutine has no id yet.
pub(super) struct PendingHandle<T>(Side<T>);

impl<T> PendingHandle<T> {
    pub fn finish(self, id: CoroutineId) -> JoinHandle<T> {
        JoinHandle { id, side: self.0 }
    }
}
