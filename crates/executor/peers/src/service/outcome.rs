//! The outcome as a table, as JSON, and as plots.

use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

use cops_report::{Colours, LatencyPlot, LatencySeries};
use serde_json::{Value, json};

use super::experiment::{Plan, Row};
use super::load::Outcome;
use crate::report::machine::Machine;

/// Buckets of a plot are this much wider than the one before.
const BUCKET_RATIO: f64 = 1.02;

/// A number of microseconds, in milliseconds.
fn milliseconds(microseconds: f64) -> String {
    format!("{:.2}", microseconds / 1e3)
}

/// The table of all rows, in Markdown.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| workers | runtime | interactive alone: p50 | p99 | max | under overload: p50 | p99 | max | batch requests/s |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    for row in rows {
        let _ = write!(text, "| {} | {} ", row.workers, row.contender.name());
        for outcome in [&row.alone, &row.overload] {
            for share in [0.5, 0.99, 1.0] {
                let _ = write!(text, "| {} ", milliseconds(outcome.percentile_us(share)));
            }
        }
        let _ = writeln!(text, "| {:.0} |", row.batch.answers_per_second);
    }
    text
}

/// Requests that were not answered, or not rightly, in all rows.
pub fn errors(rows: &[Row]) -> u64 {
    let wrong = rows
        .iter()
        .flat_map(|row| [&row.alone, &row.overload, &row.batch])
        .map(|outcome| outcome.wrong);
    let missing = rows.iter().flat_map(|row| [&row.alone, &row.overload]);
    wrong.sum::<u64>() + missing.map(|outcome| outcome.sent - outcome.answered).sum::<u64>()
}

/// Writes two-classes.md, two-classes.json and a plot for each number of workers.
pub fn write(folder: &Path, plan: &Plan, rows: &[Row]) -> io::Result<()> {
    let machine = Machine::look();
    let mut plots = Vec::new();
    for &workers in &plan.workers {
        let name = format!("two-classes-{workers}.svg");
        fs::write(folder.join(&name), plot(plan, rows, workers).map_err(io::Error::other)?)?;
        plots.push(name);
    }
    let data =
        serde_json::to_string_pretty(&data(plan, &machine, rows)).map_err(io::Error::other)?;
    fs::write(folder.join("two-classes.json"), data + "\n")?;
    fs::write(folder.join("two-classes.md"), page(plan, &machine, rows, &plots))
}

/// The whole page, in Markdown. `plots` are its pictures.
fn page(plan: &Plan, machine: &Machine, rows: &[Row], plots: &[String]) -> String {
    let mut text = String::from("# Two classes on one runtime\n\n");
    let _ = writeln!(
        text,
        "A TCP service on loopback: {} interactive connections with {} requests a second in all, {} microseconds of work \
         each, and {} batch connections with requests of {} slices of {:.1} ms, a yield between them. Under overload, \
         batch requests come at {:.1} times the greatest rate that any of the contenders sustains. Open loop, \
         exponentially distributed times; latencies, in milliseconds, count from the time at which a request was to be sent. \
         All answers are checked. The same service on each runtime, with as many workers and the same yields; \
         contenders in turn, {} turns of {:.1} s, each a process of its own.\n",
        plan.interactive_connections,
        plan.interactive_per_second,
        plan.interactive_work.as_micros(),
        plan.batch_connections,
        plan.batch_slices,
        plan.batch_slice.as_secs_f64() * 1e3,
        plan.overload,
        plan.turns,
        plan.measured.as_secs_f64(),
    );
    text.push_str(&table(rows));
    let mut stages: Vec<&Row> = rows.iter().collect();
    stages.dedup_by_key(|row| row.workers);
    text.push('\n');
    for row in stages {
        let place = if row.is_apart {
            "server and client on processors of their own"
        } else {
            "server and client share all processors, so that the client's threads wait too"
        };
        let _ = writeln!(
            text,
            "- {} worker{}: {place}; batch requests offered: {:.0} a second.",
            row.workers,
            if row.workers == 1 { "" } else { "s" },
            row.offered_per_second
        );
    }
    let _ = writeln!(
        text,
        "\nRequests not answered, or wrongly: {}. Commit {}, {}, {} processors, {}, profile {}.\n\n\
         `cargo run --release --manifest-path crates/executor/peers/Cargo.toml --features service --bin two-classes -- \
         --output docs/results`",
        errors(rows),
        machine.commit,
        machine.cpu,
        machine.processors,
        machine.rustc,
        machine.profile,
    );
    for plot in plots {
        let _ = write!(text, "\n![latencies]({plot})\n");
    }
    text
}

