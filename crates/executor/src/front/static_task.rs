//! Coroutines in statics: no allocator, and what they need of memory is known when the program is
//! linked.
//!
//! A [`StaticTask`] is room for one coroutine at a time, of any type that fits. So there is no type
//! to name, which stable Rust cannot do for what an `async fn` returns; its size can be had, by
//! [`future_size`].
//!
//! Unsafe: a future is put into bytes, and polled and dropped there by a table made for its type.
//! The argument is the ownership of the bytes: they belong to the caller that has set `occupied`
//! until it has put the future there, then to the coroutine until the future has been dropped.
#![allow(unsafe_code)]

use ::core::cell::UnsafeCell;
use ::core::future::Future;
use ::core::mem::{MaybeUninit, offset_of};
use ::core::ptr;

use super::executor::Executor;
use super::outcome::SpawnError;
use super::poll::poll;
use crate::core::atomic::unmodelled::{AtomicBool, Ordering};
use crate::core::{CoroutineId, FutureVTable, Priority};

/// Room in a static for one coroutine at a time, with a future of up to `BYTES` bytes.
///
/// ```
/// use cops_executor::{Executor, Priority, SpawnError, StaticTask, future_size, yield_now};
///
/// async fn blink(times: u32) {
///     for _ in 0..times {
///         yield_now().await;
///     }
/// }
///
/// static EXECUTOR: Executor = Executor::new();
/// static BLINK: StaticTask<{ future_size(&blink) }> = StaticTask::new();
///
/// # EXECUTOR.start_on_host(1)?;
/// EXECUTOR.spawn_static(&BLINK, blink(3), Priority::MOST_URGENT)?;
/// let again = EXECUTOR.spawn_static(&BLINK, blink(3), Priority::MOST_URGENT);
/// assert_eq!(again, Err(SpawnError::Occupied));
///
/// EXECUTOR.run_until_stalled(0);
/// EXECUTOR.spawn_static(&BLINK, blink(5), Priority::DEFAULT)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A future that does not fit is an error of compilation:
///
/// ```compile_fail
/// # use cops_executor::{Executor, Priority, StaticTask, yield_now};
/// static EXECUTOR: Executor = Executor::new();
/// static SMALL: StaticTask<16> = StaticTask::new();
/// let large = async {
///     let kept = [1; 100];
///     yield_now().await;
///     drop(kept);
/// };
/// let _ = EXECUTOR.spawn_static(&SMALL, large, Priority::DEFAULT);
/// ```
///
/// All zeroes at first, so statics of it are no part of a program's image.
#[repr(C, align(8))]
pub struct StaticTask<const BYTES: usize> {
    future: UnsafeCell<MaybeUninit<[u8; BYTES]>>,
    occupied: AtomicBool,
}

// SAFETY: the future goes from one thread to another (`spawn_static` asks for Send), and `occupied`
// says which of them owns the bytes.
unsafe impl<const BYTES: usize> Sync for StaticTask<BYTES> {}

impl<const BYTES: usize> StaticTask<BYTES> {
    /// Room that is free.
    ///
    /// ```
    /// # use cops_executor::StaticTask;
    /// static TASK: StaticTask<64> = StaticTask::new();
    /// assert!(!TASK.is_occupied());
    /// ```
    pub const fn new() -> Self {
        StaticTask {
            future: UnsafeCell::new(MaybeUninit::uninit()),
            occupied: AtomicBool::new(false),
        }
    }

    /// Whether it has a coroutine with a future that has not been dropped. A hint: an interrupt
    /// handler or another worker may change that at any time.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// # use cops_executor::StaticTask;
    /// static TASK: StaticTask<64> = StaticTask::new();
    /// EXECUTOR.spawn_static(&TASK, async {}, Priority::DEFAULT)?;
    /// assert!(TASK.is_occupied());
    /// EXECUTOR.run_until_stalled(0);
    /// assert!(!TASK.is_occupied());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_occupied(&self) -> bool {
        self.occupied.load(Ordering::Relaxed)
    }
}

impl<const BYTES: usize> Default for StaticTask<BYTES> {
    fn default() -> Self {
        Self::new()
    }
}

/// The table for futures of type `F` in a `StaticTask<BYTES>`.
struct Placed<F, const BYTES: usize>(F);

impl<F: Future<Output = ()> + Send + 'static, const BYTES: usize> Placed<F, BYTES> {
    const VTABLE: &'static FutureVTable =
        &FutureVTable { poll: poll::<F>, drop: vacate::<F, BYTES>, kind: 0 };
    const FITS: () = {
        assert!(size_of::<F>() <= BYTES, "this future is larger than its StaticTask");
        assert!(
            align_of::<F>() <= align_of::<StaticTask<BYTES>>(),
            "a StaticTask is aligned to 8 bytes only"
        );
        assert!(offset_of!(StaticTask<BYTES>, future) == 0);
    };
}

