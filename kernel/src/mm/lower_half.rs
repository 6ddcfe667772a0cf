//! What an ended process has left of its page table: freed in portions.

use super::frames::Frame;
use super::layout;
use super::table::{LOWER_ENTRIES, RootTable, Table};
use crate::arch::{self, Entry, TABLE_LEVELS};

/// The tables and frames of an ended process. Dropping it frees the rest of them.
pub(super) struct LowerHalf {
    entries: [Entry; LOWER_ENTRIES],
    /// The frames of addresses below this one are freed.
    next: usize,
}

/// Cost of freeing a frame, measured in entries that are not empty.
const FREE_COST: usize = 16;
/// Empty entries that cost as much to pass as one that is not.
const EMPTY_PER_WORK: usize = 8;

impl LowerHalf {
    /// Moves everything below `root` into a new value, to be freed after a flush.
    pub(super) fn detach(root: &mut RootTable) -> Self {
        Self { entries: root.detach_lower(), next: 0 }
    }

    /// Continues to free for about the time that `frames` frames take. Returns whether there is
    /// anything left.
    pub(super) fn free_some(&mut self, frames: usize) -> bool {
        let mut work = frames.saturating_mul(FREE_COST);
        while work > 0 && self.next < layout::USER_END {
            let index = arch::table_index(self.next, TABLE_LEVELS - 1);
            let used = self.entries[index..].iter().position(|&entry| entry != Entry::EMPTY);
            let Some(used) = used else {
                self.next = layout::USER_END;
                break;
            };
            work = work.saturating_sub(used / EMPTY_PER_WORK);
            let mut next = self.next + used * arch::page_size_of_level(TABLE_LEVELS - 1);
            let top = &mut self.entries[index + used];
            // SAFETY: `detach_lower` moved the entries out of the root, so this value owns their
            // frames and, from `next` on, everything below. The entry is emptied when it is done.
            let is_done = unsafe { free_below(*top, TABLE_LEVELS - 1, &mut next, &mut work) };
            if is_done {
                *top = Entry::EMPTY;
            }
            self.next = next;
        }
        self.next < layout::USER_END
    }
}

impl Drop for LowerHalf {
    fn drop(&mut self) {
        self.free_some(usize::MAX);
    }
}

/// Frees what the entry of `level` for the address `next` refers to, from that address on. Advances
/// `next` past the freed part and subtracts its cost from `work`. Returns whether everything is
/// freed, the entry's own frame included.
///
/// The recursion is bounded: the level decreases.
///
/// # Safety
/// The entry owns its frame and, from `next` on, everything below it, as in the invariants of
/// [`table`](super::table). No hart can reach it. If this returns true, the entry is not used
/// again.
unsafe fn free_below(entry: Entry, level: usize, next: &mut usize, work: &mut usize) -> bool {
    let span = arch::page_size_of_level(level);
    let end = (*next & !(span - 1)) + span;
    *work = work.saturating_sub(1);
    if entry != Entry::EMPTY {
        if level > 0 {
            // SAFETY: above the lowest level, an entry that is not empty owns a table of the next
            // level, which is freed only below, after the last use of `table`. By this function's
            // contract nothing else uses it.
            let table = unsafe { Table::at(entry.physical(), level - 1) };
            loop {
                let (used, passed) = table.first_used_in(*next..end);
                // Before the work is counted: after the last entry, the table is freed too.
                let Some(address) = used else { break };
                *next = address;
                *work = work.saturating_sub(passed / EMPTY_PER_WORK);
                if *work == 0 {
                    return false;
                }
                // Parts already freed are not visited again: `next` is past them.
                //
                // SAFETY: the argument is an entry of the table that `entry` owns, at or after
                // `next`. When it is freed, `next` is past it.
                if !unsafe { free_below(table.get(*next), level - 1, next, work) } {
                    return false;
                }
            }
        }
        *work = work.saturating_sub(FREE_COST);
        // SAFETY: by this function's contract the entry owns this reference and is not used again.
        drop(unsafe { Frame::from_physical(entry.physical()) });
    }
    *next = end;
    true
}
