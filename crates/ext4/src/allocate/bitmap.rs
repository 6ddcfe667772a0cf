//! Searching bitmaps.

use crate::bytes::bit;

/// The first clear bit in `from..length`.
fn first_clear(bitmap: &[u8], from: u32, length: u32) -> Option<u32> {
    let mut at = from;
    while at < length {
        if at.is_multiple_of(8) && bitmap.get(at as usize / 8) == Some(&0xFF) {
            at += 8;
        } else if bit(bitmap, at) {
            at += 1;
        } else {
            return Some(at);
        }
    }
    None
}

/// Clear bits from `at` on, at most `most`.
fn run_length(bitmap: &[u8], at: u32, length: u32, most: u32) -> u32 {
    (at..length).take(most as usize).take_while(|index| !bit(bitmap, *index)).count() as u32
}

/// A run of up to `want` clear bits: the first one at or behind `goal` that has all, or else the
/// longest one. Returns its first bit and its length.
pub fn find_run(bitmap: &[u8], length: u32, goal: u32, want: u32) -> Option<(u32, u32)> {
    let want = want.max(1);
    let mut best: Option<(u32, u32)> = None;
    for (from, to) in [(goal.min(length), length), (0, goal.min(length))] {
        let mut at = from;
        while let Some(first) = first_clear(bitmap, at, to) {
            let run = run_length(bitmap, first, length, want);
            // A file that grows should go on exactly where it ended.
            if run >= want || (first == goal && run > 0) {
                return Some((first, run));
            }
            if best.is_none_or(|(_, longest)| run > longest) {
                best = Some((first, run));
            }
            at = first + run;
        }
    }
    best
}

/// The first clear bit at or behind `from`, or else the first one of all from `least` on.
pub fn find_one(bitmap: &[u8], length: u32, from: u32, least: u32) -> Option<u32> {
    first_clear(bitmap, from.max(least), length).or_else(|| first_clear(bitmap, least, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_found_behind_the_goal_then_before_it_then_shorter() {
        // Clear: 0..4, 8..10, 16..24.
        let bitmap = [0xF0, 0xFC, 0x00];
        assert_eq!(find_run(&bitmap, 24, 9, 8), Some((9, 1)), "continues at the goal");
        assert_eq!(find_run(&bitmap, 24, 10, 8), Some((16, 8)));
        assert_eq!(find_run(&bitmap, 24, 10, 3), Some((16, 3)));
        assert_eq!(find_run(&bitmap, 16, 10, 3), Some((0, 3)));
        assert_eq!(find_run(&bitmap, 16, 12, 9), Some((0, 4)), "the longest");
        assert_eq!(find_run(&[0xFF; 3], 24, 3, 1), None);
        assert_eq!(find_one(&bitmap, 24, 4, 2), Some(8));
        assert_eq!(find_one(&bitmap, 16, 12, 2), Some(2));
    }
}
