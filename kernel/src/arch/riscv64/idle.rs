//! What a hart does that has no work: it sleeps, or waits awake; and what it does that waits long
//! for a lock.
//!
//! The processor that an emulator or a hypervisor has for a hart that sleeps goes to others, and it
//! takes tens of microseconds to get one back. The boot argument `idle=poll` keeps it, for a
//! machine that has a processor for each hart and nothing else to do with them.
//!
//! May touch: the instruction `wfi`, `sie` and `sip`.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cops_lock::OFFER;

use super::{csr, interrupts_off, interrupts_on, timer};

/// Whether harts wait awake.
static POLLS: AtomicBool = AtomicBool::new(false);

/// From now on harts without work wait awake.
pub fn poll_when_idle() {
    POLLS.store(true, Relaxed);
}

/// Sleeps until an interrupt arrives, unless `pending` says that there is work.
///
/// Interrupts are disabled while `pending` runs. If a handler would make work available after the
/// check, its interrupt is pending when the hart goes to sleep, and so ends the sleep at once. On
/// return interrupts are enabled, and pending ones have been taken. For the idle loop; `pending`
/// must be short.
pub fn wait_for_interrupt_unless(pending: impl FnOnce() -> bool) {
    interrupts_off();
    if !pending() {
        timer::withdraw();
        crate::portions::leave();
        if POLLS.load(Relaxed) {
            while !is_interrupt_pending() {
                core::hint::spin_loop();
            }
        } else {
            // SAFETY: `wfi` stalls until an interrupt is pending and changes no memory or
            // registers.
            unsafe { core::arch::asm!("wfi", options(nostack)) };
        }
        crate::portions::resume();
    }
    interrupts_on();
}

/// Whether an interrupt that is enabled in `sie` is pending: what ends a `wfi`.
fn is_interrupt_pending() -> bool {
    csr::read!("sip") & csr::read!("sie") != 0
}

/// From now on a hart that waits long for a lock offers its processor to the others. Called by the
/// boot hart before it starts the others.
pub fn offer_while_waiting() {
    static OFFER_PROCESSOR: fn() = offer_processor;
    // SAFETY: the only caller is the boot, before it starts the other harts.
    unsafe { OFFER.set(&OFFER_PROCESSOR) };
}

/// Executes a `wfi` that ends at once: where a hypervisor or an emulator has several harts on one
/// processor, others run first.
///
/// An interrupt has to be pending for that. The hart sends itself one, which finds nothing to do
/// when it is taken. It is left pending: one that another hart has sent could not be told from it.
fn offer_processor() {
    if csr::read!("sie") & csr::INTERRUPT_SOFTWARE == 0 {
        // It would not end the `wfi`: the hart has not installed its traps, or stops.
        return;
    }
    let enabled = csr::read!("sstatus") & csr::STATUS_INTERRUPTS;
    // SAFETY: interrupts are delayed, which no code relies on not to happen, and the handler of the
    // pending one is in place, because `install_traps` enables the source after it has set that.
    // `wfi` changes no memory or registers. At the end interrupts are enabled if they were before.
    unsafe {
        csr::clear!("sstatus", csr::STATUS_INTERRUPTS);
        csr::set!("sip", csr::INTERRUPT_SOFTWARE);
        core::arch::asm!("wfi", options(nostack));
        csr::set!("sstatus", enabled);
    }
}
