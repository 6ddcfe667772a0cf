//! Wakers: the id of the coroutine, as a bare integer where other runtimes keep a counted pointer.
//!
//! So cloning is copying, dropping is nothing, and a waker may be kept for ever: a slot is never
//! freed, and its generation tells a late wake that its coroutine is gone.
//!
//! A pointer of 64 bits holds the id itself, one of 32 bits its compact form, and the number of the
//! executor is in the choice of the table.
#![allow(unsafe_code)]

use ::core::task::Waker;

use crate::core::CoroutineId;

#[cfg_attr(target_pointer_width = "32", path = "waker/compact.rs")]
#[cfg_attr(not(target_pointer_width = "32"), path = "waker/whole.rs")]
mod form;

/// A waker of coroutine `id`: the very one that its future gets in its context.
///
/// Cloning it copies, dropping it does nothing, and it may be kept for ever.
///
/// ```
/// # use cops_executor::{Executor, Priority, waker_of};
/// # static EXECUTOR: Executor = Executor::new();
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
    waker_of_raw(if form::holds(id) { id.raw() } else { 0 })
}

/// As `waker_of`, of the bits of an id that the core has given, or of none.
#[inline(always)]
pub(crate) fn waker_of_raw(id: u64) -> Waker {
    // SAFETY: the functions of the table take the data for an integer; they can be called any
    // number of times, from any thread.
    unsafe { Waker::from_raw(form::raw_waker(id)) }
}
