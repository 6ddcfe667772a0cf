//! User mode as a function call: [`enter_user_unless`] enters it and returns the reason why it was
//! left.

use super::floating_point::FloatingPoint;
use super::{csr, paging, trap};
use crate::arch::{Access, Fault, SyscallFrame, UserTrap};
use crate::portions;
use cops_abi::inspect::portion;
use core::arch::global_asm;
use core::fmt;
use core::mem::offset_of;

/// A thread's registers while it does not run. The trap vector saves them here.
#[repr(C)]
#[derive(Clone)]
pub struct UserContext {
    /// `x1` to `x31`; index 0 holds the kernel's stack pointer while the thread runs.
    pub(super) registers: [usize; 32],
    pub(super) program_counter: usize,
    /// `sstatus` at the trap; only its floating-point state is used.
    pub(super) status: usize,
    pub(super) floating_point: FloatingPoint,
}

pub(super) const REGISTER_SP: usize = 2;
const REGISTER_TP: usize = 4;
const REGISTER_T0: usize = 5;
pub(super) const REGISTER_A0: usize = 10;
const REGISTER_A6: usize = 16;
pub(super) const REGISTER_A7: usize = 17;

/// Size of what `__enter_user` saves on the kernel stack: `ra`, `s0` to `s11`, `tp`.
const SAVED_BYTES: usize = 14 * 8;

global_asm!(
    ".pushsection .text.trap, \"ax\"",
    ".option norelax",
    ".globl __enter_user",
    // a0: the context. Returns, through the trap vector, when user mode is left.
    "__enter_user:",
    "    addi sp, sp, -{saved}",
    "    sd ra, 0(sp)",
    "    sd s0, 8(sp)",
    "    sd s1, 16(sp)",
    "    sd s2, 24(sp)",
    "    sd s3, 32(sp)",
    "    sd s4, 40(sp)",
    "    sd s5, 48(sp)",
    "    sd s6, 56(sp)",
    "    sd s7, 64(sp)",
    "    sd s8, 72(sp)",
    "    sd s9, 80(sp)",
    "    sd s10, 88(sp)",
    "    sd s11, 96(sp)",
    "    sd tp, 104(sp)",
    "    ld t0, {program_counter}(a0)",
    "    ld t1, {status}(a0)",
    "    sd sp, 0(a0)",
    "    sc.d zero, sp, (a0)", // no reservation outlives a trap; the same value if it succeeds
    "    csrw sscratch, a0",
    "    csrw sepc, t0",
    "    csrw sstatus, t1",
    "    ld ra, 1*8(a0)",
    "    ld sp, 2*8(a0)",
    "    ld gp, 3*8(a0)",
    "    ld tp, 4*8(a0)",
    "    ld t0, 5*8(a0)",
    "    ld t1, 6*8(a0)",
    "    ld t2, 7*8(a0)",
    "    ld s0, 8*8(a0)",
    "    ld s1, 9*8(a0)",
    "    ld a1, 11*8(a0)",
    "    ld a2, 12*8(a0)",
    "    ld a3, 13*8(a0)",
    "    ld a4, 14*8(a0)",
    "    ld a5, 15*8(a0)",
    "    ld a6, 16*8(a0)",
    "    ld a7, 17*8(a0)",
    "    ld s2, 18*8(a0)",
    "    ld s3, 19*8(a0)",
    "    ld s4, 20*8(a0)",
    "    ld s5, 21*8(a0)",
    "    ld s6, 22*8(a0)",
    "    ld s7, 23*8(a0)",
    "    ld s8, 24*8(a0)",
    "    ld s9, 25*8(a0)",
    "    ld s10, 26*8(a0)",
    "    ld s11, 27*8(a0)",
    "    ld t3, 28*8(a0)",
    "    ld t4, 29*8(a0)",
    "    ld t5, 30*8(a0)",
    "    ld t6, 31*8(a0)",
    "    ld a0, 10*8(a0)",
    "    sret",
    // The vector has saved the thread's registers and loaded the kernel's sp.
    ".globl __leave_user",
    "__leave_user:",
    "    ld ra, 0(sp)",
    "    ld s0, 8(sp)",
    "    ld s1, 16(sp)",
    "    ld s2, 24(sp)",
    "    ld s3, 32(sp)",
    "    ld s4, 40(sp)",
    "    ld s5, 48(sp)",
    "    ld s6, 56(sp)",
    "    ld s7, 64(sp)",
    "    ld s8, 72(sp)",
    "    ld s9, 80(sp)",
    "    ld s10, 88(sp)",
    "    ld s11, 96(sp)",
    "    ld tp, 104(sp)",
    "    addi sp, sp, {saved}",
    "    ret",
    ".popsection",
    saved = const SAVED_BYTES,
    program_counter = const offset_of!(UserContext, program_counter),
    status = const offset_of!(UserContext, status),
);

