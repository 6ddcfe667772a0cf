//! A waker's data is the compact form of an id, and its table says of which executor. For pointers
//! of 32 bits.
//!
//! Rejected: bits of the data for the executor's number (each would halve how often a slot can be
//! used).

use ::core::ptr;
use ::core::task::{RawWaker, RawWakerVTable};

use crate::core::CoroutineId;
use crate::core::id::{Compact, LAST_EXECUTOR};
use crate::front::registry::wake_up_raw;

const fn table<const EXECUTOR: u8>() -> RawWakerVTable {
    RawWakerVTable::new(clone::<EXECUTOR>, wake::<EXECUTOR>, wake::<EXECUTOR>, drop)
}

/// Firmware has few executors, and little room.
#[cfg(not(feature = "std"))]
macro_rules! tables {
    () => {
        [table::<0>(), table::<1>(), table::<2>(), table::<3>()]
    };
}

/// Counts to 256 by doubling.
#[cfg(feature = "std")]
macro_rules! tables {
    () => {
        tables!(0; 1 2 4 8 16 32 64 128)
    };
    ($($number:expr),*; $step:literal $($smaller:literal)*) => {
        tables!($($number),*, $($number + $step),*; $($smaller)*)
    };
    ($($number:expr),*;) => {
        [$(table::<{ $number }>()),*]
    };
}

/// One for each executor.
static TABLES: [RawWakerVTable; LAST_EXECUTOR as usize + 1] = tables!();

/// Whether a waker can hold this id. No coroutine has any other id: the core observes the limits.
pub fn holds(id: CoroutineId) -> bool {
    id.executor() <= LAST_EXECUTOR && Compact::of(id.raw()).raw(id.executor()) == id.raw()
}

#[inline(always)]
pub fn raw_waker(id: u64) -> RawWaker {
    // An executor's number is at most LAST_EXECUTOR (`Executor::new`).
    let executor = (id >> 24) as u8 & LAST_EXECUTOR;
    RawWaker::new(ptr::without_provenance(Compact::of(id).0 as usize), &TABLES[executor as usize])
}

unsafe fn clone<const EXECUTOR: u8>(data: *const ()) -> RawWaker {
    RawWaker::new(data, &TABLES[EXECUTOR as usize])
}

unsafe fn wake<const EXECUTOR: u8>(data: *const ()) {
    wake_up_raw(Compact(data.addr() as u32).raw(EXECUTOR));
}

unsafe fn drop(_: *const ()) {}
