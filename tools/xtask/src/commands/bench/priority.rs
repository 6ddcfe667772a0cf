//! The priorities of connections (SPEC 5.3): 64 and 128 connections in 8 and 4 classes, on 1 to 4
//! virtual CPUs. For each of these:
//!
//! - `capacity`: a closed loop, of which the next two loads are fractions;
//! - `unloaded`: an open loop with a tenth of that;
//! - `overload`: an open loop with twice that;
//! - `papers`: the papers' client, which pauses for 50 ms after each answer.
//!
//! The last one alone also for the figures of the other papers.
//!
//! With counted instructions, rows of `unloaded` and `overload` are the medians of several runs:
//! with each of [`FACTORS`], and with requests that are due at pseudo-random times within their
//! slots. In one run without these, the distance of two clients' requests is the same all the time,
//! and the latency shows it and not the scheduler (decision 65). `even` is the overload without
//! them: one run with twice the capacity, and requests evenly spaced.
//!
//! By the wall clock, the machine has a hart for each virtual CPU, but no more than `--smp`. On a
//! host with as few processors as the machine keeps busy, an overload is one of the client and of
//! QEMU's other thread too, which know no classes; with `--slow-harts` it is one of the harts. With
//! counted instructions the same happens inside the machine, which has one hart: the virtual CPUs
//! of the server take turns on it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::matrix::{Point, Row, Save, Session, Setup, guest, number, period_us, rounds};
use super::models::line;
use super::table::Table;
use crate::cli::{Bench, Model};
use crate::commands::Prepared;
use crate::distribution;
use crate::error::Outcome;
use crate::service::{self, Client, Pace};
use crate::terminal::Progress;
use crate::workspace::Workspace;

/// Connections, classes and rows of the matrices of the loads.
const LOADED: [(u32, u32, u32); 4] = [(64, 8, 15), (64, 4, 15), (128, 8, 15), (128, 4, 15)];
/// The same of the figures of papers 001 and 003, and of 004, to which its matrix is not known.
const OF_OTHER_PAPERS: [(u32, u32, u32); 2] = [(128, 8, 20), (8, 8, 15)];
const PAUSE_MS: u32 = 50;
/// Parts of the capacity.
const UNLOADED: f64 = 0.1;
const OVERLOAD: f64 = 2.0;
/// What the parts are multiplied with in the runs of a counted load. Another capacity, by a few
/// instructions for each request, is another part: the figures must not depend on it.
const FACTORS: [f64; 5] = [0.95, 0.975, 1.0, 1.025, 1.05];

/// One experiment.
#[derive(Clone, Copy)]
struct Setting {
    vcpus: u32,
    connections: u32,
    classes: u32,
    matrix: u32,
    /// Only with the papers' client.
    is_of_the_papers: bool,
}

pub fn measure(
    workspace: &Workspace,
    prepared: &Prepared,
    options: &Bench,
    save: Save<'_>,
) -> Outcome<Vec<Row>> {
    let mut rows = Vec::new();
    if options.icount {
        for setting in settings(options, vcpus(options)) {
            count(prepared, options, setting, &mut rows)?;
            save(&rows)?;
        }
    } else {
        let client = Client::build(workspace, Progress::Lines)?;
        for setting in settings(options, vcpus(options)) {
            let mut machine = options.machine.clone();
            machine.smp = setting.vcpus.min(options.machine.smp);
            let setup = Setup {
                model: Model::Kcuc,
                vcpus: setting.vcpus,
                clock_shift: None,
                has_slow_harts: options.slow_harts,
                by_tap: options.tap,
            };
            let mut loads: Vec<(&str, Vec<Row>)> = Vec::new();
            for _ in 0..options.rounds.unwrap_or(1) {
                let mut session = Session::start(workspace, prepared, &client, &machine, setup)?;
                for (load, measured) in time(&mut session, options, setting)? {
                    match loads.iter_mut().find(|(known, _)| *known == load) {
                        Some((_, runs)) => runs.extend(measured),
                        None => loads.push((load, measured)),
                    }
                }
                session.shut_down();
            }
            let has_rounds = options.rounds.is_some_and(|rounds| rounds > 1);
            for (load, runs) in loads {
                add(&mut rows, if has_rounds { combined(&runs) } else { runs }, load);
            }
            save(&rows)?;
        }
    }
    println!("\n{}", table(&rows).plain());
    Ok(rows)
}

fn vcpus(options: &Bench) -> &'static [u32] {
    if options.quick { &[1, 4] } else { &[1, 2, 3, 4] }
}

