//! The buddy algorithm over an array of frame records. It only does bookkeeping and does not access
//! the frames.
//!
//! Free blocks of `2^order` frames are aligned to their size and are in one doubly linked list per
//! order. The links are frame numbers in the blocks' first records.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Blocks have up to `2^(ORDERS - 1)` frames: 32 MiB.
pub(super) const ORDERS: usize = 14;

/// Stands for "no frame".
pub(super) const NONE: u32 = u32::MAX;

/// The allocator's record of a frame. `references` belongs to the owners of the frame, the other
/// fields to the [`Buddy`]. Its lock guards them; they are atomics only so that the array can be
/// shared.
pub(super) struct FrameRecord {
    pub(super) references: AtomicU32,
    /// `FREE | order` in the first record of a free block, otherwise 0.
    state: AtomicU32,
    next: AtomicU32,
    previous: AtomicU32,
}

const FREE: u32 = 1 << 31;

impl FrameRecord {
    /// The record of an allocated frame.
    pub(super) const fn in_use() -> Self {
        Self {
            references: AtomicU32::new(1),
            state: AtomicU32::new(0),
            next: AtomicU32::new(NONE),
            previous: AtomicU32::new(NONE),
        }
    }
}

/// The free lists.
pub(super) struct Buddy {
    heads: [u32; ORDERS],
    free_frames: usize,
}

impl Buddy {
    pub(super) const fn new() -> Self {
        Self { heads: [NONE; ORDERS], free_frames: 0 }
    }

    pub(super) fn free_frames(&self) -> usize {
        self.free_frames
    }

    /// Takes a block of `2^order` frames and returns the number of its first frame.
    pub(super) fn allocate(&mut self, records: &[FrameRecord], order: usize) -> Option<u32> {
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

    /// Frees a block and joins it with its buddy as long as that is free too.
    pub(super) fn free(&mut self, records: &[FrameRecord], block: u32, order: usize) {
        self.free_frames += 1 << order;
        let (mut block, mut order) = (block, order);
        while order + 1 < ORDERS {
            let buddy = block ^ 1 << order;
            let is_free = records
                .get(buddy as usize)
                .is_some_and(|record| record.state.load(Relaxed) == FREE | order as u32);
            if !is_free {
                break;
            }
            self.unlink(records, buddy, order);
            block &= !(1 << order);
            order += 1;
        }
        self.link(records, block, order);
    }

    /// Frees the frames `start..end` in the largest possible blocks.
    pub(super) fn free_range(&mut self, records: &[FrameRecord], start: u32, end: u32) {
        let mut at = start;
        while at < end {
            let aligned = if at == 0 { ORDERS as u32 - 1 } else { at.trailing_zeros() };
            let order = aligned.min((end - at).ilog2()).min(ORDERS as u32 - 1);
            self.free(records, at, order as usize);
            at += 1 << order;
        }
    }

    fn link(&mut self, records: &[FrameRecord], block: u32, order: usize) {
        let old = self.heads[order];
        let record = &records[block as usize];
        record.state.store(FREE | order as u32, Relaxed);
        record.previous.store(NONE, Relaxed);
        record.next.store(old, Relaxed);
        if old != NONE {
            records[old as usize].previous.store(block, Relaxed);
        }
        self.heads[order] = block;
    }

    fn unlink(&mut self, records: &[FrameRecord], block: u32, order: usize) {
        let record = &records[block as usize];
        record.state.store(0, Relaxed);
        let (previous, next) = (record.previous.load(Relaxed), record.next.load(Relaxed));
        match previous {
            NONE => self.heads[order] = next,
            _ => records[previous as usize].next.store(next, Relaxed),
        }
        if next != NONE {
            records[next as usize].previous.store(previous, Relaxed);
        }
    }
}
