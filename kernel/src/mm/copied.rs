//! Pages that a fault makes a program's own (copy-on-write), and the frames that they had before.
#![forbid(unsafe_code)]

use super::frames::Frame;
use super::layout;
use core::ops::Range;

/// Maximum number of pages that one fault copies.
pub(super) const COPIED_TOGETHER: usize = 8;

/// Pages that have become own, one behind the other, and the frames that were there before the
/// copies. The harts forget the old translations before this is dropped, and the frames with it.
pub(super) struct Copied {
    start: usize,
    end: usize,
    before: [Option<Frame>; COPIED_TOGETHER],
    count: usize,
}

impl Copied {
    /// None yet; the page around `address` will be the first.
    pub(super) fn new(address: usize) -> Self {
        let start = layout::page_down(address);
        Self { start, end: start, before: [const { None }; COPIED_TOGETHER], count: 0 }
    }

    /// The next page has become own: by a copy, if `before` is the frame that was there.
    pub(super) fn push(&mut self, before: Option<Frame>) {
        debug_assert!(!self.is_full());
        if before.is_some() {
            self.before[self.count] = before;
            self.count += 1;
        }
        self.end += layout::PAGE_BYTES;
    }

    /// Address of the page behind them.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// Whether no page has another frame now.
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether there is no place for one more frame.
    pub(super) fn is_full(&self) -> bool {
        self.count == COPIED_TOGETHER
    }

    /// The frames that were there before.
    pub(super) fn frames(&self) -> impl Iterator<Item = &Frame> {
        self.before.iter().flatten()
    }

    /// Their addresses.
    pub(super) fn range(&self) -> Range<usize> {
        self.start..self.end
    }
}
