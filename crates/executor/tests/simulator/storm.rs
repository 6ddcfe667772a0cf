//! Priorities that change all the time, from inside and outside, while coroutines yield, block, are
//! woken and cancelled.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::random::Random;
use super::sweep::judge;
use super::table::{Table, check, grouped};
use super::world::{Next, World};

const COROUTINES: u64 = 200;
const CHANGES: u64 = 4_000;

#[test]
fn a_storm_of_priorities() {
    let mut table = Table::new(
        "A storm of priorities",
        "200 coroutines at random levels yield, block, wake each other and give each other new levels at random; so does the \
         outside, which cancels some too.",
        &["workers", "polls", "changes of level", "passed, one worker", "passed, all workers"],
    );
    for workers in [1, 2, 4, 8] {
        let world = World::new(workers, 1);
        let stop = Arc::new(AtomicBool::new(false));
        let changes = Arc::new(AtomicU64::new(0));
        for number in 0..COROUTINES {
            let (stop, changes) = (stop.clone(), changes.clone());
            let mut random = Random::new(number);
            world.spawn(0, random.below(64) as u8, move |turn| {
                if stop.load(Ordering::Relaxed) {
                    return Next::End;
                }
                for _ in 0..random.below(4) {
                    turn.spend(random.between(100, 4_000));
                    let whom = random.below(COROUTINES) as usize;
                    if random.below(2) == 0 {
                        world.set_level(whom, random.below(64) as u8);
                        changes.fetch_add(1, Ordering::Relaxed);
                    } else {
                        world.wake(whom);
                    }
                }
                if random.below(2) == 0 { Next::Yield } else { Next::Block }
            });
        }
        let report = world.play(
            |source| {
                let mut random = Random::new(5);
                for _ in 0..CHANGES {
                    source.spend(random.between(100, 3_000));
                    let whom = random.below(COROUTINES) as usize;
                    match random.below(400) {
                        0 => world.cancel(whom),
                        1..200 => world.wake(whom),
                        _ => {
                            world.set_level(whom, random.below(64) as u8);
                            changes.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
                stop.store(true, Ordering::Relaxed);
            },
            |_| {
                for whom in 0..COROUTINES as usize {
                    world.wake(whom);
                }
            },
        );
        // Those that were moved while they waited are not compared with their peers.
        judge(workers, &report);
        let seen = &report.classes[0];
        table.row([
            workers.to_string(),
            grouped(report.polls),
            grouped(changes.load(Ordering::Relaxed)),
            seen.passed_on_one_worker.to_string(),
            seen.passed.to_string(),
        ]);
    }
    check(table);
}
