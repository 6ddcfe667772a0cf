//! The page table of one process: finding, creating and visiting entries.
//!
//! `table` has the tables and what their entries own; this module walks through them.

use super::frames::Frame;
use super::lower_half::LowerHalf;
use super::table::{RootFrame, RootTable, Slot, Table};
use super::{OutOfMemory, layout};
use crate::arch::{self, TABLE_LEVELS};
use core::ops::Range;

/// A root table and all tables in its lower half.
pub(super) struct PageTable {
    root: RootTable,
    /// Tables below the root.
    tables: usize,
}

impl PageTable {
    /// A table that maps the kernel and no program memory.
    pub(super) fn new() -> Result<Self, OutOfMemory> {
        Ok(Self { root: RootTable::new()?, tables: 0 })
    }

    /// Number of frames that are tables, the root included.
    pub(super) fn frame_count(&self) -> usize {
        1 + self.tables
    }

    /// Another reference to the frame of the root.
    pub(super) fn root_frame(&self) -> RootFrame {
        self.root.frame()
    }

    /// The entry for a user address, if the tables down to it exist.
    pub(super) fn find(&mut self, address: usize) -> Option<Slot<'_>> {
        debug_assert!(address < layout::USER_END);
        let mut table = self.root.table();
        for _ in 1..TABLE_LEVELS {
            table = table.below(address)?;
        }
        Some(table.into_slot(address))
    }

    /// Like [`PageTable::find`], but creates missing tables.
    pub(super) fn find_or_make(&mut self, address: usize) -> Result<Slot<'_>, OutOfMemory> {
        debug_assert!(address < layout::USER_END);
        let mut table = self.root.table();
        for _ in 1..TABLE_LEVELS {
            let (below, made) = table.below_or_make(address)?;
            self.tables += usize::from(made);
            table = below;
        }
        Ok(table.into_slot(address))
    }

    /// Visits the non-empty entries in `range` (page aligned), in ascending order, until `visit`
    /// returns false. Parts without tables are skipped.
    pub(super) fn for_each_present(
        &mut self,
        range: Range<usize>,
        mut visit: impl FnMut(usize, Slot<'_>) -> bool,
    ) {
        let mut at = range.start;
        while at < range.end {
            let (mut table, covered) = match self.lowest_table(at) {
                Ok(found) => found,
                Err(next) => {
                    at = next;
                    continue;
                }
            };
            let end = range.end.min(covered.end);
            while let (Some(used), _) = table.first_used_in(at..end) {
                if !visit(used, table.slot(used)) {
                    return;
                }
                at = used + layout::PAGE_BYTES;
            }
            at = end;
        }
    }

    /// The lowest-level table for `address` and the addresses that it covers. Without such a table:
    /// the next address that may have one.
    fn lowest_table(&mut self, address: usize) -> Result<(Table<'_>, Range<usize>), usize> {
        let around = |level| {
            let span = arch::page_size_of_level(level);
            let start = address & !(span - 1);
            start..start + span
        };
        let mut table = self.root.table();
        for level in (1..TABLE_LEVELS).rev() {
            table = table.below(address).ok_or_else(|| around(level).end)?;
        }
        Ok((table, around(1)))
    }

    /// The part of `range` that its first lowest-level table covers, and the end of what that table
    /// covers. Skips at most `holes` places without a table; if there are more, the part is empty
    /// and the end is that of the last skipped place.
    pub(super) fn first_pages(
        &mut self,
        range: Range<usize>,
        holes: usize,
    ) -> (Range<usize>, usize) {
        let mut at = range.start;
        for _ in 0..holes {
            match self.next_table(at) {
                Err(next) if at < range.end => at = next,
                _ => break,
            }
        }
        let span = arch::page_size_of_level(1);
        let covered = (at & !(span - 1)) + span;
        (at.min(range.end)..range.end.min(covered), covered)
    }

    /// Whether there is a lowest-level table for `address`; if not, the next address that may have
    /// one.
    pub(super) fn next_table(&mut self, address: usize) -> Result<(), usize> {
        self.lowest_table(address).map(drop)
    }

    /// Detaches the lowest-level table for `address` if all its entries are empty. The caller
    /// flushes before it drops the frame.
    pub(super) fn detach_if_empty(&mut self, address: usize) -> Option<Frame> {
        let mut table = self.root.table();
        for _ in 2..TABLE_LEVELS {
            table = table.below(address)?;
        }
        let frame = table.detach_empty_below(address)?;
        self.tables -= 1;
        Some(frame)
    }

    /// Exchanges the lower halves of two tables. The caller flushes both.
    pub(super) fn exchange_lower(&mut self, other: &mut Self) {
        self.root.exchange_lower(&mut other.root);
        core::mem::swap(&mut self.tables, &mut other.tables);
    }

    /// Empties the lower half of the root, so that a hart that still has it loaded finds no
    /// mappings. Returns what was in it, to be freed after a flush.
    pub(super) fn detach_lower(&mut self) -> LowerHalf {
        LowerHalf::detach(&mut self.root)
    }
}
