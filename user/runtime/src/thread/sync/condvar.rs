//! A condition variable: a number that each notification increments.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::mutex::MutexGuard;
use crate::system;
use crate::time::{Duration, Instant};

/// Lets threads sleep until another one changes what a [`Mutex`](super::Mutex) protects.
///
/// ```ignore
/// let mut queue = shared.lock();
/// while queue.is_empty() {
///     queue = not_empty.wait(queue);
/// }
/// ```
#[derive(Debug, Default)]
pub struct Condvar {
    number: AtomicU32,
}

/// Whether a wait reached its time limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// The limit was reached; a notification may have come at the same time.
    #[must_use]
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// One without waiters.
    pub const fn new() -> Self {
        Self { number: AtomicU32::new(0) }
    }

    /// Unlocks the mutex, sleeps until a notification, and locks it again. No notification after
    /// the unlock is missed. May also return without one: check the condition.
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let _ = self.wait_for(&mut guard, None);
        guard
    }

    /// Waits while `condition` is true.
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// As [`wait`](Self::wait), for at most `limit`.
    pub fn wait_timeout<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        limit: Duration,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        let result = self.wait_for(&mut guard, Some(limit));
        (guard, result)
    }

    /// Waits while `condition` is true, for at most `limit`. It has timed out if the condition is
    /// still true.
    pub fn wait_timeout_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        limit: Duration,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        let end = Instant::now() + limit;
        loop {
            if !condition(&mut guard) {
                return (guard, WaitTimeoutResult(false));
            }
            let left = end - Instant::now();
            if left.is_zero() {
                return (guard, WaitTimeoutResult(true));
            }
            let _ = self.wait_for(&mut guard, Some(left));
        }
    }

    fn wait_for<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        limit: Option<Duration>,
    ) -> WaitTimeoutResult {
        // Read while the mutex is locked: a notification after the unlock changes the number, and
        // the kernel does not let this thread sleep.
        let number = self.number.load(Relaxed);
        let result =
            MutexGuard::unlocked(guard, || system::futex_wait(&self.number, number, limit));
        WaitTimeoutResult(result.is_err())
    }

    /// Wakes one waiter, if there is one: the most urgent.
    pub fn notify_one(&self) {
        self.number.fetch_add(1, Relaxed);
        system::futex_wake(&self.number, 1);
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.number.fetch_add(1, Relaxed);
        system::futex_wake(&self.number, u32::MAX >> 1);
    }
}
