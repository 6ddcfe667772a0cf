//! A process's address space: its regions, its page table, and the harts that know it.
//!
//! One lock guards regions and table; faults, mappings and the kernel's copies take it for a
//! page or a list operation at a time. Frames that leave the table are freed only after the
//! last hart has forgotten the translation. No mapping is writable and executable at once.
//!
//! A space may be dropped while harts have it loaded (see `root`): it leaves them an empty
//! lower half.

use super::frames::Frame;
use super::page_table::{PageTable, Slot};
use super::quota::{Amounts, Charge, Family, Kind};
use super::region::{Backing, Region, Regions};
use super::remains::{Place, Remains};
use super::root::Root;
use super::{FaultError, MapError, OutOfMemory, Rights, kernel_space, layout};
use crate::arch::{self, Access, Entry};
use alloc::sync::Arc;
use cops_abi::layout::{STACK_STRIDE, STACK_TOP};
use cops_abi::page::MAX_CPUS;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering, fence};
use spin::Mutex;

/// The memory of one process. Dropping it gives everything back.
pub struct AddressSpace {
    /// Harts (bit = index) whose translation caches hold nothing of this space that is not
    /// so any more. The others flush them when they load it.
    current_harts: AtomicU64,
    pub(super) inner: Mutex<Inner>,
    root: Arc<Root>,
    /// Where it keeps what is left of it when it is dropped.
    place: Option<Place>,
}

pub(super) struct Inner {
    pub(super) table: PageTable,
    pub(super) regions: Regions,
    /// Pages that are present, the kernel's own included.
    pub(super) pages: usize,
    /// Pages that are charged and have not been touched: touching them cannot fail for want of quota.
    pub(super) promised: usize,
    /// What the pages, the promised ones too, the tables and the regions' records take.
    memory: Charge,
}

/// Bytes at the top of every stack that are charged when it is mapped.
const STACK_PROMISED_BYTES: usize = 64 * 1024;

/// Where pages are charged when they are mapped: the program, the mmap area, the tops of the stacks. What is deeper in
/// a stack is charged when it is touched.
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
    let within = |area: Range<usize>| area.end.min(range.end).saturating_sub(area.start.max(range.start));
    promised_areas().map(within).sum::<usize>() / layout::PAGE_BYTES
}

/// What a region's record takes at worst.
const REGION_BYTES: usize = 64;

fn memory(bytes: usize) -> Amounts {
    Amounts::of(Kind::Memory, bytes as u64)
}

impl Inner {
    /// Charges a page that is about to be brought in.
    fn charge_page(&mut self) -> Result<(), OutOfMemory> {
        self.memory.grow(&memory(layout::PAGE_BYTES)).map_err(|_| OutOfMemory)
    }

    /// Whether a few more regions can be charged.
    pub(super) fn admit_regions(&mut self) -> Result<(), OutOfMemory> {
        let few = memory(4 * REGION_BYTES);
        self.memory.grow(&few).map_err(|_| OutOfMemory)?;
        self.memory.shrink(&few);
        Ok(())
    }

    /// Makes the charge what is held now. Tables and records that were made on the way are charged in any case: there
    /// are at most two tables for each page that was allowed.
    pub(super) fn settle(&mut self) {
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
    /// A space with nothing mapped, charged to `family`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(family: Family) -> Result<Self, OutOfMemory> {
        let memory = Charge::new(family, &memory(layout::PAGE_BYTES)).map_err(|_| OutOfMemory)?;
        let table = PageTable::new()?;
        Ok(Self {
            root: Root::new(table.root().clone())?,
            current_harts: AtomicU64::new(0),
            place: Some(Place::try_new()?),
            inner: Mutex::new(Inner { table, regions: Regions::new(), pages: 0, promised: 0, memory }),
        })
    }

    /// Pages that are present, those shared with the kernel included.
    pub fn page_count(&self) -> usize {
        self.inner.lock().pages
    }

    /// Loads this space on this hart, unless it is. Interrupts are off, and stay off until
    /// user mode is entered.
    pub(crate) fn activate(&self) {
        // The load is announced, then we look whether our cache is up to date; who changes an
        // entry first says that it is not, then looks who has the root loaded (`flush`). So
        // one of the two sees the other.
        let hart = 1 << arch::hart_index();
        self.root.load(|| self.current_harts.fetch_or(hart, Ordering::SeqCst) & hart != 0);
    }

