//! The processor: entering the kernel, the first instructions of a program, the thread pointer, the clock.
//!
//! The only module that names RISC-V. May touch: registers.
#![allow(unsafe_code)]

use core::arch::{asm, global_asm};

// The kernel enters here with `sp` at the argument vector and nothing else of value in the registers. A zero
// frame pointer ends backtraces; a zero thread pointer says that no worker runs here yet.
global_asm!(
    ".section .text.start, \"ax\"",
    ".globl _start",
    ".type _start, @function",
    "_start:",
    "    mv   a0, sp",
    "    mv   s0, zero",
    "    mv   tp, zero",
    "    andi sp, sp, -16",
    "    call {start}",
    "    unimp",
    ".size _start, . - _start",
    start = sym crate::start::start,
);

/// Enters the kernel: `(a0, a1)` as it returns them (`cops_abi::syscall` has the convention).
///
/// # Safety
/// The kernel does what the call says to the memory the arguments name, now or, for a call in flight, later:
/// whoever calls answers for that memory.
#[inline]
pub unsafe fn system_call(number: usize, arguments: [usize; 6], coroutine: u64, token: u64) -> (isize, u64) {
    let [a0, a1, a2, a3, a4, a5] = arguments;
    let (value, handle);
    // SAFETY: the kernel preserves every register but a0 and a1; memory is the caller's promise.
    unsafe {
        asm!(
            "ecall",
            inlateout("a0") a0 => value,
            inlateout("a1") a1 => handle,
            in("a2") a2,
            in("a3") a3,
            in("a4") a4,
            in("a5") a5,
            in("a6") coroutine,
            in("a7") number,
            in("t0") token,
            options(nostack),
        );
    }
    (value, handle)
}

/// Ticks of the machine's clock, which every hart sees alike.
#[inline]
pub fn clock_ticks() -> u64 {
    let ticks;
    // SAFETY: reads a counter.
    unsafe { asm!("rdtime {}", out(reg) ticks, options(nomem, nostack, preserves_flags)) };
    ticks
}

/// What [`set_thread_pointer`] stored on this virtual CPU; null before.
#[inline]
pub fn thread_pointer() -> *const () {
    let pointer;
    // SAFETY: reads a register. Not `pure`: a coroutine may be polled by another virtual CPU next time.
    unsafe { asm!("mv {}, tp", out(reg) pointer, options(nomem, nostack, preserves_flags)) };
    pointer
}

/// Sets the register that tells virtual CPUs apart. Programs here have no other use for it.
///
/// # Safety
/// Once on each virtual CPU, before coroutines run on it, with a pointer that [`crate::worker`] can read.
pub unsafe fn set_thread_pointer(pointer: *const ()) {
    // SAFETY: the target has no thread-local storage of the compiler's, so nobody else uses `tp`.
    unsafe { asm!("mv tp, {}", in(reg) pointer, options(nostack, preserves_flags)) };
}
