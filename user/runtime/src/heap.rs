//! The heap: talc over memory mapped from the kernel, under the library's lock.
//!
//! May touch: memory it mapped itself. It is never given back to the kernel; what is free is used again.
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

/// Least bytes mapped at a time: enough that entering the kernel for memory is rare. What is never touched takes
/// no frames.
const STEP_BYTES: usize = 256 * 1024;

#[global_allocator]
static HEAP: TalcLock<RawLock, Growth> = TalcLock::new(Growth { end: None });

/// Maps more memory when the heap is used up.
#[derive(Debug)]
struct Growth {
    /// Where the part of the heap that was mapped last ends.
    end: Option<NonNull<u8>>,
}

// SAFETY: a pointer into memory that belongs to the heap, used under its lock.
unsafe impl Send for Growth {}

// SAFETY: it allocates nothing.
unsafe impl Source for Growth {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        // What was asked for, the allocator's own records, and what alignment may cost.
        let needed = layout.size().checked_add(layout.align()).ok_or(())?;
        let needed = needed.checked_add(min_first_heap_size::<DefaultBinning>() + PAGE_BYTES).ok_or(())?;
        let bytes = needed.max(STEP_BYTES).checked_next_multiple_of(PAGE_BYTES).ok_or(())?;
        let base = system::map(bytes).ok_or(())?;
        let talc_end = match talc.source.end {
            // SAFETY: the new memory is ours and begins where that part of the heap ends.
            Some(end) if end == base => Some(unsafe { talc.extend(end, base.as_ptr().wrapping_add(bytes)) }),
            // SAFETY: the new memory is ours.
            _ => unsafe { talc.claim(base.as_ptr(), bytes) },
        };
        talc.source.end = Some(talc_end.ok_or(())?);
        Ok(())
    }
}
