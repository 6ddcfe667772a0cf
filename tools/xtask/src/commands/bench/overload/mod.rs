//! What the matrix service answers when more is asked of it than it can answer: a server that does
//! more work for each request in an overload answers fewer. By the wall clock, over a tap device,
//! or counted in instructions (`counted`).
//! Priority classes in an overload are measured by `priority`.
//!
//! A closed loop says how much the server can answer with so many connections. The open loops offer
//! parts of that, and multiples. Each round boots a machine for each kind of matrix. The loads of
//! all rounds are those that follow from the first one.
//!
//! The load generator has the lowest priority of the host. Otherwise it would take CPU time from
//! the machine for sending what is not answered, and a host with two processors would measure that.

mod counted;

use std::collections::BTreeMap;

use serde_json::Value;

use super::matrix::{Row, Save, chosen, number, period_us, rounds};
use super::table::Table;
use super::tap::{self, Urgency};
use crate::cli::{Bench, Model};
use crate::commands::Prepared;
use crate::error::Outcome;
use crate::qemu::namespace::Namespace;
use crate::qemu::server::Server;
use crate::service::{self, Client, Pace};
use crate::terminal::Progress;
use crate::workspace::{Scratch, Workspace};

const MATRICES: [u32; 2] = [1, 15];
const CONNECTIONS: [u32; 2] = [256, 1024];
/// What is offered, as parts of the throughput of the closed loop, in ascending order.
const PARTS: [f64; 5] = [0.75, 1.25, 1.5, 2.0, 4.0];
const QUICK_PARTS: [f64; 2] = [0.75, 2.0];
const ROUNDS: u32 = 3;
/// What has no answer then is missing. In an overload that is most of what was sent.
const DRAIN_SECONDS: u32 = 1;
const MODEL: Model = Model::Kcuc;

/// Measures and prints. The rows are medians, and say which part of the peak they are.
pub fn measure(
    workspace: &Workspace,
    prepared: &Prepared,
    options: &Bench,
    save: Save<'_>,
) -> Outcome<Vec<Row>> {
    if options.icount {
        return counted::measure(workspace, prepared, options, save);
    }
    let namespace = Namespace::make()?;
    namespace.set_queue_frames(tap::QUEUE_OF_AN_OVERLOAD)?;
    let client = Client::build(workspace, Progress::Lines)?;
    let setting = Setting { options, namespace, client, scratch: workspace.scratch()? };
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { ROUNDS });
    let matrices = chosen(&options.matrix, &MATRICES);
    let counts = chosen(&options.connections, &CONNECTIONS);
    let mut capacities = BTreeMap::new();
    let mut rows = Vec::new();
    for round in 1..=rounds {
        for &matrix in matrices {
            eprintln!("round {round} of {rounds}: {matrix} x {matrix}");
            let machine = &options.machine;
            let boot = tap::boot(prepared, machine, MODEL)?;
            let mut server = tap::start(prepared, &setting.namespace, &boot, machine)?;
            for &connections in counts {
                let capacity = capacities.entry((matrix, connections)).or_default();
                setting.loads(&mut server, (matrix, connections), capacity, &mut rows)?;
                save(&compared(rounds::medians(&rows)))?;
            }
            server.shut_down();
        }
    }
    let rows = compared(rounds::medians(&rows));
    println!("\nmedians of {rounds} runs\n{}", table(&rows).plain());
    if rows.iter().any(is_unsettled) {
        println!("{UNSETTLED} a backlog of the warm-up was left, and is among the answers");
    }
    for line in worst(&rows) {
        println!("{line}");
    }
    Ok(rows)
}

struct Setting<'a> {
    options: &'a Bench,
    namespace: Namespace,
    client: Client,
    scratch: Scratch,
}