    /// Maps zeroed memory, given out page by page as it is touched.
    ///
    /// # Errors
    /// See [`MapError`]; nothing has changed then.
    pub fn map_anonymous(&self, range: Range<usize>, rights: Rights) -> Result<(), MapError> {
        self.insert_promised(&mut self.inner.lock(), range, rights)
    }

    /// As [`AddressSpace::map_anonymous`], wherever there is room for `length` bytes; returns
    /// where. `length` is rounded up to pages.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn map_anonymous_anywhere(&self, length: usize, rights: Rights) -> Result<usize, MapError> {
        let length = layout::page_up(length).filter(|&length| length > 0).ok_or(MapError::BadRange)?;
        let mut inner = self.inner.lock();
        let start = inner.regions.find_free(length).ok_or(MapError::OutOfMemory)?;
        self.insert_promised(&mut inner, start..start + length, rights)?;
        Ok(start)
    }

    /// Maps one frame of the kernel's at `address`. The program cannot unmap or protect it.
    ///
    /// # Errors
    /// See [`MapError`]; nothing has changed then.
    pub fn map_frame(&self, address: usize, frame: Frame, rights: Rights) -> Result<(), MapError> {
        let range = address..address.checked_add(layout::PAGE_BYTES).ok_or(MapError::BadRange)?;
        check_range(&range)?;
        let inner = &mut *self.inner.lock();
        // The tables first, so that nothing can fail once the region is there.
        inner.table.find_or_make(address)?;
        self.insert(inner, range, rights, Backing::Kernel)?;
        self.put(inner, address, frame, rights)
    }

    /// Maps whole pages of the kernel's image, such as the vDSO.
    ///
    /// # Errors
    /// See [`MapError`]. Pages may have been mapped when memory runs out midway.
    ///
    /// # Panics
    /// If `image` does not start at a page boundary.
    pub fn map_image(&self, address: usize, image: &'static [u8], rights: Rights) -> Result<(), MapError> {
        assert!(!rights.write && (image.as_ptr() as usize).is_multiple_of(layout::PAGE_BYTES));
        let length = layout::page_up(image.len()).ok_or(MapError::BadRange)?;
        let range = address..address.checked_add(length).ok_or(MapError::BadRange)?;
        let physical = layout::physical_of(image.as_ptr() as usize);
        assert!(kernel_space::image_physical().contains(&physical));
        let mut inner = self.inner.lock();
        self.insert(&mut inner, range, rights, Backing::Kernel)?;
        for offset in (0..length).step_by(layout::PAGE_BYTES) {
            self.put(&mut inner, address + offset, Frame::share_of(physical + offset), rights)?;
        }
        Ok(())
    }

    /// Puts the beginning of `bytes` to `address`, which lies in fresh anonymous memory: the bytes of a program that
    /// belong into one page. Returns how many these are.
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

    /// Makes an access possible that faulted, if the mappings allow it.
    ///
    /// # Errors
    /// `NotAllowed` is the program's fault.
    pub fn handle_fault(&self, address: usize, access: Access) -> Result<(), FaultError> {
        let mut inner = self.inner.lock();
        self.resolve(&mut inner, address, access)?;
        // The entry may have been good already: another hart was faster, or this one
        // remembered that there was none.
        arch::flush_local(address);
        Ok(())
    }

    /// A share in the frame behind `address`, brought in if need be, for an access the
    /// program itself could make.
    ///
    /// # Errors
    /// `NotAllowed` if it could not.
    pub fn translate_for(&self, address: usize, access: Access) -> Result<Frame, FaultError> {
        self.with_page(address, access, |page| Frame::share_of(layout::physical_of(page as usize)))
    }

    /// Calls `work` with the kernel's view of the page around `address`, which stays mapped
    /// for so long. `work` must be short and must not touch this space.
    ///
    /// # Errors
    /// As [`AddressSpace::translate_for`].
    pub(super) fn with_page<R>(
        &self,
        address: usize,
        access: Access,
        work: impl FnOnce(*mut u8) -> R,
    ) -> Result<R, FaultError> {
        let mut inner = self.inner.lock();
        let physical = self.resolve(&mut inner, address, access)?;
        Ok(work(layout::direct(physical)))
    }

    /// Takes all pages from everybody and returns them, to be freed bit by bit with [`Remains::free_some`].
    ///
    /// For whoever has the space to himself and is about to drop it, but has not the time to free all in one go.
    pub(crate) fn take_remains(&mut self) -> Remains {
        let inner = self.inner.get_mut();
        let lower = inner.table.detach_lower();
        let regions = core::mem::replace(&mut inner.regions, Regions::new());
        let nothing = Charge::nothing(inner.memory.family());
        let memory = core::mem::replace(&mut inner.memory, nothing);
        self.flush(0..layout::USER_END);
        Remains::new(lower, regions, memory)
    }

    /// Adds a region of anonymous memory, and charges what of it is promised.
    fn insert_promised(
        &self,
        inner: &mut Inner,
        range: Range<usize>,
        rights: Rights,
    ) -> Result<(), MapError> {
        check_range(&range)?;
        let promised = promised_pages(&range);
        inner.memory.grow(&memory(promised * layout::PAGE_BYTES)).map_err(|_| MapError::OutOfMemory)?;
        let inserted = self.insert(inner, range, rights, Backing::Anonymous);
        if inserted.is_ok() {
            inner.promised += promised;
        }
        inner.settle();
        inserted
    }

    /// Adds a region after checking everything about it.
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
    fn put(&self, inner: &mut Inner, address: usize, frame: Frame, rights: Rights) -> Result<(), MapError> {
        let slot = inner.table.find_or_make(address)?;
        debug_assert!(slot.get() == Entry::EMPTY);
        slot.set(Entry::user_leaf(frame.into_physical(), rights));
        inner.pages += 1;
        inner.settle();
        Ok(())
    }

    /// The physical address of the page around `address`, brought in if need be and allowed.
    fn resolve(&self, inner: &mut Inner, address: usize, access: Access) -> Result<usize, FaultError> {
        if address >= layout::USER_END {
            return Err(FaultError::NotAllowed);
        }
        // Entries carry their region's rights, so a good entry needs no look at the regions.
        let entry = inner.table.find(address).as_ref().map_or(Entry::EMPTY, Slot::get);
        if entry != Entry::EMPTY {
            let allowed = entry.is_valid() && entry.rights().allow(access);
            return if allowed { Ok(entry.physical()) } else { Err(FaultError::NotAllowed) };
        }
        let region = inner.regions.at(address).ok_or(FaultError::NotAllowed)?;
        if region.backing != Backing::Anonymous || !region.rights.allow(access) {
            return Err(FaultError::NotAllowed);
        }
        let rights = region.rights;
        if !is_promised(address) {
            inner.charge_page()?;
        }
        let physical = match inner.table.find_or_make(address) {
            Ok(slot) => Frame::allocate_zeroed().map(|frame| {
                let physical = frame.into_physical();
                slot.set(Entry::user_leaf(physical, rights));
                physical
            }),
            Err(error) => Err(error),
        };
        if physical.is_ok() {
            inner.pages += 1;
            inner.promised -= usize::from(is_promised(address));
        }
        inner.settle();
        let physical = physical?;
        if rights.execute {
            // Zeros where another program's code may have been.
            arch::sync_instruction_stream();
        }
        Ok(physical)
    }

    /// Makes every hart forget `range`, after its entries were changed: at once those that
    /// have the space loaded, the others when they load it.
    pub(super) fn flush(&self, range: Range<usize>) {
        // Entries before all that follows; for the rest see `activate`.
        fence(Ordering::SeqCst);
        self.current_harts.store(0, Ordering::SeqCst);
        self.root.flush(range);
    }
}

impl Drop for AddressSpace {
    /// Frees a little of the memory at once and leaves the rest to the reaper: a program that could not be started may be
    /// large.
    fn drop(&mut self) {
        let remains = self.take_remains();
        self.root.retire();
        if let Some(place) = self.place.take() {
            remains.free_or_abandon(place);
        }
    }
}

pub(super) fn check_range(range: &Range<usize>) -> Result<(), MapError> {
    let aligned =
        range.start.is_multiple_of(layout::PAGE_BYTES) && range.end.is_multiple_of(layout::PAGE_BYTES);
    let within =
        layout::USER_START <= range.start && range.start < range.end && range.end <= layout::USER_END;
    if aligned && within { Ok(()) } else { Err(MapError::BadRange) }
}

pub(super) fn check_rights(rights: Rights) -> Result<(), MapError> {
    if rights.write && rights.execute { Err(MapError::WriteAndExecute) } else { Ok(()) }
}
