//! Traps: the trap vector, the handlers, and enabling and disabling interrupts.
//!
//! `sscratch` tells where a trap came from. It is the address of the thread's `UserContext` while
//! user mode runs, and 0 while the kernel runs.
//!
//! - From user mode, the vector saves the registers into the context and *returns from
//!   `__enter_user`*. So no state but a return address and saved registers is on the kernel stack,
//!   and a process is a loop in a coroutine.
//! - From the kernel, the vector saves the caller-saved registers on the interrupted stack and
//!   calls a handler.
//!
//! Handlers run with interrupts disabled, take no locks and allocate nothing: they silence the
//! source, set a flag and wake a coroutine. That is why no lock in the kernel has to disable
//! interrupts.

use super::hart::{self, HartRecord};
use super::user::UserContext;
use super::{csr, firmware, timer};
use crate::arch::Handlers;
use crate::counters::COUNTERS;
use crate::machine::layout::{KERNEL_STACK_BYTES, KERNEL_STACK_STRIDE};
use crate::portions::Section;
use cops_abi::inspect::portion;
use core::arch::{asm, global_asm};
use core::fmt;
use core::mem::{offset_of, size_of};
use spin::Once;

/// The kernel's registers at a trap. The callee-saved registers are saved for exceptions only.
#[repr(C)]
pub struct TrapFrame {
    /// `x1` to `x31`; index 0 holds the program counter.
    registers: [usize; 32],
    status: usize,
    cause: usize,
    value: usize,
    _align: usize,
}

const _: () = assert!(size_of::<TrapFrame>().is_multiple_of(16));

// A stack occupies the upper half of an aligned block; the lower half is not mapped. So one bit of
// the stack pointer tells whether there is room for the frame (machine/layout.rs).
const _: () =
    assert!(KERNEL_STACK_STRIDE == 2 * KERNEL_STACK_BYTES && KERNEL_STACK_BYTES.is_power_of_two());

