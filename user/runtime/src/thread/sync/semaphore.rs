//! A semaphore: a number of permits, and a number of threads that wait for one.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, SeqCst},
};

use crate::system;
use crate::time::{Duration, Instant};

/// A number of permits, at most `u32::MAX / 2`.
#[derive(Debug)]
pub struct Semaphore {
    permits: AtomicU32,
    waiters: AtomicU32,
}

/// A permit, which is released when this is dropped.
#[derive(Debug)]
#[must_use = "the permit is released when this is dropped"]
pub struct SemaphoreGuard<'a>(&'a Semaphore);

impl Semaphore {
    /// One with so many permits.
    pub const fn new(permits: u32) -> Self {
        Self { permits: AtomicU32::new(permits), waiters: AtomicU32::new(0) }
    }

    /// Takes a permit if there is one.
    #[must_use]
    pub fn try_acquire(&self) -> bool {
        self.permits.fetch_update(Acquire, Relaxed, |permits| permits.checked_sub(1)).is_ok()
    }

    /// Takes a permit; waits until there is one.
    pub fn acquire(&self) {
        let _ = self.wait(None);
    }

    /// Takes a permit; waits for at most `limit`. Returns whether it has one.
    #[must_use]
    pub fn acquire_timeout(&self, limit: Duration) -> bool {
        self.wait(Some(Instant::now() + limit))
    }

    /// Takes a permit until the guard is dropped.
    pub fn access(&self) -> SemaphoreGuard<'_> {
        self.acquire();
        SemaphoreGuard(self)
    }

    /// Adds a permit, and wakes a waiter. Any thread may do this, also one that has taken none.
    ///
    /// # Panics
    /// If there are `u32::MAX / 2` permits.
    pub fn release(&self) {
        // Before the waiters are read: a thread that waits counts itself and reads the permits
        // afterwards, so one of the two sees the other.
        let before = self.permits.fetch_add(1, SeqCst);
        assert!(before < u32::MAX / 2, "a semaphore has too many permits");
        if self.waiters.load(SeqCst) != 0 {
            system::futex_wake(&self.permits, 1);
        }
    }

    /// Number of permits that can be taken now.
    #[must_use]
    pub fn available(&self) -> u32 {
        self.permits.load(Relaxed)
    }

    fn wait(&self, end: Option<Instant>) -> bool {
        if self.try_acquire() {
            return true;
        }
        self.waiters.fetch_add(1, SeqCst);
        let is_acquired = loop {
            if self.try_acquire() {
                break true;
            }
            let left = end.map(|end| end - Instant::now());
            if left.is_some_and(|left| left.is_zero()) {
                break false;
            }
            // The kernel reads the word once more before this thread sleeps.
            let _ = system::futex_wait(&self.permits, 0, left);
        };
        self.waiters.fetch_sub(1, SeqCst);
        // A wake that came with the time limit is not lost: the permit is there, and whichever
        // thread was to be woken for it is woken now.
        if !is_acquired && self.available() != 0 && self.waiters.load(SeqCst) != 0 {
            system::futex_wake(&self.permits, 1);
        }
        is_acquired
    }
}

impl Drop for SemaphoreGuard<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}