unsafe extern "C" {
    fn __enter_user(context: *mut UserContext);
}

/// Runs the thread until it enters the kernel or is interrupted, and returns the reason. If
/// `pending` returns true, because something else should run, it returns [`UserTrap::Interrupt`] at
/// once. `pending` may also change the registers.
///
/// Interrupts are disabled from before `pending` runs until user mode is entered. So if a handler
/// would change the answer of `pending`, its interrupt is taken in user mode. `activate_space`
/// loads the thread's address space on this hart. On return interrupts are enabled, and the handler
/// of an interrupt has run. The registers may hold any values: an invalid program counter or stack
/// pointer is a fault of the thread.
pub fn enter_user_unless(
    context: &mut UserContext,
    activate_space: impl Fn(),
    pending: impl FnOnce(&mut UserContext) -> bool,
) -> UserTrap {
    // `pending` may give the hart to something else.
    trap::interrupts_off_at(portion::SWITCH);
    if pending(context) {
        trap::interrupts_on();
        return UserTrap::Interrupt;
    }
    loop {
        activate_space();
        paging::meet_instruction_epoch();
        context.status = csr::STATUS_USER_64
            | csr::STATUS_PREVIOUS_INTERRUPTS
            | context.status & csr::STATUS_FLOATING_POINT;
        portions::leave();
        // SAFETY: `status` was built above, so `sret` enters user mode with interrupts enabled. The
        // vector saves into `context`, which is exclusively borrowed until then, and returns here
        // with this hart's stack and record.
        unsafe { __enter_user(context) };
        portions::enter();
        let cause = csr::read!("scause");
        let value = csr::read!("stval");
        if cause & csr::CAUSE_INTERRUPT != 0 {
            trap::handle_interrupt(cause);
            trap::interrupts_on();
            return UserTrap::Interrupt;
        }
        if cause == ILLEGAL_INSTRUCTION && context.switch_floating_point_on() {
            continue;
        }
        trap::interrupts_on();
        // By far the most frequent reason.
        if cause == SYSTEM_CALL {
            return UserTrap::Syscall;
        }
        return UserTrap::Fault(fault(cause, value));
    }
}

const ILLEGAL_INSTRUCTION: usize = 2;
const SYSTEM_CALL: usize = 8;

/// Maps a fault of user mode, by its number in the RISC-V specification.
#[inline(never)]
fn fault(cause: usize, value: usize) -> Fault {
    let page = |access| Fault::Page { address: value, access };
    let hole = |access| Fault::AccessFault { address: value, access };
    match cause {
        0 | 4 | 6 => Fault::Misaligned { address: value },
        1 => hole(Access::Execute),
        5 => hole(Access::Read),
        7 => hole(Access::Write),
        3 => Fault::Breakpoint,
        12 => page(Access::Execute),
        13 => page(Access::Read),
        15 => page(Access::Write),
        _ => Fault::IllegalInstruction,
    }
}

