//! What an address space contains: its regions, its page table, and what is charged for them.
//!
//! Regions and table agree: an entry is present only within a region and has its rights. No mapping
//! is both writable and executable. Flushing the harts' caches is up to
//! [`AddressSpace`](super::AddressSpace).

use super::copied::Copied;
use super::frames::Frame;
use super::object::{Mappings, Source, View};
use super::page_table::PageTable;
use super::quota::{self, Amounts, Charge, Family, Kind};
use super::region::{Backing, Region, Regions};
use super::remains::Left;
use super::table::Slot;
use super::{FaultError, MapError, OutOfMemory, Rights, layout};
use crate::arch::{self, Access, Entry, TABLE_LEVELS};
use cops_algorithms::promised::{is_promised, promised_pages};
use core::ops::Range;

/// The regions and the page table of one space, with their charge.
pub(super) struct Contents {
    pub(super) table: PageTable,
    pub(super) regions: Regions,
    pub(super) mappings: Mappings,
    /// Present pages, those shared with the kernel included, those of shared mappings excluded.
    pub(super) pages: usize,
    /// Present pages of shared mappings, which their objects pay for.
    pub(super) shared: usize,
    /// Pages that are charged and not yet accessed: the first access cannot fail because of the
    /// quota.
    pub(super) promised: usize,
    /// Maximum of present and promised pages that a new mapping may lead to.
    pub(super) limit: usize,
    /// Number of moves of mappings that have a reserved target.
    pub(super) moving: usize,
    /// The number of the last reservation.
    reservations: u16,
    /// The charge for present and promised pages, tables, and the records of regions and mappings.
    memory: Charge,
}

/// The result of [`Contents::resolve`].
pub(super) enum Resolved<R> {
    /// The access is possible.
    Done(R),
    /// It will be when the page has a frame of its own.
    MustBeOwn,
    /// It will be when the page, which is missing, has a frame of the region's object.
    MustBeMapped(Region),
    /// It will be when the region's object knows of it.
    MustBeKnown(Region),
}

/// Tables that one page may need, besides the root.
const TABLES_FOR_PAGE: usize = TABLE_LEVELS - 1;

/// The maximum memory for a region's record.
const REGION_BYTES: usize = 64;

fn memory(bytes: usize) -> Amounts {
    Amounts::of(Kind::Memory, bytes as u64)
}

impl Contents {
    /// No mappings, charged to `family`.
    pub(super) fn new(family: Family) -> Result<Self, OutOfMemory> {
        let memory = Charge::new(family, &memory(layout::PAGE_BYTES)).map_err(|_| OutOfMemory)?;
        let (table, regions, mappings) = (PageTable::new()?, Regions::new(), Mappings::new());
        let limit = usize::MAX;
        let (pages, shared, promised, moving) = (0, 0, 0, 0);
        let reservations = 0;
        Ok(Self {
            table,
            regions,
            mappings,
            pages,
            shared,
            promised,
            limit,
            moving,
            reservations,
            memory,
        })
    }

    /// Exchanges everything except the limit with another space; the caller flushes both.
    pub(super) fn exchange(&mut self, other: &mut Self) {
        self.table.exchange_lower(&mut other.table);
        core::mem::swap(&mut self.regions, &mut other.regions);
        core::mem::swap(&mut self.mappings, &mut other.mappings);
        core::mem::swap(&mut self.pages, &mut other.pages);
        core::mem::swap(&mut self.shared, &mut other.shared);
        core::mem::swap(&mut self.promised, &mut other.promised);
        core::mem::swap(&mut self.moving, &mut other.moving);
        core::mem::swap(&mut self.memory, &mut other.memory);
    }

    /// Removes everything; the caller flushes before it frees the result.
    pub(super) fn detach(&mut self) -> Left {
        let lower = self.table.detach_lower();
        let regions = core::mem::replace(&mut self.regions, Regions::new());
        let mappings = core::mem::replace(&mut self.mappings, Mappings::new());
        let nothing = Charge::nothing(self.memory.family());
        let memory = core::mem::replace(&mut self.memory, nothing);
        Left { lower, regions, mappings, memory }
    }

    /// The family that is charged.
    pub(super) fn family(&self) -> Family {
        self.memory.family()
    }

