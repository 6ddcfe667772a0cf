//! The tables of a process's page table, and what their entries own.
//!
//! Harts read tables at any time, so all accesses are atomic. The kernel changes a table only
//! through a [`Table`] or a [`Slot`], which borrow the whole tree exclusively. The following holds
//! for the lower half of every root and for the tables below it; the `SAFETY` comments of this
//! module refer to it by number. No other module can break it, because the fields here are private
//! and no function stores an entry that it is given.
//!
//! 1. A table is a frame of its own, all zero when it is made, and mapped in the direct map. Only
//!    this module and [`LowerHalf`](super::lower_half) have its address.
//! 2. A valid entry above the lowest level is stored only by [`Table::below_or_make`]. It owns a
//!    reference to the frame of a table of the next level.
//! 3. An entry of the lowest level that is not empty is stored only by [`Slot::put`],
//!    [`Slot::replace`] or [`Slot::set_rights`]. It owns a reference to its frame, even if it
//!    grants no rights and the hardware ignores it. It grants the right to write only if its frame
//!    is own, not common (`cops_algorithms::references`).
//!    [`RootTable::exchange_lower`] moves the tables of a root to another one, with all they own.
//! 4. An entry is emptied only during an exclusive borrow of its tree, by a function that passes
//!    the reference on to its caller.
//!
//! The upper half of a root is a copy of the kernel's. [`Table`] does not reach it.

use super::frames::Frame;
use super::{OutOfMemory, Rights, kernel_space, layout};
use crate::arch::{self, Entry, TABLE_ENTRIES, TABLE_LEVELS};
use core::mem::ManuallyDrop;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

/// Number of entries of a root that belong to the program.
pub(super) const LOWER_ENTRIES: usize = TABLE_ENTRIES / 2;

/// The root of a page table, with its only right to change the tree. Dropping it does not free what
/// its entries own; see [`RootTable::detach_lower`].
pub(super) struct RootTable(Frame);

/// A reference to the frame of a root. It keeps the frame allocated and gives no access to the
/// entries.
pub(super) struct RootFrame(Frame);

impl RootFrame {
    pub(super) fn physical(&self) -> usize {
        self.0.physical()
    }
}

impl RootTable {
    /// A root that maps the kernel and no program memory.
    pub(super) fn new() -> Result<Self, OutOfMemory> {
        let mut root = Self(Frame::allocate_zeroed()?);
        let upper = &root.table().entries[LOWER_ENTRIES..];
        for (own, entry) in upper.iter().zip(kernel_space::upper_half()) {
            own.store(entry.bits(), Ordering::Relaxed);
        }
        Ok(root)
    }

    /// Another reference to the frame.
    pub(super) fn frame(&self) -> RootFrame {
        RootFrame(self.0.clone())
    }

    /// The root as a table.
    pub(super) fn table(&mut self) -> Table<'_> {
        // SAFETY: the frame is a table (1), allocated as long as `self` exists. The mutable borrow
        // of `self`, which is not `Clone`, makes the borrow of the tree exclusive.
        unsafe { Table::at(self.0.physical(), TABLE_LEVELS - 1) }
    }

    /// Exchanges the entries of the lower halves of two roots. The caller flushes.
    pub(super) fn exchange_lower(&mut self, other: &mut Self) {
        let (mine, theirs) = (self.table().entries, other.table().entries);
        for (one, other) in mine.iter().zip(theirs).take(LOWER_ENTRIES) {
            // Release: a hart that reads an entry also sees the table below it.
            let entry = other.swap(one.load(Ordering::Relaxed), Ordering::Release);
            one.store(entry, Ordering::Release);
        }
    }

    /// Moves the entries of the lower half out of the root, so that a hart that still has it loaded
    /// finds no mappings.
    pub(super) fn detach_lower(&mut self) -> [Entry; LOWER_ENTRIES] {
        let mut entries = [Entry::EMPTY; LOWER_ENTRIES];
        for (place, entry) in entries.iter_mut().zip(self.table().entries) {
            *place = Entry::from_bits(entry.load(Ordering::Relaxed));
            if *place != Entry::EMPTY {
                entry.store(Entry::EMPTY.bits(), Ordering::Relaxed);
            }
        }
        entries
    }
}

/// A table. It borrows its tree exclusively for `'a`.
pub(super) struct Table<'a> {
    entries: &'a [AtomicU64; TABLE_ENTRIES],
    level: usize,
}

