//! The table under one process's root: finding, making and clearing entries.
//!
//! Entries are read by harts at any time and changed only under the address space's lock
//! (the caller's business). An entry that is not empty owns a share in its frame, also when
//! the rights are none and the hardware does not look at it.

use super::frames::Frame;
use super::{OutOfMemory, kernel_space, layout};
use crate::arch::{self, Entry, TABLE_ENTRIES, TABLE_LEVELS};
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

type Table = [AtomicU64; TABLE_ENTRIES];

/// A root table and all tables in its lower half.
pub(super) struct PageTable {
    root: Frame,
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
        Ok(Self { root })
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
        Some(Frame::from_physical(entry.physical()))
    }

    /// Empties the lower half of the root, so that a hart that still has it loaded finds
    /// nothing; returns what was there, to be freed after a flush.
    pub(super) fn detach_lower(&mut self) -> LowerHalf {
        let mut entries = [Entry::EMPTY; TABLE_ENTRIES / 2];
        for (place, entry) in entries.iter_mut().zip(table_at(self.root.physical())) {
            *place = Entry::from_bits(entry.swap(Entry::EMPTY.bits(), Ordering::Relaxed));
        }
        LowerHalf(entries)
    }
}

/// The tables and frames of a process that is gone. Dropping it frees them.
pub(super) struct LowerHalf([Entry; TABLE_ENTRIES / 2]);

impl Drop for LowerHalf {
    fn drop(&mut self) {
        for entry in self.0 {
            free_subtree(entry, TABLE_LEVELS - 1);
        }
    }
}

/// Frees what an entry in a table of `level` leads to. Not recursion without end: the
/// levels count down.
fn free_subtree(entry: Entry, level: usize) {
    if entry == Entry::EMPTY {
        return;
    }
    if level > 0 {
        for below in table_at(entry.physical()) {
            free_subtree(Entry::from_bits(below.load(Ordering::Relaxed)), level - 1);
        }
    }
    drop(Frame::from_physical(entry.physical()));
}
