//! Counters that cost nothing to keep: one cache line a hart would be better still, but no hot path has more than two.
//!
//! May touch: nothing.

use core::sync::atomic::{AtomicU64, Ordering::*};

/// One counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }
    /// Counts up.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }
    /// Counts down; for amounts that rise and fall.
    pub fn subtract(&self, count: u64) {
        self.0.fetch_sub(count, Relaxed);
    }
    /// Sets it; for what is no count.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }
    /// How much it is now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident),* $(,)?) => {
        /// What the kernel counts about itself; see [`cops_abi::statistics::Statistics`].
        pub struct Counters { $($(#[$doc])+ pub $name: Counter,)* }
        /// The machine's counters.
        pub static COUNTERS: Counters = Counters { $($name: Counter::new(),)* };
    };
}

counters! {
    /// Entries from user mode.
    traps_from_user,
    /// System calls.
    system_calls,
    /// Interrupts.
    interrupts,
    /// Coroutine calls that needed no kernel coroutine.
    calls_completed_at_once,
    /// Calls that needed one.
    calls_deferred,
    /// Calls that wait now.
    calls_in_flight,
    /// Calls cancelled.
    calls_cancelled,
    /// Results kept aside.
    ring_overflows,
    /// Parks.
    parks,
    /// Wakes of parked virtual CPUs by the kernel.
    unparks,
    /// Changes of the virtual CPU a hart runs.
    cpu_switches,
    /// What the instruction counters of all harts went on while the harts slept.
    instructions_asleep,
    /// Interrupts sent to other harts.
    interprocessor_interrupts,
    /// Those for something more urgent than user code.
    preemptions,
    /// User-level interrupts posted.
    user_interrupts_posted,
    /// Harts interrupted for them.
    user_interrupts_sent,
    /// Those for which nobody need be interrupted.
    user_interrupts_suppressed,
    /// Handlers entered.
    user_interrupts_taken,
    /// When the last device interrupt was taken.
    device_interrupt_ticks,
    /// Interrupts of other harts that were taken.
    interprocessor_interrupts_taken,
}
