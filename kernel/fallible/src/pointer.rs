//! Boxes and reference counts.
//!
//! `alloc::sync::Arc` has no fallible constructor in stable Rust, and a reference count of our own
//! could not be turned into a `Waker`. So a fallible `Arc` is made in two steps. First the global
//! allocator *promises* a block of the layout that `Arc::new` is about to request; this step may
//! fail. Then `Arc::new` requests that layout on the same hart and gets the promised block; this
//! step cannot fail.

use alloc::alloc::{Layout, alloc};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicPtr, Ordering::*};

use super::OutOfMemory;

/// Asks the global allocator to keep a block for the next request of this layout. Returns false if
/// it cannot.
type Promise = fn(Layout) -> bool;

/// The allocator's [`Promise`] function, as a pointer; null if it has none.
static PROMISE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Sets the function by which the global allocator makes promises. Without it, as on a host,
/// [`try_arc`] aborts when there is no memory.
pub fn set_promise(promise: Promise) {
    PROMISE.store(promise as *mut (), Release);
}

fn promise(layout: Layout) -> Result<(), OutOfMemory> {
    let pointer = PROMISE.load(Acquire);
    if pointer.is_null() {
        return Ok(());
    }
    // SAFETY: the pointer is not null, and `set_promise`, the only function that stores into
    // `PROMISE`, stores a `Promise`.
    let promise = unsafe { core::mem::transmute::<*mut (), Promise>(pointer) };
    if promise(layout) { Ok(()) } else { Err(OutOfMemory) }
}

/// Like `Arc::new`, but fails if there is no memory; `value` is dropped then.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_arc<T>(value: T) -> Result<Arc<T>, OutOfMemory> {
    try_arc_with(|| value)
}

/// Like [`try_arc`], but `make` is called only if there is memory: for a value that must not be
/// dropped here, because its drop takes a lock that the caller holds. `make` allocates nothing.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_arc_with<T>(make: impl FnOnce() -> T) -> Result<Arc<T>, OutOfMemory> {
    // What `Arc` allocates: two counters, followed by the value. The kernel checks this when it
    // starts.
    let counters = Layout::new::<[usize; 2]>();
    let (layout, _) = counters.extend(Layout::new::<T>()).map_err(|_| OutOfMemory)?;
    promise(layout.pad_to_align())?;
    Ok(Arc::new(make()))
}

/// Like `Box::new`, but fails if there is no memory; `value` is dropped then.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_box<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    if size_of::<T>() == 0 {
        return Ok(Box::new(value)); // allocates nothing
    }
    // SAFETY: the size is not zero, as `alloc` requires. The block has the layout with which `Box`
    // frees it, and `write` initialises it before `from_raw` makes it a box.
    unsafe {
        let piece = alloc(Layout::new::<T>()).cast::<T>();
        if piece.is_null() {
            return Err(OutOfMemory);
        }
        piece.write(value);
        Ok(Box::from_raw(piece))
    }
}
