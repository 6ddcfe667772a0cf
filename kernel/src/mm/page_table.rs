//! The table under one process's root: finding, making and clearing entries.
//!
//! Entries are read by harts at any time and changed only under the address space's lock
//! (the caller's business). An entry that is not empty owns a share in its frame, also when
//! the rights are none and the hardware does not look at it.

use super::frames::Frame;
use super::{OutOfMemory, kernel_space, layout};
use crate::arch::{self, Entry, TABLE_ENTRIES, TABLE_LEVELS};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

type Table = [AtomicU64; TABLE_ENTRIES];

/// A root table and all tables in its lower half.
pub(super) struct PageTable {
    root: Frame,
    /// Tables below the root.
    tables: AtomicUsize,
}

/// One entry of the lowest level.
pub(super) struct Slot<'a>(&'a AtomicU64);

impl Slot<'_> {
    pub(super) fn get(&self) -> Entry {
        Entry::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// Release: a hart that walks to the frame finds what was written into it.
    pub(super) fn set(&self, entry: Entry) {
        self.0.store(entry.bits(), Ordering::Release);
    }
}

fn table_at(physical: usize) -> &'static Table {
    // SAFETY: tables are whole frames, mapped, accessed through atomics only, and freed only
    // with the `PageTable`, which outlives every use of the reference in this module.
    unsafe { &*layout::direct(physical).cast() }
}

impl PageTable {
    /// A table that maps the kernel and nothing else.
    pub(super) fn new() -> Result<Self, OutOfMemory> {
        let root = Frame::allocate_zeroed()?;
        let half = TABLE_ENTRIES / 2;
        let kernel = table_at(kernel_space::root_physical());
        for (own, entry) in table_at(root.physical()).iter().zip(kernel).skip(half) {
            own.store(entry.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(Self { root, tables: AtomicUsize::new(0) })
    }

    /// Frames that are tables, the root's included.
    pub(super) fn frame_count(&self) -> usize {
        1 + self.tables.load(Ordering::Relaxed)
    }

    pub(super) fn root(&self) -> &Frame {
        &self.root
    }

    /// The entry for a user address, if the tables down to it exist.
    pub(super) fn find(&self, address: usize) -> Option<Slot<'_>> {
        debug_assert!(address < layout::USER_END);
        let mut table = table_at(self.root.physical());
        for level in (1..TABLE_LEVELS).rev() {
            let entry = Entry::from_bits(table[arch::table_index(address, level)].load(Ordering::Relaxed));
            if !entry.is_valid() {
                return None;
            }
            table = table_at(entry.physical());
        }
        Some(Slot(&table[arch::table_index(address, 0)]))
    }

    /// As [`PageTable::find`], making tables as needed.
    pub(super) fn find_or_make(&self, address: usize) -> Result<Slot<'_>, OutOfMemory> {
        debug_assert!(address < layout::USER_END);
        let mut table = table_at(self.root.physical());
        for level in (1..TABLE_LEVELS).rev() {
            let slot = &table[arch::table_index(address, level)];
            let mut entry = Entry::from_bits(slot.load(Ordering::Relaxed));
            if !entry.is_valid() {
                entry = Entry::table(Frame::allocate_zeroed()?.into_physical());
                slot.store(entry.bits(), Ordering::Release);
                self.tables.fetch_add(1, Ordering::Relaxed);
            }
            table = table_at(entry.physical());
        }
        Ok(Slot(&table[arch::table_index(address, 0)]))
    }

