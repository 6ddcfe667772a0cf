//! Join handles: await a coroutine's output, or abort it.
//!
//! A coroutine with a handle is one block of memory: what the two sides share, and the future. The
//! sides are the handle, and the coroutine, by the vtable in this file. The side that goes last
//! frees the block.
//!
//! `state` has four bits, each set by one side:
//!
//! | bit | set by | says | from then on |
//! | --- | --- | --- | --- |
//! | `WAITING` | the handle, which may clear it again | there is a waker | the coroutine takes the waker when it sets `DONE` |
//! | `DONE` | the coroutine | there is an output | the output is the handle's, the waker the coroutine's |
//! | `DETACHED` | the handle | the handle is gone | the coroutine frees the block |
//! | `ENDED` | the coroutine | the future is dropped, and the coroutine gone | the handle frees the block |
//!
//! All but `WAITING` are set once, so they are added: that returns what was before in one
//! instruction on most machines. Of `DETACHED` and `ENDED` the second to be set frees. A coroutine
//! that finds `DETACHED` alone when it has finished, which is the most common life of a coroutine,
//! leaves no output, and frees the block without another atomic update.
//!
//! Unsafe: that block by hand. Both sides hold a pointer to it until it is freed; `state` says
//! which of them may touch which cell; the future is the coroutine's alone.
#![allow(unsafe_code)]

use ::core::cell::UnsafeCell;
use ::core::future::Future;
use ::core::mem::ManuallyDrop;
use ::core::pin::Pin;
use ::core::ptr::{self, NonNull};
use ::core::task::{Context, Poll, Waker};

use super::join_error::JoinError;
use super::registry;
use super::{pool, waker::waker_of_raw};
use crate::core::atomic::{AtomicU32, Ordering};
use crate::core::{CoroutineId, FutureVTable};

/// A future of a coroutine's output.
///
/// Dropping it, as the statement `spawn(future);` does, detaches the coroutine, which runs on: see
/// [`abort_on_drop`](JoinHandle::abort_on_drop) for the other choice. Awaiting is cancel-safe: the
/// output stays until a poll of the handle returns it. Polling again after that panics.
///
/// ```
/// # use cops_executor::{Executor, Priority};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let mut handle = EXECUTOR.spawn_join(async { 6 * 7 }, Priority::DEFAULT)?;
/// // By reference, as in a `select`: if it is dropped before it is ready, nothing is lost.
/// assert_eq!(EXECUTOR.block_on(&mut handle)?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct JoinHandle<T> {
    id: CoroutineId,
    side: Side<T>,
}

const WAITING: u32 = 1;
const DONE: u32 = 2;
const DETACHED: u32 = 4;
const ENDED: u32 = 8;

/// What the two sides share.
struct Shared<T> {
    state: AtomicU32,
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
    #[inline(always)]
    fn complete(&self, value: Result<T, JoinError>) {
        // Relaxed: the handle has left nothing for this. If it goes after this look, the output is
        // freed with the block.
        if self.state.load(Ordering::Relaxed) & DETACHED == 0 {
            self.leave(value);
        }
    }

    /// Leaves the output to the handle, and wakes the coroutine that awaits it.
    #[inline(never)]
    fn leave(&self, value: Result<T, JoinError>) {
        // SAFETY: not DONE yet, so the value is ours.
        unsafe { *self.value.get() = Some(value) };
        // Release: the value. Acquire: the waker.
        if self.state.fetch_add(DONE, Ordering::AcqRel) & WAITING != 0 {
            // SAFETY: it was WAITING and is DONE: the waker is ours.
            if let Some(waker) = unsafe { (*self.waker.get()).take() } {
                waker.wake();
            }
        }
    }

    /// The handle's side.
    fn poll(&self, context: &mut Context<'_>) -> Poll<Result<T, JoinError>> {
        // Acquire: the value. The handle is there, and the coroutine ends after it has set DONE: so
        // without DONE there is no bit but WAITING.
        let mut state = self.state.load(Ordering::Acquire);
        if state == WAITING {
            let retracted =
                self.state.compare_exchange(WAITING, 0, Ordering::Acquire, Ordering::Acquire);
            state = if let Err(now) = retracted { now } else { 0 };
        }
        if state == 0 {
            // SAFETY: the state is 0, so the waker is the handle's until it sets WAITING; and the
            // handle is borrowed exclusively.
            match unsafe { &mut *self.waker.get() } {
                Some(waker) => waker.clone_from(context.waker()),
                none => *none = Some(context.waker().clone()),
            }
            // Release: the waker. Acquire: the value.
            let left = self.state.compare_exchange(0, WAITING, Ordering::AcqRel, Ordering::Acquire);
            if left.is_ok() {
                return Poll::Pending;
            }
        }
        // SAFETY: DONE, so the value is the handle's, which is borrowed exclusively.
        let value = unsafe { (*self.value.get()).take() };
        Poll::Ready(value.expect("a join handle was polled after it had returned the output"))
    }

