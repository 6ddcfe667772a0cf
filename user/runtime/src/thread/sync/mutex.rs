//! A mutex: a word that is 0 free, 1 locked, 2 locked with threads that may wait.
#![allow(unsafe_code)]

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

use lock_api::GuardNoSend;

use crate::system;

const FREE: u32 = 0;
const LOCKED: u32 = 1;
const CONTENDED: u32 = 2;

/// Number of times that a thread looks at a locked mutex before it sleeps: sections are mostly
/// shorter than a call to the kernel.
const SPINS: u32 = 100;

/// The lock without data, for `lock_api`.
#[derive(Debug)]
pub struct RawMutex(AtomicU32);

/// A value that one thread accesses at a time.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// Access to the value of a [`Mutex`]; unlocks it when dropped.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// Access to a part of the value of a [`Mutex`].
pub type MappedMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawMutex, T>;

// SAFETY: the word leaves `FREE` by a compare-exchange or swap with `Acquire` of one thread, and
// only the holder sets it to `FREE`, with `Release`.
unsafe impl lock_api::RawMutex for RawMutex {
    #[allow(clippy::declare_interior_mutable_const, reason = "lock_api asks for a constant")]
    const INIT: Self = Self(AtomicU32::new(FREE));
    type GuardMarker = GuardNoSend;

    #[inline]
    fn lock(&self) {
        if !self.try_lock() {
            self.lock_contended();
        }
    }

    #[inline]
    fn try_lock(&self) -> bool {
        self.0.compare_exchange(FREE, LOCKED, Acquire, Relaxed).is_ok()
    }

    #[inline]
    unsafe fn unlock(&self) {
        // A thread that is about to sleep has stored `CONTENDED`: either this swap returns it, or
        // the kernel finds another value than the thread expects.
        if self.0.swap(FREE, Release) == CONTENDED {
            system::futex_wake(&self.0, 1);
        }
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) != FREE
    }
}

impl RawMutex {
    #[cold]
    fn lock_contended(&self) {
        let mut spins = SPINS;
        while self.0.load(Relaxed) == LOCKED && spins > 0 {
            core::hint::spin_loop();
            spins -= 1;
        }
        if lock_api::RawMutex::try_lock(self) {
            return;
        }
        // From here on this thread locks with `CONTENDED`: it cannot know whether others wait.
        while self.0.swap(CONTENDED, Acquire) != FREE {
            let _ = system::futex_wait(&self.0, CONTENDED, None);
        }
    }
}
