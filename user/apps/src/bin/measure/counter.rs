//! The processor's counter of instructions, and the kernel without a library in between.
#![allow(unsafe_code)]

use core::arch::asm;

/// Instructions that this hart has executed. Where the emulator does not count them, something that grows.
#[inline]
pub fn instructions() -> u64 {
    let count;
    // SAFETY: reads a counter that the kernel lets programs read.
    unsafe { asm!("rdinstret {}", out(reg) count, options(nostack, preserves_flags)) };
    count
}

/// The clock.
#[inline]
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: as above.
    unsafe { asm!("rdtime {}", out(reg) ticks, options(nomem, nostack, preserves_flags)) };
    ticks
}

/// A synchronous call without arguments.
#[inline]
pub fn call(number: usize) -> isize {
    // SAFETY: no memory is passed.
    unsafe { cops::private::system_call(number, [0; 6], 0, 0) }.0
}
