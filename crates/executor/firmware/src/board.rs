//! QEMU's board `virt`, one hart in machine mode: start, console, timer, sleep, end. All of the
//! unsafe code is here.
//!
//! Floating point stays off, so the trap handler need not save its registers.
#![allow(unsafe_code)]

use core::arch::{asm, global_asm};
use core::fmt::{self, Write};
use core::ptr;

use portable_atomic::{AtomicPtr, Ordering};

const UART_TRANSMIT: *mut u8 = 0x1000_0000 as *mut u8;
const UART_STATUS: *const u8 = 0x1000_0005 as *const u8;
const UART_STATUS_EMPTY: u8 = 1 << 5;
/// Ends the emulator: 0x5555 with exit code 0, 0x3333 with the code in the high half.
const TEST_FINISHER: *mut u32 = 0x0010_0000 as *mut u32;
const TIME_LOW: *const u32 = 0x0200_bff8 as *const u32;
const TIME_HIGH: *const u32 = 0x0200_bffc as *const u32;
const COMPARE_LOW: *mut u32 = 0x0200_4000 as *mut u32;
const COMPARE_HIGH: *mut u32 = 0x0200_4004 as *mut u32;

/// Ticks of the board's clock in a millisecond.
pub const TICKS_PER_MILLISECOND: u64 = 10_000;

const STATUS_INTERRUPTS: usize = 1 << 3;
const TIMER_ENABLED: usize = 1 << 7;
const CAUSE_TIMER: usize = 1 << (usize::BITS - 1) | 7;

/// What the stack is filled with, to see later how much of it was used.
const UNUSED: u32 = 0x5354_4b21;

global_asm!(
    ".section .text.start, \"ax\"",
    ".global _start",
    "_start:",
    "la sp, __stack_top",
    // Variables with a value: from flash to RAM.
    "la t0, __data_image",
    "la t1, __data_start",
    "la t2, __data_end",
    "1: bgeu t1, t2, 2f",
    "lw t3, 0(t0)",
    "sw t3, 0(t1)",
    "addi t0, t0, 4",
    "addi t1, t1, 4",
    "j 1b",
    // All others are zero, and the stack is marked as unused.
    "2: la t2, __bss_end",
    "3: bgeu t1, t2, 4f",
    "sw zero, 0(t1)",
    "addi t1, t1, 4",
    "j 3b",
    "4: li t3, {unused}",
    "5: bgeu t1, sp, 6f",
    "sw t3, 0(t1)",
    "addi t1, t1, 4",
    "j 5b",
    "6: la t0, {trap}",
    "csrw mtvec, t0",
    "call main",
    "7: j 7b",
    unused = const UNUSED,
    trap = sym trap_entry,
);

unsafe extern "C" {
    // Only their addresses mean anything.
    static __data_start: u32;
    static __bss_end: u32;
    static __stack_bottom: u32;
    static __stack_top: u32;
    static __flash_start: u32;
    static __flash_end: u32;
}

#[cfg(target_pointer_width = "32")]
macro_rules! for_width {
    ($for_32:literal, $for_64:literal) => {
        $for_32
    };
}
#[cfg(target_pointer_width = "64")]
macro_rules! for_width {
    ($for_32:literal, $for_64:literal) => {
        $for_64
    };
}

// Saves what a Rust function may overwrite, and calls one.
global_asm!(
    for_width!(".equ WORD, 4", ".equ WORD, 8"),
    for_width!(
        ".macro save register, place\nsw \\register, WORD*\\place(sp)\n.endm",
        ".macro save register, place\nsd \\register, WORD*\\place(sp)\n.endm"
    ),
    for_width!(
        ".macro restore register, place\nlw \\register, WORD*\\place(sp)\n.endm",
        ".macro restore register, place\nld \\register, WORD*\\place(sp)\n.endm"
    ),
    ".macro each action",
    "\\action ra, 0",
    "\\action t0, 1",
    "\\action t1, 2",
    "\\action t2, 3",
    "\\action t3, 4",
    "\\action t4, 5",
    "\\action t5, 6",
    "\\action t6, 7",
    "\\action a0, 8",
    "\\action a1, 9",
    "\\action a2, 10",
    "\\action a3, 11",
    "\\action a4, 12",
    "\\action a5, 13",
    "\\action a6, 14",
    "\\action a7, 15",
    ".endm",
    ".section .text.trap, \"ax\"",
    // `mtvec` takes a multiple of 4.
    ".balign 4",
    ".global trap_entry",
    "trap_entry:",
    "addi sp, sp, -16*WORD",
    "each save",
    "csrr a0, mcause",
    "csrr a1, mepc",
    "call {on_trap}",
    "each restore",
    "addi sp, sp, 16*WORD",
    "mret",
    on_trap = sym on_trap,
);

unsafe extern "C" {
    fn trap_entry();
}

/// What a timer interrupt calls.
static ON_TIMER: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

extern "C" fn on_trap(cause: usize, address: usize) {
    if cause != CAUSE_TIMER {
        print(format_args!("trap: cause {cause:#x} at {address:#x}\n"));
        exit(3);
    }
    let handler = ON_TIMER.load(Ordering::Acquire);
    if handler.is_null() {
        set_alarm(u64::MAX);
    } else {
        // SAFETY: `start_timer` alone writes it, and writes a `fn()`.
        unsafe { core::mem::transmute::<*mut (), fn()>(handler)() };
    }
}

