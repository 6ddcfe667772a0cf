//! Priorities in use x load x workers.

use super::load::{Shape, Stream, serve};
use super::monitor::Seen;
use super::table::{Summary, Table, check, together};
use super::world::Report;

const WORKERS: [usize; 4] = [1, 2, 4, 8];
/// Percent of what all workers together can do.
const LOADS: [u64; 4] = [50, 90, 120, 200];
const JOBS: u64 = 1_200;
const COLUMNS: [&str; 10] =
    ["workers", "load %", "levels", "waits", "mean", "p50", "p99", "max", "passed", "overtaken"];
const INTRODUCTION: &str = "\
Jobs arrive at random, from outside, at all levels alike; each is one to three polls of 5 to 15 µs, and is done by a coroutine \
that is woken, or spawned if none is idle. A wait is from becoming ready (arrival, or a yield) to the poll. *passed*: the most \
less urgent polls that one worker began while a coroutine was ready. *overtaken*: the most polls of peers that became ready \
after it and began before it.";

/// `levels` of the classes, and how many of those go into one row.
fn sweep(title: &str, introduction: &str, levels: &[u8], together_in_a_row: usize) {
    let mut table = Table::new(title, introduction, &COLUMNS);
    for workers in WORKERS {
        for load in LOADS {
            let stream =
                Stream { seed: 1, jobs: JOBS, load, classes: 0..levels.len(), shape: Shape::Mixed };
            let report = serve(workers, levels, stream.draw(workers));
            judge(workers, &report);
            for (classes, levels) in
                report.classes.chunks(together_in_a_row).zip(levels.chunks(together_in_a_row))
            {
                let seen = together(classes);
                let mut cells = vec![workers.to_string(), load.to_string(), range(levels)];
                cells.extend(Summary::of(seen.waits.iter().copied()).cells());
                cells.extend([seen.passed_on_one_worker.to_string(), seen.overtaken.to_string()]);
                table.row(cells);
            }
        }
    }
    check(table);
}

fn range(levels: &[u8]) -> String {
    match levels {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    }
}

/// What holds of every run.
pub fn judge(workers: usize, report: &Report) {
    assert_eq!(report.faults, Vec::<String>::new());
    for Seen { passed_on_one_worker, overtaken, .. } in &report.classes {
        if workers == 1 {
            assert_eq!(
                (*passed_on_one_worker, *overtaken),
                (0, 0),
                "strict order, first come first served"
            );
        } else {
            // The proposition of the crate's documentation.
            assert!(
                *passed_on_one_worker <= 1,
                "one worker began {passed_on_one_worker} less urgent polls"
            );
        }
    }
}

#[test]
fn one_priority() {
    sweep("One priority in use", INTRODUCTION, &[32], 1);
}

#[test]
fn four_priorities() {
    sweep("4 priorities in use", "As above.", &[0, 16, 32, 48], 1);
}

#[test]
fn sixty_four_priorities() {
    let levels: Vec<u8> = (0..64).collect();
    sweep("64 priorities in use", "As above; eight levels a row.", &levels, 8);
}
