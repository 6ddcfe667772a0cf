//! Time slices: how long a virtual CPU has a hart if others of its level want it, and what that is charged as.
//!
//! May touch: the clock.
#![forbid(unsafe_code)]

use core::cell::Cell;

use crate::arch;

/// One slice. Time passes while its virtual CPU runs, not while it waits for kernel coroutines.
#[derive(Debug)]
pub struct Slice {
    whole_ticks: u64,
    remaining_ticks: u64,
    /// When it ends, if it runs on.
    end_ticks: u64,
    divisor: u32,
    granted: bool,
    /// It is the turn of the kernel's equals: its virtual CPU has been in user mode since it last gave way to them, or another's, whose slice
    /// was over, has.
    had_turn: Cell<bool>,
}

impl Slice {
    /// A slice of so many ticks; `granted`: nobody is to take it away.
    pub fn new(ticks: u64, divisor: u32, granted: bool) -> Self {
        Self {
            whole_ticks: ticks,
            remaining_ticks: ticks,
            end_ticks: u64::MAX,
            divisor,
            granted,
            had_turn: Cell::new(true),
        }
    }

    /// Its virtual CPU runs from `now_ticks` on. Returns when it will have to stop.
    pub fn begin(&mut self, now_ticks: u64) -> u64 {
        self.end_ticks = now_ticks.saturating_add(self.remaining_ticks);
        self.end_ticks
    }

    /// Its virtual CPU has stopped. Returns when.
    pub fn pause(&mut self) -> u64 {
        let now = arch::now_ticks();
        self.remaining_ticks = self.end_ticks.saturating_sub(now);
        self.end_ticks = u64::MAX;
        now
    }

    /// Its virtual CPU enters user mode.
    pub fn take_turn(&self) {
        self.had_turn.set(true);
    }

    /// Whether its virtual CPU has been in user mode since this was last asked: then it is the turn of equals.
    pub fn give_turn(&self) -> bool {
        self.had_turn.take()
    }

    /// Whether it is over, while it runs.
    pub fn is_over(&self) -> bool {
        arch::now_ticks() >= self.end_ticks
    }

    /// What is left of it, while it does not run.
    pub fn remaining_ticks(&self) -> u64 {
        self.remaining_ticks
    }

    /// What has been used of it, while it does not run.
    pub fn used_ticks(&self) -> u64 {
        self.whole_ticks.saturating_sub(self.remaining_ticks)
    }

    /// What all of it is charged as.
    pub fn whole_charge(&self) -> i64 {
        self.whole_ticks as i64 * i64::from(self.divisor)
    }

    /// What is left of it is charged as, while it does not run.
    pub fn remaining_charge(&self) -> i64 {
        self.remaining_ticks as i64 * i64::from(self.divisor)
    }

    /// What its time is multiplied by.
    pub fn divisor(&self) -> u32 {
        self.divisor
    }

    /// Whether it is to be had in full.
    pub fn is_granted(&self) -> bool {
        self.granted
    }
}