impl<'a> Table<'a> {
    /// The table of `level` at a physical address.
    ///
    /// # Safety
    /// The frame there is a table of that level (1), and stays allocated during `'a`. Nothing else
    /// uses the tables of its tree during `'a`, apart from harts that read them.
    #[inline(always)]
    pub(super) unsafe fn at(physical: usize, level: usize) -> Self {
        // SAFETY: a table is a whole frame in the direct map (1), which is aligned to its size and
        // allocated during `'a` by this function's contract. `AtomicU64` permits the accesses of
        // harts.
        Self { entries: unsafe { &*layout::direct(physical).cast() }, level }
    }

    /// The place of the entry for `address`. At the root: that of an address of the lower half.
    #[inline(always)]
    fn place(&self, address: usize) -> &'a AtomicU64 {
        let index = arch::table_index(address, self.level);
        &self.entries[if self.level == TABLE_LEVELS - 1 { index % LOWER_ENTRIES } else { index }]
    }

    /// The entry for `address`.
    #[inline(always)]
    pub(super) fn get(&self, address: usize) -> Entry {
        Entry::from_bits(self.place(address).load(Ordering::Relaxed))
    }

    /// The first address in `range`, which this table covers, of which the entry is not empty, and
    /// how many empty ones are before that. It is the start of `range` if that has such an entry,
    /// also in the middle of what the entry refers to. Not at the root.
    pub(super) fn first_used_in(&self, range: Range<usize>) -> (Option<usize>, usize) {
        if range.is_empty() {
            return (None, 0);
        }
        let (span, first) = (arch::page_size_of_level(self.level), range.start);
        let entries = &self.entries[arch::table_index(first, self.level)..];
        match first_used(entries) {
            Some(0) => (Some(first), 0),
            Some(passed) => {
                let address = (first & !(span - 1)) + passed * span;
                (Some(address).filter(|&address| address < range.end), passed)
            }
            None => (None, entries.len()),
        }
    }

    /// The table that an entry of this table refers to.
    ///
    /// # Safety
    /// `entry` is a valid entry of this table.
    #[inline(always)]
    unsafe fn below_entry(self, entry: Entry) -> Self {
        assert!(self.level > 0, "the entries of the lowest level refer to pages");
        // SAFETY: above the lowest level, a valid entry owns a table of the next level (2). It is
        // freed only by an exclusive borrower of the tree (4), which during `'a` is `self`; the new
        // table replaces it.
        unsafe { Self::at(entry.physical(), self.level - 1) }
    }

    /// The table of the next level for `address`, if there is one. This table is not of the lowest
    /// level.
    #[inline(always)]
    pub(super) fn below(self, address: usize) -> Option<Self> {
        let entry = self.get(address);
        // SAFETY: `entry` is an entry of this table and is valid.
        entry.is_valid().then(|| unsafe { self.below_entry(entry) })
    }

    /// Like [`Table::below`], but creates a missing table. Also returns whether it has done so.
    #[inline(always)]
    pub(super) fn below_or_make(self, address: usize) -> Result<(Self, bool), OutOfMemory> {
        assert!(self.level > 0, "the entries of the lowest level refer to pages");
        let mut entry = self.get(address);
        let is_missing = !entry.is_valid();
        if is_missing {
            entry = Entry::table(Frame::allocate_zeroed()?.into_physical());
            // Release: a hart that reads the entry also sees that the new table is all zero.
            self.place(address).store(entry.bits(), Ordering::Release);
        }
        // SAFETY: `entry` is an entry of this table. It was valid, or has just become so.
        Ok((unsafe { self.below_entry(entry) }, is_missing))
    }

    /// The entry for `address` in a table of the lowest level.
    #[inline(always)]
    pub(super) fn slot(&mut self, address: usize) -> Slot<'_> {
        assert!(self.level == 0, "only the lowest level has slots");
        Slot(self.place(address))
    }

    /// The entry for `address` in a table of the lowest level, for as long as the tree is borrowed.
    #[inline(always)]
    pub(super) fn into_slot(self, address: usize) -> Slot<'a> {
        assert!(self.level == 0, "only the lowest level has slots");
        Slot(self.place(address))
    }

    /// Detaches the table of the next level for `address` if all its entries are empty. This table
    /// is not of the lowest level.
    pub(super) fn detach_empty_below(&mut self, address: usize) -> Option<Frame> {
        let entry = self.get(address);
        let below = Table { entries: self.entries, level: self.level }.below(address)?;
        if below.entries.iter().any(|entry| entry.load(Ordering::Relaxed) != Entry::EMPTY.bits()) {
            return None;
        }
        self.place(address).store(Entry::EMPTY.bits(), Ordering::Relaxed);
        // SAFETY: the address is from `into_physical` in `below_or_make`. The entry owned that
        // reference (2) and has just been emptied, and no other borrower can take it (4).
        Some(unsafe { Frame::from_physical(entry.physical()) })
    }
}

