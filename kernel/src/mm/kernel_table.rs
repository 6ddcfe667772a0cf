//! The tables of the kernel's half while they are built, at boot, and their root afterwards.
//!
//! A [`KernelTable`] is the only access to its tables. It changes them only through `&mut self`, so
//! that needs no care outside of this module. Entries point either to memory that the table does
//! not own (leaves) or to tables that it owns and never frees.

use super::frames::Frame;
use super::{OutOfMemory, layout};
use crate::arch::{self, Entry, Rights, TABLE_ENTRIES, TABLE_LEVELS};

type Entries = [Entry; TABLE_ENTRIES];

/// A root table and the tables below it. There is no second handle for any of these tables.
pub(super) struct KernelTable {
    root: Frame,
}

/// The entries of the table at a physical address.
///
/// # Safety
/// The frame there was all zero and has since been used as a table only. It stays allocated during
/// `'a`, and no other reference to its entries exists in that time. Harts only read it.
unsafe fn entries_at<'a>(physical: usize) -> &'a mut Entries {
    // SAFETY: a frame is mapped in the direct map, aligned to its size, which is that of the
    // entries; zeros are empty entries. The reference is the only one, by this function's contract.
    unsafe { &mut *layout::direct(physical).cast() }
}

const _: () = assert!(size_of::<Entries>() == layout::PAGE_BYTES);

impl KernelTable {
    /// A root without entries.
    pub(super) fn new() -> Result<Self, OutOfMemory> {
        Ok(Self { root: Frame::allocate_zeroed()? })
    }

    /// The physical address of the root.
    pub(super) fn physical(&self) -> usize {
        self.root.physical()
    }

    fn root_entries(&mut self) -> &mut Entries {
        // SAFETY: `new` made the table, and `self` keeps its frame. The result borrows `self`
        // mutably, and nothing else makes references to entries except `upper_half`, which borrows
        // `self` too.
        unsafe { entries_at(self.root.physical()) }
    }

    /// The table that an entry refers to, which must not be a leaf; a missing one is created if
    /// `make` is set. `None` if it is missing and not created.
    fn below(entry: &mut Entry, make: bool) -> Result<Option<&mut Entries>, OutOfMemory> {
        if !entry.is_valid() {
            if !make {
                return Ok(None);
            }
            *entry = Entry::table(Frame::allocate_zeroed()?.into_physical());
        }
        assert!(!entry.is_leaf(), "two mappings of one address");
        // SAFETY: the only entries that are valid and no leaves are those made above; each has the
        // address of a frame of its own, which is never freed. The result borrows that entry
        // mutably, so there is no second reference to its table.
        Ok(Some(unsafe { entries_at(entry.physical()) }))
    }

    /// The entry for `address` in a table of `level`; see [`KernelTable::below`] for `make`.
    fn entry(
        &mut self,
        address: usize,
        level: usize,
        make: bool,
    ) -> Result<Option<&mut Entry>, OutOfMemory> {
        let mut table = self.root_entries();
        for above in (level + 1..TABLE_LEVELS).rev() {
            match Self::below(&mut table[arch::table_index(address, above)], make)? {
                Some(next) => table = next,
                None => return Ok(None),
            }
        }
        Ok(Some(&mut table[arch::table_index(address, level)]))
    }

    /// The entry for `address` in a table of `level`; empty if there is no such table.
    ///
    /// # Panics
    /// If the address is mapped by a larger page.
    pub(super) fn get(&mut self, address: usize, level: usize) -> Entry {
        self.entry(address, level, false).ok().flatten().map_or(Entry::EMPTY, |entry| *entry)
    }

    /// Maps a page of `level`.
    ///
    /// # Panics
    /// If something is mapped there.
    pub(super) fn map(
        &mut self,
        address: usize,
        level: usize,
        physical: usize,
        rights: Rights,
    ) -> Result<(), OutOfMemory> {
        if let Some(entry) = self.entry(address, level, true)? {
            assert!(!entry.is_valid(), "two mappings of {address:#x}");
            *entry = Entry::kernel_leaf(physical, rights);
        }
        Ok(())
    }

    /// Creates the missing tables of the upper half, so that its entries never change.
    pub(super) fn complete(&mut self) -> Result<(), OutOfMemory> {
        for entry in self.root_entries().iter_mut().skip(TABLE_ENTRIES / 2) {
            if !entry.is_leaf() {
                Self::below(entry, true)?;
            }
        }
        Ok(())
    }

    /// The entries of the upper half.
    pub(super) fn upper_half(&self) -> impl Iterator<Item = Entry> {
        // SAFETY: `new` made the table, and `self` keeps its frame. The result borrows `self`, so
        // nothing changes the entries meanwhile, and others only read them.
        let entries = unsafe { &*layout::direct(self.root.physical()).cast::<Entries>() };
        entries[TABLE_ENTRIES / 2..].iter().copied()
    }
}
