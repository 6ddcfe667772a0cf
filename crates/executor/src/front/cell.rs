//! A boxed future as the core sees it: a data pointer and two functions. The box is of the pool
//! (`pool`).
#![allow(unsafe_code)]

use ::core::future::Future;
use ::core::ptr::NonNull;

use super::poll::poll;
use super::pool;
use crate::core::FutureVTable;

/// The table for boxed futures of type `F`.
struct Boxed<F, const KIND: usize>(F);

impl<F: Future<Output = ()> + Send + 'static, const KIND: usize> Boxed<F, KIND> {
    const VTABLE: &'static FutureVTable =
        &FutureVTable { poll: poll::<F>, drop: drop_box::<F>, kind: KIND };
}

/// Boxes a future for `spawn_raw`; drops it if there is no memory.
#[inline]
pub(crate) fn boxed<F: Future<Output = ()> + Send + 'static, const KIND: usize>(
    future: F,
) -> Option<(*mut (), &'static FutureVTable)> {
    Some((place(future)?.as_ptr().cast(), Boxed::<F, KIND>::VTABLE))
}

/// Moves a value into a box of its own.
#[inline]
fn place<T>(value: T) -> Option<NonNull<T>> {
    let place = pool::allocate::<T>()?;
    // SAFETY: `pool::allocate` has just returned this memory for a `T`, and nothing else refers to
    // it.
    unsafe { place.write(value) };
    Some(place)
}

/// Drops what `boxed` or `place` gave.
///
/// # Safety
///
/// `data` is from `boxed::<F>` or `place::<F>` and was not dropped.
#[inline(always)]
pub(crate) unsafe fn unbox<F>(data: *mut ()) {
    /// Gives the memory back, also if the value's destructor panics.
    struct Memory<F>(NonNull<F>);

    impl<F> Drop for Memory<F> {
        fn drop(&mut self) {
            // SAFETY: from `pool::allocate::<F>`, and what was in it has been dropped.
            unsafe { pool::release(self.0) };
        }
    }

    // SAFETY: by contract `data` is from `place`, which returns a `NonNull`.
    let memory = Memory(unsafe { NonNull::new_unchecked(data.cast::<F>()) });
    // SAFETY: by contract the value that `place` wrote there, dropped now and never again.
    unsafe { memory.0.drop_in_place() };
}

unsafe extern "C" fn drop_box<F>(data: *mut ()) {
    // SAFETY: the core calls this once for what `boxed` gave.
    unsafe { unbox::<F>(data) };
}
