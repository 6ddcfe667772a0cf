//! Wakers: the id of the coroutine, as a bare integer where other runtimes keep a counted pointer.
//!
//! So cloning is copying, dropping is nothing, and a waker may be kept for ever: a slot is never freed, and
//! its generation tells a late wake that its coroutine is gone.
//!
//! A pointer of 64 bits holds the id itself, one of 32 bits its compact form.
#![allow(unsafe_code)]

use ::core::ptr;
use ::core::task::{RawWaker, RawWakerVTable, Waker};

use super::registry::wake_up_raw;
use crate::core::CoroutineId;

#[cfg(target_pointer_width = "64")]
mod data {
    /// Every id fits.
    #[inline(always)]
    pub fn fits(_: super::CoroutineId) -> bool {
        true
    }

    #[inline(always)]
    pub fn of(id: u64) -> usize {
        id as usize
    }

    #[inline(always)]
    pub fn id(data: usize) -> u64 {
        data as u64
    }
}

#[cfg(target_pointer_width = "32")]
mod data {
    use crate::core::id::Compact;

    /// One that does not fit is nobody's: the core keeps the limits.
    pub fn fits(id: super::CoroutineId) -> bool {
        Compact::of(id.raw()).raw() == id.raw()
    }

    #[inline(always)]
    pub fn of(id: u64) -> usize {
        Compact::of(id).0 as usize
    }

    #[inline(always)]
    pub fn id(data: usize) -> u64 {
        Compact(data as u32).raw()
    }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake, drop);

/// A waker of coroutine `id`: the very one that its future gets in its context.
///
/// Cloning it copies, dropping it does nothing, and it may be kept for ever.
///
/// ```
/// # use cops_executor::{Executor, Priority, waker_of};
/// # static EXECUTOR: Executor = Executor::new(1);
/// # EXECUTOR.start_on_host(1)?;
/// let id = EXECUTOR.spawn(async {}, Priority::DEFAULT)?;
/// let waker = waker_of(id);
/// waker.wake_by_ref();
/// EXECUTOR.run_until_stalled(0);
/// waker.wake(); // It has exited: this does nothing.
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[inline(always)]
pub fn waker_of(id: CoroutineId) -> Waker {
    waker_of_raw(if data::fits(id) { id.raw() } else { 0 })
}

/// As `waker_of`, of the bits of an id that the core has given, or of none.
#[inline(always)]
pub(super) fn waker_of_raw(id: u64) -> Waker {
    // SAFETY: the functions of the table take the data for an integer; they can be called any number of
    // times, from any thread.
    unsafe { Waker::from_raw(raw(ptr::without_provenance(data::of(id)))) }
}

#[inline(always)]
fn raw(data: *const ()) -> RawWaker {
    RawWaker::new(data, &VTABLE)
}

unsafe fn clone(data: *const ()) -> RawWaker {
    raw(data)
}

unsafe fn wake(data: *const ()) {
    wake_up_raw(data::id(data.addr()));
}

unsafe fn drop(_: *const ()) {}
