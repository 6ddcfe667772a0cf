//! Coroutines of one level share the workers.

use super::random::Random;
use super::sweep::judge;
use super::table::{Table, check, grouped};
use super::world::{Next, World};

const POLL_NANOS: u64 = 10_000;
/// Virtual time of each run.
const END_NANOS: u64 = 20_000_000;

/// How much of one worker's time something urgent takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Urgent {
    Nothing,
    Half,
    All,
}

/// Polls that each of `count` made that yield all the time.
fn polls_of_each(workers: usize, count: usize, urgent: Urgent) -> Vec<u64> {
    let world = World::new(workers, 2);
    if urgent != Urgent::Nothing {
        world.spawn(1, 0, move |turn| {
            turn.spend(POLL_NANOS);
            match urgent {
                _ if turn.now() >= END_NANOS => Next::End,
                Urgent::All => Next::Yield,
                _ => Next::Block,
            }
        });
    }
    let (polls, made) = std::sync::mpsc::channel();
    for number in 0..count {
        let polls = polls.clone();
        let mut random = Random::new(number as u64);
        let mut mine = 0;
        world.spawn(0, 32, move |turn| {
            if turn.now() >= END_NANOS {
                polls.send((number, mine)).unwrap();
                return Next::End;
            }
            turn.spend(random.between(POLL_NANOS / 2, POLL_NANOS * 3 / 2));
            mine += 1;
            Next::Yield
        });
    }
    let report = world.play(
        |source| {
            while urgent == Urgent::Half && world.now() < END_NANOS {
                source.spend(2 * POLL_NANOS);
                world.wake(0);
            }
        },
        |_| {
            if urgent != Urgent::Nothing {
                world.cancel(0);
            }
        },
    );
    judge(workers, &report);
    let mut each: Vec<(usize, u64)> = made.try_iter().collect();
    each.sort();
    assert_eq!(each.len(), count);
    each.into_iter().map(|(_, polls)| polls).collect()
}

#[test]
fn peers_share() {
    let mut table = Table::new(
        "Peers share",
        "Coroutines of one level that yield after polls of 5 to 15 µs, for 20,000 µs, beside something urgent that takes a part of \
         one worker's time, or not. Polls that each of them made.",
        &["workers", "coroutines", "urgent", "fewest", "mean", "most"],
    );
    for (urgent, name) in [(Urgent::Nothing, "0"), (Urgent::Half, "1/2"), (Urgent::All, "1")] {
        for workers in [1, 2, 4, 8] {
            for count in [workers + 1, 100] {
                let each = polls_of_each(workers, count, urgent);
                let (fewest, most) = (*each.iter().min().unwrap(), *each.iter().max().unwrap());
                let mean = each.iter().sum::<u64>() / count as u64;
                table.row(
                    [workers.to_string(), count.to_string(), name.to_owned()]
                        .into_iter()
                        .chain([fewest, mean, most].map(grouped)),
                );
                // Each worker goes round, so even if all were on one, each would get this much.
                let polls_of_a_worker = END_NANOS / POLL_NANOS;
                let round_robin = polls_of_a_worker / count as u64;
                match urgent {
                    Urgent::Nothing => assert!(fewest >= round_robin * 9 / 10),
                    Urgent::Half => assert!(fewest >= round_robin * 4 / 10),
                    // Nothing is promised: what waits on a worker that always has something more
                    // urgent is taken by another only once that has nothing of its own, or nothing
                    // as urgent.
                    Urgent::All => {}
                }
            }
        }
    }
    check(table);
}
