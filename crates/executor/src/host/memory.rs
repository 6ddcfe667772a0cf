//! The hooks for memory: the global allocator.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr;

/// Alignment that `Hooks::grow` promises.
const GROW_ALIGNMENT: usize = 64;

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, GROW_ALIGNMENT).ok().filter(|layout| layout.size() != 0)
}

pub(super) unsafe extern "C" fn grow(_: *mut (), bytes: usize) -> *mut u8 {
    // SAFETY: `layout` returns only layouts with a size other than zero.
    layout(bytes).map_or(ptr::null_mut(), |layout| unsafe { alloc_zeroed(layout) })
}

pub(super) unsafe extern "C" fn release(_: *mut (), memory: *mut u8, bytes: usize) {
    if let Some(layout) = layout(bytes) {
        // SAFETY: the core returns a block that `grow` allocated, with the same size.
        unsafe { dealloc(memory, layout) };
    }
}