/// Has `handler` called in an interrupt when the clock reaches `ticks`. The handler sets the next
/// time, or `u64::MAX` for never.
pub fn start_timer(ticks: u64, handler: fn()) {
    ON_TIMER.store(handler as *mut (), Ordering::Release);
    set_alarm(ticks);
    // SAFETY: the trap handler is in place since before `main`.
    unsafe { asm!("csrs mie, {}", in(reg) TIMER_ENABLED) };
    enable_interrupts();
}

/// When the next timer interrupt comes, in ticks of the clock.
pub fn set_alarm(ticks: u64) {
    // SAFETY: the registers of this board's timer. The high half is far away while the low half
    // changes.
    unsafe {
        COMPARE_HIGH.write_volatile(u32::MAX);
        COMPARE_LOW.write_volatile(ticks as u32);
        COMPARE_HIGH.write_volatile((ticks >> 32) as u32);
    }
}

/// The clock.
pub fn now() -> u64 {
    loop {
        // SAFETY: these are the addresses of this board's clock registers, which may always be
        // read.
        let (before, low, after) = unsafe {
            (TIME_HIGH.read_volatile(), TIME_LOW.read_volatile(), TIME_HIGH.read_volatile())
        };
        if before == after {
            return (after as u64) << 32 | low as u64;
        }
    }
}

/// Instructions executed so far; wraps.
pub fn instructions() -> u32 {
    let count: usize;
    // SAFETY: reads a counter register, which changes neither memory nor the stack.
    unsafe { asm!("csrr {}, minstret", out(reg) count, options(nomem, nostack)) };
    count as u32
}

fn enable_interrupts() {
    // SAFETY: handlers touch atomics only. Not `nomem`: what the code before has written, a handler
    // shall see.
    unsafe { asm!("csrs mstatus, {}", in(reg) STATUS_INTERRUPTS, options(nostack)) };
}

/// With interrupts masked, sleeps until one is pending if `may_sleep` says so; then lets interrupts
/// in. So an interrupt that comes after `may_sleep` has looked does not come before the sleep: it
/// ends it.
pub fn sleep_if(may_sleep: impl FnOnce() -> bool) {
    // SAFETY: masking is always allowed. Not `nomem`: what handlers have written is to be read
    // after this.
    unsafe { asm!("csrc mstatus, {}", in(reg) STATUS_INTERRUPTS, options(nostack)) };
    if may_sleep() {
        // SAFETY: `wfi` only waits, and continues when an interrupt is pending even while it is
        // masked.
        unsafe { asm!("wfi", options(nostack)) };
    }
    enable_interrupts();
}

/// The console.
struct Console;

impl Write for Console {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            // SAFETY: these are the addresses of this board's UART registers; nothing else writes
            // to them.
            unsafe {
                while UART_STATUS.read_volatile() & UART_STATUS_EMPTY == 0 {}
                UART_TRANSMIT.write_volatile(byte);
            }
        }
        Ok(())
    }
}

/// Prints, and waits until it is out.
pub fn print(text: fmt::Arguments<'_>) {
    // The console returns no errors.
    let _ = Console.write_fmt(text);
}

/// Prints a line.
#[macro_export]
macro_rules! println {
    ($($argument:tt)*) => {
        $crate::board::print(format_args!("{}\n", format_args!($($argument)*)))
    };
}

/// Ends the program, and the emulator.
pub fn exit(code: u16) -> ! {
    let word = if code == 0 { 0x5555 } else { (code as u32) << 16 | 0x3333 };
    // SAFETY: this board's way to be switched off.
    unsafe { TEST_FINISHER.write_volatile(word) };
    loop {
        core::hint::spin_loop();
    }
}

#[panic_handler]
fn on_panic(information: &core::panic::PanicInfo<'_>) -> ! {
    print(format_args!("{information}\n"));
    exit(101)
}

/// Bytes of memory that the program takes.
pub struct Usage {
    /// Code, constants and the first values of variables.
    pub flash: usize,
    /// Variables.
    pub variables: usize,
    /// The most that was on the stack so far.
    pub stack: usize,
    /// What the stack may grow to.
    pub stack_limit: usize,
}

/// What the linker has placed, and how far the stack has come.
pub fn usage() -> Usage {
    let bytes = |from: *const u32, to: *const u32| to.addr() - from.addr();
    let (bottom, top) = (&raw const __stack_bottom, &raw const __stack_top);
    let mut lowest = bottom;
    // SAFETY: from the end of the variables to the end of the RAM there is nothing but the stack;
    // its part below the present frame is no variable's, and volatile reads take it as it is.
    while lowest < top && unsafe { lowest.read_volatile() } == UNUSED {
        lowest = lowest.wrapping_add(1);
    }
    Usage {
        flash: bytes(&raw const __flash_start, &raw const __flash_end),
        variables: bytes(&raw const __data_start, &raw const __bss_end),
        stack: bytes(lowest, top),
        stack_limit: bytes(bottom, top),
    }
}

/// The board has one hart, so there is one worker: each caller runs on it, interrupt handlers
/// too.
#[unsafe(no_mangle)]
extern "C" fn _cops_executor_current_worker() -> u32 {
    cops_executor::encode_current_worker(0, 0)
}

/// Makes a function the one that is called at the start.
#[macro_export]
macro_rules! entry {
    ($function:path) => {
        const _: fn() -> ! = $function;

        #[allow(unsafe_code)]
        #[unsafe(export_name = "main")]
        extern "C" fn entry() -> ! {
            $function()
        }
    };
}
