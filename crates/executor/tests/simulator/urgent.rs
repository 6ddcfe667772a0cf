//! An urgent coroutine is woken while 1,000 others are ready: how many of them are polled before
//! it?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::random::Random;
use super::sweep::judge;
use super::table::{Summary, Table, check};
use super::world::{Next, Report, World};

const ORDINARY: usize = 1_000;
const ROUNDS: u64 = 300;
const POLL_NANOS: u64 = 10_000;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// A coroutine, in the middle of its poll.
    Coroutine,
    /// No worker: another thread, a device.
    Outside,
}

fn wake_among_many(workers: usize, from: Origin) -> Report {
    let world = World::new(workers, 2);
    let stop = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicU64::new(0));
    let begun = rounds.clone();
    let urgent = world.spawn(0, 0, move |turn| {
        turn.spend(POLL_NANOS / 2);
        begun.fetch_add(1, Ordering::Relaxed);
        Next::Block
    });
    for number in 0..ORDINARY {
        let (stop, rounds) = (stop.clone(), rounds.clone());
        let mut random = Random::new(number as u64);
        world.spawn(1, 32, move |turn| {
            if stop.load(Ordering::Relaxed) {
                return Next::End;
            }
            let before = random.between(0, POLL_NANOS);
            turn.spend(before);
            if from == Origin::Coroutine && random.below(8) == 0 {
                world.wake(urgent);
                if rounds.load(Ordering::Relaxed) >= ROUNDS {
                    stop.store(true, Ordering::Relaxed);
                }
            }
            turn.spend(POLL_NANOS - before);
            Next::Yield
        });
    }
    world.play(
        |source| {
            if from == Origin::Outside {
                let mut random = Random::new(4);
                while rounds.load(Ordering::Relaxed) < ROUNDS {
                    source.spend(random.between(POLL_NANOS, POLL_NANOS * 8));
                    world.wake(urgent);
                }
                stop.store(true, Ordering::Relaxed);
            }
        },
        |_| world.cancel(urgent),
    )
}

#[test]
fn an_urgent_wake_among_1000() {
    let mut table = Table::new(
        "An urgent wake among 1,000 that are ready",
        "1,000 coroutines yield after polls of 10 µs; one at level 0 is woken again and again, from the middle of one of their \
         polls or from outside. *passed*: the most polls of the others that began before its own did; the proposition \
         allows one a worker, and none with one worker. The polls that are being made when it is woken are not among them: it \
         waits for the first of those to end.",
        &[
            "woken by",
            "workers",
            "waits",
            "mean",
            "p50",
            "p99",
            "max",
            "passed, one worker",
            "passed, all workers",
        ],
    );
    for from in [Origin::Coroutine, Origin::Outside] {
        for workers in [1, 2, 4, 8] {
            let report = wake_among_many(workers, from);
            judge(workers, &report);
            let seen = &report.classes[0];
            assert!(seen.waits.len() as u64 >= ROUNDS);
            let summary = Summary::of(seen.waits.iter().copied());
            // It comes to be polled when the first of the workers ends its poll.
            assert!(summary.max <= POLL_NANOS, "waited for {}", summary.max);
            let name = if from == Origin::Coroutine { "coroutine" } else { "outside" };
            let mut cells = vec![name.to_owned(), workers.to_string()];
            cells.extend(summary.cells());
            cells.extend([seen.passed_on_one_worker.to_string(), seen.passed.to_string()]);
            table.row(cells);
        }
    }
    check(table);
}
