//! Sv39: the format of page-table entries, and the translation caches.
//!
//! Three levels of 512 entries; leaves of 4 KiB, 2 MiB and 1 GiB. The accessed and dirty
//! bits are set from the start, because nobody evicts pages and some machines fault on a
//! clear bit.

use super::firmware::{self, FenceRange};
use super::{csr, hart};
use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering};

pub const TABLE_LEVELS: usize = 3;
pub const TABLE_ENTRIES: usize = 512;

/// What a mapping allows. Supervisor and user mappings alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rights {
    pub read: bool,
    pub write: bool,
    pub execute: bool,
}

impl Rights {
    pub const NONE: Self = Self { read: false, write: false, execute: false };
    pub const READ: Self = Self { read: true, ..Self::NONE };
    pub const READ_WRITE: Self = Self { read: true, write: true, execute: false };
    pub const READ_EXECUTE: Self = Self { read: true, write: false, execute: true };

    /// Whether `access` is within these rights.
    pub fn allow(self, access: crate::arch::Access) -> bool {
        match access {
            crate::arch::Access::Read => self.read,
            crate::arch::Access::Write => self.write,
            crate::arch::Access::Execute => self.execute,
        }
    }
}

/// A page-table entry.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Entry(u64);

const VALID: u64 = 1 << 0;
const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 2;
const EXECUTE: u64 = 1 << 3;
const USER: u64 = 1 << 4;
const GLOBAL: u64 = 1 << 5;
const ACCESSED: u64 = 1 << 6;
const DIRTY: u64 = 1 << 7;
const FRAME_SHIFT: u32 = 10;
const FRAME_BITS: u64 = (1 << 44) - 1;

impl Entry {
    pub const EMPTY: Self = Self(0);

    /// An entry that leads to the next table.
    pub const fn table(physical: usize) -> Self {
        Self((physical as u64 >> 12) << FRAME_SHIFT | VALID)
    }

    /// A page of the kernel's, the same in every address space.
    pub const fn kernel_leaf(physical: usize, rights: Rights) -> Self {
        Self::leaf(physical, rights, GLOBAL)
    }

    /// A page of a program's.
    pub const fn user_leaf(physical: usize, rights: Rights) -> Self {
        Self::leaf(physical, rights, USER)
    }

    const fn leaf(physical: usize, rights: Rights, bits: u64) -> Self {
        let mut entry = (physical as u64 >> 12) << FRAME_SHIFT | bits | ACCESSED | DIRTY;
        // Without any right the entry is not valid, but still remembers its frame.
        if rights.read || rights.write || rights.execute {
            entry |= VALID;
        }
        // The format has no write without read.
        if rights.read || rights.write {
            entry |= READ;
        }
        if rights.write {
            entry |= WRITE;
        }
        if rights.execute {
            entry |= EXECUTE;
        }
        Self(entry)
    }

    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub const fn bits(self) -> u64 {
        self.0
    }

    pub const fn is_valid(self) -> bool {
        self.0 & VALID != 0
    }

    /// Valid and leads to memory, not to a table.
    pub const fn is_leaf(self) -> bool {
        self.is_valid() && self.0 & (READ | WRITE | EXECUTE) != 0
    }

    pub const fn physical(self) -> usize {
        ((self.0 >> FRAME_SHIFT & FRAME_BITS) << 12) as usize
    }

    /// The rights the hardware grants.
    pub const fn rights(self) -> Rights {
        Rights { read: self.0 & READ != 0, write: self.0 & WRITE != 0, execute: self.0 & EXECUTE != 0 }
    }
}

/// The index of `address` in a table of `level` (2 is the root).
pub const fn table_index(address: usize, level: usize) -> usize {
    address >> (12 + 9 * level) & (TABLE_ENTRIES - 1)
}

/// The bytes one entry of `level` spans.
pub const fn page_size_of_level(level: usize) -> usize {
    1 << (12 + 9 * level)
}

/// The tag of an address space in the translation caches. 0 is shared by the kernel's own
/// and those for which no tag was left; such a space is flushed whenever it is activated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asid(pub u16);

const MODE_SV39: usize = 8 << 60;
const ASID_SHIFT: usize = 44;

/// The value of `satp` for a root table.
pub(super) const fn root_register(root_physical: usize, asid: Asid) -> usize {
    MODE_SV39 | (asid.0 as usize) << ASID_SHIFT | root_physical >> 12
}

