//! When the polling coroutine is woken (`src/next_poll.rs`), under the model checker: a scene for
//! each pair of transitions that can meet.
//!
//! `./cops test --only loom`, or
//! `RUSTFLAGS="--cfg cops_loom" cargo test --release -p cops-net --test loom`
#![cfg(cops_loom)]

#[path = "../src/next_poll.rs"]
mod next_poll;

use loom::sync::atomic::{AtomicBool, Ordering::*};
use loom::sync::{Arc, Mutex};
use loom::thread;
use next_poll::NextPoll;

/// An interface with its earliest deadline, and the polling coroutine's doorbell.
struct Link {
    next: NextPoll,
    earliest: Mutex<Option<u64>>,
    is_woken: AtomicBool,
}

impl Link {
    fn new() -> Link {
        Link {
            next: NextPoll::default(),
            earliest: Mutex::new(None),
            is_woken: AtomicBool::new(false),
        }
    }

    /// The polling coroutine polls, and returns when it polls next without being woken.
    fn poll(&self) -> Option<u64> {
        self.is_woken.store(false, SeqCst);
        self.next.begin();
        let earliest = *self.earliest.lock().unwrap();
        self.next.promise(earliest);
        earliest
    }

    /// A holder of the interface arms a deadline, and releases the interface.
    fn arm(&self, deadline: u64) {
        {
            let mut earliest = self.earliest.lock().unwrap();
            *earliest = Some(earliest.map_or(deadline, |other| other.min(deadline)));
        }
        self.announce(deadline);
    }

    fn announce(&self, deadline: u64) {
        if self.next.claim_wake(deadline) {
            self.is_woken.store(true, SeqCst);
        }
    }

    /// The polling coroutine, which sleeps until `next`, comes for each deadline in time, and for
    /// work that comes now.
    fn comes_in_time(&self, next: Option<u64>) {
        let earliest = *self.earliest.lock().unwrap();
        let is_woken = self.is_woken.load(SeqCst);
        let is_early = earliest.is_none_or(|at| next.is_some_and(|next| next <= at));
        assert!(is_woken || is_early, "polls at {next:?}, too late for {earliest:?}");
        self.announce(0);
        let comes = next == Some(0) || self.is_woken.load(SeqCst);
        assert!(comes, "asleep until {next:?}, and not woken");
    }
}

/// Runs `other` on a hart of its own beside a poll.
fn beside_a_poll(begin: fn(&Link), other: fn(&Link)) {
    loom::model(move || {
        let link = Arc::new(Link::new());
        begin(&link);
        let on_other = link.clone();
        let hart = thread::spawn(move || other(&on_other));
        let next = link.poll();
        hart.join().unwrap();
        link.comes_in_time(next);
    });
}

#[test]
fn poll_against_the_first_deadline() {
    beside_a_poll(|_| {}, |link| link.arm(5));
}

#[test]
fn poll_against_an_earlier_deadline() {
    beside_a_poll(|link| link.arm(5), |link| link.arm(3));
}

/// The holder has seen "never", and the promise that comes then is early enough: it must not look
/// as if the coroutine had been woken.
#[test]
fn poll_against_a_later_deadline() {
    beside_a_poll(|link| link.arm(3), |link| link.arm(5));
}

#[test]
fn poll_against_work_that_is_left_for_it() {
    beside_a_poll(|link| link.arm(3), |link| link.announce(0));
}

/// Two holders meet while the coroutine sleeps until 7.
#[test]
fn two_holders() {
    for (one, other) in [(3, 5), (5, 3), (3, 9), (9, 3), (0, 0)] {
        loom::model(move || {
            let link = Arc::new(Link::new());
            link.arm(7);
            let next = link.poll();
            let on_other = link.clone();
            let hart = thread::spawn(move || on_other.arm(other));
            link.arm(one);
            hart.join().unwrap();
            link.comes_in_time(next);
        });
    }
}

/// Two holders meet, and a poll meets both.
#[test]
fn two_holders_beside_a_poll() {
    for (one, other) in [(3, 5), (9, 0)] {
        loom::model(move || {
            let link = Arc::new(Link::new());
            link.arm(4);
            let harts = [one, other].map(|deadline| {
                let link = link.clone();
                thread::spawn(move || link.arm(deadline))
            });
            let next = link.poll();
            for hart in harts {
                hart.join().unwrap();
            }
            link.comes_in_time(next);
        });
    }
}

#[test]
fn nothing_is_woken_in_vain() {
    loom::model(|| {
        let next = NextPoll::default();
        next.promise(Some(5));
        assert!(!next.claim_wake(5), "it comes by itself");
        assert!(next.claim_wake(4));
        assert!(!next.claim_wake(0), "it is woken already");
    });
}