    /// Charges a page before it is allocated.
    pub(super) fn charge_page(&mut self) -> Result<(), OutOfMemory> {
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
    /// are charged even beyond the limit: there are at most two tables for each page that is
    /// charged, and those for the pages of objects have been admitted.
    pub(super) fn adjust_charge(&mut self) {
        let frames = self.pages + self.promised + self.table.frame_count();
        let records = self.regions.len() * REGION_BYTES + self.mappings.bytes();
        let held = (frames * layout::PAGE_BYTES + records) as u64;
        let charged = self.memory.amounts().get(Kind::Memory);
        if held > charged {
            self.memory.grow_forced(&Amounts::of(Kind::Memory, held - charged));
        } else if held < charged {
            self.memory.shrink(&Amounts::of(Kind::Memory, charged - held));
        }
    }

    /// These frames have left the table, and are about to be dropped. Those that calls in flight
    /// have stay charged until the calls have ended.
    pub(super) fn keep_in_use<'a>(&self, frames: impl Iterator<Item = &'a Frame>) {
        let family = self.family();
        let kept = frames.filter(|frame| frame.keep_charged(family)).count();
        if kept > 0 {
            quota::charge_memory_forced(family, (kept * layout::PAGE_BYTES) as u64);
        }
    }

    /// Adds a region for `source`.
    pub(super) fn insert_source(
        &mut self,
        range: Range<usize>,
        rights: Rights,
        source: &Source,
    ) -> Result<(), MapError> {
        let (Source::Private(view) | Source::Shared(view)) = source else {
            return self.insert_own(range, rights, Backing::Anonymous);
        };
        check_range(&range)?;
        let is_shared = matches!(source, Source::Shared(_));
        let number = self.add_mapping(view, &range, is_shared)?;
        let inserted = self.insert_mapped(
            range,
            rights,
            match source {
                Source::Private(_) => Backing::Private(number),
                _ => Backing::Shared(number),
            },
        );
        if inserted.is_err() {
            // Not the last reference to its object: the caller has one.
            drop(self.mappings.release(number, 0));
        }
        self.adjust_charge();
        inserted
    }

    /// Adds a mapping for `range`, in which there are no regions yet. Returns its number.
    pub(super) fn add_mapping(
        &mut self,
        view: &View,
        range: &Range<usize>,
        is_shared: bool,
    ) -> Result<u16, OutOfMemory> {
        let growth = memory(Mappings::GROWTH_BYTES);
        self.memory.grow(&growth).map_err(|_| OutOfMemory)?;
        self.memory.shrink(&growth);
        self.mappings.add(view, range, is_shared)
    }

    /// Adds a region of a mapping of this space, or one that continues a region.
    pub(super) fn insert_mapped(
        &mut self,
        range: Range<usize>,
        rights: Rights,
        backing: Backing,
    ) -> Result<(), MapError> {
        if backing.is_own() {
            self.insert_own(range.clone(), rights, backing)?;
        } else {
            self.insert(range.clone(), rights, backing)?;
        }
        if let Some(number) = backing.mapping() {
            self.mappings.hold(number, &range);
        }
        self.adjust_charge();
        Ok(())
    }

    /// Adds a region of pages of the process itself and charges its promised pages.
    pub(super) fn insert_own(
        &mut self,
        range: Range<usize>,
        rights: Rights,
        backing: Backing,
    ) -> Result<(), MapError> {
        check_range(&range)?;
        let promised = promised_pages(&range);
        self.charge_promised(promised)?;
        let inserted = self.insert(range, rights, backing);
        if inserted.is_ok() {
            self.promised += promised;
        }
        self.adjust_charge();
        inserted
    }

    /// Charges pages that are about to be promised.
    pub(super) fn charge_promised(&mut self, pages: usize) -> Result<(), MapError> {
        if pages > self.limit.saturating_sub(self.pages + self.promised) {
            return Err(MapError::OutOfMemory);
        }
        let charge = memory(pages * layout::PAGE_BYTES);
        self.memory.grow(&charge).map_err(|_| MapError::OutOfMemory)
    }

    /// A number for a reservation, so that it is not joined with another one beside it.
    pub(super) fn next_reservation(&mut self) -> u16 {
        self.reservations = self.reservations.wrapping_add(1);
        self.reservations
    }

    /// Removes what is reserved in `range`, from the beginning of a reservation on or up to its
    /// end. Allocates nothing.
    pub(super) fn unreserve(&mut self, range: Range<usize>) {
        let removed = self.regions.remove(range);
        debug_assert!(removed.is_ok());
        self.adjust_charge();
    }

