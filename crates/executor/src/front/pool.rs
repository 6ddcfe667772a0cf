//! Memory for boxed futures. With `std`, what a thread has used before it uses again (`magazines`):
//! an allocator that serves all sizes and threads takes some ninety instructions for a box and as
//! many to take it back, as much as all else that a short coroutine costs. Without `std`, the
//! global allocator is asked each time.
//!
//! Unsafe: memory by hand. The layout of a block is that of its type, on both ways.
#![allow(unsafe_code)]

use ::core::alloc::Layout;
use ::core::ptr::{self, NonNull};

#[cfg(feature = "std")]
use super::magazines as kept;

/// Memory for a `T`, uninitialised; `None` if there is none.
#[inline(always)]
pub(super) fn allocate<T>() -> Option<NonNull<T>> {
    Some(kept::allocate(Layout::new::<T>())?.cast())
}

/// Takes memory back.
///
/// # Safety
///
/// It is from `allocate::<T>`, and it is not used any more.
#[inline(always)]
pub(super) unsafe fn release<T>(memory: NonNull<T>) {
    // SAFETY: by contract the memory is from `allocate::<T>`, so it has this layout, and it is not
    // used any more.
    unsafe { kept::release(memory.cast(), Layout::new::<T>()) };
}

/// From the global allocator, or nowhere if there are no bytes.
#[cold]
#[inline(never)]
pub(super) fn allocate_anew(layout: Layout) -> Option<NonNull<u8>> {
    if layout.size() == 0 {
        // `Layout::dangling_ptr` is newer than the oldest compiler that is promised.
        return NonNull::new(ptr::without_provenance_mut(layout.align()));
    }
    // SAFETY: `alloc` requires a size other than zero, which was checked above.
    NonNull::new(unsafe { alloc::alloc::alloc(layout) })
}

/// # Safety
///
/// It is from `allocate_anew` with the same layout, and it is not used any more.
#[cold]
#[inline(never)]
pub(super) unsafe fn release_for_good(memory: NonNull<u8>, layout: Layout) {
    if layout.size() != 0 {
        // SAFETY: from the global allocator with this layout, by contract.
        unsafe { alloc::alloc::dealloc(memory.as_ptr(), layout) };
    }
}

#[cfg(not(feature = "std"))]
mod kept {
    pub(super) use super::{allocate_anew as allocate, release_for_good as release};
}
