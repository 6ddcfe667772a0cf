//! The processor's instruction counter, and system calls without the library.
#![allow(unsafe_code)]

use core::arch::asm;

use cops::abi::Errno;
use cops::abi::file::{control, open};
use cops::abi::syscall::FCNTL;

/// Instructions executed by this hart. On an emulator that does not count them, some increasing
/// value.
#[inline]
pub fn instructions() -> u64 {
    let count;
    // SAFETY: `rdinstret` reads a counter, which the kernel allows programs to read, into an output
    // register.
    unsafe { asm!("rdinstret {}", out(reg) count, options(nostack, preserves_flags)) };
    count
}

/// The clock.
#[inline]
pub fn ticks() -> u64 {
    let ticks;
    // SAFETY: `rdtime` reads the clock, which the kernel allows programs to read, into an output
    // register.
    unsafe { asm!("rdtime {}", out(reg) ticks, options(nomem, nostack, preserves_flags)) };
    ticks
}

/// Makes a synchronous call without arguments.
#[inline]
pub fn call(number: usize) -> isize {
    // SAFETY: the call passes no memory address, because all its arguments are 0.
    unsafe { cops::private::system_call(number, [0; 6], 0, 0) }.0
}

/// Makes reads of a descriptor return `EAGAIN` instead of waiting.
pub fn set_nonblocking(descriptor: i32) -> Result<(), Errno> {
    let words = [descriptor as usize, control::SET_FLAGS, open::NON_BLOCKING as usize, 0, 0, 0];
    // SAFETY: the call passes numbers only, so the kernel accesses no memory of this program.
    let result = unsafe { cops::private::system_call(FCNTL, words, 0, 0) }.0;
    cops::abi::errno::decode(result).map(drop)
}
