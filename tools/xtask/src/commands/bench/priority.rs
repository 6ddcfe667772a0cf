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
//! By the wall clock, the machine has a hart for each virtual CPU, but no more than `--smp`. With
//! counted instructions the same happens inside the machine, which has one hart: the virtual CPUs
//! of the server take turns on it.

use super::matrix::{Point, Row, Save, Session, guest, number};
use super::models::line;
use super::table::Table;
use crate::cli::{Bench, Model};
use crate::commands::Prepared;
use crate::error::Outcome;
use crate::service::{Client, Pace};
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
            let (model, vcpus) = (Model::Kcuc, setting.vcpus);
            let mut session =
                Session::start(workspace, prepared, &client, &machine, model, vcpus, None)?;
            time(&mut session, options, setting, &mut rows)?;
            session.shut_down();
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
        let others = if options.quick { &[] } else { &OF_OTHER_PAPERS[..] };
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

/// The period in which that many connections make this part of `capacity` requests a second.
fn period_us(connections: u32, capacity: f64, part: f64) -> u32 {
    (f64::from(connections) * 1e6 / (capacity * part).max(1.0)).round().max(1.0) as u32
}

/// Adds the rows of a load, and shows the first one.
fn add(rows: &mut Vec<Row>, measured: Vec<Row>, load: &str) {
    for mut row in measured {
        println!("{load:<9} {}", line(&row));
        row.insert("load".into(), load.into());
        rows.push(row);
    }
}

fn time(
    session: &mut Session,
    options: &Bench,
    setting: Setting,
    rows: &mut Vec<Row>,
) -> Outcome<()> {
    let Setting { connections, classes, matrix, .. } = setting;
    let seconds = options.seconds.unwrap_or(if options.quick { 1 } else { 5 });
    let point = |pace| Point { connections, matrix, pace, classes, seconds, warm_up_seconds: 1 };
    let papers = Point { warm_up_seconds: 0, ..point(Pace::Pause { pause_ms: PAUSE_MS }) };
    if setting.is_of_the_papers {
        add(rows, session.measure(&papers)?, "papers");
        return Ok(());
    }
    let closed = session.measure(&point(Pace::Closed))?;
    let capacity = closed.first().map_or(0.0, |row| number(row, "throughput_rps"));
    add(rows, closed, "capacity");
    for (load, part) in [("unloaded", UNLOADED), ("overload", OVERLOAD)] {
        let period_ms = period_us(connections, capacity, part).div_ceil(1000);
        let pace = Pace::Open { period_ms };
        add(rows, session.measure(&point(pace))?, load);
    }
    add(rows, session.measure(&papers)?, "papers");
    Ok(())
}

fn count(
    prepared: &Prepared,
    options: &Bench,
    setting: Setting,
    rows: &mut Vec<Row>,
) -> Outcome<()> {
    let Setting { vcpus, connections, classes, matrix, .. } = setting;
    let milliseconds = if options.quick { 200 } else { 1000 };
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
    for (load, part) in [("unloaded", UNLOADED), ("overload", OVERLOAD)] {
        let period_us = period_us(connections, capacity, part);
        // At least some requests of each connection.
        let milliseconds = milliseconds.max(20 * period_us / 1000);
        let warm_up_ms = (2 * period_us).div_ceil(1000).max(50);
        add(rows, measure(guest::Pace::Open { period_us, warm_up_ms, milliseconds })?, load);
    }
    add(rows, measure(papers)?, "papers");
    Ok(())
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
        assert_eq!(period_us(64, 1280.0, OVERLOAD), 25_000);
        assert_eq!(period_us(64, 1280.0, UNLOADED), 500_000);
        assert_eq!(period_us(1, 1e9, 1.0), 1, "not 0");
        assert_eq!(period_us(64, 0.0, 1.0), 64_000_000);
    }
}
