//! Changes of many pages of an address space: unmapping and changing rights, in portions.

use super::address_space::AddressSpace;
use super::contents::{Contents, check_range, check_rights};
use super::frames::Frame;
use super::object::Mapping;
use super::region::{Backing, PORTION_MAPPINGS, Region};
use super::{MapError, Rights, Source, layout};
use crate::arch;
use cops_algorithms::promised::{is_promised, promised_pages};
use core::ops::Range;

/// Maximum number of frames removed from the table before one flush. It bounds how long the lock is
/// held.
const BATCH: usize = 32;

/// Maximum number of holes without tables that are skipped in one portion.
const HOLES: usize = 64;

/// Those of `frames`, which have left the table, for which the space has paid.
fn own_of(frames: &[Option<Frame>; BATCH], is_own: [bool; BATCH]) -> impl Iterator<Item = &Frame> {
    let own = frames.iter().zip(is_own).filter(|(_, is_own)| *is_own);
    own.filter_map(|(frame, _)| frame.as_ref())
}

/// What a portion of a replacement has done.
pub(super) enum Replaced {
    /// Some of what is there has been unmapped; this has not.
    Part(Range<usize>),
    /// All of it has been unmapped, and the new mapping is there or was refused. If it was, nothing
    /// is mapped or reserved there.
    All(Result<(), MapError>),
}

impl AddressSpace {
    /// Unmaps the first part of `range`, in a few microseconds; holes are not an error. Returns the
    /// rest of the range, `None` if it is complete.
    ///
    /// # Errors
    /// `BadRange`, `Protected`, `OutOfMemory` (a region must be split and there is no memory for
    /// its record); nothing has changed then.
    pub fn unmap_some(&self, range: &Range<usize>) -> Result<Option<Range<usize>>, MapError> {
        self.clear_some(range, None)
    }

    /// Like [`Self::unmap_some`], and reserves what it has unmapped, in the same step: no other
    /// thread is given these addresses before something else is mapped there.
    pub(super) fn reserve_some(
        &self,
        range: &Range<usize>,
        number: u16,
    ) -> Result<Option<Range<usize>>, MapError> {
        self.clear_some(range, Some(Region::reserved(number)))
    }

    /// Like [`Self::reserve_some`], of the `rest` of `range`. If that was all of it, maps `source`
    /// in `range` in the same step: no other thread finds the last part without a mapping.
    ///
    /// # Errors
    /// As [`Self::reserve_some`]: nothing has changed then.
    pub(super) fn replace_some(
        &self,
        rest: &Range<usize>,
        number: u16,
        (range, rights, source): (&Range<usize>, Rights, &Source),
    ) -> Result<Replaced, MapError> {
        let mut ended = [const { None }; PORTION_MAPPINGS];
        let contents = &mut *self.contents.lock();
        let by = Some(Region::reserved(number));
        if let Some(rest) = self.clear_first(contents, rest, by, &mut ended)? {
            return Ok(Replaced::Part(rest));
        }
        contents.unreserve(range.clone());
        Ok(Replaced::All(contents.insert_source(range.clone(), rights, source)))
    }

    /// Replaces the regions in the first part of `range` by this one, without pages.
    fn clear_some(
        &self,
        range: &Range<usize>,
        by: Option<Region>,
    ) -> Result<Option<Range<usize>>, MapError> {
        // Dropped last, without the lock: an object may end with its last mapping.
        let mut ended = [const { None }; PORTION_MAPPINGS];
        self.clear_first(&mut self.contents.lock(), range, by, &mut ended)
    }