impl Setting<'_> {
    /// All loads of a matrix and a number of connections. `capacity`: what the first closed loop of
    /// these answered, after it.
    fn loads(
        &self,
        server: &mut Server,
        (matrix, connections): (u32, u32),
        capacity: &mut Option<f64>,
        rows: &mut Vec<Row>,
    ) -> Outcome<()> {
        let mut closed = self.load(server, (matrix, connections), Pace::Closed, 1.0)?;
        let capacity = *capacity.get_or_insert_with(|| number(&closed, "throughput_rps"));
        closed.insert("loop".into(), "closed".into());
        println!("{}", line(&closed));
        rows.push(closed);
        let parts = if self.options.quick { &QUICK_PARTS[..] } else { &PARTS };
        for &part in parts {
            let period_us = period_us(connections, capacity * part);
            let pace = Pace::Open { period_us };
            let mut row = self.load(server, (matrix, connections), pace, part)?;
            row.insert("loop".into(), "open".into());
            row.insert("load".into(), part.to_string().into());
            row.insert("offered_rps".into(), offered(connections, period_us).into());
            println!("{}", line(&row));
            rows.push(row);
        }
        Ok(())
    }

    /// `part`: what `pace` offers, as a part of what the server can answer.
    fn load(
        &self,
        server: &mut Server,
        (matrix, connections): (u32, u32),
        pace: Pace,
        part: f64,
    ) -> Outcome<Row> {
        let load = service::Load {
            connections,
            matrix,
            pace,
            seconds: self.options.seconds.unwrap_or(1),
            warm_up_seconds: 1,
            settle_seconds: service::settle_seconds(part),
            drain_seconds: DRAIN_SECONDS,
        };
        let json = self.scratch.file("load.json");
        let urgency = Urgency::Lowest;
        let client = tap::client(&self.namespace, &self.client, &load, urgency, &json);
        let mut row = tap::run(server, client, &json)?;
        let names = [
            ("model", Value::from(MODEL.name())),
            ("connections", connections.into()),
            ("matrix", matrix.into()),
            ("harts", self.options.machine.smp.into()),
            ("vcpus", self.options.machine.smp.into()),
        ];
        row.extend(names.map(|(name, value)| (name.to_owned(), value)));
        Ok(row)
    }
}

/// Requests a second of that many connections with that period.
fn offered(connections: u32, period_us: u32) -> f64 {
    f64::from(connections) * 1e6 / f64::from(period_us)
}

fn line(row: &Row) -> String {
    format!(
        "{0:>2} x {0:<2} {1:>5} connections  offered {2:>7.0}  answers {3:>7.0}/s  p50 {4:>9.0} us",
        number(row, "matrix"),
        number(row, "connections"),
        number(row, "offered_rps"),
        number(row, "throughput_rps"),
        number(row, "latency_us.p50"),
    )
}

/// The rows, each with the part that it is of the peak: of the most answers a second at a smaller
/// load with as many connections and the same matrix, the closed loop included. Only loads that
/// offer at least the peak have one.
fn compared(mut rows: Vec<Row>) -> Vec<Row> {
    let mut peaks = BTreeMap::new();
    for row in &mut rows {
        let key = key(row);
        let throughput = number(row, "throughput_rps");
        let peak = peaks.entry(key).or_insert(0.0_f64);
        if *peak > 0.0 && number(row, "offered_rps") >= *peak {
            row.insert("of_peak".into(), (throughput / *peak).into());
        }
        *peak = peak.max(throughput);
    }
    rows
}

/// Matrix and connections.
fn key(row: &Row) -> (u64, u64) {
    let count = |name: &str| row.get(name).and_then(Value::as_u64).unwrap_or(0);
    (count("matrix"), count("connections"))
}

/// A line for each matrix and number of connections: the smallest part of the peak.
fn worst(rows: &[Row]) -> Vec<String> {
    let mut least: BTreeMap<_, (f64, &str)> = BTreeMap::new();
    for row in rows {
        let (Some(part), Some(load)) = (row.get("of_peak").and_then(Value::as_f64), load(row))
        else {
            continue;
        };
        let entry = least.entry(key(row)).or_insert((part, load));
        if part < entry.0 {
            *entry = (part, load);
        }
    }
    let lines = least.into_iter().map(|((matrix, connections), (part, load))| {
        format!(
            "{matrix} x {matrix}, {connections} connections: past saturation at least {part:.2} \
             of the peak, at a load of {load}"
        )
    });
    lines.collect()
}

