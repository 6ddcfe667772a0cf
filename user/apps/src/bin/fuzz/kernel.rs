//! System calls without the library.
#![allow(unsafe_code)]

use core::ptr::with_exposed_provenance;
use core::sync::atomic::AtomicU64;

use cops::abi::errno::{CallResult, decode};
use cops::abi::syscall as number;

/// Makes any call. A handle of 0 means that it has completed.
pub fn raw(number: usize, arguments: [usize; 6], coroutine: u64, token: u64) -> (CallResult, u64) {
    // SAFETY: Rust relies on no memory of a child but its stack and its statics, which are atomics.
    // A call that overwrites those ends this process and no other; if it does more, the test has
    // found a fault.
    let (value, handle) =
        unsafe { cops::private::system_call(number, arguments, coroutine, token) };
    // A synchronous call leaves `a1` as it was.
    (decode(value), if coroutine == 0 { 0 } else { handle })
}

/// Makes a synchronous call.
pub fn call<const COUNT: usize>(number: usize, arguments: [usize; COUNT]) -> CallResult {
    let mut all = [0; 6];
    for (place, argument) in all.iter_mut().zip(arguments) {
        *place = argument;
    }
    raw(number, all, 0, 0).0
}

/// Words of this program's own memory at `address`, which [`crate::memory`] has mapped.
pub fn words_at(address: usize, count: usize) -> &'static [AtomicU64] {
    // SAFETY: callers pass aligned addresses that they have mapped readable and writable. If
    // another call has unmapped them meanwhile, the access is a fault that ends the process.
    unsafe { core::slice::from_raw_parts(with_exposed_provenance(address), count) }
}

/// Blocks this virtual CPU for at least this time.
pub fn sleep_microseconds(microseconds: usize) {
    let time = [microseconds / 1_000_000, microseconds % 1_000_000 * 1000];
    let _ = call(number::CLOCK_NANOSLEEP, [1, 0, time.as_ptr().addr(), 0]);
}
