//! Everything at once, on plain threads: coroutines yield, block, wake, move, cancel, spawn, join
//! and lock mutexes, on 2, 3 and 4 workers that steal and park, while a thread outside does the
//! same. Checked all the time:
//!
//! - a coroutine is polled by one worker at a time, never after its end, and dropped once
//!   (`actor`);
//! - a mutex has one holder, and a joined coroutine its own output;
//! - the bound on order: an urgent coroutine that is ready is overtaken by at most one poll on each
//!   worker (`order`);
//!
//! every few milliseconds, when the workers are stopped: lists, inboxes, bitmaps and free slots are
//! link by link as they should be (`Executor::verify`); and every second or so, when all coroutines
//! are asked to end: none is lost, and counts balance.
//!
//! `COPS_STRESS_SECONDS` is how long all of it takes (6 if it is not set;
//! `./cops test --only stress` sets 60), `COPS_STRESS_SEED` where the random numbers begin. The
//! seed is printed; threads make each run another one all the same.
#![allow(unsafe_code)]

mod actor;
mod bound;
#[path = "../common/mod.rs"]
mod common;
mod mood;
mod order;
mod published;
mod stage;

use std::time::{Duration, Instant};

use common::random::Random;
use common::require;
use stage::Stage;

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

fn variable(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")))
}

#[test]
fn a_storm_on_two_three_and_four_workers() {
    let seconds = variable("COPS_STRESS_SECONDS").unwrap_or(6);
    let seed = variable("COPS_STRESS_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_nanos() as u64)
    });
    println!("COPS_STRESS_SEED={seed}");
    for workers in [2, 3, 4] {
        let stage = Stage::new(100 + workers as u8, workers);
        let end = Instant::now() + Duration::from_secs(seconds) / 3;
        stage.run(seed, end);
    }
}
