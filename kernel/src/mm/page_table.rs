//! The page table of one process: finding, creating and clearing entries.
//!
//! Harts read entries at any time. The kernel changes them only through a [`Slot`], which borrows
//! the table exclusively. An entry that is not empty owns a reference to its frame, even if it
//! grants no rights and the hardware ignores it.

use super::frames::Frame;
use super::{OutOfMemory, Rights, kernel_space, layout};
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

/// One entry of the lowest level. It borrows the table exclusively, so nothing else changes the
/// entry in the meantime.
pub(super) struct Slot<'a>(&'a AtomicU64);

impl Slot<'_> {
    pub(super) fn get(&self) -> Entry {
        Entry::from_bits(self.0.load(Ordering::Relaxed))
    }

    /// Release: a hart that reads the entry also sees the contents written to the frame before.
    fn set(&mut self, entry: Entry) {
        self.0.store(entry.bits(), Ordering::Release);
    }

    /// Physical address of the frame in the entry.
    pub(super) fn physical(&self) -> usize {
        self.get().physical()
    }

    /// Puts `frame` into the entry, which is empty.
    pub(super) fn put(&mut self, frame: Frame, rights: Rights) {
        debug_assert!(self.get() == Entry::EMPTY);
        self.set(Entry::user_leaf(frame.into_physical(), rights));
    }

    /// Changes the rights of the entry unless it is empty.
    pub(super) fn set_rights(&mut self, rights: Rights) {
        let entry = self.get();
        if entry != Entry::EMPTY {
            self.set(Entry::user_leaf(entry.physical(), rights));
        }
    }

    /// Empties the entry and returns the frame that was in it. The caller flushes before it drops
    /// the frame.
    pub(super) fn take(&mut self) -> Option<Frame> {
        let entry = self.get();
        if entry == Entry::EMPTY {
            return None;
        }
        self.set(Entry::EMPTY);
        // SAFETY: the address is from `into_physical` in `put`. The entry owned that reference and
        // has just been emptied; the exclusive borrow of the table excludes a second taker.
        Some(unsafe { Frame::from_physical(entry.physical()) })
    }

    /// Another reference to the frame in the entry; `None` if it is empty.
    pub(super) fn share(&self) -> Option<Frame> {
        let entry = self.get();
        // SAFETY: an entry that is not empty owns a reference (see `put`), and nothing can take it
        // during this call, because this slot borrows the table exclusively.
        (entry != Entry::EMPTY).then(|| unsafe { Frame::share_of(entry.physical()) })
    }
}

fn table_at(physical: usize) -> &'static Table {
    // SAFETY: tables are whole frames, mapped in the direct map and accessed through atomics only.
    // They are freed with the `PageTable` or after the flush that follows `detach_if_empty`; no
    // reference from here is used for longer.
    unsafe { &*layout::direct(physical).cast() }
}

impl PageTable {
    /// A table that maps the kernel and no program memory.
    pub(super) fn new() -> Result<Self, OutOfMemory> {
        let root = Frame::allocate_zeroed()?;
        let half = TABLE_ENTRIES / 2;
        let kernel = table_at(kernel_space::root_physical());
        for (own, entry) in table_at(root.physical()).iter().zip(kernel).skip(half) {
            own.store(entry.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(Self { root, tables: AtomicUsize::new(0) })
    }

    /// Number of frames that are tables, the root included.
    pub(super) fn frame_count(&self) -> usize {
        1 + self.tables.load(Ordering::Relaxed)
    }

    pub(super) fn root(&self) -> &Frame {
        &self.root
    }

    /// The entry for a user address, if the tables down to it exist.
    pub(super) fn find(&mut self, address: usize) -> Option<Slot<'_>> {
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

    /// Like [`PageTable::find`], but creates missing tables.
    pub(super) fn find_or_make(&mut self, address: usize) -> Result<Slot<'_>, OutOfMemory> {
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

    /// Visits the non-empty entries in `range` (page aligned), in ascending order, until `visit`
    /// returns false. Parts without tables are skipped.
    pub(super) fn for_each_present(
        &mut self,
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

    /// The lowest-level table for `address` and the addresses that it covers. Without such a table:
    /// the next address that may have one.
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

    /// The part of `range` that its first lowest-level table covers, and the end of what that table
    /// covers. Skips at most `holes` places without a table; if there are more, the part is empty
    /// and the end is that of the last skipped place.
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

    /// Whether there is a lowest-level table for `address`; if not, the next address that may have
    /// one.
    pub(super) fn next_table(&self, address: usize) -> Result<(), usize> {
        self.lowest_table(address).map(drop)
    }

    /// Detaches the lowest-level table for `address` if all its entries are empty. The caller
    /// flushes before it drops the frame.
    pub(super) fn detach_if_empty(&mut self, address: usize) -> Option<Frame> {
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
        // SAFETY: the address is from `into_physical` in `find_or_make`. The entry owned that
        // reference and has just been emptied; `&mut self` excludes a second taker.
        Some(unsafe { Frame::from_physical(entry.physical()) })
    }

    /// Empties the lower half of the root, so that a hart that still has it loaded finds no
    /// mappings. Returns its entries, to be freed after a flush.
    pub(super) fn detach_lower(&mut self) -> LowerHalf {
        let mut entries = [Entry::EMPTY; TABLE_ENTRIES / 2];
        for (place, entry) in entries.iter_mut().zip(table_at(self.root.physical())) {
            *place = Entry::from_bits(entry.swap(Entry::EMPTY.bits(), Ordering::Relaxed));
        }
        LowerHalf { entries, next: 0 }
    }
}

/// The tables and frames of an ended process. Dropping it frees the rest of them.
pub(super) struct LowerHalf {
    entries: [Entry; TABLE_ENTRIES / 2],
    /// The frames of addresses below this one are freed.
    next: usize,
}

/// Cost of freeing a frame, measured in visited entries.
const FREE_COST: usize = 16;

impl LowerHalf {
    /// Continues to free for about the time that `frames` frames take. Returns whether there is
    /// anything left.
    pub(super) fn free_some(&mut self, frames: usize) -> bool {
        let mut work = frames.saturating_mul(FREE_COST);
        while work > 0 && self.next < layout::USER_END {
            let top = &mut self.entries[arch::table_index(self.next, TABLE_LEVELS - 1)];
            let mut next = self.next;
            // SAFETY: `detach_lower` moved the entries out of the table, so this value owns their
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
/// The entry owns its frame and, from `next` on, everything below it. No hart can reach it. If this
/// returns true, the entry is not used again.
unsafe fn free_below(entry: Entry, level: usize, next: &mut usize, work: &mut usize) -> bool {
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
                // Parts already freed are not visited again: `next` is past them.
                //
                // SAFETY: `below` is an entry of the table that `entry` owns, at or after `next`.
                // When it is freed, `next` is past it.
                if !unsafe { free_below(below, level - 1, next, work) } {
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
