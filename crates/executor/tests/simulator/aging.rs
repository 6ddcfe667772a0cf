//! Aging: of every so many polls of a worker one goes to a less urgent level, those that wait with
//! it taking turns.

use super::table::{Summary, Table, check, grouped};
use super::world::{Next, Report, World};

const LEVELS: [u8; 3] = [0, 32, 63];
const EACH: usize = 20;
const POLL_NANOS: u64 = 10_000;
const END_NANOS: u64 = 40_000_000;

/// All levels have always something ready.
fn saturated(workers: usize, period: u32) -> Report {
    let world = World::new(workers, LEVELS.len());
    world.set_aging(period);
    for (class, level) in LEVELS.into_iter().enumerate() {
        for _ in 0..EACH {
            world.spawn(class, level, move |turn| {
                if turn.now() >= END_NANOS {
                    return Next::End;
                }
                turn.spend(POLL_NANOS);
                Next::Yield
            });
        }
    }
    world.play(|source| source.until(END_NANOS), |_| {})
}

#[test]
fn aging_gives_less_urgent_levels_their_share() {
    let mut table = Table::new(
        "Aging",
        "20 coroutines at each of three levels yield after polls of 10 µs for 40,000 µs, so that all levels always have something \
         ready. Period 0: no aging, strict order. A worker serves by turns what waits with it, not with others. Polls before the end, their share, and waiting times.",
        &["workers", "period", "level", "polls", "share %", "mean", "p50", "p99", "max"],
    );
    for workers in [1, 2, 4] {
        for period in [0, 4, 16, 64] {
            let report = saturated(workers, period);
            assert_eq!(report.faults, Vec::<String>::new());
            // The last poll of each only ends it.
            let polls: Vec<u64> =
                report.classes.iter().map(|class| (class.waits.len() - EACH) as u64).collect();
            let all: u64 = polls.iter().sum();
            for (class, level) in LEVELS.into_iter().enumerate() {
                let summary = Summary::of(report.classes[class].waits.iter().copied());
                let tenths = polls[class] * 1_000 / all;
                let mut cells = vec![workers.to_string(), period.to_string(), level.to_string()];
                cells.extend([grouped(polls[class]), format!("{}.{}", tenths / 10, tenths % 10)]);
                cells.extend(summary.cells().into_iter().skip(1));
                table.row(cells);
            }
            let less_urgent = polls[1] + polls[2];
            if period == 0 {
                assert_eq!(less_urgent, 0, "strict");
            } else {
                // One in `period` of each worker with which something less urgent waits, in turn
                // among the levels that do. A worker may have none, or only one.
                let due = all / period as u64;
                let slack = due / 20 + workers as u64;
                assert!(less_urgent <= due + slack, "{less_urgent}, due {due}");
                for share in &polls[1..] {
                    assert!(*share >= due / workers as u64 / 2 - slack, "{polls:?}");
                }
                if workers == 1 {
                    assert!(
                        less_urgent >= due - slack && polls[1].abs_diff(polls[2]) <= slack,
                        "{polls:?}"
                    );
                }
            }
        }
    }
    check(table);
}
