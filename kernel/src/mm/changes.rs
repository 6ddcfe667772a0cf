//! Changes of many pages of an address space: unmapping and changing rights, in portions.

use super::address_space::AddressSpace;
use super::contents::{Contents, check_range, check_rights};
use super::{MapError, Rights, layout};
use crate::arch;
use cops_algorithms::promised::{is_promised, promised_pages};
use core::ops::Range;

/// Maximum number of frames removed from the table before one flush. It bounds how long the lock is
/// held.
const BATCH: usize = 32;

/// Maximum number of holes without tables that are skipped in one portion.
const HOLES: usize = 64;

impl AddressSpace {
    /// Unmaps the first part of `range`, in a few microseconds; holes are not an error. Returns the
    /// rest of the range, `None` if it is complete.
    ///
    /// # Errors
    /// `BadRange`, `Protected`, `OutOfMemory` (a region must be split and there is no memory for
    /// its record); nothing has changed then.
    pub fn unmap_some(&self, range: &Range<usize>) -> Result<Option<Range<usize>>, MapError> {
        check_range(range)?;
        let contents = &mut *self.contents.lock();
        let limit = contents.regions.removable(range)?;
        let (pages, covered) = contents.table.first_pages(range.start..limit, HOLES);
        let (start, mut end) = (pages.start, pages.end);
        let (mut count, mut touched) = (0, 0);
        contents.table.for_each_present(start..end, |address, _| {
            count += 1;
            touched += usize::from(is_promised(address));
            if count == BATCH {
                end = address + layout::PAGE_BYTES;
            }
            count < BATCH
        });
        let promised = contents
            .regions
            .ranges_in(range.start..end)
            .map(|part| promised_pages(&part))
            .sum::<usize>();
        // Nothing after this step can fail.
        contents.regions.remove(range.start..end)?;
        let mut frames = [const { None }; BATCH];
        let mut places = frames.iter_mut();
        contents.table.for_each_present(start..end, |_, mut slot| {
            if let Some(place) = places.next() {
                *place = slot.take();
            }
            true
        });
        if count > 0 {
            contents.pages -= count;
            self.flush(start..end);
        }
        if start < end && (end == range.end || end == covered) {
            self.free_empty_tables(contents, &(start..end));
        }
        contents.promised -= promised - touched;
        // The frames are freed only at the end of this function; for this short time they are not
        // charged.
        contents.adjust_charge();
        Ok((end < range.end).then_some(end..range.end))
    }

    /// Frees the pages in the first part of `range`, in a few microseconds: the next access to one
    /// finds zeros. Holes and the kernel's pages stay as they are. Returns the rest of the range,
    /// `None` if it is complete.
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
        let (mut count, mut promised) = (0, 0);
        let regions = &contents.regions;
        contents.table.for_each_present(pages.start..end, |address, mut slot| {
            if regions.is_anonymous(address) {
                frames[count] = slot.take();
                count += 1;
                promised += usize::from(is_promised(address));
            }
            if count == BATCH {
                end = address + layout::PAGE_BYTES;
            }
            count < BATCH
        });
        if count > 0 {
            contents.pages -= count;
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
    /// `NotMapped` at a hole, and `OutOfMemory`: changes made until then remain. The others: see
    /// [`MapError`]; nothing has changed then.
    pub fn protect_some(
        &self,
        range: &Range<usize>,
        rights: Rights,
    ) -> Result<Option<Range<usize>>, MapError> {
        check_range(range)?;
        check_rights(rights)?;
        let contents = &mut *self.contents.lock();
        contents.admit_regions()?;
        let limit = contents.regions.protectable(range)?;
        let (pages, _) = contents.table.first_pages(range.start..limit, HOLES);
        let end = pages.end;
        contents.regions.protect(range.start..end, rights)?;
        contents.adjust_charge();
        let mut any = false;
        contents.table.for_each_present(pages, |_, mut slot| {
            slot.set_rights(rights);
            any = true;
            true
        });
        if any {
            self.flush(range.start..end);
            if rights.execute {
                arch::sync_instruction_stream_everywhere();
            }
        }
        Ok((end < range.end).then_some(end..range.end))
    }

    /// Frees the tables for `range` that are now empty.
    fn free_empty_tables(&self, contents: &mut Contents, range: &Range<usize>) {
        let span = arch::page_size_of_level(1);
        let mut at = range.start & !(span - 1);
        while at < range.end {
            match contents.table.next_table(at) {
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
