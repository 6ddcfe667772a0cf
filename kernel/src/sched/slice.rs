//! Time slices: how long a virtual CPU keeps a hart while others of its level are waiting for one,
//! and the charge for that.
//!
//! May touch: the clock.
#![forbid(unsafe_code)]

use crate::arch;

/// One slice. It is used up while its virtual CPU runs, not while that waits for kernel coroutines.
#[derive(Debug)]
pub struct Slice {
    whole_ticks: u64,
    remaining_ticks: u64,
    /// Its end if the virtual CPU keeps running.
    end_ticks: u64,
    divisor: u32,
    granted: bool,
}

impl Slice {
    /// A slice of this length; `granted`: it must not be taken away.
    pub fn new(ticks: u64, divisor: u32, granted: bool) -> Self {
        Self { whole_ticks: ticks, remaining_ticks: ticks, end_ticks: u64::MAX, divisor, granted }
    }

    /// Its virtual CPU runs from `now_ticks` on. Returns when it will have to stop.
    pub fn begin(&mut self, now_ticks: u64) -> u64 {
        self.end_ticks = now_ticks.saturating_add(self.remaining_ticks);
        self.end_ticks
    }

    /// Its virtual CPU has stopped. Returns the time of that.
    pub fn pause(&mut self) -> u64 {
        let now = arch::now_ticks();
        self.remaining_ticks = self.end_ticks.saturating_sub(now);
        self.end_ticks = u64::MAX;
        now
    }

    /// Whether it is over, while the virtual CPU runs.
    pub fn is_over(&self) -> bool {
        arch::now_ticks() >= self.end_ticks
    }

    /// The rest of it, while the virtual CPU does not run.
    pub fn remaining_ticks(&self) -> u64 {
        self.remaining_ticks
    }

    /// The used part of it, while the virtual CPU does not run.
    pub fn used_ticks(&self) -> u64 {
        self.whole_ticks.saturating_sub(self.remaining_ticks)
    }

    /// The charge for all of it.
    pub fn whole_charge(&self) -> i64 {
        self.whole_ticks as i64 * i64::from(self.divisor)
    }

    /// The charge for the rest of it, while the virtual CPU does not run.
    pub fn remaining_charge(&self) -> i64 {
        self.remaining_ticks as i64 * i64::from(self.divisor)
    }

    /// The factor for its time.
    pub fn divisor(&self) -> u32 {
        self.divisor
    }

    /// Whether it is granted in full.
    pub fn is_granted(&self) -> bool {
        self.granted
    }
}
