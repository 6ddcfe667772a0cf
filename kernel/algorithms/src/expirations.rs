//! When a timer expires, and how often it has: for a timer that is read as a file.
//!
//! Nothing happens at an expiration: they are counted when the timer is looked at, so an interval
//! may be as short as a nanosecond.

/// A timer. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expirations {
    /// The first expiration that is not counted; `None`: there is none.
    next: Option<u64>,
    /// Time between expirations; 0: there is one.
    interval: u64,
    /// Those that are counted and have not been taken.
    count: u64,
}

impl Expirations {
    /// A timer that expires at `first` and then at each `interval`, which may be 0. `None`: it does
    /// not expire.
    #[must_use]
    pub const fn new(first: Option<u64>, interval: u64) -> Self {
        Self { next: first, interval, count: 0 }
    }

    /// Counts those until `now`.
    fn advance(&mut self, now: u64) {
        let Some(next) = self.next.filter(|&next| next <= now) else { return };
        // After the first one, so many more.
        let more = (now - next).checked_div(self.interval);
        self.count = self.count.saturating_add(1).saturating_add(more.unwrap_or(0));
        self.next = more.and_then(|more| {
            let passed = self.interval.checked_mul(more.checked_add(1)?)?;
            next.checked_add(passed)
        });
    }

    /// Whether there is something to take.
    #[must_use]
    pub fn is_due(&mut self, now: u64) -> bool {
        self.advance(now);
        self.count > 0
    }

    /// Takes the number of expirations since the last time.
    pub fn take(&mut self, now: u64) -> u64 {
        self.advance(now);
        core::mem::take(&mut self.count)
    }

    /// The next expiration after `now`.
    #[must_use]
    pub fn next(&mut self, now: u64) -> Option<u64> {
        self.advance(now);
        self.next
    }

    /// Time between expirations; 0: there is one.
    #[must_use]
    pub const fn interval(&self) -> u64 {
        self.interval
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_timer_without_an_interval_expires_once() {
        let mut timer = Expirations::new(Some(100), 0);
        assert!(!timer.is_due(99));
        assert_eq!((timer.take(99), timer.next(99)), (0, Some(100)));
        assert!(timer.is_due(100));
        assert_eq!((timer.next(100), timer.take(1000), timer.take(2000)), (None, 1, 0));
    }

    #[test]
    fn one_that_is_off_does_not_expire() {
        let mut timer = Expirations::new(None, 5);
        assert_eq!((timer.take(u64::MAX), timer.next(0), timer.interval()), (0, None, 5));
    }

    #[test]
    fn the_end_of_time_is_reached() {
        let mut timer = Expirations::new(Some(0), 1);
        assert_eq!((timer.take(u64::MAX), timer.next(u64::MAX)), (u64::MAX, None));
        let mut timer = Expirations::new(Some(u64::MAX - 5), 10);
        assert_eq!((timer.take(u64::MAX), timer.next(u64::MAX)), (1, None));
    }

    proptest! {
        #[test]
        fn each_expiration_is_counted_once(
            first in 0..100u64,
            interval in 0..20u64,
            looks in prop::collection::vec((0..30u64, 0..3u8), 0..60),
        ) {
            let mut timer = Expirations::new(Some(first), interval);
            let expires_at = |at: u64| match interval {
                0 => at == first,
                _ => at >= first && (at - first).is_multiple_of(interval),
            };
            let (mut now, mut taken_until) = (0, 0);
            for (passed, what) in looks {
                now += passed;
                let count = (taken_until..=now).filter(|&at| expires_at(at)).count() as u64;
                match what {
                    0 => {
                        prop_assert_eq!(timer.take(now), count);
                        taken_until = now + 1;
                    }
                    1 => prop_assert_eq!(timer.is_due(now), count > 0),
                    _ => {
                        let next = (now + 1..now + 200).find(|&at| expires_at(at));
                        prop_assert_eq!(timer.next(now), next);
                    }
                }
            }
        }
    }
}