fn settings(options: &Bench, vcpus: &[u32]) -> Vec<Setting> {
    let mut settings = Vec::new();
    for &vcpus in vcpus {
        // Counted runs take minutes each.
        let is_short = options.quick || options.icount && matches!(vcpus, 2 | 3);
        let loaded = match (options.quick, is_short) {
            (true, _) => &LOADED[..1],
            (false, true) => &LOADED[..2],
            (false, false) => &LOADED[..],
        };
        // The papers' client does not saturate slow harts either.
        let others = if options.quick || options.slow_harts { &[] } else { &OF_OTHER_PAPERS[..] };
        for (loads, is_of_the_papers) in [(loaded, false), (others, true)] {
            settings.extend(loads.iter().map(|&(connections, classes, matrix)| Setting {
                vcpus,
                connections,
                classes,
                matrix,
                is_of_the_papers,
            }));
        }
    }
    settings
}

/// Adds the rows of a load, and shows the first one.
fn add(rows: &mut Vec<Row>, measured: Vec<Row>, load: &str) {
    for mut row in measured {
        println!("{load:<9} {}", line(&row));
        row.insert("load".into(), load.into());
        if let Some(all) = row.get_mut("distribution_us") {
            *all = distribution::at_parts(&distribution::pairs(all));
        }
        rows.push(row);
    }
}

/// The loads of a setting on a server that has just been booted, each with its name.
fn time(
    session: &mut Session,
    options: &Bench,
    setting: Setting,
) -> Outcome<Vec<(&'static str, Vec<Row>)>> {
    let Setting { connections, classes, matrix, .. } = setting;
    let seconds = options.seconds.unwrap_or(if options.quick { 1 } else { 5 });
    let point = |pace| Point {
        connections,
        matrix,
        pace,
        classes,
        seconds,
        warm_up_seconds: 1,
        settle_seconds: 0,
    };
    let papers = Point { warm_up_seconds: 0, ..point(Pace::Pause { pause_ms: PAUSE_MS }) };
    if setting.is_of_the_papers {
        return Ok(vec![("papers", session.measure(&papers)?)]);
    }
    let closed = session.measure(&point(Pace::Closed))?;
    let capacity = closed.first().map_or(0.0, |row| number(row, "throughput_rps"));
    let mut loads = vec![("capacity", closed)];
    for (load, part) in [("unloaded", UNLOADED), ("overload", OVERLOAD)] {
        let pace = Pace::Open { period_us: period_us(connections, capacity * part) };
        let settle_seconds = service::settle_seconds(part);
        loads.push((load, session.measure(&Point { settle_seconds, ..point(pace) })?));
    }
    if !options.slow_harts {
        loads.push(("papers", session.measure(&papers)?));
    }
    Ok(loads)
}

fn count(
    prepared: &Prepared,
    options: &Bench,
    setting: Setting,
    rows: &mut Vec<Row>,
) -> Outcome<()> {
    let Setting { vcpus, connections, classes, matrix, .. } = setting;
    let milliseconds = if options.quick { 200 } else { 1000 };
    // Of each of the runs of a load.
    let each_ms = if options.quick { 100 } else { 200 };
    let measure = |pace| {
        let model = Model::Kcuc;
        let point = guest::Point { model, connections, matrix, classes, vcpus, pace };
        guest::measure(prepared, &options.machine, &point)
    };
    let papers = guest::Pace::Pause { pause_ms: PAUSE_MS, milliseconds };
    if setting.is_of_the_papers {
        add(rows, measure(papers)?, "papers");
        return Ok(());
    }
    let closed = measure(guest::Pace::Counted(20))?;
    let capacity = closed.first().map_or(0.0, |row| number(row, "throughput_rps"));
    add(rows, closed, "capacity");
    let open = |part: f64, jitter_seed| {
        let period_us = period_us(connections, capacity * part);
        // At least some requests of each connection.
        let milliseconds = each_ms.max(20 * period_us / 1000);
        let warm_up_ms = (2 * period_us).div_ceil(1000).max(50);
        measure(guest::Pace::Open { period_us, jitter_seed, warm_up_ms, milliseconds })
    };
    for (load, part) in [("unloaded", UNLOADED), ("overload", OVERLOAD)] {
        let mut runs = Vec::new();
        for (seed, factor) in (1..).zip(FACTORS) {
            runs.extend(open(part * factor, Some(seed))?);
        }
        add(rows, combined(&runs), load);
    }
    add(rows, open(OVERLOAD, None)?, "even");
    add(rows, measure(papers)?, "papers");
    Ok(())
}