    fn is_done(&self, order: Ordering) -> bool {
        self.state.load(order) & DONE != 0
    }
}

/// The handle's side of a block.
struct Side<T>(NonNull<Shared<T>>);

// SAFETY: `state` says which side owns each cell; the value goes from one thread to another.
unsafe impl<T: Send> Send for Side<T> {}
// SAFETY: a shared handle gives access only to `state`, which is an atomic; `state` says which side
// owns each cell.
unsafe impl<T: Send> Sync for Side<T> {}

impl<T> Side<T> {
    fn shared(&self) -> &Shared<T> {
        // SAFETY: this side has not gone, so the block is there.
        unsafe { self.0.as_ref() }
    }
}

impl<T> Drop for Side<T> {
    #[inline]
    fn drop(&mut self) {
        // Release: what this side did comes before the block is freed. Acquire: what the other did.
        if self.shared().state.fetch_add(DETACHED, Ordering::AcqRel) & ENDED != 0 {
            // SAFETY: the coroutine is gone, and this side touches nothing after this.
            unsafe { (self.shared().free)(self.0) };
        }
    }
}

impl<F: Future> Block<F> {
    const VTABLE: &'static FutureVTable =
        &FutureVTable { poll: poll::<F>, drop: drop_future::<F>, kind: 0 };
}

/// Drops what is left of the shared part, and frees the block.
///
/// # Safety
///
/// `shared` is that of a `Block<F>` from `JoinHandle::prepare`. Its future was dropped, and both
/// sides are gone.
unsafe fn free<F: Future>(shared: NonNull<Shared<F::Output>>) {
    // SAFETY: by contract the block is used no more, and `prepare` made it. Its cells are dropped
    // here, and its future was before. (Should the output's destructor panic, the memory is
    // leaked.)
    unsafe {
        let cells = shared.as_ref();
        ptr::drop_in_place(cells.waker.get());
        ptr::drop_in_place(cells.value.get());
        pool::release(shared.cast::<Block<F>>());
    }
}

/// `FutureVTable::poll` of coroutines with a handle.
///
/// # Safety
///
/// `data` is from `JoinHandle::prepare` with a future of type `F`, which nothing else uses during
/// the call.
unsafe extern "C" fn poll<F: Future>(data: *mut (), id: u64) -> bool {
    // SAFETY: the coroutine's side is there until `drop_future`.
    let block = unsafe { &*data.cast::<Block<F>>() };
    // SAFETY: the future is the coroutine's alone, and stays where it is: so it is pinned.
    let future = unsafe { Pin::new_unchecked(&mut **block.future.get()) };
    // Not dropped: there is nothing to drop (`front::poll`).
    let waker = ManuallyDrop::new(waker_of_raw(id));
    let mut context = Context::from_waker(&waker);
    #[cfg(not(feature = "std"))]
    let polled = future.poll(&mut context);
    // A panic must not cross into the core. The future is not polled again, so its broken state is
    // not seen.
    #[cfg(feature = "std")]
    let polled = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        future.poll(&mut context)
    })) {
        Ok(polled) => polled,
        Err(payload) => {
            block.shared.complete(Err(JoinError::panicked(payload)));
            return true;
        }
    };
    match polled {
        Poll::Pending => false,
        Poll::Ready(value) => {
            block.shared.complete(Ok(value));
            true
        }
    }
}

/// # Safety
///
/// As `FutureVTable` says, for what `prepare` has given.
unsafe extern "C" fn drop_future<F: Future>(data: *mut ()) {
    let block = data.cast::<Block<F>>();
    // SAFETY: the coroutine's side goes at the end of this. The future is dropped here and never
    // again; it is not polled any more.
    unsafe { ManuallyDrop::drop(&mut *(*block).future.get()) };
    // SAFETY: the block exists until this side has gone, at the end of this function, and this
    // reference is not used after that; other references to the shared part are shared too.
    let shared = unsafe { &(*block).shared };
    // Acquire: what the handle did.
    if shared.state.load(Ordering::Acquire) == DETACHED {
        // There is no output, and no waker unless cloning another one over it has panicked; then
        // it is leaked.
        // SAFETY: the handle is gone, and the future is dropped: nothing uses the block any more.
        return unsafe { pool::release(NonNull::new_unchecked(block)) };
    }
    // SAFETY: `data` is the block of a `Block<F>` with its future dropped just above, and the
    // coroutine's side has not ended before.
    unsafe { end::<F>(NonNull::new_unchecked(data.cast())) }
}