    /// Visits the entries that are not empty in `range` (page aligned), in order, until
    /// `visit` says stop; skips what has no tables.
    pub(super) fn for_each_present(
        &self,
        range: Range<usize>,
        mut visit: impl FnMut(usize, Slot<'_>) -> bool,
    ) {
        let mut at = range.start;
        while at < range.end {
            let (table, covered) = match self.lowest_table(at) {
                Ok(found) => found,
                Err(next) => {
                    at = next;
                    continue;
                }
            };
            let end = range.end.min(covered.end);
            while at < end {
                let slot = Slot(&table[arch::table_index(at, 0)]);
                if slot.get() != Entry::EMPTY && !visit(at, slot) {
                    return;
                }
                at += layout::PAGE_BYTES;
            }
        }
    }

    /// The lowest table over `address` and the addresses it covers; if there is none, the
    /// next address for which there may be one.
    fn lowest_table(&self, address: usize) -> Result<(&'static Table, Range<usize>), usize> {
        let mut table = table_at(self.root.physical());
        for level in (1..TABLE_LEVELS).rev() {
            let entry = Entry::from_bits(table[arch::table_index(address, level)].load(Ordering::Relaxed));
            if !entry.is_valid() {
                let span = arch::page_size_of_level(level);
                return Err((address & !(span - 1)) + span);
            }
            table = table_at(entry.physical());
        }
        let span = arch::page_size_of_level(1);
        let start = address & !(span - 1);
        Ok((table, start..start + span))
    }

    /// The part of `range` under the first lowest table that there is over it, skipping at most `holes` places for tables that are
    /// not there; and the end of what that table, or the last place, covers. An empty part: there are no pages so far.
    pub(super) fn first_pages(&self, range: Range<usize>, holes: usize) -> (Range<usize>, usize) {
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

    /// Whether there is a lowest table over `address`; if not, where the next may be.
    pub(super) fn next_table(&self, address: usize) -> Result<(), usize> {
        self.lowest_table(address).map(drop)
    }

    /// Takes the lowest table over `address` out, if all its entries are empty. The caller
    /// flushes before the frame goes.
    pub(super) fn detach_if_empty(&self, address: usize) -> Option<Frame> {
        let root = table_at(self.root.physical());
        let middle = Entry::from_bits(root[arch::table_index(address, 2)].load(Ordering::Relaxed));
        if !middle.is_valid() {
            return None;
        }
        let slot = &table_at(middle.physical())[arch::table_index(address, 1)];
        let entry = Entry::from_bits(slot.load(Ordering::Relaxed));
        let is_empty = |table: &Table| table.iter().all(|entry| entry.load(Ordering::Relaxed) == 0);
        if !entry.is_valid() || !is_empty(table_at(entry.physical())) {
            return None;
        }
        slot.store(Entry::EMPTY.bits(), Ordering::Relaxed);
        self.tables.fetch_sub(1, Ordering::Relaxed);
        Some(Frame::from_physical(entry.physical()))
    }

    /// Empties the lower half of the root, so that a hart that still has it loaded finds
    /// nothing; returns what was there, to be freed after a flush.
    pub(super) fn detach_lower(&mut self) -> LowerHalf {
        let mut entries = [Entry::EMPTY; TABLE_ENTRIES / 2];
        for (place, entry) in entries.iter_mut().zip(table_at(self.root.physical())) {
            *place = Entry::from_bits(entry.swap(Entry::EMPTY.bits(), Ordering::Relaxed));
        }
        LowerHalf { entries, next: 0 }
    }
}

/// The tables and frames of a process that is gone. Dropping it frees what is left of them.
pub(super) struct LowerHalf {
    entries: [Entry; TABLE_ENTRIES / 2],
    /// What lies below is freed.
    next: usize,
}

/// What freeing a frame costs, in entries looked at.
const FREE_COST: usize = 16;

impl LowerHalf {
    /// Goes on freeing, for about as long as `frames` frames take. Returns whether there is anything left.
    pub(super) fn free_some(&mut self, frames: usize) -> bool {
        let mut work = frames.saturating_mul(FREE_COST);
        while work > 0 && self.next < layout::USER_END {
            let top = &mut self.entries[arch::table_index(self.next, TABLE_LEVELS - 1)];
            let mut next = self.next;
            let is_done = free_below(*top, TABLE_LEVELS - 1, &mut next, &mut work);
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

/// Frees what an entry of `level` that covers the address `next` leads to, from there on; advances `next` over what
/// is done and takes its cost off `work`. Returns whether the entry is done, its own frame included.
///
/// Not recursion without end: the levels count down.
fn free_below(entry: Entry, level: usize, next: &mut usize, work: &mut usize) -> bool {
    let span = arch::page_size_of_level(level);
    let end = (*next & !(span - 1)) + span;
    *work = work.saturating_sub(1);
    if entry != Entry::EMPTY {
        if level > 0 {
            let table = table_at(entry.physical());
            while *next < end {
                if *work == 0 {
                    return false;
                }
                let below =
                    Entry::from_bits(table[arch::table_index(*next, level - 1)].load(Ordering::Relaxed));
                // What is done is not looked at again: `next` is past it.
                if !free_below(below, level - 1, next, work) {
                    return false;
                }
            }
        }
        *work = work.saturating_sub(FREE_COST);
        drop(Frame::from_physical(entry.physical()));
    }
    *next = end;
    true
}
