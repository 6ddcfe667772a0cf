//! The system calls that a machine completes in some time: compared before and after a change, they
//! show whether that has made the machine faster.

/// So many calls by a moment, or between two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The moment, or the time.
    pub ticks: u64,
    /// The system calls that the machine has completed.
    pub calls: u64,
}

impl Count {
    /// Fewer calls do not say how fast the machine is: each is long, or there is no load.
    pub const CALLS_MIN: u64 = 32;

    /// What has been added since the moment `start`.
    #[must_use]
    pub fn since(self, start: Self) -> Self {
        Self {
            ticks: self.ticks.saturating_sub(start.ticks),
            calls: self.calls.wrapping_sub(start.calls),
        }
    }

    /// Whether the calls of this count come at least `numerator` / `denominator` times as fast as
    /// those of `other`. Neither is 0.
    #[must_use]
    pub fn reaches(self, other: Self, numerator: u64, denominator: u64) -> bool {
        let product = |calls: u64, ticks: u64| u128::from(calls) * u128::from(ticks);
        // Divided, so that no product exceeds 128 bits.
        product(self.calls, other.ticks) / u128::from(numerator)
            >= product(other.calls, self.ticks) / u128::from(denominator)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_reaches_a_part_or_a_multiple_of_another_one() {
        let count = |ticks, calls| Count { ticks, calls };
        assert!(count(10, 1200).reaches(count(20, 2000), 6, 5));
        assert!(!count(10, 1190).reaches(count(20, 2000), 6, 5));
        assert!(count(20, 1500).reaches(count(10, 1000), 3, 4));
        assert!(!count(20, 1490).reaches(count(10, 1000), 3, 4));
        assert!(count(1, u64::MAX).reaches(count(u64::MAX, 1), u64::MAX, 1));
    }

    #[test]
    fn what_was_added_survives_a_counter_that_begins_anew() {
        let (start, now) = (Count { ticks: 5, calls: u64::MAX }, Count { ticks: 9, calls: 1 });
        assert_eq!(now.since(start), Count { ticks: 4, calls: 2 });
        assert_eq!(start.since(now).ticks, 0);
    }
}