/// The coroutine's side goes, and there is a handle, or has been one when the output came. Apart,
/// so that what is more common saves no registers.
///
/// # Safety
///
/// `block` points to a `Block<F>` by its shared part, its future is dropped, and the coroutine's
/// side has not ended.
#[inline(never)]
unsafe fn end<F: Future>(block: NonNull<Shared<F::Output>>) {
    // SAFETY: by contract the coroutine's side has not ended, so the block exists.
    let shared = unsafe { block.as_ref() };
    // Relaxed: this side alone sets it.
    if !shared.is_done(Ordering::Relaxed) {
        shared.complete(Err(JoinError::Cancelled));
    }
    // As in `Side::drop`.
    if shared.state.fetch_add(ENDED, Ordering::AcqRel) & DETACHED != 0 {
        // SAFETY: the handle is gone, and this side touches nothing after this.
        unsafe { free::<F>(block) };
    }
}

impl<T> JoinHandle<T> {
    /// Boxes a future for `spawn_raw`, so that its output goes to the handle that `finish` makes.
    /// Drops it if there is no memory.
    #[inline]
    pub(crate) fn prepare<F: Future<Output = T>>(
        future: F,
    ) -> Option<(*mut (), &'static FutureVTable, PendingHandle<T>)> {
        let block = pool::allocate::<Block<F>>()?;
        // Field by field, so that the block is not put together elsewhere and copied.
        // SAFETY: `pool::allocate` has just returned this memory for a block, and nothing else
        // refers to it.
        unsafe {
            let place = block.as_ptr();
            (&raw mut (*place).shared.state).write(AtomicU32::new(0));
            (&raw mut (*place).shared.waker).write(UnsafeCell::new(None));
            (&raw mut (*place).shared.value).write(UnsafeCell::new(None));
            (&raw mut (*place).shared.free).write(free::<F>);
            (&raw mut (*place).future).write(UnsafeCell::new(ManuallyDrop::new(future)));
        }
        Some((block.as_ptr().cast(), Block::<F>::VTABLE, PendingHandle(Side(block.cast()))))
    }

    /// Drops a future that is not spawned after all. The handle yields `Cancelled`. Without memory
    /// for it, the process ends.
    #[cfg(feature = "std")]
    pub(crate) fn cancelled<F: Future<Output = T>>(future: F, id: CoroutineId) -> JoinHandle<T> {
        let Some((data, vtable, handle)) = JoinHandle::prepare(future) else {
            std::alloc::handle_alloc_error(::core::alloc::Layout::new::<Block<F>>());
        };
        // SAFETY: from `prepare`, and not spawned: dropped here and never again.
        unsafe { (vtable.drop)(data) };
        handle.finish(id)
    }

    /// The coroutine's id.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
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
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let handle = EXECUTOR.spawn_join(std::future::pending::<()>(), Priority::DEFAULT)?;
    /// handle.abort();
    /// assert_eq!(EXECUTOR.block_on(handle), Err(JoinError::Cancelled));
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
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let handle = EXECUTOR.spawn_join(async {}, Priority::DEFAULT)?;
    /// assert!(!handle.is_finished());
    /// EXECUTOR.run_until_stalled(0);
    /// assert!(handle.is_finished());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_finished(&self) -> bool {
        self.side.shared().is_done(Ordering::Acquire)
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.side.shared().poll(context)
    }
}

/// A handle to a coroutine without an id so far.
pub(crate) struct PendingHandle<T>(Side<T>);

impl<T> PendingHandle<T> {
    pub fn finish(self, id: CoroutineId) -> JoinHandle<T> {
        JoinHandle { id, side: self.0 }
    }
}

/// For the model checker and tests: the two sides of a block, without an executor.
#[cfg(any(loom, test))]
#[doc(hidden)]
pub mod modelled {
    use super::{Future, FutureVTable, JoinHandle};
    use crate::core::CoroutineId;

    /// The coroutine's side.
    pub struct Side(*mut (), &'static FutureVTable);

    pub fn sides<F: Future + 'static>(future: F) -> (JoinHandle<F::Output>, Side) {
        let (data, vtable, handle) = JoinHandle::prepare(future).expect("memory");
        let id = CoroutineId::from_raw(1 << 32).expect("a generation of 1 is one");
        (handle.finish(id), Side(data, vtable))
    }

    impl Side {
        /// Polls the future, which is ready, unless it is cancelled; and drops it.
        pub fn end(self, is_cancelled: bool) {
            // SAFETY: `data` and `vtable` are from `prepare`; the future is polled at most once and
            // dropped once, after the poll.
            unsafe {
                assert!(is_cancelled || (self.1.poll)(self.0, 1 << 32));
                (self.1.drop)(self.0);
            }
        }
    }
}
