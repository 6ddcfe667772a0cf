//! The earliest deadline of all, and the *timekeeper*: the hart with its clock armed for it.
//!
//! | transition | by | what it may meet |
//! | --- | --- | --- |
//! | [`appoint`](Timekeeper::appoint) | the timer service, with the queue's lock | a take |
//! | [`bring_forward`](Timekeeper::bring_forward) | a hart that adds a deadline, with that lock | a take |
//! | [`take_due`](Timekeeper::take_due) | the timer interrupt of a hart, without a lock | each of the three |
//!
//! Rules:
//!
//! 1. A hart that is appointed arms its clock for [`ticks_for`](Timekeeper::ticks_for) afterwards.
//! 2. A hart that takes the deadline makes the service the most urgent of all and wakes it
//!    afterwards. The service then appoints a hart again.
//! 3. A hart resigns for itself only: a take is one step. If it were a load and a store, another
//!    hart could be appointed in between, and the store would erase it. Then no clock would be
//!    armed until the service runs. The service may have lowered its own level meanwhile, so a
//!    program that computes at a level in between would delay every deadline.

use crate::atomic::{AtomicU64, Ordering::*, const_unless_loom};

const NO_HART: u64 = u64::MAX;

/// The earliest deadline and its hart; see the module.
#[derive(Debug)]
pub struct Timekeeper {
    /// In ticks; `u64::MAX` if there is none.
    earliest_ticks: AtomicU64,
    hart: AtomicU64,
}

impl Default for Timekeeper {
    fn default() -> Self {
        Self::new()
    }
}

impl Timekeeper {
    const_unless_loom! {
        /// There is no deadline.
        #[must_use]
        pub fn new() -> Self {
            Self { earliest_ticks: AtomicU64::new(u64::MAX), hart: AtomicU64::new(NO_HART) }
        }
    }

    /// `deadline_ticks` is the earliest deadline that is not due, or `u64::MAX`, and `hart` keeps
    /// the time. The caller holds the queue's lock.
    pub fn appoint(&self, hart: usize, deadline_ticks: u64) {
        self.earliest_ticks.store(deadline_ticks, Relaxed);
        self.hart.store(hart as u64, Relaxed);
    }

    /// `deadline_ticks` is in the queue now. If no deadline is earlier, `hart` keeps the time.
    /// Returns whether it does. The caller holds the queue's lock.
    #[must_use]
    pub fn bring_forward(&self, hart: usize, deadline_ticks: u64) -> bool {
        let is_earlier = deadline_ticks < self.earliest_ticks.load(Relaxed);
        if is_earlier {
            self.appoint(hart, deadline_ticks);
        }
        is_earlier
    }

    /// If `hart` keeps the time and the deadline is due, it resigns. Returns whether it has.
    #[must_use]
    pub fn take_due(&self, hart: usize, now_ticks: u64) -> bool {
        // Relaxed: a hart sees what it has stored itself when it was appointed, or what is newer.
        self.is_due(now_ticks)
            && self.hart.compare_exchange(hart as u64, NO_HART, Relaxed, Relaxed).is_ok()
    }

    /// Whether the earliest deadline is due.
    #[must_use]
    pub fn is_due(&self, now_ticks: u64) -> bool {
        self.earliest_ticks.load(Relaxed) <= now_ticks
    }

    /// The deadline for which `hart` arms its clock; `u64::MAX` unless it keeps the time.
    #[must_use]
    pub fn ticks_for(&self, hart: usize) -> u64 {
        if self.hart.load(Relaxed) == hart as u64 {
            self.earliest_ticks.load(Relaxed)
        } else {
            u64::MAX
        }
    }
}
