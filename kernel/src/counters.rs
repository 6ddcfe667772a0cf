//! The kernel's counters. They are shared by all harts. A request of the matrix service changes
//! some fourteen times one of them; with a cache line for each hart four harts answered no more.

use core::sync::atomic::{AtomicU64, Ordering::*};

use cops_abi::statistics::Statistics;

/// One counter.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    const fn new() -> Self {
        Self(AtomicU64::new(0))
    }
    /// Increases the counter.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }
    /// Decreases the counter; for amounts that rise and fall.
    pub fn subtract(&self, count: u64) {
        self.0.fetch_sub(count, Relaxed);
    }
    /// Sets the value; for what is not a count.
    pub fn set(&self, value: u64) {
        self.0.store(value, Relaxed);
    }
    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

macro_rules! counters {
    ($($(#[$doc:meta])+ $name:ident),* $(,)?) => {
        /// The kernel's counters; see [`Statistics`].
        pub struct Counters { $($(#[$doc])+ pub $name: Counter,)* }

        impl Counters {
            /// Copies all counters into the record.
            pub fn copy_into(&self, record: &mut Statistics) {
                $(record.$name = self.$name.get();)*
            }
        }

        /// The machine's counters.
        pub static COUNTERS: Counters = Counters { $($name: Counter::new(),)* };
    };
}

/// How far an emulator advanced the counter of instructions while all harts slept.
pub static INSTRUCTIONS_ASLEEP: Counter = Counter::new();

counters! {
    /// Entries from user mode.
    traps_from_user,
    /// System calls.
    system_calls,
    /// Interrupts.
    interrupts,
    /// Coroutine calls that completed without a kernel coroutine.
    calls_completed_at_once,
    /// Calls that needed a kernel coroutine.
    calls_deferred,
    /// Calls that are waiting now.
    calls_in_flight,
    /// Calls cancelled.
    calls_cancelled,
    /// Results for which the ring had no room.
    ring_overflows,
    /// Parks.
    parks,
    /// Parked virtual CPUs woken by the kernel.
    unparks,
    /// Changes of a hart's virtual CPU.
    cpu_switches,
    /// Interrupts sent to other harts.
    interprocessor_interrupts,
    /// Those sent because of something more urgent than user code.
    preemptions,
    /// User-level interrupts posted.
    user_interrupts_posted,
    /// Harts interrupted for them.
    user_interrupts_sent,
    /// User-level interrupts for which no hart had to be interrupted.
    user_interrupts_suppressed,
    /// Entries of interrupt handlers.
    user_interrupts_taken,
    /// Time of the last device interrupt, or look that found frames.
    device_interrupt_ticks,
    /// Interrupts by other harts that were taken.
    interprocessor_interrupts_taken,
    /// Times a hart waited for others to forget translations.
    remote_flushes,
    /// Times frames were found late.
    frames_found_late,
}