/// The medians of runs with the same load, and different periods: one row for each class, and one
/// for all.
fn combined(runs: &[Row]) -> Vec<Row> {
    let mut medians = rounds::medians_over(runs, &["period_ms"]);
    for row in &mut medians {
        let of_class = runs.iter().filter(|run| run.get("class") == row.get("class"));
        let distributions = of_class.filter_map(|run| run.get("distribution_us"));
        if row.contains_key("distribution_us") {
            row.insert("distribution_us".into(), sum(distributions));
        }
    }
    medians
}

/// The sum of distributions, each of pairs of a latency and a number of answers.
fn sum<'a>(distributions: impl Iterator<Item = &'a Value>) -> Value {
    // By the bits of the latency: those of positive numbers have their order.
    let mut counts = BTreeMap::<u64, u64>::new();
    for pair in distributions.filter_map(Value::as_array).flatten() {
        let (latency, count) = (&pair[0], &pair[1]);
        let latency = latency.as_f64().unwrap_or(0.0).to_bits();
        *counts.entry(latency).or_default() += count.as_u64().unwrap_or(0);
    }
    counts.iter().map(|(latency, count)| json!([f64::from_bits(*latency), count])).collect()
}

fn table(rows: &[Row]) -> Table {
    let mut table = Table::new(
        1,
        &[
            "load",
            "vcpus",
            "connections",
            "classes",
            "class",
            "sent",
            "received",
            "answers/s",
            "mean us",
            "p50",
            "p99",
        ],
    );
    for row in rows.iter().filter(|row| row.contains_key("class")) {
        let load = row.get("load").and_then(|load| load.as_str()).unwrap_or("").to_owned();
        let mut cells = vec![load];
        for column in
            ["vcpus", "connections", "classes", "class", "sent", "received", "throughput_rps"]
        {
            cells.push(format!("{:.0}", number(row, column)));
        }
        for column in ["mean", "p50", "p99"] {
            cells.push(format!("{:.0}", number(row, &format!("latency_us.{column}"))));
        }
        table.add(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_are_parts_of_the_capacity() {
        assert_eq!(period_us(64, 1280.0 * OVERLOAD), 25_000);
        assert_eq!(period_us(64, 1280.0 * UNLOADED), 500_000);
    }

    #[test]
    fn runs_with_several_periods_are_one_row_for_each_class() {
        let run = |class: Value, period_ms: f64, p99: f64| {
            let row = json!({
                "class": class, "connections": 64, "load": "overload", "period_ms": period_ms,
                "throughput_rps": 10.0, "latency_us": {"mean": 1.0, "p50": 1.0, "p99": p99},
            });
            row.as_object().expect("an object").clone()
        };
        let class = |class: u32, period_ms: f64, p99: f64, counts: [u32; 2]| {
            let mut row = run(class.into(), period_ms, p99);
            row.insert("distribution_us".into(), json!([[110.0, counts[0]], [p99, counts[1]]]));
            row
        };
        let rows = combined(&[
            run(Value::Null, 2.1, 900.0),
            class(0, 2.1, 130.0, [5, 1]),
            class(1, 2.1, 230.0, [1, 1]),
            run(Value::Null, 2.2, 700.0),
            class(0, 2.2, 150.0, [6, 2]),
            class(1, 2.2, 210.0, [1, 1]),
            run(Value::Null, 2.0, 800.0),
            class(0, 2.0, 130.0, [7, 3]),
            class(1, 2.0, 220.0, [1, 1]),
        ]);
        assert_eq!(rows.len(), 3, "the periods are no points of their own");
        let found = |row: &Row| (number(row, "period_ms"), number(row, "latency_us.p99"));
        assert_eq!(
            rows.iter().map(found).collect::<Vec<_>>(),
            [(2.1, 800.0), (2.1, 130.0), (2.1, 220.0)]
        );
        assert_eq!(number(&rows[1], "runs"), 3.0);
        assert_eq!(rows[1]["spread"]["latency_us.p99"], json!([130.0, 150.0]));
        assert_eq!(rows[1]["distribution_us"], json!([[110.0, 18], [130.0, 4], [150.0, 2]]));
        assert!(!rows[0].contains_key("distribution_us"));
        let mut shortened = Vec::new();
        add(&mut shortened, rows, "overload");
        assert_eq!(shortened[1]["distribution_us"][7], json!(110));
        assert_eq!(shortened[1]["distribution_us"][13], json!(150));
    }
}
