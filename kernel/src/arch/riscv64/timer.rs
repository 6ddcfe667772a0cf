//! The clock that all harts share, and each hart's alarm.

use super::{csr, firmware};
use crate::drivers::device_tree;

/// Instructions this hart has executed since it was reset.
pub fn instructions_retired() -> u64 {
    csr::read!("instret") as u64
}

/// The clock, in ticks since some moment before the kernel started. The same on all harts.
#[inline]
pub fn now_ticks() -> u64 {
    csr::read!("time") as u64
}

/// How fast [`now_ticks`] runs.
#[inline]
pub fn ticks_per_second() -> u64 {
    device_tree::facts().timebase_hertz
}

/// Has this hart interrupted once [`now_ticks`] reaches `deadline_ticks`; a deadline in the
/// past interrupts at once, `u64::MAX` never. One alarm per hart: a new one replaces the old.
pub fn set_timer(deadline_ticks: u64) {
    // SAFETY: touches this hart's timer only, whose handler is always installed.
    unsafe {
        if deadline_ticks == u64::MAX {
            csr::clear!("sie", csr::INTERRUPT_TIMER);
            return;
        }
        if device_tree::facts().supervisor_timer {
            // `stimecmp` by number: assemblers of older toolchains do not know its name.
            csr::write!("0x14d", deadline_ticks);
        } else {
            firmware::set_timer(deadline_ticks);
        }
        csr::set!("sie", csr::INTERRUPT_TIMER);
    }
}

/// Called by the trap handler: the alarm has gone off, and would ring until it is set anew.
pub(super) fn silence() {
    set_timer(u64::MAX);
}
