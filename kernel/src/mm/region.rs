//! What a program has mapped where: a map of ranges, pure bookkeeping.
//!
//! Every operation here is bounded, whatever the number of regions: what concerns many of them is done some at a time.

use super::{MapError, OutOfMemory, Rights, frames, layout};
use cops_algorithms::range_map::{RangeError, RangeMap};
use core::ops::Range;

/// Regions a process can have: as many as on Linux. They cost the kernel 24 bytes each, and 64 at worst.
const REGIONS_MAX: usize = 65_530;

/// Regions that one portion of a call changes.
const PORTION_REGIONS: usize = 32;

/// Who provides the pages of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Backing {
    /// Zeroed frames on first touch; the program may change and unmap it.
    Anonymous,
    /// Frames the kernel has put there (shared pages, vDSO); the program may not.
    Kernel,
}

/// What a region is like. Neighbours that are alike are one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Region {
    pub(super) rights: Rights,
    pub(super) backing: Backing,
}

/// Regions by address, never overlapping.
pub(super) struct Regions {
    map: RangeMap<Region>,
}

impl Regions {
    pub(super) const fn new() -> Self {
        Self { map: RangeMap::new(REGIONS_MAX) }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// The region around `address`.
    pub(super) fn at(&self, address: usize) -> Option<Region> {
        self.map.at(address).map(|span| span.value)
    }

    /// Adds a region, joining it with equal neighbours.
    pub(super) fn insert(&mut self, range: Range<usize>, region: Region) -> Result<(), MapError> {
        check_reserve()?;
        Ok(self.map.insert(range, region)?)
    }

    /// How far into `range` a portion of `munmap` reaches: its end, or an earlier address.
    ///
    /// # Errors
    /// `Protected` if a region of the kernel's is among the first.
    pub(super) fn removable(&self, range: &Range<usize>) -> Result<usize, MapError> {
        let mut end = range.end;
        for (count, span) in self.map.spans(range.clone()).enumerate() {
            if span.value.backing == Backing::Kernel {
                return Err(MapError::Protected);
            }
            if count + 1 == PORTION_REGIONS {
                end = span.end.min(range.end);
                break;
            }
        }
        Ok(end)
    }

    /// Removes what there is in `range`, which [`Self::removable`] allows.
    ///
    /// # Errors
    /// `OutOfMemory`, only if one region becomes two.
    pub(super) fn remove(&mut self, range: Range<usize>) -> Result<(), MapError> {
        Ok(self.map.replace(range, None)?)
    }

    /// How far into `range` a portion of `mprotect` reaches: its end, or an earlier address.
    ///
    /// # Errors
    /// `NotMapped` if nothing is mapped at its start, `Protected` if that is the kernel's.
    pub(super) fn protectable(&self, range: &Range<usize>) -> Result<usize, MapError> {
        let mut end = range.start;
        for span in self.map.spans(range.clone()).take(PORTION_REGIONS) {
            if span.start > end {
                break;
            }
            if span.value.backing == Backing::Kernel {
                return if end > range.start { Ok(end) } else { Err(MapError::Protected) };
            }
            end = span.end.min(range.end);
        }
        if end > range.start { Ok(end) } else { Err(MapError::NotMapped) }
    }

    /// Gives all of `range`, which [`Self::protectable`] allows, these rights.
    ///
    /// # Errors
    /// `OutOfMemory`, only if a region is divided; nothing has changed then.
    pub(super) fn protect(&mut self, range: Range<usize>, rights: Rights) -> Result<(), MapError> {
        check_reserve()?;
        Ok(self.map.replace(range, Some(Region { rights, backing: Backing::Anonymous }))?)
    }

    /// What of `range` is mapped.
    pub(super) fn ranges_in(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let spans = self.map.spans(range.clone());
        spans.map(move |span| span.start.max(range.start)..span.end.min(range.end))
    }

    /// A free range of `length` bytes (page aligned) in the mmap area: the lowest.
    pub(super) fn find_free(&self, length: usize) -> Option<usize> {
        self.map.find_gap(layout::MAP_START..layout::MAP_END, length)
    }

    /// Forgets some regions, of a space that is gone. Returns whether there are more.
    pub(super) fn forget_some(&mut self) -> bool {
        self.map.clear_some()
    }
}

/// Regions are not made out of the kernel's reserve.
fn check_reserve() -> Result<(), OutOfMemory> {
    if frames::is_down_to_reserve() { Err(OutOfMemory) } else { Ok(()) }
}

impl From<RangeError> for MapError {
    fn from(error: RangeError) -> Self {
        match error {
            RangeError::Overlap => MapError::Overlap,
            RangeError::OutOfMemory => MapError::OutOfMemory,
        }
    }
}
