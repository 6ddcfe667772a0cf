//! Knowlton's buddy system (K. C. Knowlton, "A fast storage allocator", 1965; Knuth, *The Art of
//! Computer Programming*, volume 1, section 2.5): the bookkeeping of an allocator of page frames.
//!
//! This module knows frames only by their numbers, and never touches their memory. It is
//! responsible for three promises:
//!
//! - An allocated block overlaps no other allocated block, and is aligned to its size.
//! - Two free buddies are one block, so an allocation fails only if no aligned block of its order
//!   has all frames free.
//! - Allocating and freeing visit at most [`ORDERS`] blocks.
//!
//! Free blocks of `2^order` frames are aligned to their size and are in one doubly linked list per
//! order. The links are frame numbers in the records of the blocks' first frames ([`Links`]).

use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Blocks have up to `2^(ORDERS - 1)` frames: with frames of 4 KiB, 32 MiB.
pub const ORDERS: usize = 14;

/// Stands for "no frame".
pub const NONE: u32 = u32::MAX;

/// The allocator's part of a frame's record. The lock of the [`Buddy`] guards it; the fields are
/// atomics only so that an array of records can be shared.
#[derive(Debug)]
pub struct Links {
    /// `FREE | order` in the first record of a free block, otherwise 0.
    state: AtomicU32,
    next: AtomicU32,
    previous: AtomicU32,
}

const FREE: u32 = 1 << 31;

impl Links {
    /// Those of an allocated frame.
    #[must_use]
    pub const fn in_use() -> Self {
        Self {
            state: AtomicU32::new(0),
            next: AtomicU32::new(NONE),
            previous: AtomicU32::new(NONE),
        }
    }

    /// Stores two numbers, which stay until the frame is free. Of an allocated frame, with an order
    /// with respect to [`Self::numbers`] that is up to the caller.
    pub fn set_numbers(&self, [first, second]: [u32; 2]) {
        self.next.store(first, Relaxed);
        self.previous.store(second, Relaxed);
    }

    /// What [`Self::set_numbers`] has stored.
    #[must_use]
    pub fn numbers(&self) -> [u32; 2] {
        [self.next.load(Relaxed), self.previous.load(Relaxed)]
    }
}

impl AsRef<Links> for Links {
    fn as_ref(&self) -> &Links {
        self
    }
}

/// The free lists. All calls get the same records, one for each frame; `R` may have other fields.
#[derive(Debug)]
pub struct Buddy {
    heads: [u32; ORDERS],
    free_frames: usize,
}

impl Default for Buddy {
    fn default() -> Self {
        Self::new()
    }
}

impl Buddy {
    /// An allocator without free frames.
    #[must_use]
    pub const fn new() -> Self {
        Self { heads: [NONE; ORDERS], free_frames: 0 }
    }

    /// Number of free frames.
    #[must_use]
    pub const fn free_frames(&self) -> usize {
        self.free_frames
    }

    /// Takes a block of `2^order` frames and returns the number of its first frame. `order` is
    /// below [`ORDERS`].
    pub fn allocate<R: AsRef<Links>>(&mut self, records: &[R], order: usize) -> Option<u32> {
        let found = (order..ORDERS).find(|&larger| self.heads[larger] != NONE)?;
        let block = self.heads[found];
        self.unlink(records, block, found);
        // Free the upper halves until the block has the requested size.
        for half in (order..found).rev() {
            self.link(records, block + (1 << half), half);
        }
        self.free_frames -= 1 << order;
        Some(block)
    }

    /// Takes `count` contiguous frames and returns the number of the first one. It is aligned to
    /// `count` rounded up to a power of two; the frames of that block beyond `count` stay free.
    pub fn allocate_run<R: AsRef<Links>>(&mut self, records: &[R], count: usize) -> Option<u32> {
        let order = order_for(count);
        if order >= ORDERS {
            return None;
        }
        let first = self.allocate(records, order)?;
        self.free_range(records, first + count as u32..first + (1 << order));
        Some(first)
    }

    /// Frees a block and joins it with its buddy as long as that is free too.
    pub fn free<R: AsRef<Links>>(&mut self, records: &[R], block: u32, order: usize) {
        self.free_frames += 1 << order;
        let (mut block, mut order) = (block, order);
        while order + 1 < ORDERS {
            let buddy = block ^ 1 << order;
            let is_free = records
                .get(buddy as usize)
                .is_some_and(|record| record.as_ref().state.load(Relaxed) == FREE | order as u32);
            if !is_free {
                break;
            }
            self.unlink(records, buddy, order);
            block &= !(1 << order);
            order += 1;
        }
        self.link(records, block, order);
    }

    /// Frees a range of frames in the largest possible blocks.
    pub fn free_range<R: AsRef<Links>>(&mut self, records: &[R], range: Range<u32>) {
        let mut at = range.start;
        while at < range.end {
            let aligned = if at == 0 { ORDERS as u32 - 1 } else { at.trailing_zeros() };
            let order = aligned.min((range.end - at).ilog2()).min(ORDERS as u32 - 1);
            self.free(records, at, order as usize);
            at += 1 << order;
        }
    }

    fn link<R: AsRef<Links>>(&mut self, records: &[R], block: u32, order: usize) {
        let old = self.heads[order];
        let links = records[block as usize].as_ref();
        links.state.store(FREE | order as u32, Relaxed);
        links.previous.store(NONE, Relaxed);
        links.next.store(old, Relaxed);
        if old != NONE {
            records[old as usize].as_ref().previous.store(block, Relaxed);
        }
        self.heads[order] = block;
    }

    fn unlink<R: AsRef<Links>>(&mut self, records: &[R], block: u32, order: usize) {
        let links = records[block as usize].as_ref();
        links.state.store(0, Relaxed);
        let (previous, next) = (links.previous.load(Relaxed), links.next.load(Relaxed));
        match previous {
            NONE => self.heads[order] = next,
            _ => records[previous as usize].as_ref().next.store(next, Relaxed),
        }
        if next != NONE {
            records[next as usize].as_ref().previous.store(previous, Relaxed);
        }
    }
}

/// The order of the smallest block with at least `frames` frames.
#[must_use]
pub const fn order_for(frames: usize) -> usize {
    frames.next_power_of_two().trailing_zeros() as usize
}
