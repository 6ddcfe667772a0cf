//! The clock that all harts share, and each hart's timer.

use super::{csr, firmware};
use crate::machine::device_tree;

/// Instructions this hart has executed since it was reset.
pub fn instructions_retired() -> u64 {
    csr::read!("instret") as u64
}

/// The clock, in ticks since a moment before the kernel started. The same on all harts.
#[inline]
pub fn now_ticks() -> u64 {
    csr::read!("time") as u64
}

/// The frequency of [`now_ticks`].
#[inline]
pub fn ticks_per_second() -> u64 {
    device_tree::facts().timebase_hertz
}

/// Interrupts this hart once [`now_ticks`] reaches `deadline_ticks`: at once for a deadline in the
/// past, never for `u64::MAX`. Each hart has one timer; a new deadline replaces the old one.
pub fn set_timer(deadline_ticks: u64) {
    // SAFETY: this changes only this hart's timer; `install_traps` installs its handler before the
    // interrupt can be taken.
    unsafe {
        if deadline_ticks == u64::MAX {
            csr::clear!("sie", csr::INTERRUPT_TIMER);
            return;
        }
        request_at(deadline_ticks);
        csr::set!("sie", csr::INTERRUPT_TIMER);
    }
}

/// Makes the timer request its interrupt from `deadline_ticks` on, and not before, whether or not
/// that is enabled.
#[inline]
fn request_at(deadline_ticks: u64) {
    if device_tree::facts().supervisor_timer {
        // `stimecmp` by number, because assemblers of older toolchains do not know its name.
        // SAFETY: this changes only this hart's timer. Its interrupt is enabled by `set_timer`
        // only.
        unsafe { csr::write!("0x14d", deadline_ticks) };
    } else {
        firmware::set_timer(deadline_ticks);
    }
}

/// This hart is about to sleep, with interrupts off: withdraws the request of a timer that was
/// [silenced](silence), and would not end the sleep.
///
/// The request stays pending otherwise. QEMU wakes the thread of each hart that has any request
/// pending, enabled or not, whenever a device interrupts another one. Not done by `silence`: mostly
/// the timer is set again soon, and each setting takes QEMU's global lock.
pub(super) fn withdraw() {
    if csr::read!("sip") & !csr::read!("sie") & csr::INTERRUPT_TIMER != 0 {
        request_at(u64::MAX);
    }
}

/// Called by the trap handler: disables the timer, which would otherwise interrupt until it is set
/// again.
pub(super) fn silence() {
    set_timer(u64::MAX);
}
