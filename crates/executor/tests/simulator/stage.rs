//! Virtual time, and threads in lock step: exactly one actor is on, and it goes on until it spends
//! time or sleeps.
//!
//! Each worker is a thread of its own, so that a poll can be in the middle (time passes, others
//! run) while another worker schedules, and the executor's own notion of the current worker is the
//! real one. Yet what happens is the same to the digit every time: the next actor is chosen by the
//! virtual clock, then by order of request. Calculations take no virtual time, only `spend` does.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard};

/// Actors are numbers; the last is the source, which is on first and whenever no other actor
/// has anything to do.
pub struct Stage {
    state: Mutex<State>,
    cues: Vec<Condvar>,
}

struct State {
    now: u64,
    /// Which actor goes on when: time, order of request, actor.
    due: BinaryHeap<Reverse<(u64, u64, usize)>>,
    requests: u64,
    on: usize,
    asleep: Vec<bool>,
    /// Roused before it slept: a sleep ends at once, as of `std::thread::park`.
    tokens: Vec<bool>,
}

impl Stage {
    /// For `workers` and the source.
    pub fn new(workers: usize) -> Stage {
        let actors = workers + 1;
        Stage {
            state: Mutex::new(State {
                now: 0,
                due: (0..workers).map(|worker| Reverse((0, worker as u64, worker))).collect(),
                requests: actors as u64,
                on: workers,
                asleep: vec![false; actors],
                tokens: vec![false; actors],
            }),
            cues: (0..actors).map(|_| Condvar::new()).collect(),
        }
    }

    /// Nanoseconds of virtual time.
    pub fn now(&self) -> u64 {
        self.state().now
    }

    /// What a new thread calls first: waits until `actor` is on.
    pub fn enter(&self, actor: usize) {
        self.await_turn(actor, self.state());
    }

    /// What a thread calls last.
    pub fn leave(&self) {
        self.next(&mut self.state());
    }

    /// Others go on, until `nanos` have passed.
    pub fn spend(&self, actor: usize, nanos: u64) {
        let mut state = self.state();
        let until = state.now + nanos;
        state.request(until, actor);
        self.next(&mut state);
        self.await_turn(actor, state);
    }

    /// Others go on, until `actor` is roused; the source: until no actor has anything to do.
    pub fn sleep(&self, actor: usize) {
        let mut state = self.state();
        if std::mem::take(&mut state.tokens[actor]) {
            return;
        }
        state.asleep[actor] = true;
        self.next(&mut state);
        self.await_turn(actor, state);
    }

    /// Ends the sleep of `actor` after `nanos`.
    pub fn rouse(&self, actor: usize, nanos: u64) {
        let mut state = self.state();
        if std::mem::take(&mut state.asleep[actor]) {
            let until = state.now + nanos;
            state.request(until, actor);
        } else {
            state.tokens[actor] = true;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn next(&self, state: &mut State) {
        let source = self.cues.len() - 1;
        match state.due.pop() {
            Some(Reverse((at, _, actor))) => {
                state.now = at;
                state.on = actor;
            }
            None => {
                state.asleep[source] = false;
                state.on = source;
            }
        }
        self.cues[state.on].notify_one();
    }

    fn await_turn(&self, actor: usize, mut state: MutexGuard<'_, State>) {
        while state.on != actor {
            state = self.cues[actor].wait(state).unwrap();
        }
    }
}

impl State {
    fn request(&mut self, at: u64, actor: usize) {
        self.due.push(Reverse((at, self.requests, actor)));
        self.requests += 1;
    }
}