global_asm!(
    ".pushsection .text.trap, \"ax\"",
    ".option norelax",
    ".balign 4",
    ".globl __trap_vector",
    "__trap_vector:",
    "    csrrw a0, sscratch, a0",
    "    beqz  a0, 1f",
    // From user mode. a0 is the context; the user's a0 is in sscratch.
    "    sd ra, 1*8(a0)",
    "    sd sp, 2*8(a0)",
    "    sd gp, 3*8(a0)",
    "    sd tp, 4*8(a0)",
    "    sd t0, 5*8(a0)",
    "    sd t1, 6*8(a0)",
    "    sd t2, 7*8(a0)",
    "    sd s0, 8*8(a0)",
    "    sd s1, 9*8(a0)",
    "    sd a1, 11*8(a0)",
    "    sd a2, 12*8(a0)",
    "    sd a3, 13*8(a0)",
    "    sd a4, 14*8(a0)",
    "    sd a5, 15*8(a0)",
    "    sd a6, 16*8(a0)",
    "    sd a7, 17*8(a0)",
    "    sd s2, 18*8(a0)",
    "    sd s3, 19*8(a0)",
    "    sd s4, 20*8(a0)",
    "    sd s5, 21*8(a0)",
    "    sd s6, 22*8(a0)",
    "    sd s7, 23*8(a0)",
    "    sd s8, 24*8(a0)",
    "    sd s9, 25*8(a0)",
    "    sd s10, 26*8(a0)",
    "    sd s11, 27*8(a0)",
    "    sd t3, 28*8(a0)",
    "    sd t4, 29*8(a0)",
    "    sd t5, 30*8(a0)",
    "    sd t6, 31*8(a0)",
    "    csrrw t0, sscratch, zero", // from here on this is the kernel
    "    csrr t1, sepc",
    "    csrr t2, sstatus",
    "    sd t0, 10*8(a0)",
    "    sd t1, {context_program_counter}(a0)",
    "    sd t2, {context_status}(a0)",
    "    li t0, {floating_point}", // off in the kernel, whatever its state in the program
    "    csrc sstatus, t0",
    "    ld sp, {context_kernel_stack}(a0)",
    "    j __leave_user",
    // From the kernel. a0 is 0; the kernel's a0 is in sscratch. Is there room on the stack?
    "1:  addi a0, sp, -{frame_size}",
    "    srli a0, a0, {stack_shift}",
    "    andi a0, a0, 1",
    "    beqz a0, 3f",
    "    csrrw a0, sscratch, zero",
    "    addi sp, sp, -{frame_size}",
    "2:  sd ra, 1*8(sp)",
    "    sd gp, 3*8(sp)",
    "    sd t0, 5*8(sp)",
    "    sd t1, 6*8(sp)",
    "    sd t2, 7*8(sp)",
    "    sd s0, 8*8(sp)",
    "    sd a0, 10*8(sp)",
    "    sd a1, 11*8(sp)",
    "    sd a2, 12*8(sp)",
    "    sd a3, 13*8(sp)",
    "    sd a4, 14*8(sp)",
    "    sd a5, 15*8(sp)",
    "    sd a6, 16*8(sp)",
    "    sd a7, 17*8(sp)",
    "    sd t3, 28*8(sp)",
    "    sd t4, 29*8(sp)",
    "    sd t5, 30*8(sp)",
    "    sd t6, 31*8(sp)",
    "    csrr t0, sepc",
    "    csrr t1, sstatus",
    "    csrr a0, scause",
    "    sd t0, 0*8(sp)",
    "    sd t1, {frame_status}(sp)",
    "    bgez a0, 4f",
    "    call {handle_interrupt}",
    "    ld t0, 0*8(sp)",
    "    sc.d zero, t0, (sp)", // no reservation outlives a trap; the same value if it succeeds
    "    ld t1, {frame_status}(sp)",
    "    csrw sepc, t0",
    "    csrw sstatus, t1",
    "    ld ra, 1*8(sp)",
    "    ld gp, 3*8(sp)",
    "    ld t0, 5*8(sp)",
    "    ld t1, 6*8(sp)",
    "    ld t2, 7*8(sp)",
    "    ld a0, 10*8(sp)",
    "    ld a1, 11*8(sp)",
    "    ld a2, 12*8(sp)",
    "    ld a3, 13*8(sp)",
    "    ld a4, 14*8(sp)",
    "    ld a5, 15*8(sp)",
    "    ld a6, 16*8(sp)",
    "    ld a7, 17*8(sp)",
    "    ld t3, 28*8(sp)",
    "    ld t4, 29*8(sp)",
    "    ld t5, 30*8(sp)",
    "    ld t6, 31*8(sp)",
    "    addi sp, sp, {frame_size}",
    "    sret",
    // The stack is full. Report it on the hart's emergency stack; execution cannot continue.
    "3:  csrw sscratch, sp", // the kernel's a0 is lost; its sp is more useful in the report
    "    ld sp, {emergency_stack}(tp)",
    "    addi sp, sp, -{frame_size}",
    "    sd s0, 8*8(sp)",
    "    csrrw a0, sscratch, zero",
    "    sd a0, 2*8(sp)",
    "    csrr a1, sepc",
    "    sd a1, 0*8(sp)",
    "    mv a1, sp",
    "    tail {stack_overflow}",
    // An exception in the kernel: save the remaining registers for the report.
    "4:  addi t0, sp, {frame_size}",
    "    sd t0, 2*8(sp)",
    "    sd tp, 4*8(sp)",
    "    sd s1, 9*8(sp)",
    "    sd s2, 18*8(sp)",
    "    sd s3, 19*8(sp)",
    "    sd s4, 20*8(sp)",
    "    sd s5, 21*8(sp)",
    "    sd s6, 22*8(sp)",
    "    sd s7, 23*8(sp)",
    "    sd s8, 24*8(sp)",
    "    sd s9, 25*8(sp)",
    "    sd s10, 26*8(sp)",
    "    sd s11, 27*8(sp)",
    "    csrr t1, stval",
    "    sd a0, {frame_cause}(sp)",
    "    sd t1, {frame_value}(sp)",
    "    mv a0, sp",
    "    call {handle_exception}",
    ".popsection",
    context_program_counter = const offset_of!(UserContext, program_counter),
    context_status = const offset_of!(UserContext, status),
    context_kernel_stack = const offset_of!(UserContext, registers),
    floating_point = const csr::STATUS_FLOATING_POINT,
    frame_size = const size_of::<TrapFrame>(),
    frame_status = const offset_of!(TrapFrame, status),
    frame_cause = const offset_of!(TrapFrame, cause),
    frame_value = const offset_of!(TrapFrame, value),
    stack_shift = const KERNEL_STACK_BYTES.trailing_zeros(),
    emergency_stack = const offset_of!(HartRecord, emergency_stack_top),
    handle_interrupt = sym handle_interrupt,
    handle_exception = sym handle_exception,
    stack_overflow = sym stack_overflow,
);

unsafe extern "C" {
    /// Only the address is used, for `stvec`; it is never called.
    fn __trap_vector();
}

/// Prepares this hart for traps and enables interrupts.
pub fn install_traps(handlers: &'static Handlers) {
    HANDLERS.call_once(|| handlers);
    // SAFETY: the vector expects 0 in sscratch (written here), the hart's record in tp (set in
    // `entry`) and a guarded stack in sp (`run_on_own_stack`); all three hold from here on. Access
    // to clock and counters from user mode is harmless.
    unsafe {
        csr::write!("sscratch", 0usize);
        csr::write!("stvec", __trap_vector as *const () as usize);
        csr::write!("scounteren", 7usize);
        csr::clear!("sstatus", csr::STATUS_FLOATING_POINT);
    }
    timer::silence();
    // SAFETY: `stvec` was set above, so the handlers are in place for the enabled sources.
    unsafe { csr::set!("sie", csr::INTERRUPT_SOFTWARE | csr::INTERRUPT_EXTERNAL) };
    interrupts_on();
}

/// Enables interrupts on this hart.
#[inline]
pub fn interrupts_on() {
    crate::portions::interrupts_on();
    // SAFETY: no source is enabled in `sie` before `install_traps`, which installs the handlers
    // first.
    unsafe { csr::set!("sstatus", csr::STATUS_INTERRUPTS) };
}

