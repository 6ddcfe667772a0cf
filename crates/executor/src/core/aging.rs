//! Aging: a guaranteed share for less urgent levels, if asked for.
//!
//! One of every `period` polls of a worker goes to a less urgent level, alternating between those
//! with a coroutine that waits for that worker. So with period n, a level with a waiting coroutine
//! is served at least once in n * 63 polls, whatever is ready above it. Off by default: then this
//! costs one comparison in 256 polls.

use super::atomic::Ordering;

use super::executor::Executor;
use super::priority::Priority;
use super::worker::Worker;

impl Executor {
    /// How many polls the worker may make before one that goes to a less urgent level: 0 if it is
    /// time for that.
    pub(super) fn polls_until_aged(&self, worker: &Worker) -> u64 {
        match self.aging_period.load(Ordering::Relaxed) {
            0 => u64::MAX,
            period => {
                let since = worker.polls_since_aged.load(Ordering::Relaxed);
                (period.wrapping_sub(1) as u64).saturating_sub(since as u64)
            }
        }
    }
}

impl Worker {
    /// Counts polls towards the next that goes to a less urgent level; `aged` if the last of them
    /// did, or would have.
    pub(super) fn note_polls(&self, made: u64, aged: bool) {
        let since = self.polls_since_aged.load(Ordering::Relaxed).saturating_add(made as u32);
        self.polls_since_aged.store(if aged { 0 } else { since }, Ordering::Relaxed);
    }

    /// The next one of `levels`, which have waiting coroutines, after that of the last time; never
    /// the most urgent.
    pub(super) fn next_aged_level(&self, levels: u64) -> Option<Priority> {
        let less_urgent = levels & levels.wrapping_sub(1);
        let last = self.aged_level.load(Ordering::Relaxed);
        let later = less_urgent & (!1u64).wrapping_shl(last);
        let priority = Priority::most_urgent_in(later).or(Priority::most_urgent_in(less_urgent))?;
        self.aged_level.store(priority.level() as u32, Ordering::Relaxed);
        Some(priority)
    }
}
