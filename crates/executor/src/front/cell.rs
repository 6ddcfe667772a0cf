//! A boxed future as the core sees it: a data pointer and two functions.
#![allow(unsafe_code)]

use ::core::future::Future;
use ::core::mem::ManuallyDrop;
use ::core::pin::Pin;
use ::core::task::Context;
use alloc::boxed::Box;

use super::waker::waker_of_raw;
use crate::core::FutureVTable;

/// The table for boxed futures of type `F`.
struct Boxed<F>(F);

impl<F: Future<Output = ()> + Send + 'static> Boxed<F> {
    const VTABLE: &'static FutureVTable = &FutureVTable { poll: poll::<F>, drop: drop_box::<F> };
}

/// Boxes a future for `spawn_raw`.
pub(super) fn boxed<F: Future<Output = ()> + Send + 'static>(future: F) -> (*mut (), &'static FutureVTable) {
    (Box::into_raw(Box::new(future)).cast(), Boxed::<F>::VTABLE)
}

/// Takes back what `boxed` gave.
///
/// # Safety
///
/// `data` is from `boxed::<F>` and was not dropped.
pub(super) unsafe fn unbox<F>(data: *mut ()) {
    // SAFETY: by contract the box that was leaked there.
    drop(unsafe { Box::from_raw(data.cast::<F>()) });
}

unsafe extern "C" fn poll<F: Future<Output = ()>>(data: *mut (), id: u64) -> bool {
    // SAFETY: the core passes what `boxed` gave, to one worker at a time, and not after it was dropped. The
    // box stays where it is until then, so the future is pinned.
    let future = unsafe { Pin::new_unchecked(&mut *data.cast::<F>()) };
    // Not dropped: there is nothing to drop, and the call would cost as much as a poll of a small future.
    let waker = ManuallyDrop::new(waker_of_raw(id));
    let mut context = Context::from_waker(&waker);
    #[cfg(not(feature = "std"))]
    return future.poll(&mut context).is_ready();
    // A panic must not cross into the core; it ends the coroutine, as it ends a thread. The future is not
    // polled again, so nobody sees it in a broken state.
    #[cfg(feature = "std")]
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || future.poll(&mut context).is_ready()))
    {
        Ok(ready) => ready,
        Err(payload) => ended_by_panic(payload),
    }
}

/// Apart, so that a poll that does not panic saves no registers for it.
#[cfg(feature = "std")]
#[cold]
#[inline(never)]
fn ended_by_panic(payload: Box<dyn ::core::any::Any + Send>) -> bool {
    drop(payload);
    true
}

unsafe extern "C" fn drop_box<F>(data: *mut ()) {
    // SAFETY: the core calls this once for what `boxed` gave.
    unsafe { unbox::<F>(data) };
}
