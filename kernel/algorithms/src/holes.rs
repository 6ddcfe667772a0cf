//! The parts of a range that are outside other ranges: at boot, the memory that is neither the
//! kernel's image nor reserved by the firmware.

use core::ops::Range;

/// Calls `visit` with the parts of `range` outside all reserved ranges, in ascending order.
/// Reserved ranges may overlap, may be empty, and may be in any order.
pub fn for_each_hole(
    range: &Range<usize>,
    reserved: &[Range<usize>],
    mut visit: impl FnMut(Range<usize>),
) {
    let mut at = range.start;
    while at < range.end {
        // Inside a reserved range: continue at its end.
        if let Some(inside) = reserved.iter().find(|taken| taken.contains(&at)) {
            at = inside.end;
            continue;
        }
        let starts = reserved.iter().filter(|taken| !taken.is_empty()).map(|taken| taken.start);
        let end = starts.filter(|&start| start > at).min().unwrap_or(range.end).min(range.end);
        visit(at..end);
        at = end;
    }
}

/// The first address in one of `ranges`, outside `reserved`, at which `bytes` bytes are free and
/// which is a multiple of `alignment`. `None` if there is no such address.
#[must_use]
pub fn first_hole(
    ranges: &[Range<usize>],
    reserved: &[Range<usize>],
    bytes: usize,
    alignment: usize,
) -> Option<usize> {
    let mut found = None;
    for range in ranges {
        for_each_hole(range, reserved, |hole| {
            let start = hole.start.checked_next_multiple_of(alignment);
            let fits = |start: &usize| start.checked_add(bytes).is_some_and(|end| end <= hole.end);
            found = found.or(start.filter(fits));
        });
    }
    found
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    const END: usize = 64;

    fn ranges(count: usize) -> impl Strategy<Value = Vec<Range<usize>>> {
        prop::collection::vec(
            (0..END, 0..12usize).prop_map(|(start, length)| start..start + length),
            0..count,
        )
    }

    proptest! {
        /// Compares with a set of addresses; holes are as long as possible.
        #[test]
        fn holes_are_what_is_not_reserved(range in (0..END, 0..END), reserved in ranges(6)) {
            let range = range.0..range.1;
            let is_free = |at: &usize| !reserved.iter().any(|taken| taken.contains(at));
            let mut visited = Vec::new();
            let mut previous_end = None;
            for_each_hole(&range, &reserved, |hole| {
                assert!(!hole.is_empty() && previous_end != Some(hole.start), "{hole:?}");
                previous_end = Some(hole.end);
                visited.extend(hole);
            });
            prop_assert_eq!(visited, range.filter(is_free).collect::<Vec<_>>());
        }

        #[test]
        fn the_first_hole_is_the_lowest_that_fits(
            end in 0..END,
            reserved in ranges(6),
            bytes in 1..12usize,
            alignment in prop::sample::select(&[1usize, 2, 4, 8][..]),
        ) {
            let fits = |start: &usize| {
                start + bytes <= end
                    && (*start..start + bytes).all(|at| !reserved.iter().any(|taken| taken.contains(&at)))
            };
            let expected = (0..END).step_by(alignment).find(fits);
            prop_assert_eq!(first_hole(core::slice::from_ref(&(0..end)), &reserved, bytes, alignment), expected);
        }
    }

    #[test]
    fn the_first_range_that_fits_is_taken() {
        let (ranges, reserved) = ([0..10, 20..40, 50..90], [0..8, 25..30]);
        assert_eq!(first_hole(&ranges, &reserved, 2, 1), Some(8));
        assert_eq!(first_hole(&ranges, &reserved, 10, 1), Some(30));
        assert_eq!(first_hole(&ranges, &reserved, 10, 4), Some(52));
        assert_eq!(first_hole(&ranges, &reserved, 41, 1), None);
        // An address near the end of all addresses does not wrap around.
        let last = usize::MAX - 5..usize::MAX;
        let last = core::slice::from_ref(&last);
        assert_eq!(first_hole(last, &[], 6, 1), None);
        assert_eq!(first_hole(last, &[], 5, 4096), None);
    }
}
