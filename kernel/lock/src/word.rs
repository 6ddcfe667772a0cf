//! The word of a lock.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering::*};

use lock_api::{GuardSend, RawMutex};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// A word that one hart at a time sets.
#[derive(Debug)]
pub struct Word(AtomicU32);

impl Word {
    /// Waits until it is free, and takes it. Apart, so that the callers save no registers for it.
    #[cold]
    #[inline(never)]
    fn wait(&self) {
        loop {
            // Looks only, until it is free: stores would take the line from the holder.
            while self.0.load(Relaxed) != FREE {
                spin_loop();
            }
            if self.try_lock() {
                return;
            }
        }
    }
}

// SAFETY: `lock` and `try_lock` succeed only if their swap has found `FREE`. Only `unlock` stores
// that, and its contract is that the caller holds the lock: so one caller at a time has it. Acquire
// pairs with the Release of `unlock`, so each holder sees what the previous ones have done.
unsafe impl RawMutex for Word {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(AtomicU32::new(FREE));

    type GuardMarker = GuardSend;

    #[inline(always)]
    fn lock(&self) {
        if !self.try_lock() {
            self.wait();
        }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        self.0.swap(HELD, Acquire) == FREE
    }

    #[inline(always)]
    unsafe fn unlock(&self) {
        self.0.store(FREE, Release);
    }

    #[inline]
    fn is_locked(&self) -> bool {
        self.0.load(Relaxed) != FREE
    }
}
