//! The kernel's heap: `alloc`'s types live here.
//!
//! What is larger than half a frame gets frames of its own and gives them back when it is freed:
//! the buffers of connections, most of what the kernel uses, cannot leave holes. The rest comes
//! from talc, whose cost does not grow with what lives on the heap, fed with blocks of frames;
//! lists of free pieces in front of it would keep its blocks from becoming empty. A block that is empty
//! again goes back to the frames. When memory is short an allocation fails: code that acts
//! for a program must use the fallible forms ([`try_box`], `try_reserve`).
//!
//! Not for interrupt handlers.

use super::frames::{self, FRAME_BYTES};
use super::{OutOfMemory, layout};
use alloc::boxed::Box;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use talc::base::{Talc, binning::Binning};
use talc::source::Source;
use talc::{DefaultBinning, lock_api};

/// Larger requests, in bytes, are served in whole frames.
const SMALL_BYTES: usize = FRAME_BYTES / 2;

/// The smallest block of frames talc's part grows by: some forty connections' worth of small things.
const GROWTH_BYTES: usize = 64 * 1024;

/// How many frames of its own a request gets; `None` for a small one.
fn frames_of(request: &Layout) -> Option<usize> {
    // Runs of frames are aligned to their size.
    let bytes = request.size().max(request.align());
    (bytes > SMALL_BYTES).then(|| bytes.div_ceil(FRAME_BYTES))
}

/// Bytes of frames given to talc.
static RESERVED_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Bytes of frames given to large requests.
static LARGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// The lock around talc. Held for a few hundred instructions, never by a handler.
struct SpinLock(AtomicBool);

// SAFETY: `lock` returns only to the one who changed the flag from false to true.
unsafe impl lock_api::RawMutex for SpinLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(AtomicBool::new(false));
    type GuardMarker = lock_api::GuardSend;

    fn lock(&self) {
        while !self.try_lock() {
            while self.0.load(Ordering::Relaxed) {
                core::hint::spin_loop();
            }
        }
    }

    fn try_lock(&self) -> bool {
        self.0.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    unsafe fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Where talc gets memory: aligned blocks of frames.
#[derive(Debug)]
struct FrameSource;

// SAFETY: every claimed block is fresh memory that nothing else uses until `resize` takes it
// back, and neither function touches the allocator it serves.
unsafe impl Source for FrameSource {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, request: Layout) -> Result<(), ()> {
        // Room for talc's own records and for losing up to one alignment.
        let overhead = talc::min_first_heap_size::<B>() + 4 * talc::base::CHUNK_UNIT;
        let wanted = request.size().checked_add(request.align()).and_then(|sum| sum.checked_add(overhead));
        let bytes = wanted.ok_or(())?.max(GROWTH_BYTES);
        // When memory is short a small block may still do.
        let small = frames::order_for(wanted.ok_or(())?);
        let (order, physical) = match frames::allocate_block(frames::order_for(bytes)) {
            Ok(physical) => (frames::order_for(bytes), physical),
            Err(OutOfMemory) => (small, frames::allocate_block(small).map_err(drop)?),
        };
        let length = FRAME_BYTES << order;
        // SAFETY: a fresh block of that length.
        let claimed = unsafe { talc.claim(layout::direct(physical), length) };
        assert!(claimed.is_some(), "a heap block is larger than talc's records");
        RESERVED_BYTES.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    const TRACK_HEAP_END: bool = true;

    unsafe fn resize(&mut self, chunk_base: *mut u8, heap_end: *mut u8, is_heap_base: bool) -> *mut u8 {
        if !is_heap_base {
            return heap_end;
        }
        // The whole block is free. Its base is the page boundary below talc's first chunk.
        let base = layout::page_down(chunk_base as usize - 1);
        let length = heap_end as usize - base;
        if !length.is_power_of_two() || RESERVED_BYTES.load(Ordering::Relaxed) <= length + GROWTH_BYTES {
            return heap_end; // keep a little, to not grow and shrink in turn
        }
        RESERVED_BYTES.fetch_sub(length, Ordering::Relaxed);
        // SAFETY: `acquire` took exactly this block, and talc gives it up now.
        unsafe { frames::free_block(layout::physical_of(base), frames::order_for(length)) };
        chunk_base
    }
}

struct KernelHeap(talc::sync::TalcLock<SpinLock, FrameSource, DefaultBinning>);

#[global_allocator]
static HEAP: KernelHeap = KernelHeap(talc::sync::TalcLock::new(FrameSource));

fn allocate_large(count: usize) -> *mut u8 {
    let Ok(physical) = frames::allocate_run(count) else { return ptr::null_mut() };
    LARGE_BYTES.fetch_add(count * FRAME_BYTES, Ordering::Relaxed);
    layout::direct(physical)
}

/// # Safety
/// `piece` came from [`allocate_large`] with this count and is not used any more.
unsafe fn free_large(piece: *mut u8, count: usize) {
    LARGE_BYTES.fetch_sub(count * FRAME_BYTES, Ordering::Relaxed);
    // SAFETY: the caller's promise; the direct map leads back to the address it was made from.
    unsafe { frames::free_run(layout::physical_of(piece as usize), count) };
}

// SAFETY: pieces come from the frames or from talc; which of them is a function of the request's
// layout, so a piece returns to where it came from.
unsafe impl GlobalAlloc for KernelHeap {
    unsafe fn alloc(&self, request: Layout) -> *mut u8 {
        if let Some(count) = frames_of(&request) {
            return allocate_large(count);
        }
        // SAFETY: the size is not zero: `GlobalAlloc`'s callers promise it.
        unsafe { self.0.lock().allocate(request) }.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, piece: *mut u8, request: Layout) {
        if let Some(count) = frames_of(&request) {
            // SAFETY: `alloc` gave so many frames for this layout.
            return unsafe { free_large(piece, count) };
        }
        // SAFETY: allocated by `alloc` with this layout.
        unsafe { self.0.lock().deallocate(piece, request) }
    }
}

/// What the heap uses, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Statistics {
    /// Taken from the frames.
    pub reserved_bytes: usize,
    /// Of these, in use by somebody; what has frames of its own is rounded up to them.
    pub used_bytes: usize,
}

/// The figures of this moment.
pub fn statistics() -> Statistics {
    let allocated = HEAP.0.lock().counters().allocated_bytes;
    let large = LARGE_BYTES.load(Ordering::Relaxed);
    Statistics {
        reserved_bytes: RESERVED_BYTES.load(Ordering::Relaxed) + large,
        used_bytes: allocated + large,
    }
}

/// `Box::new` that reports a lack of memory instead of ending the kernel.
pub fn try_box<T>(value: T) -> Result<Box<T>, OutOfMemory> {
    if size_of::<T>() == 0 {
        return Ok(Box::new(value)); // allocates nothing
    }
    // SAFETY: the size is not zero; the piece has the layout `Box` frees it with, and is
    // filled before it becomes one.
    unsafe {
        let piece = alloc::alloc::alloc(Layout::new::<T>()).cast::<T>();
        if piece.is_null() {
            return Err(OutOfMemory);
        }
        piece.write(value);
        Ok(Box::from_raw(piece))
    }
}