    /// Does what [`Self::clear_some`] does, with the lock. The mappings of which this was the last
    /// part are moved to `ended`.
    fn clear_first(
        &self,
        contents: &mut Contents,
        range: &Range<usize>,
        by: Option<Region>,
        ended: &mut [Option<Mapping>; PORTION_MAPPINGS],
    ) -> Result<Option<Range<usize>>, MapError> {
        check_range(range)?;
        if by.is_some() {
            contents.admit_regions()?;
        }
        let limit = contents.regions.removable(range)?;
        let (pages, covered) = contents.table.first_pages(range.start..limit, HOLES);
        let (start, mut end) = (pages.start, pages.end);
        let (mut count, mut touched, mut shared) = (0, 0, 0);
        let (regions, any_shared) = (&contents.regions, contents.shared > 0);
        let mut is_own = [false; BATCH];
        contents.table.for_each_present(start..end, |address, _| {
            count += 1;
            if any_shared && regions.is_shared(address) {
                shared += 1;
            } else {
                is_own[count - 1] = true;
                touched += usize::from(is_promised(address));
            }
            if count == BATCH {
                end = address + layout::PAGE_BYTES;
            }
            count < BATCH
        });
        let mut promised = 0;
        let mut released = [const { None }; PORTION_MAPPINGS];
        let mut places = released.iter_mut();
        for (part, backing) in contents.regions.parts_of(range.start..end) {
            if backing.is_own() {
                promised += promised_pages(&part);
            }
            if let Some(number) = backing.mapping()
                && let Some(place) = places.next()
            {
                *place = Some((number, part.len() / layout::PAGE_BYTES));
            }
        }
        // Nothing after this step can fail.
        contents.regions.replace(range.start..end, by)?;
        for ((number, pages), place) in released.into_iter().flatten().zip(ended) {
            *place = contents.mappings.release(number, pages);
        }
        let mut frames = [const { None }; BATCH];
        let mut places = frames.iter_mut();
        contents.table.for_each_present(start..end, |_, mut slot| {
            if let Some(place) = places.next() {
                *place = slot.take();
            }
            true
        });
        if count > 0 {
            contents.keep_in_use(own_of(&frames, is_own));
            contents.pages -= count - shared;
            contents.shared -= shared;
            self.flush(start..end);
        }
        if start < end && (end == range.end || end == covered) {
            self.free_empty_tables(contents, &(start..end));
        }
        contents.promised -= promised - touched;
        // The other frames are freed only at the end of this function; for this short time they are
        // not charged.
        contents.adjust_charge();
        Ok((end < range.end).then_some(end..range.end))
    }

    /// Frees the pages in the first part of `range`, in a few microseconds: the next access to one
    /// finds zeros, or what its object has there. Holes and the kernel's pages stay as they are.
    /// Returns the rest of the range, `None` if it is complete.
    ///
    /// # Errors
    /// `BadRange`; nothing has changed then.
    pub fn discard_some(&self, range: &Range<usize>) -> Result<Option<Range<usize>>, MapError> {
        check_range(range)?;
        let contents = &mut *self.contents.lock();
        let limit = contents.regions.discardable(range);
        let (pages, _) = contents.table.first_pages(range.start..limit, HOLES);
        let mut end = pages.end;
        let mut frames = [const { None }; BATCH];
        let mut is_own = [false; BATCH];
        let (mut count, mut promised, mut shared) = (0, 0, 0);
        let regions = &contents.regions;
        contents.table.for_each_present(pages.start..end, |address, mut slot| {
            let backing = regions.at(address).map_or(Backing::Kernel, |region| region.backing);
            if backing != Backing::Kernel {
                frames[count] = slot.take();
                is_own[count] = backing.is_own();
                count += 1;
                shared += usize::from(!backing.is_own());
                promised += usize::from(backing.is_own() && is_promised(address));
            }
            if count == BATCH {
                end = address + layout::PAGE_BYTES;
            }
            count < BATCH
        });
        if count > 0 {
            contents.keep_in_use(own_of(&frames, is_own));
            contents.pages -= count - shared;
            contents.shared -= shared;
            contents.promised += promised;
            self.flush(pages.start..end);
            contents.adjust_charge();
        }
        Ok((end < range.end).then_some(end..range.end))
    }

