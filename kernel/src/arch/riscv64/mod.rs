//! RISC-V: RV64GC in supervisor mode with Sv39, on SBI firmware.
//!
//! - `entry`: entry of a hart into the kernel.
//! - `trap`: traps and their handlers.
//! - `user`: entering user mode and returning from it.
//! - `upcall`: interrupts of user mode.
//! - `signal`: the frame of a signal on a Linux program's stack.
//! - `paging`: page-table entries and translation caches.
//! - `idle`: what a hart does that has no work, or waits long for a lock.
//! - `timer`, `firmware`, `interrupt_controller`: the hart's clock, the calls to SBI, the PLIC.
//! - `hart`: the record that each hart finds through its `tp` register.
#![allow(unsafe_code)]

mod backtrace;
mod copy;
mod csr;
mod entry;
mod firmware;
mod floating_point;
mod hart;
mod idle;
pub mod interrupt_controller;
mod paging;
mod signal;
mod timer;
mod trap;
mod upcall;
mod user;

pub use backtrace::{frame_pointer, walk_frames};
pub use copy::{clear, copy_shared};
pub use entry::{run_on_own_stack, start_other_harts};
pub use firmware::{emergency_write, power_off_machine};
pub use hart::{HartSlot, HartSlots, describe_harts, hart_count, hart_index};
pub use idle::{offer_while_waiting, poll_when_idle, wait_for_interrupt_unless};
pub use interrupt_controller as controller;
pub use paging::{
    Asid, Entry, Rights, RootRegister, TABLE_ENTRIES, TABLE_LEVELS, activate_root, asid_count,
    begin_program, end_program, flush_local, flush_root, interrupt_harts_with_root,
    is_current_root, other_harts_run, page_size_of_level, sync_instruction_stream,
    sync_instruction_stream_of, table_index,
};
pub use signal::{SIGNAL_FRAME_BYTES, SignalHandler, SignalState, trampoline};
pub use timer::{instructions_retired, now_ticks, set_timer, ticks_per_second};
pub use trap::{
    TrapFrame, install_traps, interrupts_off, interrupts_on, send_interrupt_to, stop_hart,
};
pub use user::{UserContext, enter_user_unless};

/// What a Linux program learns about the processor: a bit for each letter of `imafdc`.
pub const HARDWARE_CAPABILITIES: usize = 1 << (b'i' - b'a')
    | 1 << (b'm' - b'a')
    | 1
    | 1 << (b'f' - b'a')
    | 1 << (b'd' - b'a')
    | 1 << (b'c' - b'a');

/// What Linux calls the machine.
pub const LINUX_NAME: &str = "riscv64";

/// What Linux says of a hart in `cpuinfo`.
pub const LINUX_DESCRIPTION: &str = "isa\t\t: rv64imafdc_zba_zbb_zbs\nmmu\t\t: sv39\n";

/// The machine type of programs in ELF files.
pub use elf::abi::EM_RISCV as ELF_MACHINE;