    /// Adds a region after checking all arguments.
    pub(super) fn insert(
        &mut self,
        range: Range<usize>,
        rights: Rights,
        backing: Backing,
    ) -> Result<(), MapError> {
        check_range(&range)?;
        check_rights(rights)?;
        self.admit_regions()?;
        self.regions.insert(range, Region { rights, backing })?;
        Ok(())
    }

    /// Puts a frame where a region has none.
    pub(super) fn put(
        &mut self,
        address: usize,
        frame: Frame,
        rights: Rights,
    ) -> Result<(), OutOfMemory> {
        self.table.find_or_make(address)?.put(frame, rights);
        self.pages += 1;
        self.adjust_charge();
        Ok(())
    }

    /// Writes the beginning of `bytes` to `address`, in a page of an anonymous region that has not
    /// been accessed. Returns the number of bytes written.
    pub(super) fn fill_page(&mut self, address: usize, bytes: &[u8]) -> Result<usize, MapError> {
        let rights = self.regions.at(address).ok_or(MapError::BadRange)?.rights;
        let in_page = layout::PAGE_BYTES - address % layout::PAGE_BYTES;
        let bytes = &bytes[..bytes.len().min(in_page)];
        self.make_page(address, bytes, rights, |_| ())?;
        Ok(bytes.len())
    }

    /// Calls `use_slot` with the entry for `address`, if it permits the access. A missing page is
    /// allocated if its region permits the access. [`Resolved::MustBeOwn`]: the program may write
    /// to the page, but the frame is common; [`Self::make_own`] changes that.
    /// [`Resolved::MustBeMapped`]: it is missing in a region of an object;
    /// [`Self::make_mapped_page`] changes that.
    #[inline]
    pub(super) fn resolve<R>(
        &mut self,
        address: usize,
        access: Access,
        use_slot: impl FnOnce(&Slot<'_>) -> R,
    ) -> Result<Resolved<R>, FaultError> {
        if address >= layout::USER_END {
            return Err(FaultError::NotAllowed);
        }
        if let Some(slot) = self.table.find(address) {
            let entry = slot.get();
            if entry != Entry::EMPTY {
                if permits(entry, access) {
                    return Ok(Resolved::Done(use_slot(&slot)));
                }
                return match access {
                    Access::Write => self.why_not_writable(address),
                    _ => Err(FaultError::NotAllowed),
                };
            }
        }
        let region = self.regions.at(address).ok_or(FaultError::NotAllowed)?;
        if !region.rights.allow(access) {
            return Err(FaultError::NotAllowed);
        }
        if region.backing != Backing::Anonymous {
            return Ok(Resolved::MustBeMapped(region));
        }
        Ok(Resolved::Done(self.make_page(address, &[], region.rights, use_slot)?))
    }

    /// The entry for `address`, if it permits the access as it is. Otherwise [`Self::resolve`]
    /// knows what to do.
    #[inline]
    pub(super) fn permitted(&mut self, address: usize, access: Access) -> Option<Slot<'_>> {
        if address >= layout::USER_END {
            return None;
        }
        self.table.find(address).filter(|slot| permits(slot.get(), access))
    }

    /// What has to happen before the program can write to the page at `address`, of which the entry
    /// does not permit it.
    #[cold]
    fn why_not_writable<R>(&self, address: usize) -> Result<Resolved<R>, FaultError> {
        match self.regions.at(address) {
            Some(region) if !region.rights.write => Err(FaultError::NotAllowed),
            Some(Region { backing, .. }) if backing.is_own() => Ok(Resolved::MustBeOwn),
            Some(region) if matches!(region.backing, Backing::Shared(_)) => {
                Ok(Resolved::MustBeKnown(region))
            }
            _ => Err(FaultError::NotAllowed),
        }
    }

    /// Makes the entry for `address` writable, of a page of a shared mapping of an object that
    /// tracks writes.
    #[cold]
    pub(super) fn make_known(&mut self, address: usize, region: Region) -> Result<(), FaultError> {
        let number = region.backing.mapping().ok_or(FaultError::NotAllowed)?;
        let mapping = self.mappings.get(number).ok_or(FaultError::NotAllowed)?;
        let mut slot = self.table.find(address).ok_or(FaultError::NotAllowed)?;
        mapping.view.object.becomes_writable(mapping.page_at(address));
        slot.set_rights(region.rights);
        Ok(())
    }

