//! Boxes and reference counts.
//!
//! `alloc::sync::Arc` has no fallible constructor in stable Rust, and a reference count of our own
//! would not become a `Waker`. So a fallible `Arc` is made in two steps: the global allocator *promises*
//! a piece of the layout that `Arc::new` is about to ask for, which may fail, and hands out that piece
//! when `Arc::new` asks for it on the same hart, which cannot.

use alloc::alloc::{Layout, alloc};
use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicPtr, Ordering::*};

use super::OutOfMemory;

/// Asks the global allocator to keep a piece of this layout for the next request for one; false if it cannot.
type Promise = fn(Layout) -> bool;

/// A [`Promise`], as a pointer; null if the allocator makes none.
static PROMISE: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// Tells this crate how the global allocator makes promises. Without it, as on a host, [`try_arc`] does not fail but
/// aborts when there is no memory.
pub fn set_promise(promise: Promise) {
    PROMISE.store(promise as *mut (), Release);
}

fn promise(layout: Layout) -> Result<(), OutOfMemory> {
    let pointer = PROMISE.load(Acquire);
    if pointer.is_null() {
        return Ok(());
    }
    // SAFETY: only `set_promise` stores anything but null, and that is a function of this type.
    let promise = unsafe { core::mem::transmute::<*mut (), Promise>(pointer) };
    if promise(layout) { Ok(()) } else { Err(OutOfMemory) }
}

/// `Arc::new` that reports a lack of memory; `value` is dropped then.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_arc<T>(value: T) -> Result<Arc<T>, OutOfMemory> {
    // What `Arc` allocates: two counters, then the value. The kernel checks at its start that this is so.
    let counters = Layout::new::<[usize; 2]>();
    let (layout, _) = counters.extend(Layout::new::<T>()).map_err(|_| OutOfMemory)?;
    promise(layout.pad_to_align())?;
    Ok(Arc::new(value))
}

/// `Box::new` that reports a lack of memory; `value` is dropped then.
///
/// # Errors
/// [`OutOfMemory`].
pub fn try_box<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    if size_of::<T>() == 0 {
        return Ok(Box::new(value)); // allocates nothing
    }
    // SAFETY: the size is not zero; the piece has the layout `Box` frees it with, and is
    // filled before it becomes one.
    unsafe {
        let piece = alloc(Layout::new::<T>()).cast::<T>();
        if piece.is_null() {
            return Err(OutOfMemory);
        }
        piece.write(value);
        Ok(Box::from_raw(piece))
    }
}
