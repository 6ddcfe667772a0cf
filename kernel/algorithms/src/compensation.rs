//! The part of the time that is guaranteed to less urgent virtual CPUs (`set_share`).
//!
//! Time in which more urgent virtual CPUs run while others wait is counted. When there is so much
//! of it that one slice is the guaranteed share of the sum, one of the less urgent gets a slice.
//! The levels take turns, and within a level its order decides. So no virtual CPU is left out, and
//! none is searched for.
//!
//! The time is counted also while only virtual CPUs of the same level wait, and is bounded: a less
//! urgent one that comes late gets a slice at once, and not all slices that it did not want before.

use cops_abi::Priority;

/// What the less urgent have not been given yet.
#[derive(Debug)]
pub struct Compensation {
    /// Time that less urgent virtual CPUs had to wait for more urgent ones without compensation.
    passed_over_ticks: u64,
    /// The level that was compensated last.
    last: Priority,
}

/// The levels that are less urgent than `priority`.
const fn less_urgent_than(priority: Priority) -> u64 {
    !(priority.bit() | (priority.bit() - 1))
}

impl Default for Compensation {
    fn default() -> Self {
        Self::new()
    }
}

impl Compensation {
    /// Nothing is due.
    #[must_use]
    pub const fn new() -> Self {
        Self { passed_over_ticks: 0, last: Priority::MOST_URGENT }
    }

    /// A virtual CPU has run for `ticks` while others waited.
    pub fn pass_over(&mut self, ticks: u64) {
        self.passed_over_ticks = self.passed_over_ticks.saturating_add(ticks);
    }

    /// The level that gets a slice now instead of the most urgent one, if the less urgent have
    /// waited for long enough.
    ///
    /// `per_mille`: their share, below 1000; `harts`: how many pass them over at the same time;
    /// `levels`: those with virtual CPUs that wait.
    pub fn next(
        &mut self,
        per_mille: u32,
        slice_ticks: u64,
        harts: usize,
        levels: u64,
    ) -> Option<Priority> {
        if per_mille == 0 {
            self.passed_over_ticks = 0;
            return None;
        }
        let due_ticks = slice_ticks * u64::from(1000 - per_mille) / u64::from(per_mille);
        if self.passed_over_ticks < due_ticks {
            return None;
        }
        // If less urgent ones always wait, it is less than `due_ticks` after each choice, and each
        // hart adds a slice at most before the next choice.
        let passed_over_max = due_ticks + slice_ticks * harts as u64 - 1;
        self.passed_over_ticks = self.passed_over_ticks.min(passed_over_max);
        let below = levels & less_urgent_than(Priority::most_urgent_in(levels)?);
        let after_last = below & less_urgent_than(self.last);
        let chosen = if after_last == 0 { below } else { after_last };
        let priority = Priority::most_urgent_in(chosen)?;
        self.last = priority;
        self.passed_over_ticks -= due_ticks;
        Some(priority)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SLICE: u64 = 1000;

    proptest! {
        /// With virtual CPUs that always want to run, the less urgent levels together get their
        /// share, and each of them the same number of slices; also if several harts choose at the
        /// same time.
        #[test]
        fn the_less_urgent_get_their_share(
            per_mille in 1..=500u32,
            levels in any::<u64>(),
            stay in 1..=SLICE,
            harts in 1..=4usize,
        ) {
            let mut compensation = Compensation::new();
            let mut slices = [0u64; 64];
            let (mut urgent_ticks, mut other_ticks) = (0, 0);
            for _ in 0..20_000 / harts {
                // All harts choose before the first of them ends what it has chosen.
                let mut urgent = 0;
                for _ in 0..harts {
                    match compensation.next(per_mille, SLICE, harts, levels) {
                        Some(priority) => {
                            slices[usize::from(priority.level())] += 1;
                            other_ticks += SLICE;
                        }
                        None => urgent += stay,
                    }
                }
                (0..urgent / stay).for_each(|_| compensation.pass_over(stay));
                urgent_ticks += urgent;
            }
            let below = levels & levels.wrapping_sub(1);
            let mut counts = (0..64).filter(|level| below & 1 << level != 0).map(|level| slices[level]);
            let first = counts.next();
            let due_ticks = SLICE * u64::from(1000 - per_mille) / u64::from(per_mille);
            prop_assert!(first.is_some() || other_ticks == 0, "{:?}", slices);
            if let Some(first) = first {
                // After the last time that was passed over, nothing may have been chosen yet.
                let is_due = urgent_ticks >= due_ticks + stay * harts as u64;
                prop_assert!(!is_due || other_ticks > 0, "{} of {}", urgent_ticks, due_ticks);
                prop_assert!(counts.all(|count| count <= first && first - count <= 1), "{:?}", slices);
                // Both sides of `other / (urgent + other) = share`, to within a slice and what the
                // division of ticks loses.
                let due = urgent_ticks * u64::from(per_mille) / u64::from(1000 - per_mille);
                let lost = other_ticks / SLICE;
                let tolerated = SLICE * harts as u64 + lost;
                prop_assert!(other_ticks.abs_diff(due) <= tolerated, "{} of {}", other_ticks, due);
            }
        }
    }

    #[test]
    fn nothing_is_due_without_a_share_or_without_waiting_levels() {
        let mut compensation = Compensation::new();
        compensation.pass_over(u64::MAX);
        assert_eq!(compensation.next(500, SLICE, 1, 0), None);
        assert_eq!(compensation.next(500, SLICE, 1, 1 << 63), None);
        assert_eq!(compensation.next(0, SLICE, 1, 3), None);
        // What was passed over before the share was set does not count.
        assert_eq!(compensation.next(500, SLICE, 1, 3), None);
        compensation.pass_over(SLICE);
        assert_eq!(compensation.next(500, SLICE, 1, 1 << 63 | 1), Some(Priority::LEAST_URGENT));
        assert_eq!(compensation.next(500, SLICE, 1, 1 << 63 | 1), None);
    }

    #[test]
    fn time_in_which_nothing_less_urgent_waits_is_not_saved_up() {
        let (urgent, both) = (1 << 32, 1 << 32 | 1 << 60);
        for (per_mille, due_slices) in [(500, 1), (100, 9)] {
            for harts in [1, 4] {
                let mut compensation = Compensation::new();
                for _ in 0..1000 {
                    compensation.pass_over(SLICE);
                    assert_eq!(compensation.next(per_mille, SLICE, harts, urgent), None);
                }
                // One less urgent virtual CPU comes: a slice, and what the harts may have added.
                let mut next = || compensation.next(per_mille, SLICE, harts, both);
                let granted = core::iter::from_fn(&mut next).count();
                assert_eq!(granted, 1 + (harts - 1) / due_slices);
            }
        }
    }

    #[test]
    fn a_larger_share_counts_from_now_on() {
        let mut compensation = Compensation::new();
        (0..998).for_each(|_| compensation.pass_over(SLICE));
        assert_eq!(compensation.next(1, SLICE, 1, 3), None);
        assert_eq!(compensation.next(500, SLICE, 1, 3), Priority::new(1));
        assert_eq!(compensation.next(500, SLICE, 1, 3), None);
    }
}
