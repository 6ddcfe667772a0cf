//! Frames that are looked for instead of interrupting, while all harts are busy (decision 59).
//!
//! The receiver of the network card *waits* here while the card does not interrupt. Rules:
//!
//! 1. It waits only while no hart sleeps. The receiver publishes that it waits, and then looks
//!    whether a hart sleeps; a hart that is to sleep publishes that, and then looks whether the
//!    receiver waits. Each of the two has a fence between its store and its load, so one of them
//!    sees the other: either the receiver does not wait, or the hart wakes it and does not sleep.
//! 2. Whichever takes the receiver wakes it: a look, a hart that is to sleep, a clock, or the
//!    receiver itself. It is taken once.
//! 3. A look compares the card's count of frames with the one up to which the receiver has received
//!    them. A look that does not see a receiver that has just begun leaves the frame to the next
//!    look, and at the latest to the clock of the hart on which it began.

use crate::atomic::{AtomicU16, AtomicU64, Ordering::*, const_unless_loom, fence};

/// Of [`Arrivals::sleeps`]: the number of sleeping harts is in the bits below.
const ONE_SLEEP: u64 = 1 << 16;

/// What waits, and how many harts sleep; see the module.
#[derive(Debug)]
pub struct Arrivals {
    /// The receiver that waits; 0 if none does.
    waiter: AtomicU64,
    /// The number of frames that it had received when it began to wait, modulo 2^16.
    received: AtomicU16,
    /// How often harts have slept, times [`ONE_SLEEP`], plus the number of those that sleep or are
    /// about to.
    sleeps: AtomicU64,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self::new()
    }
}

impl Arrivals {
    const_unless_loom! {
        /// Nothing waits, and no hart sleeps.
        #[must_use]
        pub fn new() -> Self {
            Self {
                waiter: AtomicU64::new(0),
                received: AtomicU16::new(0),
                sleeps: AtomicU64::new(0),
            }
        }
    }

    /// How often harts have slept, for [`Busyness`].
    pub fn sleeps(&self) -> u64 {
        self.sleeps.load(Relaxed) / ONE_SLEEP
    }

    /// The receiver, which has received the first `received` frames, begins to wait. Returns
    /// whether it does: not while a hart sleeps. `receiver` is not 0.
    #[must_use]
    pub fn begin(&self, receiver: u64, received: u16) -> bool {
        // A look that sees the one store and not the other wakes in vain, or leaves it to the next
        // look.
        self.received.store(received, Relaxed);
        self.waiter.store(receiver, Release);
        // Rule 1, with `begin_sleep`.
        fence(SeqCst);
        if self.sleeps.load(Relaxed).is_multiple_of(ONE_SLEEP) {
            return true;
        }
        // If it was taken meanwhile, the receiver is woken, too: once more than needed.
        self.waiter.store(0, Relaxed);
        false
    }

    /// The receiver runs again, for whatever reason.
    pub fn end(&self) {
        self.waiter.store(0, Relaxed);
    }

    /// Whether the receiver waits.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.waiter.load(Relaxed) != 0
    }

    /// Takes the receiver, which the caller wakes; 0 if it does not wait.
    #[must_use]
    pub fn take(&self) -> u64 {
        // Only one of the harts that find it takes it.
        if self.is_awaited() { self.waiter.swap(0, Acquire) } else { 0 }
    }

    /// A hart looks: takes the receiver if the card's count of frames, `arrived`, is not the
    /// receiver's.
    #[must_use]
    pub fn look(&self, arrived: u16) -> u64 {
        if arrived == self.received.load(Relaxed) { 0 } else { self.take() }
    }

    /// A hart is to sleep. Returns the receiver if it waits: then the caller wakes it, calls
    /// [`end_sleep`](Self::end_sleep) and does not sleep.
    #[must_use]
    pub fn begin_sleep(&self) -> u64 {
        self.sleeps.fetch_add(1, Relaxed);
        // Rule 1, with `begin`.
        fence(SeqCst);
        self.take()
    }

    /// A hart that was to sleep runs again; `has_slept`: it did sleep.
    pub fn end_sleep(&self, has_slept: bool) {
        let counted = if has_slept { ONE_SLEEP } else { 0 };
        self.sleeps.fetch_add(counted.wrapping_sub(1), Relaxed);
    }
}

/// Whether all harts have been busy for some interrupts: only then frames are looked for.
#[derive(Debug, Default)]
pub struct Busyness {
    sleeps: u64,
    in_a_row: u32,
}

impl Busyness {
    /// After so many interrupts in a row without sleep, frames are looked for.
    pub const INTERRUPTS: u32 = 4;

    /// The card has interrupted, and harts have slept `sleeps` times. Returns whether
    /// frames are looked for from now on.
    pub fn interrupt(&mut self, sleeps: u64) -> bool {
        self.in_a_row = if sleeps == self.sleeps { self.in_a_row.saturating_add(1) } else { 0 };
        self.sleeps = sleeps;
        self.in_a_row >= Self::INTERRUPTS
    }
}
