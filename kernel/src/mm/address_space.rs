//! A process's address space: its [`Contents`] behind a lock, and the harts that use it.
//!
//! Page faults, mappings and the kernel's copies hold the lock for one page or one operation on a
//! list. Frames removed from the table are freed only after every hart has flushed the translation.
//!
//! A space may be dropped while harts have it loaded (see `root`): they then see an empty lower
//! half.

use super::contents::{Contents, Resolved, check_range};
use super::copied::{COPIED_TOGETHER, Copied};
use super::frames::Frame;
use super::object::{MemoryObject, Source};
use super::quota::Family;
use super::region::{Backing, Region};
use super::remains::{Place, Remains};
use super::root::Root;
use super::table::Slot;
use super::{FaultError, MapError, OutOfMemory, Rights, layout};
use crate::arch::{self, Access};
use alloc::sync::Arc;
use cops_lock::Mutex;
use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering, fence};

/// The memory of one process. Dropping it frees everything.
pub struct AddressSpace {
    /// Harts (bit = index) with no stale translations of this space in their caches. The other
    /// harts flush when they load it.
    current_harts: AtomicU64,
    pub(super) contents: Mutex<Contents>,
    pub(super) root: Arc<Root>,
    /// Where it keeps what is left of it when it is dropped; `None` once that has been taken.
    place: Option<Place>,
}

