//! Wait queues: who is to be woken when something changes.
//!
//! A waiter registers first and checks again afterwards; whoever changes the state changes it
//! first and wakes afterwards. Either the waiter sees the change or the change sees the waiter.
//! May touch: nothing but wakers. Not for interrupt context (takes a lock).

use alloc::vec::Vec;
use core::task::Waker;

use spin::Mutex;

/// Coroutines that wait for one thing. A wake takes all of them out; those whose turn it is not register again.
#[derive(Default)]
pub struct WaitQueue {
    waiters: Mutex<Vec<Waker>>,
}

impl WaitQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { waiters: Mutex::new(Vec::new()) }
    }

    /// Puts `waker` in, once however often it is registered.
    pub fn register(&self, waker: &Waker) {
        let mut waiters = self.waiters.lock();
        if !waiters.iter().any(|other| other.will_wake(waker)) {
            waiters.push(waker.clone());
        }
    }

    /// Wakes everybody who waits now.
    pub fn wake_all(&self) {
        let mut waiters = self.waiters.lock();
        for waker in waiters.drain(..) {
            waker.wake();
        }
        if waiters.capacity() > 64 {
            waiters.shrink_to(0);
        }
    }
}
