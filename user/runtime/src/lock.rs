//! The lock for short critical sections: the heap, the channels, the tables of this library.
//!
//! A virtual CPU can be preempted while it holds a lock. So the lock's word names the holder, and a
//! one that waits spins only briefly. Then it donates its priority to the holder, which otherwise
//! would wait for everything that is less urgent than the waiter and more urgent than itself, and
//! sleeps for a moment (decision 77). May touch: only the lock.
#![allow(unsafe_code)]

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use crate::{system, worker};

/// Number of looks before a waiter sleeps: longer than any critical section here.
const SPINS_BEFORE_BACK_OFF: usize = 100;
/// The word of a lock that is free.
const FREE: u32 = 0;

/// The lock without data, for `lock_api` and for crates that keep the data themselves: the word is
/// [`FREE`], or one more than what the kernel calls the holder.
#[derive(Debug)]
pub struct RawLock(AtomicU32);

/// A value protected by such a lock. Never hold it across an `.await`.
pub type Lock<T> = lock_api::Mutex<RawLock, T>;

// SAFETY: the word leaves `FREE` by a compare-exchange with `Acquire` of one virtual CPU or thread,
// and only the holder sets it to `FREE`, with `Release`.
unsafe impl lock_api::RawMutex for RawLock {
    #[allow(clippy::declare_interior_mutable_const, reason = "lock_api asks for a constant")]
    const INIT: Self = Self(AtomicU32::new(FREE));
    type GuardMarker = lock_api::GuardSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        let own = worker::kernel_number() + 1;
        self.0.compare_exchange(FREE, own, Acquire, Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        self.0.store(FREE, Release);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) != FREE
    }
}

impl RawLock {
    #[cold]
    fn lock_contended(&self) {
        loop {
            let mut spins = SPINS_BEFORE_BACK_OFF;
            while self.0.load(Relaxed) != FREE && spins > 0 {
                core::hint::spin_loop();
                spins -= 1;
            }
            if lock_api::RawMutex::try_lock(self) {
                return;
            }
            if let Some(holder) = self.0.load(Relaxed).checked_sub(1) {
                system::wait_for_holder(holder as usize);
            }
        }
    }
}
