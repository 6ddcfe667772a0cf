//! Time slices: how long a virtual CPU has a hart if others of its level want it, and what that is charged as.
//!
//! May touch: the clock.
#![forbid(unsafe_code)]

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
}

/// Whose turn it is on a hart: that of virtual CPUs, or that of equally urgent coroutines of the kernel. It outlives slices: a
/// virtual CPU that has used all of its slice has had its turn, whoever has the next one.
#[derive(Debug)]
pub struct Turn {
    /// A virtual CPU has been in user mode since it last gave way to equally urgent coroutines of the kernel.
    had_turn: bool,
    /// Since when, if so.
    turn_ticks: u64,
    /// Until when they go first.
    equals_until_ticks: u64,
}

impl Slice {
    /// A slice of so many ticks; `granted`: nobody is to take it away.
    pub fn new(ticks: u64, divisor: u32, granted: bool) -> Self {
        Self { whole_ticks: ticks, remaining_ticks: ticks, end_ticks: u64::MAX, divisor, granted }
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

impl Turn {
    /// Nobody has had one.
    pub fn new() -> Self {
        Self { had_turn: true, turn_ticks: arch::now_ticks(), equals_until_ticks: 0 }
    }

    /// A virtual CPU enters user mode.
    pub fn take(&mut self) {
        if !core::mem::replace(&mut self.had_turn, true) {
            self.turn_ticks = arch::now_ticks();
        }
    }

    /// Whether equally urgent coroutines of the kernel go first now. They have as much time as the virtual CPUs have just had: a program
    /// that never enters the kernel has it for a slice, and one poll of a coroutine of the kernel for each slice
    /// would be no fair share for the process that this coroutine works for. At most a slice's, also where no coroutine of
    /// the kernel was waiting for long.
    pub fn give(&mut self, slice_ticks: u64) -> bool {
        let now = arch::now_ticks();
        if core::mem::take(&mut self.had_turn) {
            let had = now.saturating_sub(self.turn_ticks).min(slice_ticks);
            self.equals_until_ticks = now + had;
            return true;
        }
        now < self.equals_until_ticks
    }
}