fn latencies(outcome: &Outcome) -> Value {
    json!({
        "mean": outcome.mean_us(),
        "p50": outcome.percentile_us(0.5),
        "p99": outcome.percentile_us(0.99),
        "p999": outcome.percentile_us(0.999),
        "max": outcome.percentile_us(1.0),
    })
}

/// All data.
fn data(plan: &Plan, machine: &Machine, rows: &[Row]) -> Value {
    let row = |row: &Row, load: &str, outcome: &Outcome| {
        let has_batch = load == "overload";
        json!({
            "runtime": row.contender.key(),
            "workers": row.workers,
            "load": load,
            "apart": row.is_apart,
            "sent": outcome.sent,
            "received": outcome.answered,
            "errors": outcome.wrong,
            "latency_us": latencies(outcome),
            "batch_capacity_rps": row.capacity_per_second,
            "batch_offered_rps": if has_batch { row.offered_per_second } else { 0.0 },
            "batch_rps": if has_batch { row.batch.answers_per_second } else { 0.0 },
        })
    };
    let rows: Vec<Value> = rows
        .iter()
        .flat_map(|each| [row(each, "alone", &each.alone), row(each, "overload", &each.overload)])
        .collect();
    json!({
        "bench": "two-classes",
        "config": {
            "command": machine.command,
            "commit": machine.commit,
            "cpu": machine.cpu,
            "processors": machine.processors,
            "rustc": machine.rustc,
            "profile": machine.profile,
            "peers": machine.peers,
            "turns": plan.turns,
            "seconds": plan.measured.as_secs_f64(),
            "interactive_connections": plan.interactive_connections,
            "interactive_rps": plan.interactive_per_second,
            "interactive_work_us": plan.interactive_work.as_micros() as u64,
            "batch_connections": plan.batch_connections,
            "batch_slices": plan.batch_slices,
            "batch_slice_us": plan.batch_slice.as_micros() as u64,
            "overload": plan.overload,
        },
        "rows": rows,
    })
}

fn buckets(outcome: &Outcome) -> Vec<(f64, u64)> {
    let mut buckets: Vec<(f64, u64)> = Vec::new();
    for &latency_ns in &outcome.latencies_ns {
        let latency_us = (latency_ns as f64 / 1e3).max(0.1);
        let edge_us = BUCKET_RATIO.powf((latency_us.ln() / BUCKET_RATIO.ln()).ceil());
        match buckets.last_mut() {
            Some((last_us, count)) if *last_us >= edge_us => *count += 1,
            _ => buckets.push((edge_us, 1)),
        }
    }
    buckets
}

/// The plot for so many workers, as SVG.
fn plot(plan: &Plan, rows: &[Row], workers: u32) -> Result<String, cops_report::PlotError> {
    let here = || rows.iter().filter(|row| row.workers == workers);
    let overload = here().map(|row| LatencySeries {
        label: format!("{}, overload", row.contender.name()),
        buckets: buckets(&row.overload),
    });
    let alone = here().take(1).map(|row| LatencySeries {
        label: format!("{}, alone", row.contender.name()),
        buckets: buckets(&row.alone),
    });
    let plot = LatencyPlot {
        title: format!("Interactive requests beside batch overload, {workers} worker(s)"),
        subtitle: format!(
            "{} interactive connections, {}/s; {} batch connections, {} x {:.1} ms, {} times the capacity",
            plan.interactive_connections,
            plan.interactive_per_second,
            plan.batch_connections,
            plan.batch_slices,
            plan.batch_slice.as_secs_f64() * 1e3,
            plan.overload,
        ),
        colours: Colours::Distinct,
        series: overload.chain(alone).collect(),
    };
    plot.to_svg()
}
