//! How many polls a worker makes before it looks up: at the clock, and by it at the reactor.
//!
//! A look costs a system call, a poll may take nanoseconds or milliseconds, and which of the two is
//! not known beforehand. So a batch begins with one poll and doubles while batches are short; one
//! that took too long brings it back to one at once and, if there is something to look at, keeps it
//! there for a while, since long polls come in numbers.
//!
//! Worst case: polls that were short turn long within one batch. The reactor's own thread sees,
//! twice, that no worker has looked for 10 ms, and drives it until one does. To leave all of it to
//! that thread while workers are busy was tried: each event then costs two changes of thread on a
//! processor that has other work, and waits as long as the system's scheduler lets it.

use std::time::{Duration, Instant};

/// How long I/O may wait for a look while workers are busy with short polls. A look takes about a
/// microsecond.
pub(super) const LOOK_INTERVAL: Duration = Duration::from_micros(50);
/// A batch that took longer than this took too long.
const LONG: Duration = Duration::from_micros(100);
/// How long single polls are made after such a batch.
const CAUTION: Duration = Duration::from_millis(5);
/// Polls of one batch: leaving `run` and coming back is to be lost among them.
const MOST_POLLS: u64 = 256;

pub(super) struct Pace {
    polls: u64,
    now: Instant,
    cautious_until: Option<Instant>,
}

impl Pace {
    pub fn new(now: Instant) -> Pace {
        Pace { polls: 1, now, cautious_until: None }
    }

    /// Polls that the next batch may make.
    pub fn polls(&self) -> u64 {
        self.polls
    }

    /// The time when the last batch began or ended, whichever came last.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// To be called when polling is taken up after something else.
    pub fn resume(&mut self, now: Instant) {
        self.now = now;
        if self.cautious_until.is_some_and(|until| until <= now) {
            self.cautious_until = None;
        }
    }

    /// To be called after each batch; `is_cautious` if there are a reactor or deadlines to look at.
    /// True if it took long.
    pub fn end_batch(&mut self, now: Instant, is_cautious: bool) -> bool {
        let elapsed = now.saturating_duration_since(self.now);
        self.resume(now);
        if elapsed > LONG {
            self.polls = 1;
            self.cautious_until = if is_cautious { now.checked_add(CAUTION) } else { None };
            return true;
        }
        if self.cautious_until.is_none() && elapsed < LOOK_INTERVAL / 2 {
            self.polls = (self.polls * 2).min(MOST_POLLS);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_polls_come_in_growing_batches() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        let mut sizes = std::vec::Vec::new();
        for _ in 0..12 {
            sizes.push(pace.polls());
            now += Duration::from_micros(4);
            assert!(!pace.end_batch(now, true));
        }
        assert_eq!(sizes, [1, 2, 4, 8, 16, 32, 64, 128, 256, 256, 256, 256]);
    }

    #[test]
    fn batches_stop_growing_where_they_take_as_long_as_a_look_may_wait() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        for _ in 0..20 {
            now += Duration::from_micros(10) * pace.polls() as u32;
            pace.end_batch(now, true);
        }
        assert_eq!(pace.polls(), 4);
    }

    #[test]
    fn after_a_long_poll_they_are_single_until_there_was_none_for_a_while() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        for _ in 0..10 {
            now += Duration::from_micros(1);
            pace.end_batch(now, true);
        }
        now += Duration::from_millis(2);
        assert!(pace.end_batch(now, true));
        let long_until = now;
        while now < long_until + CAUTION - Duration::from_micros(20) {
            now += Duration::from_micros(10);
            assert!(!pace.end_batch(now, true));
            assert_eq!(pace.polls(), 1);
        }
        now += Duration::from_micros(20);
        assert!(!pace.end_batch(now, true));
        assert_eq!(pace.polls(), 2);
    }

    #[test]
    fn with_nothing_to_look_at_they_grow_again_at_once() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        now += Duration::from_millis(2);
        assert!(pace.end_batch(now, false));
        for polls in [1, 2, 4, 8] {
            assert_eq!(pace.polls(), polls);
            now += Duration::from_micros(4);
            assert!(!pace.end_batch(now, false));
        }
    }

    #[test]
    fn time_spent_elsewhere_is_no_long_poll() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        now += Duration::from_secs(1);
        pace.resume(now);
        now += Duration::from_micros(1);
        assert!(!pace.end_batch(now, true));
        assert_eq!(pace.polls(), 2);
    }
}
