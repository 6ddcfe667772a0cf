//! The model of one worker: the exact order of polls and drops.
//!
//! 64 deques, and a list of requests (the coroutines that were made ready since the last scheduling
//! point). What a coroutine makes ready goes into its deque at once, unless there are requests
//! before it; a coroutine that is moved, after them. A scheduling point enqueues the requests in
//! order, then the coroutine that was polled, then takes from the most urgent deque.

use std::collections::VecDeque;

use super::model::{Model, Modelled, Phase};

#[derive(Default)]
pub struct Exact {
    coroutines: Vec<Modelled>,
    /// By key: the deque in which it is, and whether a request for it is on the way.
    listed: Vec<Option<u8>>,
    requested: Vec<bool>,
    requests: Vec<usize>,
    lists: Vec<VecDeque<usize>>,
    running: Option<usize>,
}

impl Exact {
    pub fn new() -> Exact {
        Exact { lists: vec![VecDeque::new(); 64], ..Exact::default() }
    }

    fn request(&mut self, key: usize) {
        if !std::mem::replace(&mut self.requested[key], true) {
            self.requests.push(key);
        }
    }

    fn enqueue(&mut self, key: usize) {
        let priority = self.coroutines[key].priority;
        self.listed[key] = Some(priority);
        self.lists[priority as usize].push_back(key);
    }

    fn enqueue_requests(&mut self) {
        for key in std::mem::take(&mut self.requests) {
            self.requested[key] = false;
            self.enqueue(key);
        }
    }

    /// Enqueues the requests, then what was polled.
    fn settle(&mut self) {
        self.enqueue_requests();
        if let Some(key) = self.running.take() {
            let one = &mut self.coroutines[key];
            if std::mem::take(&mut one.woken) {
                one.phase = Phase::Ready;
                self.enqueue(key);
            } else {
                one.phase = Phase::Blocked;
            }
        }
    }

    fn pick(&mut self) -> Option<usize> {
        self.settle();
        let key = self.lists.iter_mut().find_map(VecDeque::pop_front)?;
        self.listed[key] = None;
        Some(key)
    }
}

impl Model for Exact {
    fn all(&self) -> &[Modelled] {
        &self.coroutines
    }

    fn one(&mut self, key: usize) -> &mut Modelled {
        &mut self.coroutines[key]
    }

    fn add(&mut self, id: u64, priority: u8) {
        self.coroutines.push(Modelled::new(id, priority));
        self.listed.push(None);
        self.requested.push(false);
    }

    fn make_ready(&mut self, key: usize, directly: bool, here: Option<usize>) {
        self.coroutines[key].phase = Phase::Ready;
        if directly && here.is_some() && self.requests.is_empty() && !self.requested[key] {
            self.enqueue(key);
        } else {
            self.request(key);
        }
    }

    fn moved(&mut self, key: usize) {
        if !self.requested[key] {
            self.enqueue_requests();
            if let Some(level) = self.listed[key] {
                self.lists[level as usize].retain(|&other| other != key);
            }
            self.enqueue(key);
        }
    }

    fn begin(&mut self, key: usize, _: usize) {
        assert_eq!(self.pick(), Some(key), "another coroutine is polled");
        self.coroutines[key].phase = Phase::Running;
        self.running = Some(key);
    }

    fn pause(&mut self, _: usize) {}

    fn end(&mut self, key: usize) {
        self.running = None;
        self.coroutines[key].phase = Phase::Free;
    }

    fn finish_run(&mut self, stalled: bool) {
        self.settle();
        if stalled {
            assert_eq!(self.bitmap(), 0, "stalled although something is ready");
        }
    }

    fn bitmap(&self) -> u64 {
        self.lists
            .iter()
            .enumerate()
            .fold(0, |bits, (level, list)| bits | (!list.is_empty() as u64) << level)
    }
}
