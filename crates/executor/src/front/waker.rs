//! Wakers: the id of the coroutine, as a bare integer where other runtimes keep a counted pointer.
//!
//! So cloning is copying, dropping is nothing, and a waker may be kept for ever: a slot is never freed, and
//! its generation tells a late wake that its coroutine is gone.
#![allow(unsafe_code)]

use ::core::ptr;
use ::core::task::{RawWaker, RawWakerVTable, Waker};

use super::registry::wake_up_raw;
use crate::core::CoroutineId;

const _: () = assert!(usize::BITS == 64, "an id must fit into a waker's data pointer");

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, drop);

/// A waker of coroutine `id`: the very one that its future gets in its context.
#[inline(always)]
pub fn waker_of(id: CoroutineId) -> Waker {
    waker_of_raw(id.raw())
}

/// As `waker_of`, of the bits of an id.
#[inline(always)]
pub(super) fn waker_of_raw(id: u64) -> Waker {
    // SAFETY: the functions of the table take the data for an integer; they can be called any number of
    // times, from any thread.
    unsafe { Waker::from_raw(raw(ptr::without_provenance(id as usize))) }
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
