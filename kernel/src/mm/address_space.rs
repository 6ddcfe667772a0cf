//! A process's address space: its regions, its page table, and the harts that use it.
//!
//! One lock guards regions and table. Page faults, mappings and the kernel's copies hold it for one
//! page or one operation on a list. Frames removed from the table are freed only after every hart
//! has flushed the translation. No mapping is both writable and executable.
//!
//! A space may be dropped while harts have it loaded (see `root`): they then see an empty lower
//! half.

use super::frames::Frame;
use super::page_table::PageTable;
use super::quota::{Amounts, Charge, Family, Kind};
use super::region::{Backing, Region, Regions};
use super::remains::{Place, Remains};
use super::root::Root;
use super::table::Slot;
use super::{FaultError, MapError, OutOfMemory, Rights, layout};
use crate::arch::{self, Access, Entry};
use alloc::sync::Arc;
use cops_abi::layout::{STACK_STRIDE, STACK_TOP};
use cops_abi::page::MAX_CPUS;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use spin::Mutex;

/// The memory of one process. Dropping it frees everything.
pub struct AddressSpace {
    /// Harts (bit = index) with no stale translations of this space in their caches. The other
    /// harts flush when they load it.
    current_harts: AtomicU64,
    pub(super) inner: Mutex<Inner>,
    root: Arc<Root>,
    /// Where it keeps what is left of it when it is dropped; `None` once that has been taken.
    place: Option<Place>,
}

pub(super) struct Inner {
    pub(super) table: PageTable,
    pub(super) regions: Regions,
    /// Present pages, those shared with the kernel included.
    pub(super) pages: usize,
    /// Pages that are charged and not yet accessed: the first access cannot fail because of the
    /// quota.
    pub(super) promised: usize,
    /// The charge for present and promised pages, tables, and the records of regions.
    memory: Charge,
}

/// Bytes at the top of every stack that are charged when the stack is mapped.
const STACK_PROMISED_BYTES: usize = 64 * 1024;

/// Areas where pages are charged when they are mapped: the program, the mmap area, the tops of the
/// stacks. Deeper pages of a stack are charged on first access.
fn promised_areas() -> impl Iterator<Item = Range<usize>> {
    let stacks = (0..MAX_CPUS).map(|index| {
        let top = STACK_TOP - index * STACK_STRIDE;
        top - STACK_PROMISED_BYTES..top
    });
    core::iter::once(layout::USER_START..layout::MAP_END).chain(stacks)
}

pub(super) fn is_promised(address: usize) -> bool {
    promised_areas().any(|area| area.contains(&address))
}

/// Pages of `range` that are charged when they are mapped.
pub(super) fn promised_pages(range: &Range<usize>) -> usize {
    let within =
        |area: Range<usize>| area.end.min(range.end).saturating_sub(area.start.max(range.start));
    promised_areas().map(within).sum::<usize>() / layout::PAGE_BYTES
}

/// The maximum memory for a region's record.
const REGION_BYTES: usize = 64;

fn memory(bytes: usize) -> Amounts {
    Amounts::of(Kind::Memory, bytes as u64)
}

impl Inner {
    /// Charges a page before it is allocated.
    fn charge_page(&mut self) -> Result<(), OutOfMemory> {
        self.memory.grow(&memory(layout::PAGE_BYTES)).map_err(|_| OutOfMemory)
    }

    /// Checks that a few more regions can be charged.
    pub(super) fn admit_regions(&mut self) -> Result<(), OutOfMemory> {
        let few = memory(4 * REGION_BYTES);
        self.memory.grow(&few).map_err(|_| OutOfMemory)?;
        self.memory.shrink(&few);
        Ok(())
    }

    /// Adjusts the charge to what is held now. Tables and records that have already been created
    /// are charged even beyond the limit: there are at most two tables for each permitted page.
    pub(super) fn adjust_charge(&mut self) {
        let frames = self.pages + self.promised + self.table.frame_count();
        let held = (frames * layout::PAGE_BYTES + self.regions.len() * REGION_BYTES) as u64;
        let charged = self.memory.amounts().get(Kind::Memory);
        if held > charged {
            self.memory.grow_forced(&Amounts::of(Kind::Memory, held - charged));
        } else if held < charged {
            self.memory.shrink(&Amounts::of(Kind::Memory, charged - held));
        }
    }
}

