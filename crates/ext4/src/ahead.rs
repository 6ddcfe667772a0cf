//! Which part of a file is worth reading before anything asks for it.

use core::ops::Range;

/// Bytes that are read ahead at first, and at most.
const SMALLEST: u64 = 64 * 1024;
const LARGEST: u64 = 512 * 1024;

/// The recent reads of one file. While each begins where the one before has ended, a window behind
/// them is worth reading: it grows while this goes on, and is extended whenever half of it has been
/// used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAhead {
    /// Where the last read has ended.
    next: u64,
    /// Until where it has been read ahead.
    until: u64,
    window: u64,
}

impl Default for ReadAhead {
    fn default() -> ReadAhead {
        ReadAhead { next: 0, until: 0, window: SMALLEST }
    }
}

impl ReadAhead {
    /// `count` bytes were read at `position`. Returns what to read ahead now
    /// ([`Ext4::prefetch`](crate::Ext4::prefetch)), if anything; it may end behind the end of the
    /// file.
    pub fn note(&mut self, position: u64, count: usize) -> Option<Range<u64>> {
        let end = position.saturating_add(count as u64);
        if position != self.next || count == 0 {
            *self = ReadAhead { next: end, until: end, window: SMALLEST };
            return None;
        }
        self.next = end;
        let start = self.until.max(end);
        if start - end > self.window / 2 {
            return None;
        }
        self.until = end.saturating_add(self.window);
        self.window = LARGEST.min(2 * self.window);
        Some(start..self.until).filter(|range| !range.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    const KIB: u64 = 1024;

    /// Reads of 16 KiB from the beginning; what was read ahead at each.
    #[test]
    fn sequential_reads_have_a_growing_window() {
        let mut ahead = ReadAhead::default();
        let ranges = (0..40).filter_map(|index| ahead.note(index * 16 * KIB, 16 * 1024));
        let kib = |range: &Range<u64>| (range.start / KIB, range.end / KIB);
        let ranges: Vec<_> = ranges.map(|range| kib(&range)).collect();
        assert_eq!(ranges[..4], [(16, 80), (80, 160), (160, 304), (304, 576)]);
        // Nothing is read ahead twice, and nothing is left out.
        assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0));
        // The last read ends at 640 KiB.
        assert!(ranges.last().is_some_and(|range| range.1 > 640 && range.1 <= 640 + LARGEST / KIB));
    }

    #[test]
    fn other_reads_have_none() {
        let mut ahead = ReadAhead::default();
        for position in [4096, 16384, 4096, 8192 + 1, 0] {
            assert_eq!(ahead.note(position, 4096), None, "{position}");
        }
        // From here on they are sequential again, with the smallest window.
        assert_eq!(ahead.note(4096, 4096), Some(8192..8192 + SMALLEST));
        assert_eq!(ahead.note(8192, 0), None);
    }

    #[test]
    fn positions_at_the_end_of_all_numbers_are_no_fault() {
        let mut ahead = ReadAhead::default();
        assert_eq!(ahead.note(u64::MAX - 10, 4), None);
        assert_eq!(ahead.note(u64::MAX - 6, 4), Some(u64::MAX - 2..u64::MAX));
        assert_eq!(ahead.note(u64::MAX - 2, 4), None);
    }
}