/// Marks a load that [`is_unsettled`].
const UNSETTLED: &str = "*";

/// Whether a backlog of the warm-up was left when the measurement began, in one of the runs.
fn is_unsettled(row: &Row) -> bool {
    row.get("settled").and_then(Value::as_bool) == Some(false)
}

/// The part of the closed loop's throughput that an open loop offers.
fn load(row: &Row) -> Option<&str> {
    row.get("load").and_then(Value::as_str)
}

fn table(rows: &[Row]) -> Table {
    const HEADING: [&str; 8] =
        ["load", "matrix", "connections", "offered/s", "answers/s", "of peak", "p50 us", "p99 us"];
    let mut table = Table::new(1, &HEADING);
    for row in rows {
        let whole = |path: &str| format!("{:.0}", number(row, path));
        let part = row.get("of_peak").and_then(Value::as_f64);
        let mark = if is_unsettled(row) { UNSETTLED } else { "" };
        table.add([
            format!("{}{mark}", load(row).unwrap_or("closed")),
            whole("matrix"),
            whole("connections"),
            whole("offered_rps"),
            whole("throughput_rps"),
            part.map_or_else(|| "-".to_owned(), |part| format!("{part:.2}")),
            whole("latency_us.p50"),
            whole("latency_us.p99"),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_offered_is_the_connections_by_the_period() {
        assert!((offered(256, 5_000) - 51_200.0).abs() < 1e-9);
    }

    fn row(matrix: u32, load: Option<&str>, offered: f64, throughput: f64) -> Row {
        let mut row = Row::new();
        row.insert("matrix".into(), matrix.into());
        row.insert("connections".into(), 256.into());
        row.insert("throughput_rps".into(), throughput.into());
        if let Some(load) = load {
            row.insert("load".into(), load.into());
            row.insert("offered_rps".into(), offered.into());
        }
        row.insert("latency_us".into(), json!({ "p50": 7.0, "p99": 9.0 }));
        row
    }

    fn example() -> Vec<Row> {
        compared(vec![
            row(1, None, 0.0, 100.0),
            row(1, Some("0.5"), 50.0, 50.0),
            row(1, Some("1"), 100.0, 98.0),
            row(1, Some("2"), 200.0, 120.0),
            row(1, Some("4"), 400.0, 90.0),
            row(15, None, 0.0, 10.0),
            row(15, Some("2"), 20.0, 11.0),
        ])
    }

    #[test]
    fn answers_are_compared_with_the_most_at_smaller_loads() {
        let parts: Vec<_> =
            example().iter().map(|row| row.get("of_peak").and_then(Value::as_f64)).collect();
        let all = [None, None, Some(0.98), Some(1.2), Some(0.75), None, Some(1.1)];
        assert_eq!(parts, all);
        assert_eq!(
            worst(&example()),
            [
                "1 x 1, 256 connections: past saturation at least 0.75 of the peak, at a load of 4",
                "15 x 15, 256 connections: past saturation at least 1.10 of the peak, at a load of 2",
            ]
        );
    }

    #[test]
    fn the_table_says_closed_and_parts() {
        let text = table(&example()).plain();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines.contains(&vec!["closed", "1", "256", "0", "100", "-", "7", "9"]), "{text}");
        assert!(lines.contains(&vec!["4", "1", "256", "400", "90", "0.75", "7", "9"]), "{text}");
    }

    #[test]
    fn a_load_that_did_not_settle_in_one_of_its_runs_is_marked() {
        let run = |settled: bool| {
            let mut run = row(1, Some("0.75"), 75.0, 80.0);
            run.insert("settled".into(), settled.into());
            run
        };
        for (runs, shown) in [
            ([run(true), run(true), run(true)], "0.75"),
            ([run(true), run(false), run(true)], "0.75*"),
        ] {
            let medians = rounds::medians(&runs);
            let text = table(&medians).plain();
            let load = text.lines().last().and_then(|line| line.split_whitespace().next());
            assert_eq!(load, Some(shown), "{text}");
        }
    }
}
