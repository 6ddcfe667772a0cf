//! Time slices: how long a virtual CPU keeps a hart while others of its level wait for one, and
//! the charge for that.
//!
//! The current time is an argument, in ticks of the machine's clock.

/// Maximum number of parts that a slice is divided into when many virtual CPUs of a level are
/// ready.
pub const PARTS_MAX: u64 = 10;

/// The length of a slice if `peers` virtual CPUs of its level are ready, including its own. A round
/// of all of them takes one whole slice, as long as each gets a useful amount of time.
#[must_use]
pub fn ticks_among(whole_ticks: u64, peers: u64) -> u64 {
    (whole_ticks / peers).max(whole_ticks / PARTS_MAX)
}

/// One slice. It is used up while its virtual CPU runs, not while that waits for kernel coroutines.
#[derive(Debug)]
pub struct Slice {
    whole_ticks: u64,
    remaining_ticks: u64,
    /// Its end if the virtual CPU keeps running.
    end_ticks: u64,
    divisor: u32,
    granted: bool,
}

impl Slice {
    /// A slice of this length. `divisor`: of the process, see [`shares`](crate::shares); `granted`:
    /// it must not be taken away.
    #[must_use]
    pub fn new(ticks: u64, divisor: u32, granted: bool) -> Self {
        Self { whole_ticks: ticks, remaining_ticks: ticks, end_ticks: u64::MAX, divisor, granted }
    }

    /// Its virtual CPU runs from `now_ticks` on. Returns when it will have to stop.
    pub fn begin(&mut self, now_ticks: u64) -> u64 {
        self.end_ticks = now_ticks.saturating_add(self.remaining_ticks);
        self.end_ticks
    }

    /// Its virtual CPU stops at `now_ticks`.
    pub fn pause(&mut self, now_ticks: u64) {
        self.remaining_ticks = self.end_ticks.saturating_sub(now_ticks);
        self.end_ticks = u64::MAX;
    }

    /// Whether it is over at `now_ticks`, while the virtual CPU runs.
    #[must_use]
    pub fn is_over(&self, now_ticks: u64) -> bool {
        now_ticks >= self.end_ticks
    }

    /// The rest of it, while the virtual CPU does not run.
    #[must_use]
    pub fn remaining_ticks(&self) -> u64 {
        self.remaining_ticks
    }

    /// The used part of it, while the virtual CPU does not run.
    #[must_use]
    pub fn used_ticks(&self) -> u64 {
        self.whole_ticks.saturating_sub(self.remaining_ticks)
    }

    /// The vruntime of all of it.
    #[must_use]
    pub fn whole_vruntime(&self) -> i64 {
        self.whole_ticks as i64 * i64::from(self.divisor)
    }

    /// The vruntime of the rest of it, while the virtual CPU does not run.
    #[must_use]
    pub fn remaining_vruntime(&self) -> i64 {
        self.remaining_ticks as i64 * i64::from(self.divisor)
    }

    /// The vruntime of the used part of it, while the virtual CPU does not run.
    #[must_use]
    pub fn used_vruntime(&self) -> i64 {
        self.whole_vruntime() - self.remaining_vruntime()
    }

    /// The factor for its time.
    #[must_use]
    pub fn divisor(&self) -> u32 {
        self.divisor
    }

    /// Whether it is granted in full.
    #[must_use]
    pub fn is_granted(&self) -> bool {
        self.granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    proptest! {
        /// However often its virtual CPU stops, it runs for the whole slice before the slice is
        /// over, and the time in between does not count. What is charged for the whole and refunded
        /// for the rest is what was used.
        #[test]
        fn a_slice_lasts_for_its_ticks_of_running(
            whole in 1..1000u64,
            divisor in 1..4096u32,
            periods in prop::collection::vec((0..300u64, 0..500u64), 0..12),
        ) {
            let mut slice = Slice::new(whole, divisor, false);
            let (mut now, mut ran) = (77, 0);
            for (running, waiting) in periods {
                let end = slice.begin(now);
                prop_assert_eq!(end, now + (whole - ran));
                for step in 0..=running {
                    prop_assert_eq!(slice.is_over(now + step), ran + step >= whole);
                }
                now += running;
                slice.pause(now);
                ran = (ran + running).min(whole);
                prop_assert_eq!((slice.used_ticks(), slice.remaining_ticks()), (ran, whole - ran));
                prop_assert_eq!(slice.used_vruntime(), (ran * u64::from(divisor)) as i64);
                prop_assert!(!slice.is_over(now + 1_000_000), "it does not end while it is paused");
                now += waiting;
            }
        }
    }

    #[test]
    fn a_round_takes_one_slice_as_long_as_parts_are_useful() {
        let parts: Vec<u64> =
            [1, 2, 3, 10, 11, 1000].iter().map(|&peers| ticks_among(6000, peers)).collect();
        assert_eq!(parts, [6000, 3000, 2000, 600, 600, 600]);
    }
}
