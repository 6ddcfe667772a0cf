//! A condition variable: a number that each notification increments, and the number of waiters.
//!
//! A notification without a waiter does not enter the kernel, and none is lost. A waiter counts
//! itself and then reads the number; a notification increments the number and then reads the count.
//! All four accesses are sequentially consistent. So if a notification finds no waiter, any later
//! waiter reads the number that it has left: the notification came before the wait. If it finds
//! one, the kernel compares the number before it lets the waiter sleep.

use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

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
    /// Threads between the moment at which they are about to wait and the end of their wait.
    waiters: AtomicU32,
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
        Self { number: AtomicU32::new(0), waiters: AtomicU32::new(0) }
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
        // Both while the mutex is locked: a notification after the unlock finds a waiter, and
        // changes the number, and the kernel does not let this thread sleep.
        self.waiters.fetch_add(1, SeqCst);
        let number = self.number.load(SeqCst);
        let result =
            MutexGuard::unlocked(guard, || system::futex_wait(&self.number, number, limit));
        self.waiters.fetch_sub(1, SeqCst);
        WaitTimeoutResult(result.is_err())
    }

    /// Wakes one waiter, if there is one: the most urgent.
    pub fn notify_one(&self) {
        self.notify(1);
    }

    /// Wakes all waiters.
    pub fn notify_all(&self) {
        self.notify(u32::MAX >> 1);
    }

    fn notify(&self, count: u32) {
        self.number.fetch_add(1, SeqCst);
        if self.waiters.load(SeqCst) != 0 {
            system::futex_wake(&self.number, count);
        }
    }
}
