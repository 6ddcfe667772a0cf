//! The effects of interrupts on scheduling. They are minimal and need no lock.

use super::timer;
use crate::arch;
use crate::counters::COUNTERS;
use crate::trace::{self, Event};

/// The hart's timer interrupt.
pub fn on_timer() {
    COUNTERS.interrupts.add(1);
    trace::emit(|| Event::Interrupt { source: 1 });
    timer::on_interrupt();
}

/// Another hart makes this one check: its inbox if it slept, for something more urgent if it runs
/// user code. Taking the interrupt is sufficient; the interrupted code checks by itself.
pub fn on_interprocessor() {
    COUNTERS.interrupts.add(1);
    COUNTERS.interprocessor_interrupts_taken.add(1);
    trace::emit(|| Event::Interrupt { source: 2 });
}

/// A device's line was claimed.
pub fn on_external() {
    COUNTERS.interrupts.add(1);
    trace::emit(|| Event::Interrupt { source: 3 });
    COUNTERS.device_interrupt_ticks.set(arch::now_ticks());
}
