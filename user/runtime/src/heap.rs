//! The heap: the allocator talc, on memory mapped from the kernel, under the library's lock; and in
//! front of it, for each virtual CPU, small blocks that were freed there and are free to reuse
//! without the lock.
//!
//! A block of up to [`SMALL_BYTES`] is as large as its *class*, a multiple of [`STEP`], so any free
//! block of the class will do. A virtual CPU keeps at most [`KEPT_BYTES`] of each class, and frees
//! the rest. Threads use talc directly.
//!
//! May touch: memory that it mapped itself. Freed memory is reused but never unmapped.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::alloc::{GlobalAlloc, Layout};
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use cops_abi::layout::PAGE_BYTES;
use cops_abi::page::MAX_CPUS;
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::source::Source;
use talc::{DefaultBinning, TalcLock, min_first_heap_size};

use crate::lock::RawLock;
use crate::{system, worker};

/// Minimum number of bytes mapped at a time, so that the heap rarely calls the kernel. Pages that
/// are never accessed take no frames.
const STEP_BYTES: usize = 256 * 1024;

/// The classes of small blocks are the multiples of this, which is also their alignment.
const STEP: usize = 8;
/// The largest small block.
const SMALL_BYTES: usize = 512;
const CLASSES: usize = SMALL_BYTES / STEP;
/// Maximum number of bytes of each class that a virtual CPU keeps.
const KEPT_BYTES: usize = 2048;

#[global_allocator]
static HEAP: Heap = Heap;

static TALC: TalcLock<RawLock, Growth> = TalcLock::new(Growth { end: None });

/// What each virtual CPU keeps, by class. Only code on that virtual CPU uses it, and that is never
/// interrupted by code that uses the heap: a handler of a user-level interrupt does not.
static KEPT: [[Kept; CLASSES]; MAX_CPUS] = [const { [const { Kept::none() }; CLASSES] }; MAX_CPUS];

/// Free blocks of one class. Atomic only because statics are shared; there are no races.
struct Kept {
    /// The first block, which contains the address of the next.
    first: AtomicPtr<u8>,
    count: AtomicUsize,
}

impl Kept {
    const fn none() -> Self {
        Self { first: AtomicPtr::new(ptr::null_mut()), count: AtomicUsize::new(0) }
    }

    /// Takes a block out.
    #[inline]
    fn take(&self) -> Option<NonNull<u8>> {
        let block = NonNull::new(self.first.load(Relaxed))?;
        // SAFETY: `put` has stored the address in this block, and nothing uses the block since.
        let next = unsafe { block.cast::<*mut u8>().read() };
        self.first.store(next, Relaxed);
        self.count.store(self.count.load(Relaxed).saturating_sub(1), Relaxed);
        Some(block)
    }

    /// Keeps a free block, unless there are `count_max` blocks.
    ///
    /// # Safety
    /// The block is at least [`STEP`] bytes long and aligned to it, and used by nothing else.
    #[inline]
    unsafe fn put(&self, block: *mut u8, count_max: usize) -> bool {
        let count = self.count.load(Relaxed);
        if count >= count_max {
            return false;
        }
        // SAFETY: by this function's contract.
        unsafe { block.cast::<*mut u8>().write(self.first.load(Relaxed)) };
        self.first.store(block, Relaxed);
        self.count.store(count + 1, Relaxed);
        true
    }
}

/// A class of small blocks: its number.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Class(usize);

impl Class {
    /// The class of a block with this layout; `None` if it is not small. No layout here is empty.
    #[inline]
    fn of(layout: Layout) -> Option<Self> {
        let class = Self(layout.size().wrapping_sub(1) / STEP);
        (class.0 < CLASSES && layout.align() <= STEP).then_some(class)
    }

    #[inline]
    fn bytes(self) -> usize {
        (self.0 + 1) * STEP
    }

    /// The layout of a block of this class in talc.
    fn layout(self) -> Layout {
        // SAFETY: `STEP` is a power of two, and the size is a small multiple of it.
        unsafe { Layout::from_size_align_unchecked(self.bytes(), STEP) }
    }

    /// What the calling virtual CPU keeps of this class; `None` in a thread.
    #[inline]
    fn kept(self) -> Option<&'static Kept> {
        KEPT.get(worker::current())?.get(self.0)
    }
}

struct Heap;

