//! A waker's data is an id. For pointers of 64 bits.

use ::core::ptr;
use ::core::task::{RawWaker, RawWakerVTable};

use crate::core::CoroutineId;
use crate::front::registry::wake_up_raw;

const _: () = assert!(usize::BITS == 64, "an id must fit into a waker's data");

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, drop);

/// Whether a waker can hold this id: any.
#[inline(always)]
pub fn holds(_: CoroutineId) -> bool {
    true
}

#[inline(always)]
pub fn raw_waker(id: u64) -> RawWaker {
    raw(ptr::without_provenance(id as usize))
}

#[inline(always)]
fn raw(data: *const ()) -> RawWaker {
    RawWaker::new(data, &VTABLE)
}

unsafe fn clone(data: *const ()) -> RawWaker {
    raw(data)
}

unsafe fn wake(data: *const ()) {
    wake_up_raw(data.addr() as u64);
}

unsafe fn drop(_: *const ()) {}
