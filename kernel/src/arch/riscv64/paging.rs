//! Sv39: the format of page-table entries, and the translation caches.
//!
//! There are three levels of 512 entries, and leaves of 4 KiB, 2 MiB and 1 GiB. The accessed and
//! dirty bits are always set, because the kernel does not evict pages and some machines fault on a
//! clear bit.

use super::firmware::{self, FenceRange};
use super::{csr, hart};
use crate::counters::COUNTERS;
use core::arch::asm;
use core::sync::atomic::{AtomicUsize, Ordering, fence};

pub const TABLE_LEVELS: usize = 3;
pub const TABLE_ENTRIES: usize = 512;

/// The accesses that a mapping permits, for supervisor and user mappings alike.
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

    /// These rights without that to write. What the program can read because it can write stays
    /// readable, as the format has it.
    pub const fn without_write(self) -> Self {
        Self { read: self.read || self.write, write: false, execute: self.execute }
    }

    /// Whether these rights permit `access`.
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

    /// An entry that points to the next table.
    pub const fn table(physical: usize) -> Self {
        Self((physical as u64 >> 12) << FRAME_SHIFT | VALID)
    }

    /// A page of the kernel, mapped in every address space.
    pub const fn kernel_leaf(physical: usize, rights: Rights) -> Self {
        Self::leaf(physical, rights, GLOBAL)
    }

    /// A page of a program.
    pub const fn user_leaf(physical: usize, rights: Rights) -> Self {
        Self::leaf(physical, rights, USER)
    }

    const fn leaf(physical: usize, rights: Rights, bits: u64) -> Self {
        let mut entry = (physical as u64 >> 12) << FRAME_SHIFT | bits | ACCESSED | DIRTY;
        // An entry without any right is not valid but still records its frame.
        if rights.read || rights.write || rights.execute {
            entry |= VALID;
        }
        // The format has no write right without the read right.
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

    /// Whether the entry is valid and points to memory, not to a table.
    pub const fn is_leaf(self) -> bool {
        self.is_valid() && self.0 & (READ | WRITE | EXECUTE) != 0
    }

    pub const fn physical(self) -> usize {
        ((self.0 >> FRAME_SHIFT & FRAME_BITS) << 12) as usize
    }

    /// The rights that the hardware grants.
    pub const fn rights(self) -> Rights {
        Rights {
            read: self.0 & READ != 0,
            write: self.0 & WRITE != 0,
            execute: self.0 & EXECUTE != 0,
        }
    }
}

/// The index of `address` in a table of `level` (2 is the root).
pub const fn table_index(address: usize, level: usize) -> usize {
    address >> (12 + 9 * level) & (TABLE_ENTRIES - 1)
}

/// Size in bytes of what one entry of `level` maps.
pub const fn page_size_of_level(level: usize) -> usize {
    1 << (12 + 9 * level)
}

/// The tag of an address space in the translation caches. Tag 0 is shared by the kernel's own
/// address space and those for which no tag was left; a space with tag 0 is flushed whenever it is
/// activated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asid(pub u16);

const MODE_SV39: usize = 8 << 60;
const ASID_SHIFT: usize = 44;

/// What a hart loads to use a root table: the value of `satp`. Composed once for each table,
/// because each entry into user mode compares it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootRegister(usize);

impl RootRegister {
    /// For the table at this physical address, with this tag.
    pub const fn new(root_physical: usize, asid: Asid) -> Self {
        Self(MODE_SV39 | (asid.0 as usize) << ASID_SHIFT | root_physical >> 12)
    }

    pub(super) const fn value(self) -> usize {
        self.0
    }

    /// The same, for [`LoadedRoot`](cops_algorithms::loaded_root::LoadedRoot).
    pub(super) const fn number(self) -> u64 {
        self.0 as u64
    }

    /// The tag in the translation caches.
    pub const fn asid(self) -> Asid {
        Asid((self.0 >> ASID_SHIFT) as u16)
    }
}

/// The number of ASIDs that the hart distinguishes; 1 if it has none. Must be called with the
/// kernel's own root active and interrupts disabled.
pub fn asid_count() -> usize {
    let before = csr::read!("satp");
    // SAFETY: this changes only the tag, not the root. The kernel's entries are global, so no
    // translation in use depends on the tag. The change is undone and flushed below.
    unsafe { csr::write!("satp", before | 0xffff << ASID_SHIFT) };
    let ones = csr::read!("satp") >> ASID_SHIFT & 0xffff;
    // SAFETY: restores the value of `satp` that was read above.
    unsafe { csr::write!("satp", before) };
    flush_all_local();
    ones + 1
}

/// Makes `root` this hart's page table. After it has published the root as current, it
/// calls `is_current` to learn whether the hart's cache is up to date for this tag, and flushes the
/// cache if not.
///
/// # Safety
/// The table maps the kernel like every other root, and stays allocated until this hart has
/// activated another.
pub unsafe fn activate_root(root: RootRegister, is_current: impl FnOnce() -> bool) {
    let value = root.value();
    let record = hart::current();
    // Before `meet_instruction_epoch`: either that sees the new code, or its author sees this root.
    record.root.load(root.number());
    let is_current = is_current();
    // SAFETY: by this function's contract, the new table maps the kernel exactly as the old one.
    unsafe { csr::write!("satp", value) };
    // Several spaces share tag 0, so the cached entries with this tag may be those of another
    // space.
    if !is_current || root.asid() == Asid(0) {
        flush_all_local();
    }
}