/// Drops the future, and then lets the next in.
///
/// # Safety
///
/// `data` points to a `StaticTask<BYTES>` that lives for ever, with an `F` in it that nothing else
/// refers to.
unsafe extern "C" fn vacate<F, const BYTES: usize>(data: *mut ()) {
    // SAFETY: the future is at the start (`FITS`), and the caller's.
    unsafe { ptr::drop_in_place(data.cast::<F>()) };
    // SAFETY: by contract; an atomic may be shared.
    let task = unsafe { &*data.cast::<StaticTask<BYTES>>() };
    // Pairs with the Acquire in `spawn_static`: the next future is written after this one's last
    // access.
    task.occupied.store(false, Ordering::Release);
}

impl Executor {
    /// As `spawn`, but the future is put into `task` instead of a box.
    ///
    /// When the coroutine has exited, and its future has been dropped, `task` is free for the next.
    /// May call `Hooks::grow`; otherwise lock-free. In interrupt handlers too, if `Hooks::grow` may
    /// be called there, as that of [`StaticMemory`](super::StaticMemory) may.
    ///
    /// # Errors
    ///
    /// [`SpawnError::Occupied`] while there is a coroutine in `task`; and as `spawn`. In all cases
    /// the future has been dropped.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, StaticTask};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// static TASK: StaticTask<64> = StaticTask::new();
    /// let id = EXECUTOR.spawn_static(&TASK, std::future::pending(), Priority::DEFAULT)?;
    /// cops_executor::cancel(id);
    /// EXECUTOR.run_until_stalled(0);
    /// assert!(!TASK.is_occupied());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_static<F, const BYTES: usize>(
        &self,
        task: &'static StaticTask<BYTES>,
        future: F,
        priority: Priority,
    ) -> Result<CoroutineId, SpawnError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        const { Placed::<F, BYTES>::FITS };
        if task.occupied.swap(true, Ordering::Acquire) {
            return Err(SpawnError::Occupied);
        }
        let data = ptr::from_ref(task).cast_mut().cast::<()>();
        // SAFETY: it was free and we have taken it, so the bytes are ours; they are enough
        // (`FITS`), and may be written through a shared reference (`UnsafeCell`).
        unsafe { task.future.get().cast::<F>().write(future) };
        // SAFETY: what the table's functions ask for: a future at `data` for ever, that is Send and
        // 'static, and belongs only to the coroutine; after an error it still belongs to this
        // function.
        unsafe {
            self.spawn_raw(data, Placed::<F, BYTES>::VTABLE, priority)
                .inspect_err(|_| vacate::<F, BYTES>(data))
        }
    }
}

/// A function that returns a future, usually an `async fn`, of up to six arguments.
///
/// Implemented for all of them; there is nothing to implement.
///
/// ```
/// use cops_executor::FutureFunction;
/// fn bytes_of<A, F: FutureFunction<A>>(_: F) -> usize {
///     size_of::<F::Future>()
/// }
/// async fn listen(port: u16) {
///     let _ = port;
/// }
/// assert_eq!(bytes_of(listen), cops_executor::future_size(&listen));
/// ```
pub trait FutureFunction<Arguments> {
    /// What it returns.
    ///
    /// ```
    /// use cops_executor::FutureFunction;
    /// fn call<F: FutureFunction<(), Future = std::future::Ready<()>>>(_: F) {}
    /// call(|| std::future::ready(()));
    /// ```
    type Future: Future<Output = ()>;
}

macro_rules! implement_for_arguments {
    ($($argument:ident)*) => {
        impl<Function, Fut, $($argument),*> FutureFunction<($($argument,)*)> for Function
        where
            Function: Fn($($argument),*) -> Fut,
            Fut: Future<Output = ()>,
        {
            type Future = Fut;
        }
    };
}

implement_for_arguments!();
implement_for_arguments!(A);
implement_for_arguments!(A B);
implement_for_arguments!(A B C);
implement_for_arguments!(A B C D);
implement_for_arguments!(A B C D E);
implement_for_arguments!(A B C D E G);

/// The bytes of the future that an `async fn` returns: what a [`StaticTask`] for it needs.
///
/// The function must not name that static itself: the compiler would need the one to know the
/// other.
///
/// ```
/// use cops_executor::{StaticTask, future_size};
/// async fn listen(port: u16, backlog: u32) {
///     // ...
/// #   let _ = (port, backlog);
/// }
/// static LISTENER: StaticTask<{ future_size(&listen) }> = StaticTask::new();
/// ```
pub const fn future_size<Arguments, Function: FutureFunction<Arguments>>(_: &Function) -> usize {
    size_of::<Function::Future>()
}
