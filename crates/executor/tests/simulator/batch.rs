//! The waiting time of urgent work does not depend on how much batch work there is, only on how
//! long its polls are.

use super::load::{LONGEST, LONGEST_MIXED, Shape, Stream, merge, serve};
use super::sweep::judge;
use super::table::{Summary, Table, check};

const URGENT: u8 = 0;
const BATCH: u8 = 63;
const URGENT_LOAD: u64 = 20;
const JOBS: u64 = 2_000;
const COLUMNS: [&str; 8] =
    ["workers", "batch load %", "waits", "mean", "p50", "p99", "max", "passed"];

/// Waiting times of the same urgent jobs beside batch jobs of `shape`; a poll of those takes at
/// most `longest`.
fn beside_batch(
    table: &mut Table,
    shape: Shape,
    longest: u64,
    workers: usize,
    loads: &[u64],
) -> Vec<Summary> {
    let mut alone: Vec<u64> = Vec::new();
    let mut summaries = Vec::new();
    for &load in loads {
        let urgent =
            Stream { seed: 2, jobs: JOBS, load: URGENT_LOAD, classes: 0..1, shape: Shape::Short };
        let urgent = urgent.draw(workers);
        // For as long as the urgent ones come.
        let capacity = urgent.last().unwrap().at * workers as u64;
        let jobs = capacity * load / 100 / shape.mean_nanos();
        let batch = Stream { seed: 3, jobs, load: load.max(1), classes: 1..2, shape }.draw(workers);
        let report = serve(workers, &[URGENT, BATCH], merge([urgent, batch]));
        judge(workers, &report);
        let waits = &report.classes[0].waits;
        let summary = Summary::of(waits.iter().copied());
        if load == 0 {
            alone.clone_from(waits);
        } else if workers == 1 {
            // One by one: each waits for what it waits for alone, and for the rest of one batch
            // poll at most.
            for (number, (wait, alone)) in waits.iter().zip(&alone).enumerate() {
                assert!(*wait <= alone + longest, "job {number}: {wait}, alone {alone}");
            }
        }
        assert!(summary.max <= alone.iter().max().unwrap() + longest);
        let mut cells = vec![workers.to_string(), load.to_string()];
        cells.extend(summary.cells());
        cells.push(report.classes[0].passed_on_one_worker.to_string());
        table.row(cells);
        summaries.push(summary);
    }
    summaries
}

#[test]
fn urgent_latency_is_independent_of_batch_load() {
    let mut table = Table::new(
        "Urgent work beside more and more batch work",
        "Urgent jobs of one poll of 1 to 3 µs at 20 % of capacity, always the same ones; batch jobs with polls of 5 to 15 µs. \
         Waiting times of the urgent ones: with one worker each waits at most as long as it would alone, and 15 µs.",
        &COLUMNS,
    );
    for workers in [1, 2, 4, 8] {
        let loads = [0, 50, 90, 120, 200, 400];
        let summaries = beside_batch(&mut table, Shape::Mixed, LONGEST_MIXED, workers, &loads);
        // Once there is always batch work, more of it makes no difference.
        let [.., at_120, at_200, at_400] = &summaries[..] else { unreachable!() };
        for more in [at_200, at_400] {
            assert!(
                more.mean * 4 <= at_120.mean * 5,
                "{workers} workers: {} {}",
                more.mean,
                at_120.mean
            );
            assert!(
                more.p99 * 4 <= at_120.p99 * 5,
                "{workers} workers: {} {}",
                more.p99,
                at_120.p99
            );
        }
    }
    check(table);
}

#[test]
fn urgent_work_beside_long_polls() {
    let mut table = Table::new(
        "Urgent work beside long polls",
        "The same urgent jobs; of each hundred batch jobs one has a poll of 1,000 µs. A poll is not interrupted, so what is urgent \
         may wait for the rest of one, with several workers only if all of them are in one.",
        &COLUMNS,
    );
    for workers in [1, 2, 4, 8] {
        beside_batch(&mut table, Shape::SometimesLong, LONGEST, workers, &[0, 90, 200]);
    }
    check(table);
}
