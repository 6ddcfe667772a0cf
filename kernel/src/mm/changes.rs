//! Changes of many pages of an address space: unmapping and rights, in portions.

use super::address_space::{AddressSpace, Inner, check_range, check_rights, is_promised, promised_pages};
use super::frames::Frame;
use super::{MapError, Rights, layout};
use crate::arch::{self, Entry};
use core::ops::Range;

/// Frames taken out of the table that wait for the flush, at most; nobody else has his turn for so long.
const BATCH: usize = 32;

/// Holes without tables that are skipped in one go, at most.
const HOLES: usize = 64;

impl AddressSpace {
    /// Unmaps some of what there is at the beginning of `range`, some microseconds' worth; holes are no error.
    /// Returns what is left to be done, `None` if nothing.
    ///
    /// # Errors
    /// `BadRange`, `Protected`, `OutOfMemory` (a region must be split and there is no memory
    /// for its record); nothing has changed then.
    pub fn unmap_some(&self, range: &Range<usize>) -> Result<Option<Range<usize>>, MapError> {
        check_range(range)?;
        let inner = &mut *self.inner.lock();
        let limit = inner.regions.removable(range)?;
        let (pages, covered) = inner.table.first_pages(range.start..limit, HOLES);
        let (start, mut end) = (pages.start, pages.end);
        let (mut count, mut touched) = (0, 0);
        inner.table.for_each_present(start..end, |address, _| {
            count += 1;
            touched += usize::from(is_promised(address));
            if count == BATCH {
                end = address + layout::PAGE_BYTES;
            }
            count < BATCH
        });
        let promised =
            inner.regions.ranges_in(range.start..end).map(|part| promised_pages(&part)).sum::<usize>();
        // Nothing can fail after this.
        inner.regions.remove(range.start..end)?;
        let mut frames = [const { None }; BATCH];
        let mut places = frames.iter_mut();
        inner.table.for_each_present(start..end, |_, slot| {
            if let Some(place) = places.next() {
                *place = Some(Frame::from_physical(slot.get().physical()));
                slot.set(Entry::EMPTY);
            }
            true
        });
        if count > 0 {
            inner.pages -= count;
            self.flush(start..end);
        }
        if start < end && (end == range.end || end == covered) {
            self.free_empty_tables(inner, &(start..end));
        }
        inner.promised -= promised - touched;
        // The frames are still to be freed, by this very function: a moment in which they count as free.
        inner.settle();
        Ok((end < range.end).then_some(end..range.end))
    }

    /// Changes the rights of some of what there is at the beginning of `range`, some microseconds' worth. Returns what is
    /// left to be done, `None` if nothing.
    ///
    /// # Errors
    /// `NotMapped` at a hole, `OutOfMemory`: what has been changed by then stays so. The others: see [`MapError`];
    /// nothing has changed then.
    pub fn protect_some(
        &self,
        range: &Range<usize>,
        rights: Rights,
    ) -> Result<Option<Range<usize>>, MapError> {
        check_range(range)?;
        check_rights(rights)?;
        let inner = &mut *self.inner.lock();
        inner.admit_regions()?;
        let limit = inner.regions.protectable(range)?;
        let (pages, _) = inner.table.first_pages(range.start..limit, HOLES);
        let end = pages.end;
        inner.regions.protect(range.start..end, rights)?;
        inner.settle();
        let mut any = false;
        inner.table.for_each_present(pages, |_, slot| {
            slot.set(Entry::user_leaf(slot.get().physical(), rights));
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

    /// Frees the tables under `range` that are empty now.
    fn free_empty_tables(&self, inner: &mut Inner, range: &Range<usize>) {
        let span = arch::page_size_of_level(1);
        let mut at = range.start & !(span - 1);
        while at < range.end {
            match inner.table.next_table(at) {
                Ok(()) => {
                    if let Some(table) = inner.table.detach_if_empty(at) {
                        // The caches may remember the table itself, whatever the address.
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
