//! The word of a lock.

use core::hint::spin_loop;
use core::sync::atomic::{AtomicU32, Ordering::*};

use lock_api::{GuardSend, RawMutex};

use crate::AtBoot;

const FREE: u32 = 0;
const HELD: u32 = 1;

/// After so many looks in vain, a hart that waits calls [`OFFER`], and then looks as often again.
/// A holder that runs is done within some hundred instructions.
const LOOKS: u32 = 1024;

/// How a hart offers its processor to other harts, if the boot has set it. It is called with
/// interrupts as the one that waits for the lock has them, and returns soon.
///
/// A hypervisor or an emulator may have fewer processors than harts. Then the holder may wait for
/// the processor of the one that waits for the lock: QEMU, while it counts instructions, executes
/// all harts with one thread and need not let the next one run (decision 62).
pub static OFFER: AtBoot<fn()> = AtBoot::unset();

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
            let mut looks = 0;
            while self.0.load(Relaxed) != FREE {
                spin_loop();
                looks += 1;
                if looks == LOOKS {
                    looks = 0;
                    if let Some(offer) = OFFER.get() {
                        offer();
                    }
                }
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
