//! What coroutines share: mutex, semaphore, event, channels.
//!
//! All of `futures-intrusive`, under the lock of this library: waiters are queued in order, in their own futures,
//! so that waiting allocates nothing and there may be any number of waiters. Here they get the names and
//! constructors that people know.

use core::fmt;

use futures_intrusive::buffer::GrowingHeapBuf;
use futures_intrusive::channel::shared::{self, GenericReceiver, GenericSender};
use futures_intrusive::sync::{
    GenericManualResetEvent, GenericMutex, GenericMutexGuard, GenericSemaphore, GenericSemaphoreReleaser,
};

use crate::lock::RawLock;

pub use futures_intrusive::channel::{TryReceiveError, TrySendError};

/// A value that one coroutine at a time may use, also across an `.await`. Fair: first come, first served.
pub struct Mutex<T> {
    inner: GenericMutex<RawLock, T>,
}

/// Access to the value of a [`Mutex`] until it is dropped.
pub type MutexGuard<'a, T> = GenericMutexGuard<'a, RawLock, T>;

impl<T> Mutex<T> {
    /// A mutex that nobody holds.
    pub fn new(value: T) -> Self {
        Self { inner: GenericMutex::new(value, true) }
    }

    /// Waits for its turn. Cancel-safe, but gives up its place in the queue.
    pub async fn lock(&self) -> MutexGuard<'_, T> {
        self.inner.lock().await
    }

    /// Access, if nobody has it now and nobody waits for it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.inner.try_lock()
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Mutex").field("locked", &self.inner.is_locked()).finish_non_exhaustive()
    }
}

/// A number of permits. Fair: first come, first served.
#[derive(Debug)]
pub struct Semaphore {
    inner: GenericSemaphore<RawLock>,
}

/// Permits of a [`Semaphore`], given back when dropped.
pub type Permit<'a> = GenericSemaphoreReleaser<'a, RawLock>;

impl Semaphore {
    /// A semaphore with so many permits.
    #[must_use]
    pub fn new(permits: usize) -> Self {
        Self { inner: GenericSemaphore::new(true, permits) }
    }

    /// Waits for `permits` permits. Cancel-safe, but gives up its place in the queue.
    pub async fn acquire(&self, permits: usize) -> Permit<'_> {
        self.inner.acquire(permits).await
    }

    /// The permits, if they are there and nobody waits.
    pub fn try_acquire(&self, permits: usize) -> Option<Permit<'_>> {
        self.inner.try_acquire(permits)
    }

    /// Adds permits.
    pub fn release(&self, permits: usize) {
        self.inner.release(permits);
    }

    /// Permits there are now.
    #[must_use]
    pub fn permits(&self) -> usize {
        self.inner.permits()
    }
}

/// Something that has happened or has not. Any number of coroutines wait for it.
#[derive(Debug)]
pub struct Event {
    inner: GenericManualResetEvent<RawLock>,
}

impl Default for Event {
    fn default() -> Self {
        Self::new()
    }
}

impl Event {
    /// It has not happened.
    #[must_use]
    pub fn new() -> Self {
        Self { inner: GenericManualResetEvent::new(false) }
    }

    /// It happens: whoever waits goes on, and whoever comes later does not wait.
    pub fn set(&self) {
        self.inner.set();
    }

    /// It has not happened any more.
    pub fn reset(&self) {
        self.inner.reset();
    }

    /// Whether it has happened.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.inner.is_set()
    }

    /// Waits until it has happened. Cancel-safe.
    pub async fn wait(&self) {
        self.inner.wait().await;
    }
}

/// The end of a [`channel`] where values go in; may be cloned. `send(value).await` waits for room and gives the
/// value back if nobody will ever receive it.
pub type Sender<T> = GenericSender<RawLock, T, GrowingHeapBuf<T>>;

/// The end of a [`channel`] where values come out; may be cloned, and each value goes to one receiver.
/// `receive().await` is `None` when the channel is empty and all senders are gone.
pub type Receiver<T> = GenericReceiver<RawLock, T, GrowingHeapBuf<T>>;

/// A queue of at most `capacity` values. It takes memory only for as many as there ever were at once.
///
/// Cancel-safe: a dropped `receive` takes nothing, a dropped `send` has sent or not.
#[must_use]
pub fn channel<T: Send>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    shared::generic_channel(capacity)
}

/// The end of a [`oneshot`] where the value goes in: `send(value)`.
pub type OneshotSender<T> = shared::GenericOneshotSender<RawLock, T>;

/// The end of a [`oneshot`] where the value comes out: `receive().await`, `None` if the sender is gone.
pub type OneshotReceiver<T> = shared::GenericOneshotReceiver<RawLock, T>;

/// A channel for a single value.
#[must_use]
pub fn oneshot<T: Send>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    shared::generic_oneshot_channel()
}