impl AddressSpace {
    /// A space without mappings, charged to `family`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(family: Family) -> Result<Self, OutOfMemory> {
        let memory = Charge::new(family, &memory(layout::PAGE_BYTES)).map_err(|_| OutOfMemory)?;
        let table = PageTable::new()?;
        Ok(Self {
            root: Root::new(table.root_frame())?,
            current_harts: AtomicU64::new(0),
            place: Some(Place::try_new()?),
            inner: Mutex::new(Inner {
                table,
                regions: Regions::new(),
                pages: 0,
                promised: 0,
                memory,
            }),
        })
    }

    /// Present pages, those shared with the kernel included.
    pub fn page_count(&self) -> usize {
        self.inner.lock().pages
    }

    /// Loads this space on this hart unless it is loaded already. Interrupts are off, and stay off
    /// until user mode is entered.
    pub(crate) fn activate(&self) {
        // This hart first shows in the root that it loads the space, then checks whether its cache
        // is up to date. A hart that changes an entry first marks all caches as stale, then checks
        // which harts have the root loaded (`flush`). So at least one of the two sees the other.
        let hart = 1 << arch::hart_index();
        self.root.load(|| self.current_harts.fetch_or(hart, Ordering::SeqCst) & hart != 0);
    }

    /// Maps zeroed memory, allocated page by page on first access.
    ///
    /// # Errors
    /// See [`MapError`]; nothing has changed then.
    pub fn map_anonymous(&self, range: Range<usize>, rights: Rights) -> Result<(), MapError> {
        self.insert_promised(&mut self.inner.lock(), range, rights)
    }

    /// Like [`AddressSpace::map_anonymous`], at any address with room for `length` bytes, which is
    /// rounded up to pages. Returns the address.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn map_anonymous_anywhere(&self, length: usize, rights: Rights) -> Result<usize, MapError> {
        let length =
            layout::page_up(length).filter(|&length| length > 0).ok_or(MapError::BadRange)?;
        let mut inner = self.inner.lock();
        let start = inner.regions.find_free(length).ok_or(MapError::OutOfMemory)?;
        self.insert_promised(&mut inner, start..start + length, rights)?;
        Ok(start)
    }

    /// Maps one frame of the kernel at `address`. The program cannot unmap it or change its rights.
    ///
    /// # Errors
    /// See [`MapError`]; nothing has changed then.
    pub fn map_frame(&self, address: usize, frame: Frame, rights: Rights) -> Result<(), MapError> {
        let range = address..address.checked_add(layout::PAGE_BYTES).ok_or(MapError::BadRange)?;
        check_range(&range)?;
        let inner = &mut *self.inner.lock();
        // The tables first, so that nothing can fail once the region exists.
        inner.table.find_or_make(address)?;
        self.insert(inner, range, rights, Backing::Kernel)?;
        self.put(inner, address, frame, rights)
    }

    /// Maps whole pages of the kernel's image, such as the vDSO.
    ///
    /// # Errors
    /// See [`MapError`]. Some pages may already be mapped when memory runs out.
    ///
    /// # Panics
    /// If `image` does not start at a page boundary.
    pub fn map_image(
        &self,
        address: usize,
        image: &'static [u8],
        rights: Rights,
    ) -> Result<(), MapError> {
        assert!(!rights.write && (image.as_ptr() as usize).is_multiple_of(layout::PAGE_BYTES));
        let length = layout::page_up(image.len()).ok_or(MapError::BadRange)?;
        let range = address..address.checked_add(length).ok_or(MapError::BadRange)?;
        let physical = layout::physical_of(image.as_ptr() as usize);
        let mut inner = self.inner.lock();
        self.insert(&mut inner, range, rights, Backing::Kernel)?;
        for offset in (0..length).step_by(layout::PAGE_BYTES) {
            self.put(&mut inner, address + offset, Frame::of_image(physical + offset), rights)?;
        }
        Ok(())
    }

    /// Writes the beginning of `bytes` to `address`, in anonymous memory that has not been
    /// accessed: the part of a program that belongs in one page. Returns the number of bytes
    /// written.
    ///
    /// # Errors
    /// `BadRange` if nothing is mapped there, `OutOfMemory`.
    pub fn fill_page(&self, address: usize, bytes: &[u8]) -> Result<usize, MapError> {
        let mut inner = self.inner.lock();
        let rights = inner.regions.at(address).ok_or(MapError::BadRange)?.rights;
        let page = layout::page_down(address);
        let bytes = &bytes[..bytes.len().min(page + layout::PAGE_BYTES - address)];
        if !is_promised(page) {
            inner.charge_page()?;
        }
        let frame = Frame::allocate_zeroed()?;
        frame.write(address - page, bytes);
        inner.table.find_or_make(page)?;
        inner.promised -= usize::from(is_promised(page));
        self.put(&mut inner, page, frame, rights)?;
        if rights.execute {
            arch::sync_instruction_stream();
        }
        Ok(bytes.len())
    }

    /// Resolves a page fault, if the mappings permit the access.
    ///
    /// # Errors
    /// `NotAllowed` if the program is at fault.
    pub fn handle_fault(&self, address: usize, access: Access) -> Result<(), FaultError> {
        let mut inner = self.inner.lock();
        self.resolve(&mut inner, address, access, physical)?;
        // The entry may have been valid before: another hart has resolved the same fault, or this
        // hart had cached the absence of the entry.
        arch::flush_local(address);
        Ok(())
    }

    /// A reference to the frame at `address` for an access that the program itself could make. A
    /// missing page is allocated.
    ///
    /// # Errors
    /// `NotAllowed` if the program could not make this access.
    pub fn translate_for(&self, address: usize, access: Access) -> Result<Frame, FaultError> {
        let mut inner = self.inner.lock();
        self.resolve(&mut inner, address, access, |slot| slot.share())?
            .ok_or(FaultError::NotAllowed)
    }

    /// Calls `work` with the direct-map address of the page around `address`, which stays mapped
    /// during the call. `work` must be short and must not use this space.
    ///
    /// # Errors
    /// As for [`AddressSpace::translate_for`].
    pub(super) fn with_page<R>(
        &self,
        address: usize,
        access: Access,
        work: impl FnOnce(*mut u8) -> R,
    ) -> Result<R, FaultError> {
        let mut inner = self.inner.lock();
        let physical = self.resolve(&mut inner, address, access, physical)?;
        Ok(work(layout::direct(physical)))
    }

    /// Removes all pages from the space and returns them, to be freed in portions with
    /// [`Remains::free_some`].
    ///
    /// For the only user of a space that is about to drop it without time to free everything at
    /// once. The drop is short then.
    pub(crate) fn take_remains(&mut self) -> Remains {
        self.place = None;
        self.detach()
    }

    fn detach(&mut self) -> Remains {
        let inner = self.inner.get_mut();
        let lower = inner.table.detach_lower();
        let regions = core::mem::replace(&mut inner.regions, Regions::new());
        let nothing = Charge::nothing(inner.memory.family());
        let memory = core::mem::replace(&mut inner.memory, nothing);
        self.flush(0..layout::USER_END);
        Remains::new(lower, regions, memory)
    }

    /// Adds a region of anonymous memory and charges its promised pages.
    fn insert_promised(
        &self,
        inner: &mut Inner,
        range: Range<usize>,
        rights: Rights,
    ) -> Result<(), MapError> {
        check_range(&range)?;
        let promised = promised_pages(&range);
        inner
            .memory
            .grow(&memory(promised * layout::PAGE_BYTES))
            .map_err(|_| MapError::OutOfMemory)?;
        let inserted = self.insert(inner, range, rights, Backing::Anonymous);
        if inserted.is_ok() {
            inner.promised += promised;
        }
        inner.adjust_charge();
        inserted
    }

    /// Adds a region after checking all arguments.
    fn insert(
        &self,
        inner: &mut Inner,
        range: Range<usize>,
        rights: Rights,
        backing: Backing,
    ) -> Result<(), MapError> {
        check_range(&range)?;
        check_rights(rights)?;
        inner.admit_regions()?;
        inner.regions.insert(range, Region { rights, backing })?;
        Ok(())
    }

    /// Puts a frame where a region has none.
    fn put(
        &self,
        inner: &mut Inner,
        address: usize,
        frame: Frame,
        rights: Rights,
    ) -> Result<(), MapError> {
        inner.table.find_or_make(address)?.put(frame, rights);
        inner.pages += 1;
        inner.adjust_charge();
        Ok(())
    }

    /// Calls `use_slot` with the entry for `address`, if it permits the access. A missing page is
    /// allocated if its region permits the access.
    fn resolve<R>(
        &self,
        inner: &mut Inner,
        address: usize,
        access: Access,
        use_slot: impl FnOnce(&Slot<'_>) -> R,
    ) -> Result<R, FaultError> {
        if address >= layout::USER_END {
            return Err(FaultError::NotAllowed);
        }
        // Entries have the rights of their region, so a present entry can be judged without the
        // regions.
        if let Some(slot) = inner.table.find(address) {
            let entry = slot.get();
            if entry != Entry::EMPTY {
                let allowed = entry.is_valid() && entry.rights().allow(access);
                return if allowed { Ok(use_slot(&slot)) } else { Err(FaultError::NotAllowed) };
            }
        }
        let region = inner.regions.at(address).ok_or(FaultError::NotAllowed)?;
        if region.backing != Backing::Anonymous || !region.rights.allow(access) {
            return Err(FaultError::NotAllowed);
        }
        let rights = region.rights;
        if !is_promised(address) {
            inner.charge_page()?;
        }
        let used = match inner.table.find_or_make(address) {
            Ok(mut slot) => Frame::allocate_zeroed().map(|frame| {
                slot.put(frame, rights);
                use_slot(&slot)
            }),
            Err(error) => Err(error),
        };
        if used.is_ok() {
            inner.pages += 1;
            inner.promised -= usize::from(is_promised(address));
        }
        inner.adjust_charge();
        let used = used?;
        if rights.execute {
            // The new zeros may be where the instruction cache has the code of another program.
            arch::sync_instruction_stream();
        }
        Ok(used)
    }

    /// Flushes `range` on all harts after its entries have changed: immediately on those that have
    /// the space loaded, on the others when they load it.
    pub(super) fn flush(&self, range: Range<usize>) {
        // The entries are changed before everything below. For the other side of this protocol see
        // `activate`.
        fence(Ordering::SeqCst);
        self.current_harts.store(0, Ordering::SeqCst);
        self.root.flush(range);
    }
}

impl Drop for AddressSpace {
    /// Frees a little of the memory at once and leaves the rest to the reaper: a program that could
    /// not be started may be large.
    fn drop(&mut self) {
        let left = self.place.take().map(|place| (self.detach(), place));
        self.root.retire();
        if let Some((remains, place)) = left {
            remains.free_or_abandon(place);
        }
    }
}

fn physical(slot: &Slot<'_>) -> usize {
    slot.physical()
}

pub(super) fn check_range(range: &Range<usize>) -> Result<(), MapError> {
    let aligned = range.start.is_multiple_of(layout::PAGE_BYTES)
        && range.end.is_multiple_of(layout::PAGE_BYTES);
    let within = layout::USER_START <= range.start
        && range.start < range.end
        && range.end <= layout::USER_END;
    if aligned && within { Ok(()) } else { Err(MapError::BadRange) }
}

pub(super) fn check_rights(rights: Rights) -> Result<(), MapError> {
    if rights.write && rights.execute { Err(MapError::WriteAndExecute) } else { Ok(()) }
}
