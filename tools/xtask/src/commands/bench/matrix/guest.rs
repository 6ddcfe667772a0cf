//! Loads from the client inside the machine, with counted instructions: they repeat to the digit.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Row, number};
use crate::cli::{Machine, Model};
use crate::commands::Prepared;
use crate::error::{Failure, Outcome};
use crate::qemu::console::{Ending, Transcript, follow};
use crate::qemu::machine::Machine as Running;

/// Time limit of a boot, on a host that is busy.
const LIMIT: Duration = Duration::from_secs(600);

/// When the client in the guest sends.
#[derive(Debug, Clone, Copy)]
pub enum Pace {
    /// This many requests on each connection.
    Counted(u32),
    /// A request in each period. With a seed each is due at a pseudo-random time within its slot,
    /// which is the period divided by the number of connections.
    Open { period_us: u32, jitter_seed: Option<u32>, warm_up_ms: u32, milliseconds: u32 },
    /// A pause after each answer.
    Pause { pause_ms: u32, milliseconds: u32 },
}

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    pub model: Model,
    pub connections: u32,
    pub matrix: u32,
    pub classes: u32,
    /// Virtual CPUs of a server made of coroutines. They share the one hart: with several harts the
    /// emulator would run each until its next timer, and others would spin all this time for what
    /// it holds.
    pub vcpus: u32,
    pub pace: Pace,
}

/// As [`measure`]; a model that cannot hold the connections gets a row that says so.
pub fn measure_or_fail(prepared: &Prepared, machine: &Machine, point: &Point) -> Outcome<Vec<Row>> {
    measure(prepared, machine, point).or_else(|failure| {
        eprintln!("{failure}");
        let mut row = Row::new();
        row.insert("class".into(), Value::Null);
        row.insert("failed".into(), true.into());
        row.insert("errors".into(), point.connections.into());
        complete(&mut row, point);
        Ok(vec![row])
    })
}

/// Boots and measures. The first row is that of all connections; with several classes, one of each
/// follows.
pub fn measure(prepared: &Prepared, machine: &Machine, point: &Point) -> Outcome<Vec<Row>> {
    let mut argv: Vec<String> =
        ["/bin/matrix-client", "--model", point.model.name()].map(str::to_owned).to_vec();
    let mut add = |name: &str, value: u32| argv.extend([name.to_owned(), value.to_string()]);
    add("--connections", point.connections);
    add("--matrix", point.matrix);
    add("--classes", point.classes);
    add("--vcpus", point.vcpus);
    match point.pace {
        Pace::Counted(requests) => add("--requests", requests),
        Pace::Open { period_us, jitter_seed, warm_up_ms, milliseconds } => {
            add("--period-us", period_us);
            if let Some(seed) = jitter_seed {
                add("--jitter-seed", seed);
            }
            add("--warm-up-ms", warm_up_ms);
            add("--milliseconds", milliseconds);
        }
        Pace::Pause { pause_ms, milliseconds } => {
            add("--pause-ms", pause_ms);
            add("--milliseconds", milliseconds);
        }
    }
    let mut boot = prepared.boot(machine, &argv, &[])?;
    boot.make_repeatable();
    let mut transcript = Transcript::default();
    let running = Running::start(&prepared.qemu, &boot)?;
    let ending = follow(running, Some(Instant::now() + LIMIT), &mut transcript);
    let text = String::from_utf8_lossy(&transcript.stdout);
    let lines = text.lines().filter(|line| line.starts_with('{'));
    let mut rows: Vec<Row> = lines.filter_map(|line| serde_json::from_str(line).ok()).collect();
    // Status 1: some requests have no answer, which a column says.
    if !matches!(ending, Ending::Status(0 | 1)) || rows.is_empty() {
        return Err(Failure::new(format!(
            "the client in the guest ended with {ending:?}: {text}{}{}",
            String::from_utf8_lossy(&transcript.stderr),
            String::from_utf8_lossy(&transcript.kernel),
        )));
    }
    for row in &mut rows {
        complete(row, point);
    }
    Ok(rows)
}

/// What the kernel has counted, and what it is for each request.
const COUNTED: [(&str, &str); 5] = [
    ("instructions", "instructions_per_request"),
    ("traps", "traps_per_request"),
    ("system_calls", "system_calls_per_request"),
    ("calls_deferred", "deferred_calls_per_request"),
    ("cpu_switches", "cpu_switches_per_request"),
];

fn complete(row: &mut Row, point: &Point) {
    let is_whole = row.get("class").is_some_and(Value::is_null);
    let answered = number(row, "received").max(1.0);
    for (total, column) in COUNTED {
        let each = number(row, total) / answered;
        row.remove(total);
        // Other loads begin before they are measured.
        if is_whole && matches!(point.pace, Pace::Counted(_)) {
            row.insert(column.into(), ((each * 1000.0).round() / 1000.0).into());
        }
    }
    if is_whole {
        row.remove("class");
        row.remove("distribution_us");
    }
    let (name, period_ms, pause_ms) = match point.pace {
        Pace::Counted(_) => ("closed", None, None),
        Pace::Open { period_us, .. } => ("open", Some(f64::from(period_us) / 1000.0), None),
        Pace::Pause { pause_ms, .. } => ("pause", None, Some(pause_ms)),
    };
    let columns = [
        ("model", Value::from(point.model.name())),
        ("connections", point.connections.into()),
        ("matrix", point.matrix.into()),
        ("classes", point.classes.into()),
        ("loop", name.into()),
        ("period_ms", period_ms.into()),
        ("vcpus", point.vcpus.into()),
        ("client", "guest".into()),
    ];
    row.extend(columns.map(|(name, value)| (name.to_owned(), value)));
    if let Some(pause_ms) = pause_ms {
        row.insert("pause_ms".into(), pause_ms.into());
    }
}