impl AddressSpace {
    /// A space without mappings, charged to `family`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new(family: Family) -> Result<Self, OutOfMemory> {
        let contents = Contents::new(family)?;
        let place = Some(Place::try_new()?);
        // Last: nothing can fail once the root has a tag, which it has until it is retired.
        let root = Root::new(contents.table.root_frame())?;
        let current_harts = AtomicU64::new(0);
        Ok(Self { root, current_harts, place, contents: Mutex::new(contents) })
    }

    /// Present pages, those shared with the kernel or with other processes included.
    pub fn page_count(&self) -> usize {
        let contents = self.contents.lock();
        contents.pages + contents.shared
    }

    /// Some regions in the order of addresses, from the one with this index on: addresses, rights,
    /// and whether the pages are the kernel's.
    pub fn regions_from<const N: usize>(
        &self,
        index: usize,
    ) -> [Option<(Range<usize>, Rights, bool)>; N] {
        let contents = self.contents.lock();
        let mut next = contents.regions.nth(index);
        core::array::from_fn(|_| {
            let span = next?;
            next = contents.regions.first_above(span.end);
            let Region { rights, backing } = span.value;
            Some((span.start..span.end, rights, backing == Backing::Kernel))
        })
    }

    /// Whether nothing is mapped at some address of `range`, as far as the first regions tell.
    pub fn has_gap_in_portion(&self, range: &Range<usize>) -> bool {
        self.contents.lock().regions.has_gap_in_portion(range)
    }

    /// Pages that are charged: present ones, and promised ones.
    pub fn reserved_page_count(&self) -> usize {
        let contents = self.contents.lock();
        contents.pages + contents.promised
    }

    /// Maximum of [`Self::reserved_page_count`] that a new mapping may lead to.
    pub fn page_limit(&self) -> usize {
        self.contents.lock().limit
    }

    /// Sets [`Self::page_limit`]. What is mapped already stays.
    pub fn set_page_limit(&self, pages: usize) {
        self.contents.lock().limit = pages;
    }

    /// Whether other processes may have some of its memory mapped too.
    pub fn shares_memory(&self) -> bool {
        self.contents.lock().mappings.has_shared()
    }

    /// The object that other processes may have mapped and that contains `address`, by number, and
    /// where `address` is in it.
    pub fn shared_place(&self, address: usize) -> Option<(u64, usize)> {
        let contents = self.contents.lock();
        if !contents.mappings.has_shared() {
            return None;
        }
        let Backing::Shared(number) = contents.regions.at(address)?.backing else { return None };
        let mapping = contents.mappings.get(number)?;
        let offset = mapping.page_at(address) as usize * layout::PAGE_BYTES;
        Some((mapping.view.object.number(), offset + address % layout::PAGE_BYTES))
    }

    /// Whether the program has the object with this number mapped, shared and writable.
    pub fn may_write_object(&self, object: u64) -> bool {
        self.contents.lock().mappings.may_write(object)
    }

    /// The object of the shared mapping that contains `address`, if its writes are tracked, and
    /// where that region ends; `None` in the place of the object if it is something else.
    ///
    /// # Errors
    /// `NotMapped` if nothing is mapped there.
    pub fn tracked_object(
        &self,
        address: usize,
    ) -> Result<(Option<Arc<dyn MemoryObject>>, usize), MapError> {
        let contents = self.contents.lock();
        let span = contents.regions.first_above(address).ok_or(MapError::NotMapped)?;
        if span.start > address {
            return Err(MapError::NotMapped);
        }
        let mapping = match span.value.backing {
            Backing::Shared(number) => contents.mappings.get(number),
            _ => None,
        };
        let object = mapping.map(|mapping| mapping.view.object.clone());
        Ok((object.filter(|object| object.tracks_writes()), span.end))
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
        self.map(range, rights, &Source::Anonymous)
    }

    /// Maps `source`. Nothing is allocated for its pages.
    ///
    /// # Errors
    /// See [`MapError`]; nothing has changed then.
    pub fn map(
        &self,
        range: Range<usize>,
        rights: Rights,
        source: &Source,
    ) -> Result<(), MapError> {
        self.contents.lock().insert_source(range, rights, source)
    }

    /// Makes what was written to the program's memory visible to instruction fetches of all harts.
    pub fn sync_instruction_stream(&self) {
        self.root.sync_instruction_stream();
    }

    /// A number for a reservation.
    pub(super) fn next_reservation(&self) -> u16 {
        self.contents.lock().next_reservation()
    }

    /// Removes a reservation, or a part of it at its beginning or its end.
    pub(super) fn unreserve(&self, range: Range<usize>) {
        if !range.is_empty() {
            self.contents.lock().unreserve(range);
        }
    }

    /// Continues the region around `range` up to `end`.
    ///
    /// # Errors
    /// `NotMapped` if `range` is not within one region of the program; otherwise see [`MapError`].
    /// Nothing has changed then.
    pub fn extend(&self, range: &Range<usize>, end: usize) -> Result<(), MapError> {
        let mut contents = self.contents.lock();
        let region = contents.regions.around(range).ok_or(MapError::NotMapped)?;
        if end <= range.end {
            return Ok(());
        }
        let mapping = region.backing.mapping().and_then(|number| contents.mappings.get(number));
        if mapping.is_some_and(|mapping| !mapping.view.object.may_extend()) {
            return Err(MapError::Overlap);
        }
        contents.insert_mapped(range.end..end, region.rights, region.backing)
    }

    /// Like [`AddressSpace::map`], at any address in `area` with room for `length` bytes, which is
    /// rounded up to pages. Returns the address.
    ///
    /// # Errors
    /// See [`MapError`].
    pub fn map_anywhere(
        &self,
        area: Range<usize>,
        length: usize,
        rights: Rights,
        source: &Source,
    ) -> Result<usize, MapError> {
        let length =
            layout::page_up(length).filter(|&length| length > 0).ok_or(MapError::BadRange)?;
        let mut contents = self.contents.lock();
        let start = contents.regions.find_free(area, length).ok_or(MapError::OutOfMemory)?;
        contents.insert_source(start..start + length, rights, source)?;
        Ok(start)
    }

    /// Maps one frame of the kernel at `address`. The program cannot unmap it or change its rights.
    ///
    /// # Errors
    /// See [`MapError`]; nothing has changed then.
    pub fn map_frame(&self, address: usize, frame: Frame, rights: Rights) -> Result<(), MapError> {
        let range = address..address.checked_add(layout::PAGE_BYTES).ok_or(MapError::BadRange)?;
        check_range(&range)?;
        let mut contents = self.contents.lock();
        // The tables first, so that nothing can fail once the region exists.
        contents.table.find_or_make(address)?;
        contents.insert(range, rights, Backing::Kernel)?;
        Ok(contents.put(address, frame, rights)?)
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
        let mut contents = self.contents.lock();
        contents.insert(range, rights, Backing::Kernel)?;
        for offset in (0..length).step_by(layout::PAGE_BYTES) {
            contents.put(address + offset, Frame::of_image(physical + offset), rights)?;
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
        self.contents.lock().fill_page(address, bytes)
    }

    /// Resolves a page fault, if the mappings permit the access.
    ///
    /// # Errors
    /// `NotAllowed` if the program is at fault.
    pub fn handle_fault(&self, address: usize, access: Access) -> Result<(), FaultError> {
        self.resolve(&mut self.contents.lock(), address, access, |_| ())?;
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
        let mut contents = self.contents.lock();
        match contents.permitted(address, access).and_then(|slot| slot.share()) {
            Some(frame) => Ok(frame),
            None => self.translate_missing(&mut contents, address, access),
        }
    }

    /// As [`Self::translate_for`], for a page that is missing or does not permit the access as it
    /// is.
    #[cold]
    #[inline(never)]
    fn translate_missing(
        &self,
        contents: &mut Contents,
        address: usize,
        access: Access,
    ) -> Result<Frame, FaultError> {
        let shared = self.resolve(contents, address, access, |slot| slot.share())?;
        shared.ok_or(FaultError::NotAllowed)
    }

    /// Like [`Contents::resolve`], and makes a page own if that is what the access needs.
    #[inline]
    fn resolve<R>(
        &self,
        contents: &mut Contents,
        address: usize,
        access: Access,
        use_slot: impl Fn(&Slot<'_>) -> R,
    ) -> Result<R, FaultError> {
        loop {
            match contents.resolve(address, access, &use_slot)? {
                Resolved::Done(result) => return Ok(result),
                Resolved::MustBeOwn => {
                    // To wait for other harts takes longer than to copy some pages, and everything
                    // that uses this space waits meanwhile.
                    let pages = if self.root.is_run_elsewhere() { COPIED_TOGETHER } else { 1 };
                    let mut copied = Copied::new(address);
                    contents.make_own(address, &mut copied)?;
                    for _ in 1..pages {
                        if !contents.make_next_own(&mut copied) {
                            break;
                        }
                    }
                    // Other harts may still read the frames that were there. A frame that has
                    // become writable where it was is another matter: a hart that does not know
                    // faults.
                    if !copied.is_empty() {
                        self.flush(copied.range());
                    }
                    contents.keep_in_use(copied.frames());
                    drop(copied);
                }
                Resolved::MustBeMapped(region) => {
                    contents.make_mapped_page(address, region, || {
                        self.root.sync_instruction_stream();
                    })?;
                }
                Resolved::MustBeKnown(region) => contents.make_known(address, region)?,
            }
        }
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
        let mut contents = self.contents.lock();
        let physical = self.resolve(&mut contents, address, access, |slot| slot.physical())?;
        Ok(work(layout::direct(physical)))
    }

    /// As [`Self::with_page`], if the page is there and permits the access as it is.
    #[inline]
    pub(super) fn with_page_that_is_there<R>(
        &self,
        address: usize,
        access: Access,
        work: impl FnOnce(*mut u8) -> R,
    ) -> Option<R> {
        let mut contents = self.contents.lock();
        let physical = contents.permitted(address, access)?.physical();
        Some(work(layout::direct(physical)))
    }

    /// Exchanges everything that is mapped with `other`, a space that no hart has loaded and that
    /// nothing else uses. No virtual CPU of this space is in user mode.
    pub(crate) fn exchange(&self, other: &AddressSpace) {
        // Lock order as in `copy_some`: nothing else has the other space.
        self.contents.lock().exchange(&mut other.contents.lock());
        self.flush(0..layout::USER_END);
        other.flush(0..layout::USER_END);
    }

    /// Removes all pages from the space and returns them, to be freed in portions with
    /// [`Remains::free_some`].
    ///
    /// For the only user of a space that is about to drop it without time to free everything at
    /// once. The drop is short then. `None` if they were taken before.
    pub(crate) fn take_remains(&mut self) -> Option<Remains> {
        let remains = self.place.take()?.keep(self.contents.get_mut().detach());
        self.flush(0..layout::USER_END);
        Some(remains)
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
        let remains = self.take_remains();
        self.root.retire();
        if let Some(remains) = remains {
            remains.free_or_abandon();
        }
    }
}
