//! As the main binary's children, with an allocator that counts the bytes that live.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

struct Counting;

static LIVE: AtomicU64 = AtomicU64::new(0);

/// SAFETY: all is the system's; `realloc` and `alloc_zeroed` come down to these two.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller passes a layout with a size other than zero, as `GlobalAlloc::alloc`
        // requires.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller passes memory that `alloc` above has returned for this layout, as
        // `GlobalAlloc::dealloc` requires.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> ExitCode {
    cops_executor_peers::child::run_if_asked(|| LIVE.load(Ordering::Relaxed)).unwrap_or_else(|| {
        eprintln!("this is started by cops-executor-peers");
        ExitCode::from(2)
    })
}