// SAFETY: a small block is one of talc's, with the layout of its class, which is at least as large
// and aligned as what is asked for. It is either in use or kept once; all others are talc's.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(class) = Class::of(layout) else {
            // SAFETY: as required of this function's caller.
            return unsafe { TALC.alloc(layout) };
        };
        match class.kept().and_then(Kept::take) {
            Some(block) => block.as_ptr(),
            // SAFETY: the layout of a class is not empty.
            None => unsafe { TALC.alloc(class.layout()) },
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(class) = Class::of(layout) else {
            // SAFETY: as required of this function's caller; the block is not small.
            return unsafe { TALC.dealloc(block, layout) };
        };
        // SAFETY: the caller does not use the block any more, and it has the layout of its class.
        let is_kept =
            class.kept().is_some_and(|kept| unsafe { kept.put(block, KEPT_BYTES / class.bytes()) });
        if !is_kept {
            // SAFETY: `alloc` got the block from talc with this layout.
            unsafe { TALC.dealloc(block, class.layout()) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that the size, rounded up to the alignment, is valid.
        let new_layout = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        match (Class::of(layout), Class::of(new_layout)) {
            // SAFETY: as required of this function's caller; the block is and stays talc's.
            (None, None) => unsafe { TALC.realloc(block, layout, bytes) },
            (before, after) if before == after => block,
            _ => {
                // SAFETY: the caller guarantees that neither layout is empty, and that the block is
                // allocated with `layout` and is not used any more if this succeeds.
                unsafe {
                    let new = self.alloc(new_layout);
                    if !new.is_null() {
                        ptr::copy_nonoverlapping(block, new, layout.size().min(bytes));
                        self.dealloc(block, layout);
                    }
                    new
                }
            }
        }
    }
}

/// Like `Box::new`; `None` if there is no memory, and `value` has been dropped.
pub(crate) fn try_box<T>(value: T) -> Option<Box<T>> {
    const { assert!(size_of::<T>() != 0, "a box of nothing needs no memory") };
    // SAFETY: the size is not 0.
    let place = NonNull::new(unsafe { alloc::alloc::alloc(Layout::new::<T>()) })?.cast::<T>();
    // SAFETY: the block has just been allocated with the layout of the box that it becomes, and is
    // initialised before.
    unsafe {
        place.write(value);
        Some(Box::from_raw(place.as_ptr()))
    }
}

/// Like `Arc::new`; `None` if there is no memory, and `value` has been dropped.
///
/// `alloc` has no stable function for this, so it allocates a block of the same size, frees it and
/// calls `Arc::new`. A virtual CPU keeps a small block for itself meanwhile. What a thread frees,
/// and a large block, another thread may take: then the process ends, if there is no other.
pub(crate) fn try_arc<T>(value: T) -> Option<Arc<T>> {
    // Two counters, followed by the value.
    let (layout, _) = Layout::new::<[usize; 2]>().extend(Layout::new::<T>()).ok()?;
    let layout = layout.pad_to_align();
    // Not by `alloc::alloc`, of which the compiler may leave out such a pair.
    // SAFETY: the size is not 0, and the block is freed with the same layout.
    unsafe {
        let block = NonNull::new(HEAP.alloc(layout))?;
        HEAP.dealloc(block.as_ptr(), layout);
    }
    Some(Arc::new(value))
}

/// Maps more memory when the heap is exhausted.
#[derive(Debug)]
struct Growth {
    /// End of the part of the heap that was mapped last.
    end: Option<NonNull<u8>>,
}

// SAFETY: the pointer is into memory that belongs to the heap, and is used only under the heap's
// lock.
unsafe impl Send for Growth {}

// SAFETY: `acquire` does not allocate from the heap it extends.
unsafe impl Source for Growth {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        // The requested size, the allocator's own records, and the possible cost of alignment.
        let needed = layout.size().checked_add(layout.align()).ok_or(())?;
        let needed =
            needed.checked_add(min_first_heap_size::<DefaultBinning>() + PAGE_BYTES).ok_or(())?;
        let bytes = needed.max(STEP_BYTES).checked_next_multiple_of(PAGE_BYTES).ok_or(())?;
        let base = system::map(bytes).ok_or(())?;
        let talc_end = match talc.source.end {
            Some(end) if end == base => {
                // SAFETY: the kernel has just mapped this memory for the heap alone, and it begins
                // where the previous part of the heap ends.
                Some(unsafe { talc.extend(end, base.as_ptr().wrapping_add(bytes)) })
            }
            // SAFETY: the kernel has just mapped this memory for the heap alone.
            _ => unsafe { talc.claim(base.as_ptr(), bytes) },
        };
        talc.source.end = Some(talc_end.ok_or(())?);
        Ok(())
    }
}
