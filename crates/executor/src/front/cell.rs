//! A boxed future as the core sees it: a data pointer and two functions.
#![allow(unsafe_code)]

use ::core::future::Future;
use alloc::boxed::Box;

use super::poll::poll;
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

unsafe extern "C" fn drop_box<F>(data: *mut ()) {
    // SAFETY: the core calls this once for what `boxed` gave.
    unsafe { unbox::<F>(data) };
}