/// Flushes one address from this hart's translation cache, for all address spaces.
pub fn flush_local(address: usize) {
    // SAFETY: flushing translations is always allowed, because the page table remains the truth.
    unsafe { asm!("sfence.vma {}, zero", in(reg) address, options(nostack)) };
}

/// Flushes this hart's translation cache completely, including the kernel's own pages.
fn flush_all_local() {
    // SAFETY: flushing translations is always allowed, because the page table remains the truth.
    unsafe { asm!("sfence.vma zero, zero", options(nostack)) };
}

/// Whether this root is loaded on this hart, and no other hart has changed the address space while
/// this one ran no program.
#[inline]
pub fn is_current_root(root: RootRegister) -> bool {
    hart::current().root.is_current(root.number())
}

/// This hart begins to run a virtual CPU: from now on [`flush_root`] waits for it.
pub fn begin_program() {
    hart::current().root.begin_program();
}

/// This hart has stopped running a virtual CPU. The kernel uses no address of a program, so the
/// hart flushes when it loads the root the next time.
pub fn end_program() {
    hart::current().root.end_program();
}

/// The harts on which this root is loaded, as a mask of their indexes.
fn harts_with_root(root: RootRegister) -> u64 {
    harts_where(|record| record.root.has(root.number()))
}

/// The harts with records that satisfy a condition, as a mask of their indexes.
fn harts_where(condition: impl Fn(&hart::HartRecord) -> bool) -> u64 {
    let records = hart::RECORDS.iter().take(hart::hart_count()).enumerate();
    let chosen = records.filter(|(_, record)| condition(record));
    chosen.fold(0, |mask, (index, _)| mask | 1 << index)
}

/// Interrupts the other harts on which this root is loaded.
pub fn interrupt_harts_with_root(root: RootRegister) {
    let mask = harts_with_root(root) & !(1 << hart::hart_index());
    (0..hart::hart_count()).filter(|hart| mask & 1 << hart != 0).for_each(super::send_interrupt_to);
}

/// Flushes `range` on all harts on which this root is loaded. On return none of them uses the old
/// translations in user mode.
///
/// The firmware interrupts the other harts and waits for each of them, which takes long if the host
/// of an emulated machine does not run that hart now. So harts that run no program are not
/// interrupted: they are made to load the root anew.
pub fn flush_root(root: RootRegister, range: core::ops::Range<usize>) {
    let own = 1 << hart::hart_index();
    let harts = harts_where(|record| match core::ptr::eq(record, hart::current()) {
        true => record.root.has(root.number()),
        false => record.root.must_be_interrupted(root.number()),
    });
    if harts & own != 0 {
        // A single page is flushed by its address; for more pages a loop is not worthwhile.
        if range.len() == page_size_of_level(0) {
            flush_local(range.start);
        } else {
            flush_all_local();
        }
    }
    if harts & !own != 0 {
        let range = FenceRange { start: range.start, length: range.len(), asid: root.asid().0 };
        COUNTERS.remote_flushes.add(1);
        firmware::remote_flush(harts & !own, range);
    }
}

/// Whether a flush of this root would have to wait for another hart now.
pub fn other_harts_run(root: RootRegister) -> bool {
    let running = harts_where(|record| record.root.runs(root.number()));
    running & !(1 << hart::hart_index()) != 0
}

/// Incremented each time code was written. A hart that has not seen the newest value executes
/// `fence.i` before it enters user mode.
static INSTRUCTION_EPOCH: AtomicUsize = AtomicUsize::new(0);

/// Must be called after writing bytes that user mode will execute.
pub fn sync_instruction_stream() {
    // Release: pairs with the acquire in `meet_instruction_epoch`. A hart that sees the new epoch
    // also sees the code.
    INSTRUCTION_EPOCH.fetch_add(1, Ordering::Release);
}

/// Like [`sync_instruction_stream`], for code in a space of which harts may be in user mode: those
/// are interrupted, and on return they see it.
pub fn sync_instruction_stream_of(root: RootRegister) {
    sync_instruction_stream();
    fence(Ordering::SeqCst);
    let running = harts_where(|record| record.root.runs(root.number()));
    let others = running & !(1 << hart::hart_index());
    if others != 0 {
        firmware::remote_instruction_fence(others);
    }
}

/// Called before entering user mode: synchronises the instruction stream if code was written.
#[inline]
pub(super) fn meet_instruction_epoch() {
    let seen = &hart::current().instruction_epoch;
    // Relaxed: a hart that is to execute what another one has written has the program, or an
    // interrupt, from that hart, and so sees its epoch.
    if seen.load(Ordering::Relaxed) != INSTRUCTION_EPOCH.load(Ordering::Relaxed) {
        let epoch = INSTRUCTION_EPOCH.load(Ordering::Acquire);
        // SAFETY: `fence.i` only makes later fetches see earlier stores.
        unsafe { asm!("fence.i", options(nostack)) };
        seen.store(epoch, Ordering::Relaxed);
    }
}
