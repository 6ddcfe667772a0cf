//! What an answer costs the server in an overload, in instructions: one hart that counts them, the
//! load generator outside of the machine.
//!
//! A hart that always has something to do answers as many requests a second as it has instructions
//! for. So the cost of an answer, beside that in a closed loop, is what an overload does to the
//! throughput, and nothing else: by the wall clock the load generator, the host's network and the
//! emulator take part in it.

use std::process::Stdio;

use serde_json::Value;

use super::{MATRICES, MODEL, offered};
use crate::cli::Bench;
use crate::commands::Prepared;
use crate::commands::bench::closed::Session;
use crate::commands::bench::matrix::{Row, Save, chosen, number, period_us};
use crate::commands::bench::table::Table;
use crate::error::{Failure, Outcome};
use crate::service::{self, Client, Load, Pace, per_request};
use crate::terminal::Progress;
use crate::workspace::Workspace;

const CONNECTIONS: [u32; 2] = [64, 256];
/// What is offered, as parts of the throughput of the closed loop.
const PARTS: [f64; 3] = [1.25, 2.0, 4.0];
const QUICK_PARTS: [f64; 1] = [2.0];
/// Seconds of the two loads of a row. Their difference does not include opening and closing
/// connections.
const FEW_SECONDS: u32 = 1;
const MANY_SECONDS: u32 = 4;
/// Every request of an overload is answered in the end, so that what is counted is for them.
const DRAIN_SECONDS: u32 = 120;

/// Measures and prints. A row says what an answer costs, and the part of the closed loop's
/// throughput that this makes.
pub fn measure(
    workspace: &Workspace,
    prepared: &Prepared,
    options: &Bench,
    save: Save<'_>,
) -> Outcome<Vec<Row>> {
    let client = Client::build(workspace, Progress::Lines)?;
    let parts = if options.quick { &QUICK_PARTS[..] } else { &PARTS };
    let mut rows = Vec::new();
    for &matrix in chosen(&options.matrix, &MATRICES) {
        for &connections in chosen(&options.connections, &CONNECTIONS) {
            let scratch = workspace.scratch()?;
            let mut session = Session::start(
                prepared,
                options,
                MODEL,
                true,
                client.clone(),
                connections,
                scratch,
            )?;
            let closed = row(&mut session, matrix, Pace::Closed)?;
            println!("{}", line(&closed));
            let of_closed = number(&closed, "instructions_per_request");
            let capacity = number(&closed, "throughput_rps");
            rows.push(closed);
            for part in parts {
                let period_us = period_us(connections, capacity * part);
                let mut row = row(&mut session, matrix, Pace::Open { period_us })?;
                row.insert("load".into(), part.to_string().into());
                row.insert("offered_rps".into(), offered(connections, period_us).into());
                let part = of_closed / number(&row, "instructions_per_request");
                row.insert("of_closed".into(), part.into());
                println!("{}", line(&row));
                rows.push(row);
            }
            session.server.shut_down();
            save(&rows)?;
        }
    }
    println!("\n{}", table(&rows).plain());
    Ok(rows)
}

/// What an answer costs at this pace, and the answers a second of the longer load.
fn row(session: &mut Session, matrix: u32, pace: Pace) -> Outcome<Row> {
    let (few, least) = load(session, matrix, pace, FEW_SECONDS)?;
    let (mut row, most) = load(session, matrix, pace, MANY_SECONDS)?;
    let answers = number(&row, "received") - number(&few, "received");
    let instructions = most - least;
    if answers <= 0.0 || instructions <= 0 {
        return Err(Failure::new(format!(
            "{answers} answers took {instructions} instructions: that makes no sense"
        )));
    }
    let names = [
        ("model", Value::from(MODEL.name())),
        ("connections", session.connections.into()),
        ("matrix", matrix.into()),
        ("harts", 1.into()),
        ("vcpus", 1.into()),
        ("loop", if pace == Pace::Closed { "closed" } else { "open" }.into()),
        ("instructions_per_request", (instructions as f64 / answers).into()),
    ];
    row.extend(names.map(|(name, value)| (name.to_owned(), value)));
    Ok(row)
}

/// A load, until every request is answered: the client's row with the entries into the kernel, and
/// the number of instructions.
fn load(session: &mut Session, matrix: u32, pace: Pace, seconds: u32) -> Outcome<(Row, i64)> {
    let load = Load {
        connections: session.connections,
        matrix,
        pace,
        seconds,
        warm_up_seconds: 0,
        settle_seconds: 0,
        drain_seconds: DRAIN_SECONDS,
    };
    let json = session.scratch.file("load.json");
    let before = session.server.statistics()?;
    let mut command = session.command(&load, &json);
    if !service::drive(&mut session.server, command.stdout(Stdio::null()))? {
        return Err(Failure::new("the client saw errors in the counted load")
            .advise("on a slow host, offer less: --connections 64 --matrix 1"));
    }
    let after = session.server.statistics()?;
    let mut row = service::read_row(&json)?;
    // The client times a machine that is slowed: its clock counts instructions.
    row.remove("latency_us");
    row.remove("send_lateness_us");
    let received = row.get("received").and_then(Value::as_u64).unwrap_or(0);
    row.extend(per_request(&before, &after, received));
    Ok((row, after.growth(&before, "instructions")))
}

fn line(row: &Row) -> String {
    format!(
        "{0:>2} x {0:<2} {1:>5} connections  offered {2:>7.0}  {3:>6.0} instructions/answer  \
         {4:.2} system calls",
        number(row, "matrix"),
        number(row, "connections"),
        number(row, "offered_rps"),
        number(row, "instructions_per_request"),
        number(row, "system_calls_per_request"),
    )
}

fn table(rows: &[Row]) -> Table {
    const HEADING: [&str; 6] =
        ["load", "matrix", "connections", "instructions/answer", "system calls", "of closed"];
    let mut table = Table::new(1, &HEADING);
    for row in rows {
        let whole = |path: &str| format!("{:.0}", number(row, path));
        let part = row.get("of_closed").and_then(Value::as_f64);
        table.add([
            super::load(row).unwrap_or("closed").to_owned(),
            whole("matrix"),
            whole("connections"),
            whole("instructions_per_request"),
            format!("{:.2}", number(row, "system_calls_per_request")),
            part.map_or_else(|| "-".to_owned(), |part| format!("{part:.3}")),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_says_what_an_answer_costs_and_what_that_makes() {
        let mut row = Row::new();
        row.insert("matrix".into(), 15.into());
        row.insert("connections".into(), 256.into());
        row.insert("instructions_per_request".into(), 32_000.4.into());
        row.insert("system_calls_per_request".into(), 2.251.into());
        let mut loaded = row.clone();
        loaded.insert("load".into(), "2".into());
        loaded.insert("of_closed".into(), 0.9506.into());
        let text = table(&[row, loaded]).plain();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines.contains(&vec!["closed", "15", "256", "32000", "2.25", "-"]), "{text}");
        assert!(lines.contains(&vec!["2", "15", "256", "32000", "2.25", "0.951"]), "{text}");
    }
}
