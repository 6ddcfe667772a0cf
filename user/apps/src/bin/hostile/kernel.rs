//! The kernel without a library in between, and the page shared with it as its fields.
#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance;

use cops::abi::errno::{CallResult, decode};
use cops::abi::layout::PROCESS_PAGE;
use cops::abi::page::ProcessPage;
use cops::abi::syscall as number;

/// A synchronous call.
///
/// These programs pass addresses of what is never freed, or of nothing.
pub fn call<const COUNT: usize>(number: usize, arguments: [usize; COUNT]) -> CallResult {
    // SAFETY: what is passed is refused, or is memory of this program that nobody holds a reference to.
    decode(unsafe { cops::private::system_call(number, widen(arguments), 0, 0) }.0)
}

/// An asynchronous call in the name of any coroutine: its result if it has one, otherwise its handle.
pub fn ask<const COUNT: usize>(
    number: usize,
    arguments: [usize; COUNT],
    coroutine: u64,
    token: u64,
) -> Result<CallResult, u64> {
    // SAFETY: as above; the memory stays for as long as the process.
    let (value, handle) =
        unsafe { cops::private::system_call(number, widen(arguments), coroutine.max(1), token) };
    if handle == 0 { Ok(decode(value)) } else { Err(handle) }
}

fn widen<const COUNT: usize>(arguments: [usize; COUNT]) -> [usize; 6] {
    let mut all = [0; 6];
    for (place, argument) in all.iter_mut().zip(arguments) {
        *place = argument;
    }
    all
}

/// Asks for so many more virtual CPUs, and takes what it gets.
pub fn add_virtual_cpus(count: usize, entry: extern "C" fn(usize) -> !) {
    for _ in 0..count {
        let _ = call(number::COPS_ALLOC_CPU, [1, entry as *const () as usize]);
    }
}

/// The page that this process shares with the kernel, as its fields.
pub fn page() -> &'static ProcessPage {
    // SAFETY: the kernel maps it there for as long as the process lives, and its fields are atomics.
    unsafe { &*with_exposed_provenance(PROCESS_PAGE) }
}

/// Sleeps this virtual CPU, at least so long.
pub fn sleep_microseconds(microseconds: usize) {
    let time = [microseconds / 1_000_000, microseconds % 1_000_000 * 1000];
    let _ = call(number::CLOCK_NANOSLEEP, [1, 0, time.as_ptr().addr(), 0]);
}
