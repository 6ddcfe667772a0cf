//! Runs a normal program beside some hostile ones, on one hart with counted instructions, and
//! checks its latency and its CPU share; and one beside a flood of frames; and one that packets
//! wake. `./cops bench hostile` and `./cops bench wakeups` measure all of them for longer.

use serde_json::{Map, Value};

use super::{Case, Context, flood, step};
use crate::cli::Machine as MachineOptions;
use crate::commands::Prepared;
use crate::commands::bench::{hostile, shares, wakeups};
use crate::error::Outcome;

/// Packets that the honest program answers.
const PACKETS: usize = 500;
/// The kinds that took more than their share, or delayed others, before the kernel's work for a
/// process was charged to it.
const KINDS_OF_SHARES: &str = "kinds=yield-storm,pipe-readers,call-storm,overflow-forger";
/// The kinds that delayed others, each with the ceiling of the hostile program and with what
/// delayed a program of level 32.
const KINDS_OF_LATENCIES: [(&str, u8, &str); 3] = [
    // A switching coroutine that was not raised: 100 times and more.
    ("kernel-crowd,pipe-readers", 63, "least urgent"),
    // The reaper worked for all at level 32: 12 times.
    ("spawn-churn", 48, "less urgent"),
    // The sleeps of a level ended in the order of their times: 400 times.
    ("kernel-crowd", 32, "equal"),
];
/// Limit of the victim's p99 relative to that beside `busy`. The difference to the 2 of the table
/// is a margin for other changes to the count.
const LATENCY_LIMIT: f64 = 3.0;

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let prepared = context.prepared()?;
    let machine = MachineOptions::new(1, "512M");
    // `--filter` begins with a group.
    let is_chosen = |group| context.options.filter().is_none_or(|text| text.starts_with(group));
    let mut cases = Vec::new();
    if is_chosen("flood") {
        cases.push(flood::case(context, "flood/frames")?);
    }
    if is_chosen("packets") {
        cases.push(packets_beside_others(context, prepared, &machine)?);
    }
    if is_chosen("share") {
        shares_beside(prepared, &machine, &mut cases)?;
    }
    if is_chosen("latency") {
        latencies_beside(prepared, &machine, &mut cases)?;
    }
    cases.retain(|case| context.is_chosen(&case.name));
    Ok(cases)
}

/// A most urgent coroutine answers packets while a program computes at the least urgent level.
/// Packets must not be found late, as if the hart were busy with the work that they make (decision
/// 59): only some are, until that has been noticed.
fn packets_beside_others(
    context: &Context<'_>,
    prepared: &Prepared,
    machine: &MachineOptions,
) -> Outcome<Case> {
    // The packets come from this host, and more are late while that is busy.
    const ATTEMPTS: usize = 2;
    let mut step = step("packets beside others, instructions counted");
    let mut wrong = Vec::new();
    for _ in 0..ATTEMPTS {
        step.detail("running");
        let row = wakeups::counted_packets(prepared, machine, PACKETS)?;
        context.note(format!("packets: {} of {PACKETS} found late", row["found_late"]));
        wrong = faults_of_packets(&row);
        if wrong.is_empty() {
            break;
        }
    }
    Ok(Case::judged("packets/beside others", &wrong))
}

/// What is wrong with a row of packets.
fn faults_of_packets(row: &Map<String, Value>) -> Vec<String> {
    // The documents give the p95, which is measured if no more are late. Usually 7 are.
    const LATE_MAX: u64 = 25;
    const LATENCY_MAX_MICROSECONDS: f64 = 30.0;
    let mut wrong = Vec::new();
    let late = row["found_late"].as_u64().unwrap_or(u64::MAX);
    if late > LATE_MAX {
        wrong.push(format!("{late} of {PACKETS} packets were found late, more than {LATE_MAX}"));
    }
    for percentile in ["p50_us", "p95_us"] {
        let latency = row[percentile].as_f64();
        if latency.is_none_or(|latency| latency > LATENCY_MAX_MICROSECONDS) {
            let found = format!("{percentile} is {latency:?}");
            wrong.push(format!("{found}, not at most {LATENCY_MAX_MICROSECONDS}"));
        }
    }
    wrong
}

fn shares_beside(
    prepared: &Prepared,
    machine: &MachineOptions,
    cases: &mut Vec<Case>,
) -> Outcome<()> {
    let mut step = step("shares of the CPU, instructions counted");
    step.detail("running");
    for row in shares::run(prepared, machine, true, &["crowds=1", "work-ms=200", KINDS_OF_SHARES])?
    {
        let name = format!("share/{}", row["kind"].as_str().unwrap_or_default());
        let (share, goal) = (
            row["share"].as_f64().unwrap_or(0.0) * 100.0,
            row["goal"].as_f64().unwrap_or(1.0) * 100.0,
        );
        cases.push(if row["ok"] == true {
            Case::passed(name)
        } else {
            Case::failed(
                name,
                format!(
                    "a normal program of the same priority has {share:.1}% of the CPU; the goal is {goal:.1}%"
                ),
            )
        });
    }
    Ok(())
}

fn latencies_beside(
    prepared: &Prepared,
    machine: &MachineOptions,
    cases: &mut Vec<Case>,
) -> Outcome<()> {
    for (kinds, ceiling, relation) in KINDS_OF_LATENCIES {
        for (kind, ratio) in hostile::latencies_beside(prepared, machine, kinds, ceiling, 100)? {
            let name = format!("latency/{kind}, {relation}");
            cases.push(match ratio {
                Some(ratio) if ratio <= LATENCY_LIMIT => Case::passed(name),
                other => Case::failed(
                    name,
                    format!("p99 is {other:?} times that beside busy; {LATENCY_LIMIT} are allowed"),
                ),
            });
        }
    }
    Ok(())
}
