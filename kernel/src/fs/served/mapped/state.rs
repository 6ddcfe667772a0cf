//! What is known of a file of which pages are in the kernel: its contents, which of them mappings
//! can reach, what is dirty, and which call has the turn.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;

use cops_abi::Priority;
use cops_algorithms::range_set::RangeSet;

use super::PAGE;
use crate::fs::contents::{Contents, sweep};
use crate::fs::served::request::Request;
use crate::mm::PinnedBuffer;
use crate::mm::frames::FRAME_BYTES;
use crate::mm::quota::Family;

/// The state of a file. Its lock is taken under that of an address space.
pub(super) struct State {
    /// `None` before the length is known.
    pub(super) contents: Option<Box<Contents>>,
    /// The pages that mappings can reach. One that the contents do not have is zeros, because the
    /// file has become longer; or it is lost, if there was no memory for what was written to it.
    pub(super) loaded: RangeSet,
    pub(super) has_lost: bool,
    /// The bytes that are being written back.
    pub(super) writing: Range<u64>,
    /// Where the search for dirty pages goes on; 0: none is under way.
    pub(super) place: u64,
    /// Whether a page has become dirty since such a search began.
    pub(super) is_dirty: bool,
    /// Bytes from the beginning on that have been written: there, a write needs no more space.
    pub(super) solid: u64,
    /// Pages for which it has taken room.
    pub(super) counted: usize,
    /// When it was written last, in nanoseconds since 1970, if the kernel has kept something.
    pub(super) written_at: Option<u64>,
    /// Whether a call is about to change the length.
    pub(super) resizing: Resizing,
    /// Whether the last attempt to write it back has failed.
    pub(super) has_failed: bool,
    /// Whether a call has the turn.
    pub(super) is_taken: bool,
    /// The priority of the most urgent call that waits for this turn, and the request that it waits
    /// for.
    pub(super) priority: Option<Priority>,
    pub(super) flight: Option<Arc<Request>>,
    /// The turn ends when this request is answered, for its call has gone.
    pub(super) last: Option<Arc<Request>>,
    /// Whether the connection's coroutine waits for the turn.
    pub(super) coroutine_waits: bool,
    /// Whether it is in the list of files to be written back.
    pub(super) is_listed: bool,
}

/// A change of the length by the call that has the turn. No write is kept meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resizing {
    /// There is none.
    No,
    /// What is dirty is written back first.
    WritingBack,
    /// Nothing is dirty, and the server is asked.
    Asking,
}

impl State {
    /// Takes the turn, if it is free. Returns whether it was.
    pub(super) fn try_take_turn(&mut self) -> bool {
        !core::mem::replace(&mut self.is_taken, true)
    }

    /// Number of pages of the file.
    pub(super) fn pages(&self) -> u64 {
        self.contents.as_ref().map_or(0, |contents| contents.len().div_ceil(PAGE))
    }

    /// Whether an entry for `page` can exist.
    pub(super) fn can_reach(&self, page: u64) -> bool {
        let exists = |contents: &Contents| !self.has_lost || contents.has(page);
        self.loaded.contains(page) && self.contents.as_ref().is_some_and(|it| exists(it))
    }

    /// Copies what was written, `count` bytes at `offset` that `buffers` begin with, to the pages
    /// that exist.
    pub(super) fn copy_written(
        &mut self,
        offset: u64,
        count: usize,
        buffers: &[PinnedBuffer],
        payer: Family,
    ) {
        let Some(contents) = &mut self.contents else { return };
        contents.grow(offset.saturating_add(count as u64));
        let (mut at, mut rest) = (offset, count);
        for buffer in buffers {
            let end = rest.min(buffer.len());
            let mut done = 0;
            while done < end {
                let (page, within) = (at / PAGE, (at % PAGE) as usize);
                let part = (FRAME_BYTES - within).min(end - done);
                if !contents.has(page) && self.loaded.contains(page) {
                    self.has_lost |= contents.frame(page, payer).is_err();
                }
                self.is_dirty |= contents.write_dirty((page, within), (buffer, done), part);
                (at, done) = (at + part as u64, done + part);
            }
            rest -= end;
        }
    }

    /// `count` bytes were written at `offset`, and so have blocks.
    pub(super) fn has_blocks(&mut self, offset: u64, count: u64) {
        if self.contents.is_some() && offset <= self.solid {
            self.solid = self.solid.max(offset.saturating_add(count));
        }
    }

    /// Nothing is known of the contents any more. Returns what there was.
    pub(super) fn forget(&mut self) -> Option<Box<Contents>> {
        (self.is_dirty, self.loaded, self.solid) = (false, RangeSet::new(), 0);
        self.contents.take()
    }

    /// The length has changed. Nothing of what is cut off is mapped.
    pub(super) fn resize(&mut self, length: u64) {
        self.solid = self.solid.min(length);
        if self.resizing == Resizing::Asking {
            // Nothing is dirty. What is needed is read anew.
            if let Some(contents) = self.forget() {
                sweep(contents);
            }
            return;
        }
        let Some(contents) = &mut self.contents else { return };
        if length >= contents.len() {
            contents.grow(length);
            return;
        }
        if contents.resize(length).is_err()
            && let Some(contents) = self.forget()
        {
            // It is read anew.
            sweep(contents);
        }
    }
}