impl UserContext {
    /// A thread that starts at `entry` with the given stack and first argument.
    pub const fn new(entry: usize, stack_top: usize, argument0: usize) -> Self {
        let mut registers = [0; 32];
        registers[REGISTER_SP] = stack_top;
        registers[REGISTER_A0] = argument0;
        Self {
            registers,
            program_counter: entry,
            status: csr::FLOATING_POINT_OFF,
            floating_point: FloatingPoint::new(),
        }
    }

    /// The registers of a copy of the thread that has just made a system call, with result 0, also
    /// as the result of an asynchronous call; on another stack and with another thread pointer if
    /// these are given. The floating-point registers have been
    /// [saved](Self::save_floating_point).
    pub fn copy(
        &self,
        is_asynchronous: bool,
        stack_pointer: Option<usize>,
        thread_pointer: Option<usize>,
    ) -> Self {
        let mut copy = self.clone();
        copy.set_result(0);
        if is_asynchronous {
            copy.set_results(0, 0);
        }
        if let Some(stack_pointer) = stack_pointer {
            copy.registers[REGISTER_SP] = stack_pointer;
        }
        if let Some(thread_pointer) = thread_pointer {
            copy.registers[REGISTER_TP] = thread_pointer;
        }
        copy
    }

    /// Number and arguments of the system call that the thread makes.
    pub fn syscall(&self) -> SyscallFrame {
        let mut arguments = [0; 6];
        arguments.copy_from_slice(&self.registers[REGISTER_A0..REGISTER_A6]);
        SyscallFrame {
            number: self.registers[REGISTER_A7],
            arguments,
            coroutine: self.registers[REGISTER_A6],
            token: self.registers[REGISTER_T0],
        }
    }

    /// Advances to the instruction after the system call.
    pub fn skip_syscall(&mut self) {
        self.program_counter = self.program_counter.wrapping_add(4);
    }

    /// Undoes [`UserContext::skip_syscall`]: the thread makes the call once more.
    pub fn repeat_syscall(&mut self) {
        self.program_counter = self.program_counter.wrapping_sub(4);
    }

    pub fn set_result(&mut self, a0: usize) {
        self.registers[REGISTER_A0] = a0;
    }

    pub fn set_results(&mut self, a0: usize, a1: usize) {
        self.registers[REGISTER_A0] = a0;
        self.registers[REGISTER_A0 + 1] = a1;
    }

    /// The register with the first argument, and with a result.
    pub fn argument(&self) -> usize {
        self.registers[REGISTER_A0]
    }

    pub fn program_counter(&self) -> usize {
        self.program_counter
    }

    /// Saves this thread's floating-point registers if they have changed. Must be called on the
    /// hart on which the thread ran, before another thread's registers are restored there, and
    /// before the context is cloned.
    pub fn save_floating_point(&mut self) {
        if self.status & csr::STATUS_FLOATING_POINT == csr::FLOATING_POINT_DIRTY {
            self.floating_point.save();
            self.set_floating_point_state(csr::FLOATING_POINT_CLEAN);
        }
    }

    /// Loads this thread's floating-point registers into the hart that is about to run it, unless
    /// the thread has never used them.
    pub fn restore_floating_point(&self) {
        if self.status & csr::STATUS_FLOATING_POINT != csr::FLOATING_POINT_OFF {
            self.floating_point.restore();
        }
    }

    /// Handles an illegal instruction while the unit is off: enables it. Returns false if it was on
    /// already.
    fn switch_floating_point_on(&mut self) -> bool {
        if self.status & csr::STATUS_FLOATING_POINT != csr::FLOATING_POINT_OFF {
            return false;
        }
        self.set_floating_point_state(csr::FLOATING_POINT_CLEAN);
        self.floating_point.restore();
        true
    }

    pub(super) fn set_floating_point_state(&mut self, state: usize) {
        self.status = self.status & !csr::STATUS_FLOATING_POINT | state;
    }
}

impl fmt::Display for UserContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut registers = self.registers;
        registers[0] = self.program_counter;
        trap::format_registers(f, &registers)
    }
}

impl fmt::Debug for UserContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
