//! System calls as a hostile program makes them: any number, any arguments.
#![allow(unsafe_code)]

use cops::abi::Errno;
use cops::abi::errno::{CallResult, decode};
use cops::abi::layout::{PAGE_BYTES, SYSTEM_PAGE, USER_END};
use cops::abi::page::SystemPage;
use cops::abi::syscall::{COPS_CANCEL, COPS_REFILL_RING, MMAP, map_flags, protection};

use crate::check;
use crate::harness::Failure;

/// Addresses that no call may accept, for any purpose.
pub const BAD_ADDRESSES: &[usize] = &[
    0,                     // null
    8,                     // null with an offset
    0xffff,                // last byte below what can be mapped
    0x37_0000_0000,        // not mapped
    0x3f_ffff_f000,        // last page a process could have, not mapped
    USER_END - 1,          // last byte, not mapped
    USER_END,              // first beyond
    0x8000_0000_0000_0000, // no canonical address
    0xffff_ffbf_ffff_ffff, // last below the kernel
    0xffff_ffc0_0000_0000, // devices, direct map
    0xffff_ffc0_8020_0000, // the kernel's code
    0xffff_fff0_0000_0000, // the kernel's stacks
    usize::MAX - 7,        // wraps around
    usize::MAX,
];

/// A token that the library does not use.
pub const FOREIGN_TOKEN: u64 = 0x1234_5678_ffff_ffff;
/// A coroutine id as a hostile program might forge one.
pub const FOREIGN_COROUTINE: u64 = 0xdead_beef_00c0_ffee;

/// Makes a synchronous call.
///
/// Tests pass addresses that the kernel must reject, or addresses of their own memory, which lives
/// long enough.
pub fn call<const COUNT: usize>(number: usize, arguments: [usize; COUNT]) -> CallResult {
    // SAFETY: the kernel rejects the address, or it is the test's own memory. If the kernel gets
    // that wrong, the test has found a fault.
    decode(unsafe { cops::private::system_call(number, widen(arguments), 0, 0) }.0)
}

/// Maps pages of anonymous memory, readable and writable, anywhere. Returns their address.
pub fn map(pages: usize) -> CallResult {
    let rights = protection::READ | protection::WRITE;
    let flags = map_flags::PRIVATE | map_flags::ANONYMOUS;
    call(MMAP, [0, pages * PAGE_BYTES, rights, flags, usize::MAX, 0])
}

/// Writes a word of this program's memory at any address.
pub fn poke(address: usize, word: u64) {
    let place = core::ptr::with_exposed_provenance_mut::<u64>(address);
    // SAFETY: tests pass addresses of pages that the kernel has mapped for this process and that
    // contain no Rust object.
    unsafe { place.write_volatile(word) };
}

/// Reads a word of this program's memory at any address.
pub fn peek(address: usize) -> u64 {
    let place = core::ptr::with_exposed_provenance::<u64>(address);
    // SAFETY: tests pass addresses of pages that the kernel has mapped for this process and that
    // contain no Rust object.
    unsafe { place.read_volatile() }
}

/// A call in flight.
#[must_use]
pub struct Handle(u64);

/// The result of an asynchronous call.
pub enum Asked {
    Done(CallResult),
    InFlight(Handle),
}

/// Makes an asynchronous call for no coroutine of this process, to be cancelled or forgotten.
pub fn ask<const COUNT: usize>(number: usize, arguments: [usize; COUNT]) -> Asked {
    // SAFETY: the kernel rejects the address, or it is the test's own memory, which the test keeps
    // until it has cancelled the call.
    let (value, handle) = unsafe {
        cops::private::system_call(number, widen(arguments), FOREIGN_COROUTINE, FOREIGN_TOKEN)
    };
    if handle == 0 { Asked::Done(decode(value)) } else { Asked::InFlight(Handle(handle)) }
}

impl Handle {
    /// The same handle, as a program may keep it after the call has ended.
    pub fn again(&self) -> Self {
        Self(self.0)
    }

    /// The handle, for other calls about it.
    pub fn number(&self) -> u64 {
        self.0
    }

    /// Cancels the call. True if it was in flight, false if it had completed.
    pub fn cancel(self) -> Result<bool, Failure> {
        match call(COPS_CANCEL, [self.0 as usize]) {
            Ok(0) => Ok(true),
            Ok(1) => Ok(false),
            other => Err(Failure(alloc::format!("cancel: {other:?}"))),
        }
    }
}

/// Fails the test unless the call fails with one of these errors, both synchronously and
/// asynchronously.
pub fn refused<const COUNT: usize>(
    what: &str,
    number: usize,
    arguments: [usize; COUNT],
    errors: &[Errno],
) -> Result<(), Failure> {
    let synchronous = call(number, arguments);
    check!(
        synchronous.is_err_and(|error| errors.contains(&error)),
        "{what} {arguments:x?}: {synchronous:?} instead of {errors:?}"
    );
    match ask(number, arguments) {
        Asked::Done(result) => check!(
            result.is_err_and(|error| errors.contains(&error)),
            "{what} {arguments:x?}, asynchronously: {result:?} instead of {errors:?}"
        ),
        Asked::InFlight(handle) => {
            handle.cancel()?;
            return Err(Failure(alloc::format!(
                "{what} {arguments:x?} is in flight instead of refused"
            )));
        }
    }
    let waiting = call(COPS_REFILL_RING, []);
    check!(waiting == Ok(0), "{what}: refill_ring says {waiting:?}");
    Ok(())
}

fn widen<const COUNT: usize>(arguments: [usize; COUNT]) -> [usize; 6] {
    let mut all = [0; 6];
    for (place, argument) in all.iter_mut().zip(arguments) {
        *place = argument;
    }
    all
}

/// Reproducible pseudo-random numbers: xorshift.
pub struct Garbage(u64);

impl Garbage {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 as usize
    }
}

/// The clock, which is the same for every process and hart.
pub fn clock_ticks() -> u64 {
    let ticks;
    // SAFETY: `rdtime` reads the clock into an output register and has no other effect.
    unsafe {
        core::arch::asm!("rdtime {}", out(reg) ticks, options(nomem, nostack, preserves_flags))
    };
    ticks
}

/// The page that the kernel writes and every process reads.
pub fn system_page() -> &'static SystemPage {
    // SAFETY: the kernel maps a `SystemPage` at this address as long as the process lives,
    // readable, and all its fields are atomics.
    unsafe { &*core::ptr::with_exposed_provenance(SYSTEM_PAGE) }
}