    /// Changes the rights of the first part of `range`, in a few microseconds. Returns the rest of
    /// the range, `None` if it is complete.
    ///
    /// # Errors
    /// `NotMapped` at a hole, `Protected` where a mapping does not permit these rights, and
    /// `OutOfMemory`: changes made until then remain. The others: see [`MapError`]; nothing has
    /// changed then.
    pub fn protect_some(
        &self,
        range: &Range<usize>,
        rights: Rights,
    ) -> Result<Option<Range<usize>>, MapError> {
        check_range(range)?;
        check_rights(rights)?;
        let contents = &mut *self.contents.lock();
        contents.admit_regions()?;
        let (limit, backing) = contents.regions.protectable(range)?;
        let mut tracks = false;
        if let Some(number) = backing.mapping() {
            let view = contents.mappings.get(number).map(|mapping| &mapping.view);
            // What another process can write is never executed.
            let may_write = view.is_some_and(|view| view.may_write);
            if rights.execute && !backing.is_own() || rights.write && !may_write {
                return Err(MapError::Protected);
            }
            tracks = !backing.is_own() && view.is_some_and(|view| view.object.tracks_writes());
        }
        let (pages, _) = contents.table.first_pages(range.start..limit, HOLES);
        let end = pages.end;
        contents.regions.protect(range.start..end, Region { rights, backing })?;
        contents.adjust_charge();
        let mut any = false;
        // The next write to a page that is tracked makes it writable again.
        let of_entries = if tracks { rights.without_write() } else { rights };
        contents.table.for_each_present(pages, |_, mut slot| {
            slot.set_rights(of_entries);
            any = true;
            true
        });
        if any {
            self.flush(range.start..end);
            if rights.execute {
                self.root.sync_instruction_stream();
            }
        }
        Ok((end < range.end).then_some(end..range.end))
    }

    /// Makes pages in the first part of `range` read-only that are writable and tracked by their
    /// object, which learns of them. Returns the rest of the range, `None` if it is complete.
    ///
    /// # Errors
    /// `BadRange`.
    pub fn write_protect_some(
        &self,
        range: &Range<usize>,
    ) -> Result<Option<Range<usize>>, MapError> {
        check_range(range)?;
        let contents = &mut *self.contents.lock();
        let (pages, _) = contents.table.first_pages(range.clone(), HOLES);
        let mut end = pages.end;
        let (regions, mappings) = (&contents.regions, &contents.mappings);
        let mut protected = [const { None }; BATCH];
        let mut count = 0;
        contents.table.for_each_present(pages.clone(), |address, mut slot| {
            let tracked = match regions.at(address).map(|region| region.backing) {
                Some(Backing::Shared(number)) => mappings.get(number),
                _ => None,
            };
            let tracked = tracked.filter(|mapping| mapping.view.object.tracks_writes());
            if let Some(mapping) = tracked
                && slot.get().rights().write
            {
                slot.set_rights(slot.get().rights().without_write());
                protected[count] = Some((mapping, mapping.page_at(address)));
                count += 1;
            }
            if count == BATCH {
                end = address + layout::PAGE_BYTES;
            }
            count < BATCH
        });
        if count > 0 {
            self.flush(pages.start..end);
        }
        // With the lock, so that no thread has made one of them writable again.
        for (mapping, page) in protected.into_iter().flatten() {
            mapping.view.object.becomes_read_only(page);
        }
        Ok((end < range.end).then_some(end..range.end))
    }

    /// Frees the tables for `range` that are now empty, except those into which pages will be
    /// moved.
    pub(super) fn free_empty_tables(&self, contents: &mut Contents, range: &Range<usize>) {
        let span = arch::page_size_of_level(1);
        let mut at = range.start & !(span - 1);
        while at < range.end {
            match contents.table.next_table(at) {
                Ok(()) if contents.moving > 0 && contents.regions.reserves(at..at + span) => {
                    at += span;
                }
                Ok(()) => {
                    if let Some(table) = contents.table.detach_if_empty(at) {
                        // The caches may contain the table itself, for any address.
                        self.flush(0..layout::USER_END);
                        drop(table);
                    }
                    at += span;
                }
                Err(next) => at = next,
            }
        }
    }
}
