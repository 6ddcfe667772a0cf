//! System calls without the library, and the shared page by its fields.
#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance;

use cops::abi::errno::{CallResult, decode};
use cops::abi::layout::PROCESS_PAGE;
use cops::abi::page::ProcessPage;
use cops::abi::syscall as number;

/// Makes a synchronous call.
///
/// These programs pass only invalid addresses, or addresses of memory that is never freed.
pub fn call<const COUNT: usize>(number: usize, arguments: [usize; COUNT]) -> CallResult {
    // SAFETY: the kernel rejects the address, or it is memory of this program without any reference
    // to it.
    decode(unsafe { cops::private::system_call(number, widen(arguments), 0, 0) }.0)
}

/// Makes an asynchronous call for an arbitrary coroutine. Returns its result if it has completed,
/// otherwise its handle.
pub fn ask<const COUNT: usize>(
    number: usize,
    arguments: [usize; COUNT],
    coroutine: u64,
    token: u64,
) -> Result<CallResult, u64> {
    // SAFETY: the kernel rejects the address, or it is memory of this program without any reference
    // to it, which is not freed while the process lives.
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

/// Requests this many more virtual CPUs one by one, and accepts a smaller number.
pub fn add_virtual_cpus(count: usize, entry: extern "C" fn(usize) -> !) {
    for _ in 0..count {
        let _ = call(number::COPS_ALLOC_CPU, [1, entry as *const () as usize]);
    }
}

/// The fields of the page that this process shares with the kernel.
pub fn page() -> &'static ProcessPage {
    // SAFETY: the kernel maps a `ProcessPage` at this address as long as the process lives, and all
    // its fields are atomics.
    unsafe { &*with_exposed_provenance(PROCESS_PAGE) }
}

/// Blocks this virtual CPU for at least this time.
pub fn sleep_microseconds(microseconds: usize) {
    let time = [microseconds / 1_000_000, microseconds % 1_000_000 * 1000];
    let _ = call(number::CLOCK_NANOSLEEP, [1, 0, time.as_ptr().addr(), 0]);
}
