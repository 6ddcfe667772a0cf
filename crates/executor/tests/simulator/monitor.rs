//! What is ready since when, kept apart from the executor, and what that says of the order of
//! polls.
//!
//! The monitor knows no queues and no workers' lists: only which coroutine was made ready
//! when, at which level.

use std::collections::BTreeMap;

/// A coroutine, by order of spawning.
pub type Key = usize;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Blocked,
    Ready,
    Running,
    Gone,
}

struct Watched {
    class: usize,
    level: u8,
    phase: Phase,
    /// While ready: since when, and its place among those of its level.
    since: u64,
    place: u64,
    /// While running: it has been woken.
    woken: bool,
    /// Its level was changed while it was ready: what that does to its place is for
    /// `tests/model.rs` to say.
    moved: bool,
    cancelled: bool,
    /// While ready: less urgent polls that began, by worker.
    passed: Vec<u32>,
    /// While ready: polls that began of peers which became ready later.
    overtaken: u32,
}

/// What was seen of a class of coroutines.
#[derive(Clone, Default)]
pub struct Seen {
    /// Nanoseconds from becoming ready to the beginning of the poll, one for each poll, in order.
    pub waits: Vec<u64>,
    /// The most less urgent polls that one worker began while one of the class was ready.
    pub passed_on_one_worker: u32,
    /// The same for all workers together.
    pub passed: u32,
    /// The most peers that became ready after one of the class and were polled before it.
    pub overtaken: u32,
}

pub struct Monitor {
    workers: usize,
    coroutines: Vec<Watched>,
    ready: Vec<BTreeMap<u64, Key>>,
    places: u64,
    pub recording: bool,
    pub polls: u64,
    pub classes: Vec<Seen>,
    /// What must never be.
    pub faults: Vec<String>,
}

impl Monitor {
    pub fn new(workers: usize, classes: usize) -> Monitor {
        Monitor {
            workers,
            coroutines: Vec::new(),
            ready: vec![BTreeMap::new(); 64],
            places: 0,
            recording: true,
            polls: 0,
            classes: vec![Seen::default(); classes],
            faults: Vec::new(),
        }
    }

    pub fn spawn(&mut self, class: usize, level: u8, now: u64) -> Key {
        self.coroutines.push(Watched {
            class,
            level,
            phase: Phase::Blocked,
            since: 0,
            place: 0,
            woken: false,
            moved: false,
            cancelled: false,
            passed: vec![0; self.workers],
            overtaken: 0,
        });
        let key = self.coroutines.len() - 1;
        self.make_ready(key, now);
        key
    }

    pub fn wake(&mut self, key: Key, now: u64) {
        match self.coroutines[key].phase {
            Phase::Blocked => self.make_ready(key, now),
            Phase::Running => self.coroutines[key].woken = true,
            Phase::Ready | Phase::Gone => {}
        }
    }

    pub fn cancel(&mut self, key: Key, now: u64) {
        self.coroutines[key].cancelled = true;
        self.wake(key, now);
    }

    pub fn set_level(&mut self, key: Key, level: u8) {
        let one = &mut self.coroutines[key];
        if one.phase == Phase::Ready && one.level != level {
            self.ready[one.level as usize].remove(&one.place);
            one.place = self.places;
            one.moved = true;
            self.places += 1;
            self.ready[level as usize].insert(one.place, key);
        }
        one.level = level;
    }

    pub fn is_gone(&self, key: Key) -> bool {
        self.coroutines[key].phase == Phase::Gone
    }

    /// The classes of those that have not ended.
    pub fn left(&self) -> Vec<usize> {
        let left = self.coroutines.iter().filter(|one| one.phase != Phase::Gone);
        left.map(|one| one.class).collect()
    }

    /// A poll, or the drop of a cancelled one in its place, begins on `worker`.
    pub fn begin(&mut self, key: Key, worker: usize, now: u64, is_poll: bool) {
        self.polls += is_poll as u64;
        let one = &mut self.coroutines[key];
        if one.phase != Phase::Ready || one.cancelled == is_poll {
            let kind = if is_poll { "poll" } else { "unpolled drop" };
            self.faults.push(format!(
                "{kind} of {key}, which is {:?}, cancelled: {}",
                one.phase, one.cancelled
            ));
            return;
        }
        one.phase = Phase::Running;
        let (class, level, place) = (one.class, one.level, one.place);
        let (since, moved, overtaken) = (one.since, one.moved, one.overtaken);
        let (passed, on_one) =
            (one.passed.iter().sum(), one.passed.iter().copied().max().unwrap_or(0));
        self.ready[level as usize].remove(&place);
        for &other in self.ready[..level as usize].iter().flat_map(BTreeMap::values) {
            self.coroutines[other].passed[worker] += 1;
        }
        for (_, &other) in self.ready[level as usize].range(..place) {
            self.coroutines[other].overtaken += 1;
        }
        if self.recording {
            let seen = &mut self.classes[class];
            if is_poll {
                seen.waits.push(now - since);
            }
            seen.passed = seen.passed.max(passed);
            seen.passed_on_one_worker = seen.passed_on_one_worker.max(on_one);
            if !moved {
                seen.overtaken = seen.overtaken.max(overtaken);
            }
        }
    }

    /// The poll is pending.
    pub fn pause(&mut self, key: Key, now: u64) {
        let one = &mut self.coroutines[key];
        one.phase = Phase::Blocked;
        // A cancelled one is dropped instead.
        if std::mem::take(&mut one.woken) && !one.cancelled {
            self.make_ready(key, now);
        }
    }

    /// The future is dropped.
    pub fn end(&mut self, key: Key, worker: Option<usize>, now: u64) {
        if self.coroutines[key].phase == Phase::Ready {
            match worker {
                Some(worker) => self.begin(key, worker, now, false),
                None => self.faults.push(format!("{key} was dropped by no worker")),
            }
        }
        if std::mem::replace(&mut self.coroutines[key].phase, Phase::Gone) == Phase::Gone {
            self.faults.push(format!("{key} was dropped twice"));
        }
    }

    fn make_ready(&mut self, key: Key, now: u64) {
        let one = &mut self.coroutines[key];
        one.phase = Phase::Ready;
        one.since = now;
        one.place = self.places;
        one.moved = false;
        one.overtaken = 0;
        one.passed.fill(0);
        self.places += 1;
        self.ready[one.level as usize].insert(one.place, key);
    }
}
