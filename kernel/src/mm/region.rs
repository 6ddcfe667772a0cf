//! Which parts of a program's address space are mapped: a map of ranges, only bookkeeping.
//!
//! Every operation is bounded, however many regions there are: work on many regions is done in
//! portions.

use super::{MapError, OutOfMemory, Rights, frames};
use cops_algorithms::range_map::{RangeError, RangeMap, Span};
use core::ops::Range;

/// Maximum number of regions of a process: as on Linux. Each takes 24 bytes of kernel memory, at
/// most 64.
const REGIONS_MAX: usize = 65_530;

/// Maximum number of regions that one portion of a call changes.
const PORTION_REGIONS: usize = 32;

/// Where the pages of a region come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Backing {
    /// Zeroed frames, allocated on first access. The program may change and unmap the region.
    Anonymous,
    /// Frames that the kernel has mapped (shared pages, vDSO). The program may not change or unmap
    /// the region.
    Kernel,
}

/// The properties of a region. Neighbours with equal properties are one region.
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

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// The region around `address`.
    pub(super) fn at(&self, address: usize) -> Option<Region> {
        self.map.at(address).map(|span| span.value)
    }

    /// The region with this index, in the order of addresses.
    pub(super) fn nth(&self, index: usize) -> Option<Span<Region>> {
        self.map.nth(index)
    }

    /// The first region that ends above `address`.
    pub(super) fn first_above(&self, address: usize) -> Option<Span<Region>> {
        self.map.first_above(address)
    }

    /// Adds a region, joined with neighbours that have equal properties.
    pub(super) fn insert(&mut self, range: Range<usize>, region: Region) -> Result<(), MapError> {
        check_reserve()?;
        Ok(self.map.insert(range, region)?)
    }

    /// The end of the part of `range` that one portion of `munmap` processes: the end of `range` or
    /// an earlier address.
    ///
    /// # Errors
    /// `Protected` if one of the first regions belongs to the kernel.
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

    /// The end of the part of `range` that one portion of `madvise` processes: the end of `range`
    /// or an earlier address.
    pub(super) fn discardable(&self, range: &Range<usize>) -> usize {
        let last = self.map.spans(range.clone()).nth(PORTION_REGIONS - 1);
        last.map_or(range.end, |span| span.end.min(range.end))
    }

    /// The rights of `range`, if it is within one region of anonymous memory.
    pub(super) fn rights_of(&self, range: &Range<usize>) -> Option<Rights> {
        let span = self.map.at(range.start).filter(|span| span.end >= range.end)?;
        (span.value.backing == Backing::Anonymous).then_some(span.value.rights)
    }

    /// Whether `address` is in anonymous memory.
    pub(super) fn is_anonymous(&self, address: usize) -> bool {
        self.at(address).is_some_and(|region| region.backing == Backing::Anonymous)
    }

    /// Removes everything in `range`, which [`Self::removable`] has permitted.
    ///
    /// # Errors
    /// `OutOfMemory`, only if one region becomes two.
    pub(super) fn remove(&mut self, range: Range<usize>) -> Result<(), MapError> {
        Ok(self.map.replace(range, None)?)
    }

    /// The end of the part of `range` that one portion of `mprotect` processes: the end of `range`
    /// or an earlier address.
    ///
    /// # Errors
    /// `NotMapped` if nothing is mapped at its start, `Protected` if the region there belongs to
    /// the kernel.
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

    /// Gives these rights to all of `range`, which [`Self::protectable`] has permitted.
    ///
    /// # Errors
    /// `OutOfMemory`, only if a region is split; nothing has changed then.
    pub(super) fn protect(&mut self, range: Range<usize>, rights: Rights) -> Result<(), MapError> {
        check_reserve()?;
        Ok(self.map.replace(range, Some(Region { rights, backing: Backing::Anonymous }))?)
    }

    /// The mapped parts of `range`.
    pub(super) fn ranges_in(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let spans = self.map.spans(range.clone());
        spans.map(move |span| span.start.max(range.start)..span.end.min(range.end))
    }

    /// The lowest free range of `length` bytes (page aligned) in `area`.
    pub(super) fn find_free(&self, area: Range<usize>, length: usize) -> Option<usize> {
        self.map.find_gap(area, length)
    }

    /// Removes some regions of a space that no longer exists. Returns whether there are more.
    pub(super) fn forget_some(&mut self) -> bool {
        self.map.clear_some()
    }
}

/// Fails when only the kernel's reserve is left: no regions are made from it.
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
