//! The work: computes on as many virtual CPUs as there are harts, for a given time, and counts its
//! progress.

use core::hint::spin_loop;

use cops::inspect;
use cops::println;
use cops::process::ExitCode;
use cops::task::{self, Priority};
use cops::time::{Duration, Instant, sleep_until};
use futures_util::future::join_all;

use crate::options::Options;

/// Turns of the loop between two readings of the clock.
const ROUND: usize = 200;

/// Works, and prints the result.
pub async fn run(options: &Options) -> ExitCode {
    let priority = Priority::saturating(options.level.into());
    let harts = inspect::harts().map_or(1, |harts| harts.len());
    if harts > 1 && task::alloc_cpu(harts - 1).is_err() {
        println!("work: no virtual CPUs");
        return ExitCode::FAILURE;
    }
    let begin = Instant::now() + Duration::from_millis(options.delay_milliseconds);
    let end = begin + Duration::from_millis(options.work_milliseconds);
    let parts = (0..harts).map(|_| task::spawn_join(part(begin, end), priority));
    let mut rounds = 0;
    for part in join_all(parts).await {
        rounds += part.unwrap_or(0);
    }
    println!("work: rounds={rounds}");
    ExitCode::SUCCESS
}

/// Counts the rounds from `begin` to `end`.
async fn part(begin: Instant, end: Instant) -> u64 {
    sleep_until(begin).await;
    let mut rounds = 0;
    while Instant::now() < end {
        for _ in 0..ROUND {
            spin_loop();
        }
        rounds += 1;
    }
    rounds
}