/// The place of the first entry that is not empty: most often the first one, since pages are in
/// groups. After that, eight are examined at a time.
fn first_used(entries: &[AtomicU64]) -> Option<usize> {
    const _: () = assert!(Entry::EMPTY.bits() == 0);
    let bits = |entry: &AtomicU64| entry.load(Ordering::Relaxed);
    if entries.first().is_some_and(|entry| bits(entry) != 0) {
        return Some(0);
    }
    let (eights, _) = entries.as_chunks::<8>();
    let is_used = |eight: &[_; 8]| eight.iter().fold(0, |all, entry| all | bits(entry)) != 0;
    let passed = eights.iter().position(is_used).unwrap_or(eights.len()) * 8;
    entries[passed..].iter().position(|entry| bits(entry) != 0).map(|place| passed + place)
}

/// One entry of the lowest level. It borrows its tree exclusively, so nothing else changes the
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

    /// Puts `frame` into the entry, which is empty. The entry gets `rights`, but not to write to a
    /// common frame.
    #[inline]
    pub(super) fn put(&mut self, frame: Frame, rights: Rights) {
        debug_assert!(self.get() == Entry::EMPTY);
        self.set(Entry::user_leaf(frame.into_physical(), rights));
    }

    /// Changes the rights of the entry unless it is empty. A common frame does not become writable.
    pub(super) fn set_rights(&mut self, rights: Rights) {
        let entry = self.get();
        if entry != Entry::EMPTY {
            let is_common = rights.write && Frame::references_at(entry.physical()).is_common();
            let rights = if is_common { rights.without_write() } else { rights };
            self.set(Entry::user_leaf(entry.physical(), rights));
        }
    }

    /// Another reference to the frame, for the table of another address space; the frame is common
    /// then, and neither entry permits writing. `None`, and nothing has changed, if a call in
    /// flight may write to the frame. The entry is not empty. The caller flushes.
    pub(super) fn share_with_another_space(&mut self, rights: Rights) -> Option<Frame> {
        let physical = self.physical();
        if !Frame::references_at(physical).share() {
            return None;
        }
        self.set(Entry::user_leaf(physical, rights.without_write()));
        // SAFETY: `share` has added a reference, which the result now stands for.
        Some(unsafe { Frame::from_physical(physical) })
    }

    /// Whether a call in flight may write to the frame of the entry, which is not empty.
    pub(super) fn is_in_use(&self) -> bool {
        !Frame::references_at(self.physical()).can_be_shared()
    }

    /// Whether the frame of the entry, which is not empty, is common.
    pub(super) fn is_common(&self) -> bool {
        Frame::references_at(self.physical()).is_common()
    }

    /// A copy of the frame in the entry, which is not empty.
    pub(super) fn try_copy(&self) -> Result<Frame, OutOfMemory> {
        // SAFETY: the entry owns a reference (3), which nothing takes during this call, because
        // this slot borrows the tree exclusively (4). This value is never dropped.
        let frame = ManuallyDrop::new(unsafe { Frame::from_physical(self.physical()) });
        frame.try_copy()
    }

    /// Makes the frame of the entry own and gives it these rights, if the entry has the only
    /// reference. Returns whether it did.
    pub(super) fn claim(&mut self, rights: Rights) -> bool {
        let is_own = Frame::references_at(self.physical()).claim();
        if is_own {
            self.set_rights(rights);
        }
        is_own
    }

    /// Puts an own `frame` in the place of the one in the entry, which is not empty, and returns
    /// that. The caller flushes before it drops it.
    pub(super) fn replace(&mut self, frame: Frame, rights: Rights) -> Frame {
        let before = self.physical();
        self.set(Entry::user_leaf(frame.into_physical(), rights));
        // SAFETY: the entry owned that reference (3) and has just been overwritten, and no other
        // borrower can take it (4).
        unsafe { Frame::from_physical(before) }
    }

    /// Empties the entry and returns the frame that was in it. The caller flushes before it drops
    /// the frame.
    pub(super) fn take(&mut self) -> Option<Frame> {
        let entry = self.get();
        if entry == Entry::EMPTY {
            return None;
        }
        self.set(Entry::EMPTY);
        // SAFETY: the address is from `into_physical` in `put`. The entry owned that reference (3)
        // and has just been emptied, and no other borrower can take it (4).
        Some(unsafe { Frame::from_physical(entry.physical()) })
    }

    /// Another reference to the frame in the entry; `None` if it is empty.
    pub(super) fn share(&self) -> Option<Frame> {
        let entry = self.get();
        // SAFETY: an entry that is not empty owns a reference (3), which nothing can take during
        // this call, because this slot borrows the tree exclusively (4).
        (entry != Entry::EMPTY).then(|| unsafe { Frame::share_of(entry.physical()) })
    }
}
