//! RISC-V: RV64GC in supervisor mode, Sv39, SBI firmware below.
//!
//! `entry` brings a hart into the kernel, `trap` takes what interrupts it, `user` goes to
//! user mode and back, `upcall` interrupts it, `paging` knows page-table entries and the translation cache, `timer`,
//! `firmware` and `interrupt_controller` are the hart's surroundings, `hart` is the record
//! each hart finds through its `tp` register.
#![allow(unsafe_code)]

mod backtrace;
mod copy;
mod csr;
mod entry;
mod firmware;
mod floating_point;
mod hart;
pub mod interrupt_controller;
mod paging;
mod timer;
mod trap;
mod upcall;
mod user;

pub use backtrace::{frame_pointer, walk_frames};
pub use copy::{clear, copy_shared};
pub use entry::{run_on_own_stack, start_other_harts};
pub use firmware::{emergency_write, power_off_machine};
pub use hart::{HartSlot, HartSlots, describe_harts, hart_count, hart_index};
pub use interrupt_controller as controller;
pub use paging::{
    Asid, Entry, Rights, TABLE_ENTRIES, TABLE_LEVELS, activate_root, asid_count, flush_local, flush_root,
    interrupt_harts_with_root, is_active_root, page_size_of_level, sync_instruction_stream,
    sync_instruction_stream_everywhere, table_index,
};
pub use timer::{instructions_retired, now_ticks, set_timer, ticks_per_second};
pub use trap::{TrapFrame, install_traps, interrupts_off, interrupts_on, send_interrupt_to, stop_hart};
pub use user::{UserContext, enter_user_unless};

/// Sleeps until an interrupt comes, unless `pending` says there is something to do.
///
/// Interrupts are off while `pending` runs, so that what it does not see will still end the
/// sleep: a handler that makes work available after the check is one whose interrupt is
/// pending when the hart goes to sleep. They are on again on return, and what was pending
/// has been taken. For the idle loop; `pending` must be short.
pub fn wait_for_interrupt_unless(pending: impl FnOnce() -> bool) {
    interrupts_off();
    if !pending() {
        crate::portions::leave();
        // SAFETY: stalls until an interrupt is pending; touches nothing.
        unsafe { core::arch::asm!("wfi", options(nostack)) };
        crate::portions::resume();
    }
    interrupts_on();
}
