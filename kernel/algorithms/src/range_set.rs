//! A set of numbers, as a few ranges.

use core::ops::Range;

use cops_fallible::{List, OutOfMemory};

/// Maximum number of ranges of a set, so that an insertion is short.
pub const RANGES_MAX: usize = 256;

/// Numbers, as ranges in ascending order. None is empty, and none ends where the next one begins.
#[derive(Debug, Default)]
pub struct RangeSet(List<Range<u64>>);

impl RangeSet {
    /// No numbers.
    #[must_use]
    pub const fn new() -> Self {
        Self(List::new())
    }

    /// Whether it has no numbers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether it has `number`.
    #[must_use]
    pub fn contains(&self, number: u64) -> bool {
        let at = self.0.partition_point(|range| range.end <= number);
        self.0.get(at).is_some_and(|range| range.start <= number)
    }

    /// Adds the numbers of `range`.
    ///
    /// # Errors
    /// [`OutOfMemory`], also if there would be more than [`RANGES_MAX`] ranges; nothing has
    /// changed.
    pub fn insert(&mut self, range: Range<u64>) -> Result<(), OutOfMemory> {
        if range.is_empty() {
            return Ok(());
        }
        // Those that it overlaps or touches.
        let first = self.0.partition_point(|other| other.end < range.start);
        let end = self.0.partition_point(|other| other.start <= range.end);
        let Some(joined) = self.0.get_mut(first).filter(|_| first < end) else {
            if self.0.len() >= RANGES_MAX {
                return Err(OutOfMemory);
            }
            return self.0.try_insert(first, range);
        };
        joined.start = joined.start.min(range.start);
        joined.end = joined.end.max(range.end);
        if first + 1 < end {
            let last = self.0.drain_range(first + 1..end).last();
            if let (Some(joined), Some(last)) = (self.0.get_mut(first), last) {
                joined.end = joined.end.max(last.end);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_does_what_a_set_does(ranges in prop::collection::vec((0..120u64, 0..12u64), 1..60)) {
            let (mut set, mut model) = (RangeSet::new(), BTreeSet::new());
            for (start, length) in ranges {
                set.insert(start..start + length).unwrap();
                model.extend(start..start + length);
                for number in 0..140 {
                    prop_assert_eq!(set.contains(number), model.contains(&number));
                }
                prop_assert!(set.0.iter().all(|range| !range.is_empty()));
                prop_assert!(set.0.windows(2).all(|pair| pair[0].end < pair[1].start));
            }
        }
    }

    #[test]
    fn a_set_with_too_many_ranges_stays_as_it_is() {
        let mut set = RangeSet::new();
        for number in 0..RANGES_MAX as u64 {
            set.insert(2 * number..2 * number + 1).unwrap();
        }
        assert_eq!(set.insert(10_000..10_001), Err(OutOfMemory));
        assert!(!set.contains(10_000) && set.contains(0));
        set.insert(1..2).unwrap();
        assert!((0..3).all(|number| set.contains(number)) && !set.contains(3));
    }
}
