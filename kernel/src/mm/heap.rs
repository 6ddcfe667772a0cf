//! The kernel's heap, used by the types of `alloc`.
//!
//! A request larger than half a frame gets its own frames, which are freed with it. So the buffers
//! of connections, most of the kernel's memory, cannot leave holes. Other requests are served by
//! talc, with a cost that does not grow with the number of allocations. It gets its memory in
//! blocks of frames, and an empty block becomes free frames again. (Lists of free pieces in front
//! of talc were rejected: they would keep blocks from becoming empty.) When memory is short an
//! allocation fails, and the calling code reports it: the kernel's collections are those of
//! `cops_fallible`, and clippy rejects the others (decision 15).
//!
//! Two features support that. A *promise* is a piece that a hart reserves for its next request with
//! the same layout: it makes `Arc::new` fallible. And with the boot argument `fail-allocation=on`,
//! a test can make the n-th allocation from now fail ([`fail_allocation`]).
//!
//! Not for interrupt handlers.

use super::frames::{self, FRAME_BYTES};
use super::{OutOfMemory, layout};
use crate::arch;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use talc::DefaultBinning;
use talc::base::{Talc, binning::Binning};
use talc::source::Source;

/// Requests larger than this, in bytes, get whole frames.
const SMALL_BYTES: usize = FRAME_BYTES / 2;

/// The minimum by which talc's memory grows: enough for the small objects of about forty
/// connections.
const GROWTH_BYTES: usize = 64 * 1024;

/// How many frames a request gets; `None` for a small request.
fn frames_of(request: &Layout) -> Option<usize> {
    // Runs of frames are aligned to their size.
    let bytes = request.size().max(request.align());
    (bytes > SMALL_BYTES).then(|| bytes.div_ceil(FRAME_BYTES))
}

/// Bytes of frames given to talc.
static RESERVED_BYTES: AtomicUsize = AtomicUsize::new(0);
/// Bytes of frames given to large requests.
static LARGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Where talc gets its memory: aligned blocks of frames.
#[derive(Debug)]
struct FrameSource;

// SAFETY: every claimed block is fresh from `allocate_block`, so nothing else uses it until
// `resize` frees it, and neither function accesses the allocator that it is called by except
// through its arguments.
unsafe impl Source for FrameSource {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, request: Layout) -> Result<(), ()> {
        // Room for talc's own records and for the loss by alignment.
        let overhead = talc::min_first_heap_size::<B>() + 4 * talc::base::CHUNK_UNIT;
        let wanted =
            request.size().checked_add(request.align()).and_then(|sum| sum.checked_add(overhead));
        let bytes = wanted.ok_or(())?.max(GROWTH_BYTES);
        // When memory is short, a smaller block may still be available.
        let small = frames::order_for(wanted.ok_or(())?);
        let (order, physical) = match frames::allocate_block(frames::order_for(bytes)) {
            Ok(physical) => (frames::order_for(bytes), physical),
            Err(OutOfMemory) => (small, frames::allocate_block(small).map_err(drop)?),
        };
        let length = FRAME_BYTES << order;
        // SAFETY: `allocate_block` has just returned this block with `length` bytes, so nothing
        // else uses it, and the direct map covers it.
        let claimed = unsafe { talc.claim(layout::direct(physical), length) };
        assert!(claimed.is_some(), "a heap block is larger than talc's records");
        RESERVED_BYTES.fetch_add(length, Ordering::Relaxed);
        Ok(())
    }

    const TRACK_HEAP_END: bool = true;

    unsafe fn resize(
        &mut self,
        chunk_base: *mut u8,
        heap_end: *mut u8,
        is_heap_base: bool,
    ) -> *mut u8 {
        if !is_heap_base {
            return heap_end;
        }
        // The whole block is free. It begins at the page boundary below talc's first chunk.
        let base = layout::page_down(chunk_base as usize - 1);
        let length = heap_end as usize - base;
        if !length.is_power_of_two()
            || RESERVED_BYTES.load(Ordering::Relaxed) <= length + GROWTH_BYTES
        {
            return heap_end; // keep a little, to not grow and shrink in turn
        }
        RESERVED_BYTES.fetch_sub(length, Ordering::Relaxed);
        // SAFETY: `acquire` allocated exactly this block with this order, and talc does not use it
        // after this function returns `chunk_base`.
        unsafe { frames::free_block(layout::physical_of(base), frames::order_for(length)) };
        chunk_base
    }
}

/// The lock is held for a few hundred instructions, never by an interrupt handler.
struct KernelHeap(talc::sync::TalcLock<cops_lock::Word, FrameSource, DefaultBinning>);

