//! What a program has mapped where: a sorted list of ranges, pure bookkeeping.

use super::{MapError, OutOfMemory, Rights, frames, layout};
use cops_fallible::List;
use core::ops::Range;

/// Regions a process can have: as many as on Linux. They cost the kernel 40 bytes each.
const REGIONS_MAX: usize = 65_530;

/// Who provides the pages of a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Backing {
    /// Zeroed frames on first touch; the program may change and unmap it.
    Anonymous,
    /// Frames the kernel has put there (shared pages, vDSO); the program may not.
    Kernel,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Region {
    pub(super) range: Range<usize>,
    pub(super) rights: Rights,
    pub(super) backing: Backing,
}

/// Regions by address, never overlapping.
pub(super) struct Regions {
    list: List<Region>,
    /// Where the search for a free range begins.
    hint: usize,
}

impl Regions {
    pub(super) const fn new() -> Self {
        Self { list: List::new(), hint: layout::MAP_START }
    }

    /// Makes room for more regions, within the limit and not out of the kernel's reserve.
    fn reserve(&mut self, more: usize) -> Result<(), OutOfMemory> {
        if self.list.len() + more > self.list.capacity()
            && (self.list.len() + more > REGIONS_MAX || frames::is_down_to_reserve())
        {
            return Err(OutOfMemory);
        }
        self.list.try_reserve(more)
    }

    /// Index of the first region that ends above `address`.
    fn first_above(&self, address: usize) -> usize {
        self.list.partition_point(|region| region.range.end <= address)
    }

    /// The region around `address`.
    pub(super) fn at(&self, address: usize) -> Option<&Region> {
        self.list.get(self.first_above(address)).filter(|region| region.range.start <= address)
    }

    /// Adds a region, joining it with equal neighbours.
    pub(super) fn insert(&mut self, new: Region) -> Result<(), MapError> {
        let index = self.first_above(new.range.start);
        if self.list.get(index).is_some_and(|next| next.range.start < new.range.end) {
            return Err(MapError::Overlap);
        }
        let alike = |other: &Region| (other.rights, other.backing) == (new.rights, new.backing);
        let joins_before = index > 0 && {
            let before = &self.list[index - 1];
            before.range.end == new.range.start && alike(before)
        };
        let joins_after =
            self.list.get(index).is_some_and(|after| after.range.start == new.range.end && alike(after));
        match (joins_before, joins_after) {
            (true, true) => {
                self.list[index - 1].range.end = self.list[index].range.end;
                self.list.remove(index);
            }
            (true, false) => self.list[index - 1].range.end = new.range.end,
            (false, true) => self.list[index].range.start = new.range.start,
            (false, false) => {
                self.reserve(1)?;
                self.list.try_insert(index, new)?;
            }
        }
        Ok(())
    }

    /// Makes region borders at both ends of `range`, so that it consists of whole regions;
    /// returns their indexes.
    fn isolate(&mut self, range: &Range<usize>) -> Result<Range<usize>, OutOfMemory> {
        self.reserve(2)?;
        for border in [range.start, range.end] {
            let index = self.first_above(border);
            if let Some(region) = self.list.get_mut(index)
                && region.range.start < border
            {
                let mut upper = region.clone();
                upper.range.start = border;
                region.range.end = border;
                self.list.try_insert(index + 1, upper)?;
            }
        }
        Ok(self.first_above(range.start)..self.list.partition_point(|region| region.range.start < range.end))
    }

    /// Whether any region in `range` is the kernel's.
    pub(super) fn touches_kernel(&self, range: &Range<usize>) -> bool {
        self.list[self.first_above(range.start)..]
            .iter()
            .take_while(|region| region.range.start < range.end)
            .any(|region| region.backing == Backing::Kernel)
    }

    /// Removes what there is in `range`.
    pub(super) fn remove(&mut self, range: &Range<usize>) -> Result<(), MapError> {
        if self.touches_kernel(range) {
            return Err(MapError::Protected);
        }
        let indexes = self.isolate(range)?;
        drop(self.list.drain_range(indexes));
        self.hint = self.hint.min(range.start.max(layout::MAP_START));
        Ok(())
    }

    /// Gives all of `range`, which must be mapped without a gap, other rights.
    pub(super) fn protect(&mut self, range: &Range<usize>, rights: Rights) -> Result<(), MapError> {
        if self.touches_kernel(range) {
            return Err(MapError::Protected);
        }
        let mut covered = range.start;
        for region in &self.list[self.first_above(range.start)..] {
            if region.range.start > covered || covered >= range.end {
                break;
            }
            covered = region.range.end;
        }
        if covered < range.end {
            return Err(MapError::NotMapped);
        }
        let indexes = self.isolate(range)?;
        for region in &mut self.list[indexes.clone()] {
            region.rights = rights;
        }
        self.join_neighbours(indexes);
        Ok(())
    }

    /// Joins equal neighbours around and among `indexes`.
    fn join_neighbours(&mut self, indexes: Range<usize>) {
        let mut index = indexes.end.min(self.list.len().saturating_sub(1));
        while index > 0 && index >= indexes.start {
            let (before, after) = (&self.list[index - 1], &self.list[index]);
            if before.range.end == after.range.start
                && (before.rights, before.backing) == (after.rights, after.backing)
            {
                let end = after.range.end;
                self.list.remove(index);
                self.list[index - 1].range.end = end;
            }
            index -= 1;
        }
    }

    /// A free range of `length` bytes (page aligned) in the mmap area.
    pub(super) fn find_free(&mut self, length: usize) -> Option<usize> {
        let mut at = self.hint;
        for region in &self.list[self.first_above(at)..] {
            if region.range.start.saturating_sub(at) >= length || at >= layout::MAP_END {
                break;
            }
            at = at.max(region.range.end);
        }
        let end = at.checked_add(length)?;
        (end <= layout::MAP_END).then_some(at)
    }

    /// The search for free ranges goes on behind `address`.
    pub(super) fn advance_hint(&mut self, range: &Range<usize>) {
        if range.start == self.hint {
            self.hint = range.end;
        }
    }
}
