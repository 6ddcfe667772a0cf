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
    /// Its virtual CPU has been in user mode since it last gave way to equally urgent coroutines of the kernel.
    had_turn: Cell<bool>,
    /// Since when, if so.
    turn_ticks: Cell<u64>,
    /// Until when they go first.
    equals_until_ticks: Cell<u64>,
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
            turn_ticks: Cell::new(arch::now_ticks()),
            equals_until_ticks: Cell::new(0),
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
        if !self.had_turn.replace(true) {
            self.turn_ticks.set(arch::now_ticks());
        }
    }

    /// Whether equally urgent coroutines of the kernel go first now. They have as much time as the virtual CPU has just had: a program
    /// that never enters the kernel has it for a slice, and one poll of a coroutine of the kernel for each slice
    /// would be no fair share for the process that this coroutine works for.
    pub fn give_turn(&self) -> bool {
        let now = arch::now_ticks();
        if self.had_turn.take() {
            self.equals_until_ticks.set(now + now.saturating_sub(self.turn_ticks.get()));
            return true;
        }
        now < self.equals_until_ticks.get()
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