#[global_allocator]
static HEAP: KernelHeap = KernelHeap(talc::sync::TalcLock::new(FrameSource));

fn allocate_large(count: usize) -> *mut u8 {
    let Ok(physical) = frames::allocate_run(count) else { return ptr::null_mut() };
    LARGE_BYTES.fetch_add(count * FRAME_BYTES, Ordering::Relaxed);
    layout::direct(physical)
}

/// # Safety
/// `piece` is from [`allocate_large`] with this count and is not used any more.
unsafe fn free_large(piece: *mut u8, count: usize) {
    LARGE_BYTES.fetch_sub(count * FRAME_BYTES, Ordering::Relaxed);
    // SAFETY: by this function's contract `allocate_run` returned these frames with this count, and
    // `physical_of` is the inverse of the `direct` that `allocate_large` used.
    unsafe { frames::free_run(layout::physical_of(piece as usize), count) };
}

// SAFETY: pieces are from the frames or from talc. The request's layout alone determines which, so
// every piece is returned to its source.
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
        // SAFETY: callers of `GlobalAlloc::alloc` guarantee that the size is not zero.
        unsafe { self.0.lock().allocate(request) }.map_or(ptr::null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, piece: *mut u8, request: Layout) {
        if let Some(count) = frames_of(&request) {
            // SAFETY: callers of `dealloc` pass the layout of `alloc`, which for this layout
            // allocated as many frames with `allocate_large`.
            return unsafe { free_large(piece, count) };
        }
        // SAFETY: callers of `dealloc` pass the layout of `alloc`, which for this layout used
        // talc's `allocate`.
        unsafe { self.0.lock().deallocate(piece, request) }
    }
}

/// A piece that a hart reserves for its next request with the same layout. Only that hart accesses
/// it, and interrupt handlers do not allocate.
struct Promised {
    /// Null if there is none.
    piece: AtomicPtr<u8>,
    size: AtomicUsize,
    align: AtomicUsize,
}

static PROMISED: [Promised; arch::MAX_HARTS] = [const {
    Promised {
        piece: AtomicPtr::new(ptr::null_mut()),
        size: AtomicUsize::new(0),
        align: AtomicUsize::new(0),
    }
}; arch::MAX_HARTS];

impl Promised {
    /// The piece, if there is one with the layout of `request`.
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

/// Reserves a piece for this hart's next request with this layout. Returns false if there is no
/// memory.
fn promise(request: Layout) -> bool {
    // SAFETY: `cops_fallible` promises only the layout of an `Arc`'s allocation; its size is not
    // zero, because it contains the reference counts.
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

/// Makes `try_arc` of `cops_fallible` really fallible. Called once, before the first program
/// starts.
///
/// # Panics
/// If an `Arc`'s allocation does not have the layout that `cops_fallible` expects. Then `core` and
/// `alloc` are newer than this kernel.
pub fn prepare() {
    cops_fallible::set_promise(promise);
    let is_kept = || !PROMISED[arch::hart_index()].piece.load(Ordering::Relaxed).is_null();
    let small = cops_fallible::try_arc(0u8);
    assert!(small.is_ok() && !is_kept(), "an Arc of one byte asks for another layout");
    let large = cops_fallible::try_arc([0u64; 9]);
    assert!(large.is_ok() && !is_kept(), "an Arc of 72 bytes asks for another layout");
}

/// Number of allocations, of the heap and of frames, and of checks for memory ([`super::admit`]),
/// until one fails; 0 if none is to fail.
static FAILS_IN: AtomicU64 = AtomicU64::new(0);

/// Makes the `count`-th allocation from now fail, and only that one; 0 cancels this. Returns what
/// was left of the count of the previous call: 0 if the chosen allocation has failed.
pub fn fail_allocation(count: u64) -> u64 {
    FAILS_IN.swap(count, Ordering::Relaxed)
}

/// Whether the calling allocation is the one chosen to fail.
pub(super) fn is_to_fail() -> bool {
    if FAILS_IN.load(Ordering::Relaxed) == 0 {
        return false;
    }
    let counted =
        FAILS_IN.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    counted == Ok(1)
}

/// Memory used by the heap, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Statistics {
    /// Taken from the frames.
    pub reserved_bytes: usize,
    /// The part in use by allocations; those with their own frames are rounded up to whole frames.
    pub used_bytes: usize,
}

/// The current figures.
pub fn statistics() -> Statistics {
    let allocated = HEAP.0.lock().counters().allocated_bytes;
    let large = LARGE_BYTES.load(Ordering::Relaxed);
    Statistics {
        reserved_bytes: RESERVED_BYTES.load(Ordering::Relaxed) + large,
        used_bytes: allocated + large,
    }
}
