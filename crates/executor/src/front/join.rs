//! Join handles: await a coroutine's output, or abort it.
#![allow(unsafe_code)]

use ::core::cell::UnsafeCell;
use ::core::fmt;
use ::core::future::Future;
use ::core::pin::Pin;
use ::core::sync::atomic::{AtomicU8, Ordering};
use ::core::task::{Context, Poll, Waker};
use alloc::sync::Arc;

use super::registry;
use crate::core::CoroutineId;

/// Why a coroutine has no output.
///
/// ```
/// # use cops_executor::{Executor, JoinError, Priority};
/// # static EXECUTOR: Executor = Executor::new(1);
/// # EXECUTOR.start_on_host(1)?;
/// let panics = EXECUTOR.spawn_join(async { panic!("for the example") }, Priority::DEFAULT)?;
/// let result: Result<(), JoinError> = EXECUTOR.block_on(0, panics);
/// assert_eq!(result, Err(JoinError::Panicked));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinError {
    /// It was cancelled.
    Cancelled,
    /// It panicked (with `std`; elsewhere a panic does not return).
    Panicked,
}

impl fmt::Display for JoinError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            JoinError::Cancelled => "the coroutine was cancelled",
            JoinError::Panicked => "the coroutine panicked",
        })
    }
}

impl ::core::error::Error for JoinError {}

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
    outcome: Arc<Outcome<T>>,
}

/// Nobody waits: `waker` is the handle's to write.
const EMPTY: u8 = 0;
/// The handle has left a waker and will take it back before it touches it.
const WAITING: u8 = 1;
/// `value` is there: it is the handle's, and `waker` is the coroutine's if it was WAITING before.
const DONE: u8 = 2;

/// Where the two meet. One side is the handle, the other the coroutine's wrapper.
struct Outcome<T> {
    phase: AtomicU8,
    waker: UnsafeCell<Option<Waker>>,
    value: UnsafeCell<Option<Result<T, JoinError>>>,
}

// SAFETY: `phase` says whose each cell is (constants above); the value goes from one thread to another.
unsafe impl<T: Send> Sync for Outcome<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Outcome<T> {}

impl<T> Outcome<T> {
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

impl<T> JoinHandle<T> {
    /// Wraps a future so that its output goes to the handle that `finish` makes.
    pub(super) fn prepare<F: Future<Output = T>>(future: F) -> (Joined<F>, PendingHandle<T>) {
        let outcome = Arc::new(Outcome {
            phase: AtomicU8::new(EMPTY),
            waker: UnsafeCell::new(None),
            value: UnsafeCell::new(None),
        });
        (Joined { future, report: Report(Some(outcome.clone())) }, PendingHandle(outcome))
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
        self.outcome.phase.load(Ordering::Acquire) == DONE
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.outcome.poll(context)
    }
}

/// A handle whose coroutine has no id yet.
pub(super) struct PendingHandle<T>(Arc<Outcome<T>>);

impl<T> PendingHandle<T> {
    pub fn finish(self, id: CoroutineId) -> JoinHandle<T> {
        JoinHandle { id, outcome: self.0 }
    }
}

/// A future that reports its output, or that it was dropped without.
pub(super) struct Joined<F: Future> {
    future: F,
    report: Report<F::Output>,
}

struct Report<T>(Option<Arc<Outcome<T>>>);

impl<T> Drop for Report<T> {
    fn drop(&mut self) {
        if let Some(outcome) = self.0.take() {
            outcome.complete(Err(JoinError::Cancelled));
        }
    }
}

impl<F: Future> Future for Joined<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // SAFETY: `future` is pinned with us, and never moved; `report` is not pinned.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: as above.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        #[cfg(not(feature = "std"))]
        let polled = future.poll(context).map(Ok);
        #[cfg(feature = "std")]
        let polled = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| future.poll(context))) {
            Ok(polled) => polled.map(Ok),
            Err(_) => Poll::Ready(Err(JoinError::Panicked)),
        };
        polled.map(|value| {
            if let Some(outcome) = this.report.0.take() {
                outcome.complete(value);
            }
        })
    }
}
