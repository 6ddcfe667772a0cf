//! How a parent waits until its children have finished: a count and one waker, the same for every
//! runtime.
//!
//! Join handles would be measured with it, and JoinSets and the like are different in every
//! runtime.

use std::future::Future;
use std::pin::Pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::task::{Context, Poll, Waker};

/// Opens when as many as were announced have finished. One waits, and always with the same waker.
#[derive(Debug)]
pub struct Gate {
    remaining: AtomicU64,
    waiter: OnceLock<Waker>,
}

impl Gate {
    /// A gate that lives for ever, so that a future finds it by a pointer of 8 bytes.
    pub fn leak(count: u64) -> &'static Gate {
        Box::leak(Box::new(Gate { remaining: AtomicU64::new(count), waiter: OnceLock::new() }))
    }

    /// Announces `count` more, when all before have finished.
    pub fn close(&self, count: u64) {
        self.remaining.store(count, Ordering::Relaxed);
    }

    /// One has finished, on any worker.
    pub fn finish(&self) {
        if self.remaining.fetch_sub(1, Ordering::AcqRel) == 1 {
            // Partner: `Wait::poll`. One of the two sees the other's store.
            fence(Ordering::SeqCst);
            self.open();
        }
    }

    /// As `finish`, where there is one worker only: without an atomic update, which would count in
    /// time.
    #[inline]
    pub fn finish_alone(&self) {
        let remaining = self.remaining.load(Ordering::Relaxed) - 1;
        self.remaining.store(remaining, Ordering::Relaxed);
        if remaining == 0 {
            self.open();
        }
    }

    fn open(&self) {
        if let Some(waiter) = self.waiter.get() {
            waiter.wake_by_ref();
        }
    }

    /// Waits until all have finished.
    pub fn wait(&'static self) -> Wait {
        Wait(self)
    }

    /// Panics if one of them finished twice.
    pub fn assert_open(&self) {
        assert_eq!(self.remaining.load(Ordering::Acquire), 0, "as many finish as were announced");
    }
}

/// What [`Gate::wait`] returns.
#[must_use = "a future does nothing unless it is awaited"]
#[derive(Debug)]
pub struct Wait(&'static Gate);

impl Future for Wait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.0.waiter.get().is_none() {
            // Every runtime here keeps to one waker for one task; `assert_open` and a hang would
            // tell otherwise.
            let _ = self.0.waiter.set(context.waker().clone());
            // Partner: `finish`.
            fence(Ordering::SeqCst);
        }
        if self.0.remaining.load(Ordering::Acquire) == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}