/// How many different ASIDs the hart tells apart, 1 if it has none. Call with the kernel's
/// own root active and interrupts off.
pub fn asid_count() -> usize {
    let before = csr::read!("satp");
    // SAFETY: keeps the root and changes the tag only; kernel entries are global, so no
    // translation in use depends on the tag. Undone and flushed below.
    unsafe { csr::write!("satp", before | 0xffff << ASID_SHIFT) };
    let ones = csr::read!("satp") >> ASID_SHIFT & 0xffff;
    // SAFETY: as it was.
    unsafe { csr::write!("satp", before) };
    flush_all_local();
    ones + 1
}

/// Makes `root_physical` this hart's page table. Between announcing that and doing it asks
/// whether the hart's cache is current for this tag, and flushes it if not.
///
/// # Safety
/// The table maps the kernel like every other root, and stays allocated until this hart has
/// activated another.
pub unsafe fn activate_root(root_physical: usize, asid: Asid, is_current: impl FnOnce() -> bool) {
    let value = root_register(root_physical, asid);
    hart::current().active_root.store(value, Ordering::SeqCst);
    let is_current = is_current();
    // SAFETY: by the contract the kernel's own mappings do not change.
    unsafe { csr::write!("satp", value) };
    // Tag 0 is shared by several spaces, so what the cache has under it is never current.
    if !is_current || asid.0 == 0 {
        flush_all_local();
    }
}

/// Forgets what this hart's cache says about one address, in all address spaces.
pub fn flush_local(address: usize) {
    // SAFETY: forgetting a translation is always allowed.
    unsafe { asm!("sfence.vma {}, zero", in(reg) address, options(nostack)) };
}

/// Forgets everything this hart's cache says, also about the kernel's own pages.
fn flush_all_local() {
    // SAFETY: as above.
    unsafe { asm!("sfence.vma zero, zero", options(nostack)) };
}

/// Whether this hart has this root loaded.
#[inline]
pub fn is_active_root(root_physical: usize, asid: Asid) -> bool {
    hart::current().active_root.load(Ordering::Relaxed) == root_register(root_physical, asid)
}

/// The harts that have this root loaded, as a mask of their indexes.
fn harts_with_root(root_physical: usize, asid: Asid) -> u64 {
    let value = root_register(root_physical, asid);
    let records = hart::RECORDS.iter().take(hart::hart_count()).enumerate();
    records
        .filter(|(_, record)| record.active_root.load(Ordering::SeqCst) == value)
        .fold(0, |mask, (index, _)| mask | 1 << index)
}

/// Interrupts the other harts that have this root loaded.
pub fn interrupt_harts_with_root(root_physical: usize, asid: Asid) {
    let mask = harts_with_root(root_physical, asid) & !(1 << hart::hart_index());
    (0..hart::hart_count()).filter(|hart| mask & 1 << hart != 0).for_each(super::send_interrupt_to);
}

/// Makes the harts that have this root loaded forget `range`. On return none of them uses
/// the old translations.
pub fn flush_root(root_physical: usize, asid: Asid, range: core::ops::Range<usize>) {
    let harts = harts_with_root(root_physical, asid);
    let own = 1 << hart::hart_index();
    if harts & own != 0 {
        // One page is named, more are not worth a loop.
        if range.len() == page_size_of_level(0) {
            flush_local(range.start);
        } else {
            flush_all_local();
        }
    }
    if harts & !own != 0 {
        let range = FenceRange { start: range.start, length: range.len(), asid: asid.0 };
        firmware::remote_flush(harts & !own, range);
    }
}

/// Counts the times that code was written. A hart that has not seen the newest count
/// flushes its instruction stream before it enters user mode.
static INSTRUCTION_EPOCH: AtomicUsize = AtomicUsize::new(0);

/// To be called after writing bytes that user mode will execute.
pub fn sync_instruction_stream() {
    // Release: pairs with the acquire in `meet_instruction_epoch`, so that who sees the new
    // count also sees the code.
    INSTRUCTION_EPOCH.fetch_add(1, Ordering::Release);
}

/// As [`sync_instruction_stream`], for code that harts in user mode may be about to run.
pub fn sync_instruction_stream_everywhere() {
    sync_instruction_stream();
    firmware::remote_instruction_fence((1 << hart::hart_count()) - 1);
}

/// Called before user mode is entered.
#[inline]
pub(super) fn meet_instruction_epoch() {
    let epoch = INSTRUCTION_EPOCH.load(Ordering::Acquire);
    let seen = &hart::current().instruction_epoch;
    if seen.load(Ordering::Relaxed) != epoch {
        // SAFETY: only makes later fetches see earlier stores.
        unsafe { asm!("fence.i", options(nostack)) };
        seen.store(epoch, Ordering::Relaxed);
    }
}
