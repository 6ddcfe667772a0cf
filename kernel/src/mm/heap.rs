//! The kernel's heap: `alloc`'s types live here.
//!
//! What is larger than half a frame gets frames of its own and gives them back when it is freed:
//! the buffers of connections, most of what the kernel uses, cannot leave holes. The rest comes
//! from talc, whose cost does not grow with what lives on the heap, fed with blocks of frames;
//! lists of free pieces in front of it would keep its blocks from becoming empty. A block that is empty
//! again goes back to the frames. When memory is short an allocation fails, and the code that asked reports
//! it: the kernel's collections are those of `cops_fallible`, and clippy refuses the others (decision 15).
//!
//! Two things are here for that. A *promise* is a piece that a hart keeps for the next request of the same
//! layout: it makes `Arc::new` fallible. And with the boot argument `fail-allocation=on`, a test can have the
//! n-th allocation from now fail ([`fail_allocation`]).
//!
//! Not for interrupt handlers.

use super::frames::{self, FRAME_BYTES};
use super::{OutOfMemory, layout};
use crate::arch;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
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
        if let Some(piece) = PROMISED[arch::hart_index()].take(&request) {
            return piece;
        }
        if is_to_fail() {
            return ptr::null_mut();
        }
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

/// A piece that a hart keeps for the next request of its layout. Only that hart looks, and no handler allocates.
struct Promised {
    /// Null: there is none.
    piece: AtomicPtr<u8>,
    size: AtomicUsize,
    align: AtomicUsize,
}

static PROMISED: [Promised; arch::MAX_HARTS] = [const {
    Promised { piece: AtomicPtr::new(ptr::null_mut()), size: AtomicUsize::new(0), align: AtomicUsize::new(0) }
}; arch::MAX_HARTS];

impl Promised {
    /// The piece, if there is one and it is what `request` asks for.
    fn take(&self, request: &Layout) -> Option<*mut u8> {
        let piece = self.piece.load(Ordering::Relaxed);
        let is_it = !piece.is_null()
            && self.size.load(Ordering::Relaxed) == request.size()
            && self.align.load(Ordering::Relaxed) == request.align();
        is_it.then(|| {
            self.piece.store(ptr::null_mut(), Ordering::Relaxed);
            piece
        })
    }
}

/// Keeps a piece for the next request of this layout on this hart; false if there is no memory.
fn promise(request: Layout) -> bool {
    // SAFETY: what is promised is the layout of an `Arc`'s allocation, which has its counters.
    let piece = unsafe { HEAP.alloc(request) };
    if piece.is_null() {
        return false;
    }
    let promised = &PROMISED[arch::hart_index()];
    promised.size.store(request.size(), Ordering::Relaxed);
    promised.align.store(request.align(), Ordering::Relaxed);
    let previous = promised.piece.swap(piece, Ordering::Relaxed);
    debug_assert!(previous.is_null(), "a promise was not taken");
    true
}

/// Makes the fallible `Arc` fallible. Once, before the first program.
///
/// # Panics
/// If an `Arc`'s allocation is not laid out as `cops_fallible` expects: then `core` and `alloc` are newer than this
/// kernel.
pub fn prepare() {
    cops_fallible::set_promise(promise);
    let is_kept = || !PROMISED[arch::hart_index()].piece.load(Ordering::Relaxed).is_null();
    let small = cops_fallible::try_arc(0u8);
    assert!(small.is_ok() && !is_kept(), "an Arc of one byte asks for another layout");
    let large = cops_fallible::try_arc([0u64; 9]);
    assert!(large.is_ok() && !is_kept(), "an Arc of 72 bytes asks for another layout");
}

/// Allocations, of the heap and of frames, until one fails; 0: none is to fail.
static FAILS_IN: AtomicU64 = AtomicU64::new(0);

/// Has the `count`-th allocation from now fail, and only that one; 0: none. Returns what was left to count from the
/// call before: 0 if the allocation it chose has failed.
pub fn fail_allocation(count: u64) -> u64 {
    FAILS_IN.swap(count, Ordering::Relaxed)
}

/// Whether the allocation that asks is the one that is to fail.
pub(super) fn is_to_fail() -> bool {
    if FAILS_IN.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let counted = FAILS_IN.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    counted == Ok(1)
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
