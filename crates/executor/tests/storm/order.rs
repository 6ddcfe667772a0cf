//! The bound on order (proposition of the crate's documentation), observed exactly: an urgent
//! coroutine, alone at level 0, is woken again and again, and each poll of another that begins
//! looks whether it is still waiting somewhere.
//!
//! A poll counts if it begins after the urgent one was announced (the wake has returned), and sees
//! its mark in some worker's record, and the urgent one has not been polled since. The first such
//! poll on a worker may have been picked before the announcement. Between that one and a second,
//! the worker was at a scheduling point, at which the mark was there already and still is: it
//! should have taken the urgent one. It says itself when it could not, because a lock was held
//! however often it looked (`WorkerState::skipped_steals`); and with more than two workers it may
//! look at two others just while one of them takes from the other, hence a steal elsewhere excuses
//! one too.
//!
//! That a host suspends a worker that has taken the urgent one, before the poll, does not count:
//! then nothing shows a mark.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};

use cops_executor::*;

use crate::require;
use crate::stage::Stage;

pub struct Order {
    id: AtomicU64,
    /// Rounds that were begun, announced, answered by a poll.
    begun: AtomicU64,
    announced: AtomicU64,
    answered: AtomicU64,
    announcing: AtomicBool,
    ended: AtomicBool,
    seen: [Seen; 4],
}

/// What a worker has counted in the present round. Its own.
#[derive(Default)]
struct Seen {
    round: AtomicU64,
    counted: AtomicU32,
    skipped: AtomicU32,
    steals: AtomicU64,
}

impl Order {
    pub fn new() -> Order {
        Order {
            id: AtomicU64::new(0),
            begun: AtomicU64::new(0),
            announced: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            announcing: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            seen: Default::default(),
        }
    }

    pub fn set_urgent(&self, id: CoroutineId) {
        self.id.store(id.raw(), SeqCst);
    }

    pub fn rounds(&self) -> u64 {
        self.answered.load(SeqCst)
    }

    /// What the urgent coroutine does at each poll; true if it shall end.
    pub fn answer(&self) -> bool {
        self.answered.store(self.begun.load(SeqCst), SeqCst);
        self.ended.load(SeqCst)
    }

    /// Wakes the urgent one, if it has answered the last time. One caller at a time.
    pub fn announce(&self) {
        if self.announcing.swap(true, SeqCst) {
            return;
        }
        let round = self.begun.load(SeqCst);
        if self.answered.load(SeqCst) == round && !self.ended.load(SeqCst) {
            self.begun.store(round + 1, SeqCst);
            if let Some(id) = CoroutineId::from_raw(self.id.load(SeqCst)) {
                let _ = wake_up(id);
            }
            self.announced.store(round + 1, SeqCst);
        }
        self.announcing.store(false, SeqCst);
    }

    pub fn end(&self) {
        self.ended.store(true, SeqCst);
        if let Some(id) = CoroutineId::from_raw(self.id.load(SeqCst)) {
            let _ = wake_up(id);
        }
    }

    /// A poll of another coroutine begins on `worker`.
    pub fn poll_begins(&self, stage: &Stage, worker: u32) {
        let round = self.announced.load(SeqCst);
        if self.answered.load(SeqCst) >= round || self.begun.load(SeqCst) != round {
            return;
        }
        let records = &stage.records[..stage.workers as usize];
        let seen = &self.seen[worker as usize];
        let skipped = records[worker as usize].skipped_steals.load(Relaxed);
        let steals = records.iter().map(|record| record.steals.load(Relaxed)).sum();
        if seen.round.load(Relaxed) != round {
            seen.round.store(round, Relaxed);
            seen.counted.store(0, Relaxed);
            seen.skipped.store(skipped, Relaxed);
            seen.steals.store(steals, Relaxed);
        }
        let waits = records.iter().any(|record| record.waiting() & 1 != 0);
        if !waits || self.answered.load(SeqCst) >= round {
            return;
        }
        let counted = seen.counted.load(Relaxed) + 1;
        seen.counted.store(counted, Relaxed);
        let mut allowed = 1 + u64::from(skipped.wrapping_sub(seen.skipped.load(Relaxed)));
        if stage.workers > 2 {
            allowed += steals - seen.steals.load(Relaxed);
        }
        require(
            u64::from(counted) <= allowed,
            "an urgent one waits for at most one poll on each worker",
        );
    }
}
