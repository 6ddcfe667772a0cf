//! Polling a future of a known type for the core, which does not know it.
#![allow(unsafe_code)]

use ::core::future::Future;
use ::core::mem::ManuallyDrop;
use ::core::pin::Pin;
use ::core::task::Context;

use super::waker::waker_of_raw;

/// `FutureVTable::poll` of futures of type `F`.
///
/// # Safety
///
/// `data` points to an `F` that stays there until it is dropped and is used only by this call while
/// it runs.
pub(crate) unsafe extern "C" fn poll<F: Future<Output = ()>>(data: *mut (), id: u64) -> bool {
    // SAFETY: by contract; it stays where it is, so it is pinned.
    let future = unsafe { Pin::new_unchecked(&mut *data.cast::<F>()) };
    // Not dropped: there is nothing to drop, and the call would cost as much as a poll of a small
    // future.
    let waker = ManuallyDrop::new(waker_of_raw(id));
    let mut context = Context::from_waker(&waker);
    #[cfg(not(feature = "std"))]
    return future.poll(&mut context).is_ready();
    // A panic must not cross into the core; it ends the coroutine, as it ends a thread. The future
    // is not polled again, so no code sees it in a broken state.
    #[cfg(feature = "std")]
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        future.poll(&mut context).is_ready()
    })) {
        Ok(ready) => ready,
        Err(payload) => ended_by_panic(payload),
    }
}

/// Apart, so that a poll that does not panic saves no registers for it.
#[cfg(feature = "std")]
#[cold]
#[inline(never)]
fn ended_by_panic(payload: std::boxed::Box<dyn ::core::any::Any + Send>) -> bool {
    drop(payload);
    true
}