/// Disables interrupts on this hart; they stay pending until [`interrupts_on`].
#[inline]
pub fn interrupts_off() {
    disable_interrupts();
    crate::portions::interrupts_off();
}

#[inline]
fn disable_interrupts() {
    // SAFETY: no code relies on interrupts being taken at a particular moment, so delaying them is
    // sound.
    unsafe { csr::clear!("sstatus", csr::STATUS_INTERRUPTS) };
}

/// As [`interrupts_off`], at a point at which something more urgent can take this hart: a portion
/// of this kind begins.
#[inline]
pub fn interrupts_off_at(kind: u32) {
    disable_interrupts();
    crate::portions::point_with_interrupts_off(kind);
}

/// Interrupts a hart, possibly this one. The hart leaves user mode or `wfi` and calls
/// [`Handlers::interprocessor`]. Interrupt handlers may call this.
pub fn send_interrupt_to(hart: usize) {
    COUNTERS.interprocessor_interrupts.add(1);
    firmware::send_interrupt(hart::id_of(hart));
}

/// Stops this hart permanently.
pub fn stop_hart() -> ! {
    interrupts_off();
    // SAFETY: with all sources disabled in `sie`, `wfi` returns at most spuriously, and the loop
    // repeats it.
    unsafe {
        csr::write!("sie", 0usize);
        loop {
            asm!("wfi", options(nomem, nostack));
        }
    }
}

static HANDLERS: Once<&Handlers> = Once::new();

fn handlers() -> &'static Handlers {
    HANDLERS.get().expect("`install_traps` sets the handlers before it installs the vector")
}

/// Runs the handler for interrupt `cause`. Interrupts are disabled.
pub(super) extern "C" fn handle_interrupt(cause: usize) {
    let _measured = Section::begin(portion::HANDLER, cause as u32 & 63);
    match 1usize << (cause & 63) {
        csr::INTERRUPT_TIMER => {
            timer::silence();
            (handlers().timer)();
        }
        csr::INTERRUPT_SOFTWARE => {
            // Cleared before the work is looked for, so that a later message interrupts again.
            // SAFETY: this clears only this hart's own software interrupt, which is being handled.
            unsafe { csr::clear!("sip", csr::INTERRUPT_SOFTWARE) };
            (handlers().interprocessor)();
        }
        csr::INTERRUPT_EXTERNAL => (handlers().external)(),
        _ => {
            // This source is not enabled in `sie`, so it cannot interrupt; if it does, disable it.
            // SAFETY: no driver waits for this source, because the kernel never enables it.
            unsafe { csr::clear!("sie", 1usize << (cause & 63)) };
        }
    }
}

extern "C" fn handle_exception(frame: &TrapFrame) -> ! {
    (handlers().kernel_exception)(frame)
}

extern "C" fn stack_overflow(stack_pointer: usize, frame: &TrapFrame) -> ! {
    (handlers().stack_overflow)(stack_pointer, frame)
}

impl TrapFrame {
    pub fn program_counter(&self) -> usize {
        self.registers[0]
    }

    pub fn frame_pointer(&self) -> usize {
        self.registers[8]
    }

    /// The name of the exception.
    pub fn cause_name(&self) -> &'static str {
        exception_name(self.cause)
    }

    /// The address or instruction to which the cause refers (`stval`).
    pub fn value(&self) -> usize {
        self.value
    }
}

pub(super) const REGISTER_NAMES: [&str; 32] = [
    "pc", "ra", "sp", "gp", "tp", "t0", "t1", "t2", "s0", "s1", "a0", "a1", "a2", "a3", "a4", "a5",
    "a6", "a7", "s2", "s3", "s4", "s5", "s6", "s7", "s8", "s9", "s10", "s11", "t3", "t4", "t5",
    "t6",
];

/// Prints 32 registers, four per line.
pub(super) fn format_registers(f: &mut fmt::Formatter<'_>, registers: &[usize; 32]) -> fmt::Result {
    for (line, (names, values)) in REGISTER_NAMES.chunks(4).zip(registers.chunks(4)).enumerate() {
        if line > 0 {
            writeln!(f)?;
        }
        for (name, value) in names.iter().zip(values) {
            write!(f, "  {name:>3} {value:016x}")?;
        }
    }
    Ok(())
}

impl fmt::Display for TrapFrame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format_registers(f, &self.registers)?;
        write!(f, "\n  status {:x} cause {:x} value {:x}", self.status, self.cause, self.value)
    }
}

/// The exceptions' names in the RISC-V specification.
fn exception_name(cause: usize) -> &'static str {
    match cause {
        0 => "misaligned instruction address",
        1 => "instruction access fault",
        2 => "illegal instruction",
        3 => "breakpoint",
        4 => "misaligned load",
        5 => "load access fault",
        6 => "misaligned store",
        7 => "store access fault",
        8 => "system call from user mode",
        9 => "system call from the kernel",
        12 => "instruction page fault",
        13 => "load page fault",
        15 => "store page fault",
        _ => "unknown exception",
    }
}
