//! The heap: the allocator talc, on memory mapped from the kernel, under the library's lock.
//!
//! May touch: memory that it mapped itself. Freed memory is reused but never unmapped.
#![allow(unsafe_code)]

use core::alloc::Layout;
use core::ptr::NonNull;

use cops_abi::layout::PAGE_BYTES;
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::source::Source;
use talc::{DefaultBinning, TalcLock, min_first_heap_size};

use crate::lock::RawLock;
use crate::system;

/// Minimum number of bytes mapped at a time, so that the heap rarely calls the kernel. Pages that
/// are never accessed take no frames.
const STEP_BYTES: usize = 256 * 1024;

#[global_allocator]
static HEAP: TalcLock<RawLock, Growth> = TalcLock::new(Growth { end: None });

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
