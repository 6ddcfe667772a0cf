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

/// Maximum number of regions with mappings of objects that one portion of `munmap` removes: what is
/// left of the objects may have to be freed.
pub(super) const PORTION_MAPPINGS: usize = 4;

/// Where the pages of a region come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Backing {
    /// Zeroed frames, allocated on first access. The program may change and unmap the region.
    Anonymous,
    /// Frames that the kernel has mapped (shared pages, vDSO). The program may not change or unmap
    /// the region.
    Kernel,
    /// Copies of the pages of an object, made on first access: the number of the mapping. The
    /// program may change and unmap the region.
    Private(u16),
    /// Frames of an object. The program may unmap the region, and change it as far as its mapping
    /// permits.
    Shared(u16),
    /// Nothing: a call in portions is about to map something there. The program may not change or
    /// unmap the region. The number distinguishes reservations that are beside each other.
    Reserved(u16),
}

impl Backing {
    /// Whether the pages are the process's own, so that it is charged for them.
    pub(super) fn is_own(self) -> bool {
        matches!(self, Self::Anonymous | Self::Private(_))
    }

    /// The number of the mapping of an object.
    pub(super) fn mapping(self) -> Option<u16> {
        match self {
            Self::Private(number) | Self::Shared(number) => Some(number),
            Self::Anonymous | Self::Kernel | Self::Reserved(_) => None,
        }
    }

    /// The same with this mapping, if it has one.
    pub(super) fn with_mapping(self, number: Option<u16>) -> Self {
        match (self, number) {
            (Self::Private(_), Some(number)) => Self::Private(number),
            (Self::Shared(_), Some(number)) => Self::Shared(number),
            _ => self,
        }
    }

    /// Whether the program may change or unmap the region.
    pub(super) fn is_changeable(self) -> bool {
        !matches!(self, Self::Kernel | Self::Reserved(_))
    }
}

/// The properties of a region. Neighbours with equal properties are one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Region {
    pub(super) rights: Rights,
    pub(super) backing: Backing,
}

impl Region {
    /// A reservation.
    pub(super) fn reserved(number: u16) -> Self {
        Self { rights: Rights::NONE, backing: Backing::Reserved(number) }
    }
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
    /// `Protected` if one of the first regions belongs to the kernel or is reserved.
    pub(super) fn removable(&self, range: &Range<usize>) -> Result<usize, MapError> {
        let mut end = range.end;
        let mut mappings = 0;
        for (count, span) in self.map.spans(range.clone()).enumerate() {
            if !span.value.backing.is_changeable() {
                return Err(MapError::Protected);
            }
            mappings += usize::from(span.value.backing.mapping().is_some());
            if count + 1 == PORTION_REGIONS || mappings == PORTION_MAPPINGS {
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

    /// Whether nothing is mapped at some address of `range`, as far as a portion of the regions
    /// tells.
    pub(super) fn has_gap_in_portion(&self, range: &Range<usize>) -> bool {
        let mut at = range.start;
        for span in self.map.spans(range.clone()).take(PORTION_REGIONS) {
            if span.start > at {
                return true;
            }
            at = span.end;
        }
        // After a whole portion, the rest may have gaps, too.
        at < range.end && self.map.spans(range.clone()).nth(PORTION_REGIONS).is_none()
    }

    /// The region of `range`, if it is within one that the program may change.
    pub(super) fn around(&self, range: &Range<usize>) -> Option<Region> {
        let span = self.map.at(range.start).filter(|span| span.end >= range.end)?;
        span.value.backing.is_changeable().then_some(span.value)
    }

    /// Whether something in `range`, which a table covers, is reserved.
    pub(super) fn reserves(&self, range: Range<usize>) -> bool {
        self.map.spans(range).any(|span| matches!(span.value.backing, Backing::Reserved(_)))
    }

    /// Gives these properties to `range`, which is the beginning of a reserved region. Allocates
    /// nothing if the region before it has them already, or if that is the whole reserved region.
    ///
    /// # Errors
    /// `OutOfMemory`; nothing has changed then.
    pub(super) fn give_boundary(
        &mut self,
        range: Range<usize>,
        region: Region,
    ) -> Result<(), MapError> {
        if self.map.move_boundary(range.clone(), region) {
            return Ok(());
        }
        Ok(self.map.replace(range, Some(region))?)
    }

    /// Whether `address` is in a region with an object's own frames.
    pub(super) fn is_shared(&self, address: usize) -> bool {
        self.at(address).is_some_and(|region| matches!(region.backing, Backing::Shared(_)))
    }

    /// Removes everything in `range`, which [`Self::removable`] has permitted.
    ///
    /// # Errors
    /// `OutOfMemory`, only if one region becomes two.
    pub(super) fn remove(&mut self, range: Range<usize>) -> Result<(), MapError> {
        self.replace(range, None)
    }

    /// Like [`Self::remove`], and puts `by` there.
    ///
    /// # Errors
    /// `OutOfMemory`; nothing has changed then.
    pub(super) fn replace(
        &mut self,
        range: Range<usize>,
        by: Option<Region>,
    ) -> Result<(), MapError> {
        Ok(self.map.replace(range, by)?)
    }

    /// The end of the part of `range` that one portion of `mprotect` processes: the end of `range`
    /// or an earlier address. Also where its pages come from, all of them.
    ///
    /// # Errors
    /// `NotMapped` if nothing is mapped at its start, `Protected` if the region there belongs to
    /// the kernel.
    pub(super) fn protectable(&self, range: &Range<usize>) -> Result<(usize, Backing), MapError> {
        let (mut end, mut backing) = (range.start, None);
        for span in self.map.spans(range.clone()).take(PORTION_REGIONS) {
            if span.start > end || *backing.get_or_insert(span.value.backing) != span.value.backing
            {
                break;
            }
            end = span.end.min(range.end);
        }
        match backing {
            None => Err(MapError::NotMapped),
            Some(backing) if !backing.is_changeable() => Err(MapError::Protected),
            Some(backing) => Ok((end, backing)),
        }
    }

    /// Gives these properties to all of `range`, which [`Self::protectable`] has permitted.
    ///
    /// # Errors
    /// `OutOfMemory`, only if a region is split; nothing has changed then.
    pub(super) fn protect(&mut self, range: Range<usize>, region: Region) -> Result<(), MapError> {
        check_reserve()?;
        Ok(self.map.replace(range, Some(region))?)
    }

    /// The mapped parts of `range`, and where their pages come from.
    pub(super) fn parts_of(
        &self,
        range: Range<usize>,
    ) -> impl Iterator<Item = (Range<usize>, Backing)> {
        let part = range.clone();
        self.map.spans(range).map(move |span| {
            (span.start.max(part.start)..span.end.min(part.end), span.value.backing)
        })
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