    /// Makes the page around `address`, of which the frame is common, one that the program can
    /// write: the same frame if nothing else refers to it, otherwise a copy. The frame that was
    /// there before is in `copied` then; the caller flushes before it drops it.
    #[cold]
    pub(super) fn make_own(
        &mut self,
        address: usize,
        copied: &mut Copied,
    ) -> Result<(), FaultError> {
        let region = self.regions.at(address).ok_or(FaultError::NotAllowed)?;
        let mut slot = self.table.find(address).ok_or(FaultError::NotAllowed)?;
        let before = if slot.claim(region.rights) {
            None
        } else {
            Some(slot.replace(slot.try_copy()?, region.rights))
        };
        copied.push(before);
        Ok(())
    }

    /// As [`Self::make_own`] for the page behind those in `copied`. Returns false, and has done
    /// nothing, if its frame is not common, the program may not write to it, or memory runs out.
    pub(super) fn make_next_own(&mut self, copied: &mut Copied) -> bool {
        let address = copied.end();
        let is_next = |region: Region| region.rights.write && region.backing.is_own();
        !copied.is_full()
            && self.regions.at(address).is_some_and(is_next)
            && self.table.find(address).is_some_and(|slot| {
                slot.get() != Entry::EMPTY && !permits(slot.get(), Access::Write)
            })
            && self.make_own(address, copied).is_ok()
    }

    /// Puts the page around `address`, which is missing, into a region of an object. `sync` is
    /// called if it has code, before the program can execute it.
    #[cold]
    #[inline(never)]
    pub(super) fn make_mapped_page(
        &mut self,
        address: usize,
        region: Region,
        sync: impl FnOnce(),
    ) -> Result<(), FaultError> {
        let number = region.backing.mapping().ok_or(FaultError::NotAllowed)?;
        let mapping = self.mappings.get(number).ok_or(FaultError::NotAllowed)?;
        let page = mapping.page_at(address);
        if !region.backing.is_own() {
            let payer = mapping.view.payer.as_ref().ok_or(FaultError::NotAllowed)?.family();
            // The object pays for the page, and not for tables: one page may need two of them at
            // each of many addresses.
            if self.table.next_table(address).is_err() {
                let tables = memory(TABLES_FOR_PAGE * layout::PAGE_BYTES);
                self.memory.grow(&tables).map_err(|_| OutOfMemory)?;
            }
            let put = mapping.view.object.page(page, payer).and_then(|frame| {
                let tracks = mapping.view.object.tracks_writes();
                let rights = if tracks { region.rights.without_write() } else { region.rights };
                self.table.find_or_make(address)?.put(frame, rights);
                Ok(())
            });
            self.shared += usize::from(put.is_ok());
            self.adjust_charge();
            return put;
        }
        let object = mapping.view.object.clone();
        let constant = if region.rights.write { None } else { object.constant_page(page) };
        let is_constant = constant.is_some();
        let frame = match constant {
            Some(frame) => frame,
            None => object.copy_page(page)?,
        };
        if !is_promised(address) {
            self.charge_page()?;
        }
        if region.rights.execute && !is_constant {
            sync();
        }
        let put = self.table.find_or_make(address).map(|mut slot| slot.put(frame, region.rights));
        if put.is_ok() {
            self.count_page(address);
        }
        self.adjust_charge();
        Ok(put?)
    }

    /// The page around `address` is present now, and no longer only promised.
    pub(super) fn count_page(&mut self, address: usize) {
        self.pages += 1;
        self.promised -= usize::from(is_promised(address));
    }

    /// Allocates the page around `address`, which is missing, and writes `bytes` to `address`.
    fn make_page<R>(
        &mut self,
        address: usize,
        bytes: &[u8],
        rights: Rights,
        use_slot: impl FnOnce(&Slot<'_>) -> R,
    ) -> Result<R, OutOfMemory> {
        if !is_promised(address) {
            self.charge_page()?;
        }
        let used = self.table.find_or_make(address).and_then(|mut slot| {
            let frame = Frame::allocate_zeroed()?;
            if !bytes.is_empty() {
                frame.write(address % layout::PAGE_BYTES, bytes);
            }
            slot.put(frame, rights);
            Ok(use_slot(&slot))
        });
        if used.is_ok() {
            self.count_page(address);
        }
        self.adjust_charge();
        if rights.execute && used.is_ok() {
            // The new bytes may be where the instruction cache has the code of another program.
            arch::sync_instruction_stream();
        }
        used
    }
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

/// Whether this entry permits the access. Entries have the rights of their region, except that to
/// write to a common frame. So an entry that permits the access can be judged without the regions.
#[inline]
fn permits(entry: Entry, access: Access) -> bool {
    entry.is_valid() && entry.rights().allow(access)
}
