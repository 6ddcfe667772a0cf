//! A signal: one side says that something has happened, in whatever context, and one coroutine
//! waits for it.
//!
//! The whole of what a driver needs: a count, and the id of the coroutine that waits. An id may be
//! kept for ever, so a coroutine that waits no more needs no deregistration.

use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};

use cops_executor::{CoroutineId, current, wake_up};
use portable_atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};

/// Counts what has happened, for one coroutine to wait for.
pub struct Signal {
    count: AtomicU32,
    /// Bits of the id of the coroutine that waited last; 0 if none has.
    waiter: AtomicU64,
}

impl Signal {
    /// Nothing has happened yet.
    pub const fn new() -> Self {
        Signal { count: AtomicU32::new(0), waiter: AtomicU64::new(0) }
    }

    /// Something has happened. May be called in interrupt handlers.
    pub fn raise(&self) {
        self.count.add(1, SeqCst);
        if let Some(id) = CoroutineId::from_raw(self.waiter.load(SeqCst)) {
            wake_up(id);
        }
    }

    /// Waits until something has happened since the last time; yields how often it has.
    /// Cancel-safe. One coroutine at a time.
    pub fn wait(&self) -> impl Future<Output = u32> + '_ {
        Wait(self)
    }
}

impl Default for Signal {
    fn default() -> Self {
        Self::new()
    }
}

struct Wait<'a>(&'a Signal);

impl Future for Wait<'_> {
    type Output = u32;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<u32> {
        // This stores the waiter, then reads the count; `raise` raises the count, then reads the
        // waiter: so one of the two sees the other.
        self.0.waiter.store(current().map_or(0, CoroutineId::raw), SeqCst);
        match self.0.count.swap(0, SeqCst) {
            0 => Poll::Pending,
            count => Poll::Ready(count),
        }
    }
}
