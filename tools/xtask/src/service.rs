//! The matrix service as a whole (SPEC 5.1): the server in the guest, the load generator on the
//! host, and the provenance of a measurement. `run`, `bench` and the system tests all use this
//! module.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use crate::build::host;
use crate::cli::{Idle, Machine, Model};
use crate::commands::Prepared;
use crate::error::{Because, Failure, Outcome};
use crate::interrupt;
use crate::process::{quoted_words, shown};
use crate::qemu::server::Server;
use crate::qemu::statistics::Statistics;
use crate::terminal::Progress;
use crate::workspace::{Workspace, write_whole};

/// The port the server listens on.
pub const PORT: u16 = 9000;
/// QEMU's user network accepts with a backlog of one, so connections are opened at a limited rate.
pub const RAMP_PER_SECOND: u32 = 200;

/// The server's command line in the guest.
pub fn server_arguments(model: Model, vcpus: u32) -> Vec<String> {
    ["/bin/matrix-server", "--model", model.name(), "--vcpus", &vcpus.to_string()]
        .map(str::to_owned)
        .to_vec()
}

/// When the client sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// A request per connection in each period, whether or not earlier ones have been answered.
    Open { period_us: u32 },
    /// The next request when the answer has arrived.
    Closed,
    /// The next request this long after the answer.
    Pause { pause_ms: u32 },
    /// Like `Closed`, with exactly this many requests per connection.
    Counted { requests: u32 },
}

impl Pace {
    /// An open loop with this period, in milliseconds.
    pub const fn every_ms(period_ms: u32) -> Self {
        Self::Open { period_us: period_ms * 1000 }
    }
}

/// How long answers may take after the last request of a benchmark, in seconds: those that are
/// missing then are errors.
pub const DRAIN_SECONDS: u32 = 2;

/// How much longer the warm-up of an open loop is while it has left a backlog, at most, in seconds:
/// the window would answer that too, and so more than was asked for in it.
pub const SETTLE_SECONDS: u32 = 3;

/// The same for a load that is this part of what the server can answer. Otherwise the backlog grows
/// for ever.
pub fn settle_seconds(part: f64) -> u32 {
    if part < 1.0 { SETTLE_SECONDS } else { 0 }
}

/// What the client does.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub connections: u32,
    /// Rows of the matrices.
    pub matrix: u32,
    pub pace: Pace,
    /// Measured time; for a counted load, the time limit.
    pub seconds: u32,
    /// Load before the measurement, so that caches, code translation and TCP windows settle. A
    /// counted load has none.
    pub warm_up_seconds: u32,
    /// How much longer it is at most while it has left a backlog; only for an open loop. In an
    /// overload that is never gone.
    pub settle_seconds: u32,
    /// How long answers may take after the last request.
    pub drain_seconds: u32,
}

impl Load {
    /// Arguments of the load generator, which opens so many connections a second.
    pub fn arguments(&self, ramp_per_second: u32) -> Vec<String> {
        let mut arguments = Vec::new();
        let mut add =
            |name: &str, value: f64| arguments.extend([name.to_owned(), value.to_string()]);
        add("--connections", self.connections.into());
        add("--matrix", self.matrix.into());
        add("--seconds", self.seconds.into());
        add("--drain-seconds", self.drain_seconds.into());
        add("--ramp-per-second", ramp_per_second.into());
        match self.pace {
            Pace::Open { period_us } => add("--period-ms", f64::from(period_us) / 1e3),
            Pace::Closed => {}
            Pace::Pause { pause_ms } => add("--pause-ms", pause_ms.into()),
            Pace::Counted { requests } => add("--requests", requests.into()),
        }
        if !matches!(self.pace, Pace::Counted { .. }) {
            add("--warmup-seconds", self.warm_up_seconds.into());
        }
        if self.settle_seconds > 0 && matches!(self.pace, Pace::Open { .. }) {
            add("--settle-seconds", self.settle_seconds.into());
        }
        if matches!(self.pace, Pace::Closed | Pace::Counted { .. }) {
            arguments.push("--closed".to_owned());
        }
        arguments
    }
}

/// The built client.
#[derive(Debug, Clone)]
pub struct Client {
    program: PathBuf,
}

impl Client {
    pub fn build(workspace: &Workspace, progress: Progress) -> Outcome<Self> {
        Ok(Self { program: host::load_generator(workspace, progress)? })
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    /// The client for a port of the loopback.
    pub fn command(&self, port: u16) -> Command {
        let mut command = interrupt::tied_to_us(&self.program);
        command.arg("--connect").arg(format!("127.0.0.1:{port}"));
        command
    }

    /// The client with this load, which writes its result to `json`.
    pub fn load(&self, port: u16, load: &Load, json: &Path) -> Command {
        let mut command = self.command(port);
        command.args(load.arguments(RAMP_PER_SECOND)).arg("--json").arg(json);
        command
    }
}

/// Runs the client beside the server, and passes the server's output on. Returns whether the client
/// found no error. If its standard error is a pipe, that is a part of the failure if it could not
/// do its work.
pub fn drive(server: &mut Server, client: &mut Command) -> Outcome<bool> {
    let mut child = client
        .stdin(Stdio::null())
        .spawn()
        .because(|| format!("cannot start {}", shown(client)))?;
    let _guard = interrupt::guard(&child);
    let complaints = child.stderr.take().map(|mut stream| {
        std::thread::spawn(move || {
            let mut text = Vec::new();
            // A part of it is better than nothing.
            let _ = stream.read_to_end(&mut text);
            String::from_utf8_lossy(&text).trim_end().to_owned()
        })
    });
    let ended =
        server.attend(|| child.try_wait().because(|| "cannot wait for the load generator".into()));
    if ended.is_err() {
        // It may have ended by itself because the server has ended.
        let _ = child.kill();
        let _ = child.wait();
    }
    let status = ended?;
    match status.code() {
        Some(0) => Ok(true),
        // It has counted and reported errors; its result is still written.
        Some(1) => Ok(false),
        _ => {
            let complaints = complaints.and_then(|reader| reader.join().ok()).unwrap_or_default();
            let failed = format!("the load generator failed ({status}): {}", shown(client));
            Err(Failure::new(format!("{failed}\n{complaints}").trim_end()))
        }
    }
}

/// Counters that are reported per request: counter, column, description.
const PER_REQUEST: [(&str, &str, &str); 7] = [
    ("traps_from_user", "traps_per_request", "traps"),
    ("system_calls", "system_calls_per_request", "system calls"),
    ("interrupts", "interrupts_per_request", "interrupts"),
    ("network_frames_received", "frames_received_per_request", "frames received"),
    ("network_frames_sent", "frames_sent_per_request", "frames sent"),
    ("calls_deferred", "deferred_calls_per_request", "calls that waited"),
    ("cpu_switches", "cpu_switches_per_request", "switches of virtual CPUs"),
];

/// How often the kernel was entered per request, and why; includes opening and closing connections.
/// `requests`: all that were answered between the two readings; without any there are no values.
pub fn per_request(before: &Statistics, after: &Statistics, requests: u64) -> Map<String, Value> {
    let columns = PER_REQUEST.iter().map(|(counter, column, _)| {
        let each = after.growth(before, counter) as f64 / requests as f64;
        let value = (requests > 0).then_some((each * 1000.0).round() / 1000.0);
        ((*column).to_owned(), Value::from(value))
    });
    columns.collect()
}

/// Number of requests that were answered in the whole run of the client: while the connections were
/// opened, one for each, during the warm-up, in the window, and late. The answers to the requests
/// of the window, which a row has, may be none in an overload.
pub fn answered(result: &Map<String, Value>) -> u64 {
    let whole = |value: Option<&Value>| value.and_then(Value::as_u64).unwrap_or(0);
    let opened = whole(result.get("config").and_then(|config| config.get("connections")));
    let series =
        result.get("throughput_over_time").and_then(|over_time| over_time["series"].as_array());
    let answers = series.into_iter().flatten().filter_map(|class| class["answers"].as_array());
    opened + answers.flatten().map(|count| whole(Some(count))).sum::<u64>()
}

/// Prints the result of [`per_request`] on one line.
pub fn print_per_request(row: &Map<String, Value>) {
    let words = PER_REQUEST
        .iter()
        .map(|(_, column, title)| format!("{title} {:.2}", row[*column].as_f64().unwrap_or(0.0)));
    println!("per request: {}", words.collect::<Vec<_>>().join(", "));
}

/// Reads the client's result: SPEC 5.6's document for `models`.
pub fn read_result(path: &Path) -> Outcome<Map<String, Value>> {
    let text = std::fs::read(path).because(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text)
        .because(|| format!("{} is not the load generator's JSON", path.display()))
}

/// The row of the whole run in the client's result.
pub fn read_row(path: &Path) -> Outcome<Map<String, Value>> {
    let document = read_result(path)?;
    let row = document.get("rows").and_then(|rows| rows.get(0)).and_then(Value::as_object);
    row.cloned().ok_or_else(|| Failure::new("the load generator's result has no row"))
}

/// The provenance of a measurement.
pub fn provenance(
    workspace: &Workspace,
    prepared: &Prepared,
    machine: &Machine,
) -> Map<String, Value> {
    let entries = [
        ("command", quoted_words(std::env::args_os().skip(1)).into()),
        ("commit", workspace.commit().into()),
        ("qemu", prepared.qemu.version.clone().into()),
        ("toolchain", prepared.guest.toolchain.clone().into()),
        ("smp", machine.smp.into()),
        ("mem", machine.mem.clone().into()),
        ("network", "user".into()),
    ];
    let scheduler = prepared.scheduler.as_ref().map(|file| {
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        ("scheduler", Value::from(name))
    });
    let idle = (machine.idle == Idle::Poll).then_some(("idle", Value::from("poll")));
    let entries = entries.into_iter().chain(idle).chain(scheduler);
    entries.map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Adds entries to the document's configuration.
pub fn with_configuration(
    mut document: Map<String, Value>,
    more: Map<String, Value>,
) -> Map<String, Value> {
    if let Value::Object(configuration) = document.entry("config").or_insert_with(|| json!({})) {
        configuration.extend(more);
    }
    document
}

/// Writes a document as readable JSON, with each row on a line of its own.
pub fn write_document(document: &Map<String, Value>, file: &Path) -> Outcome<()> {
    let text = text_of(document).because(|| "cannot write JSON".into())?;
    write_whole(file, text.as_bytes())
}

fn text_of(document: &Map<String, Value>) -> serde_json::Result<String> {
    let mut members = Vec::new();
    for (name, value) in document {
        let text = match value {
            Value::Array(rows) if !rows.is_empty() => {
                let rows: Result<Vec<_>, _> = rows.iter().map(serde_json::to_string).collect();
                format!("[\n    {}\n  ]", rows?.join(",\n    "))
            }
            _ => serde_json::to_string_pretty(value)?.replace('\n', "\n  "),
        };
        members.push(format!("  {}: {text}", serde_json::to_string(name)?));
    }
    Ok(format!("{{\n{}\n}}\n", members.join(",\n")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the README quotes of `./cops run` is what it prints.
    #[test]
    fn the_readme_quotes_what_is_printed_per_request() {
        let words = PER_REQUEST
            .iter()
            .map(|(_, column, title)| format!("{title} {{run/run-64:rows[0].{column}|2}}"));
        let line = format!("per request: {}\n", words.collect::<Vec<_>>().join(", "));
        assert!(include_str!("../../../README.md").contains(&line), "{line}");
    }

    #[test]
    fn each_row_of_a_document_is_a_line() {
        let document = json!({
            "bench": "b", "config": {"a \"\n": [1]}, "none": [], "rows": [{"x": 1.5}, {"x": [2]}],
        });
        let text = text_of(document.as_object().expect("an object")).expect("it can be written");
        assert_eq!(serde_json::from_str::<Value>(&text).expect("JSON"), document);
        assert!(text.contains("\n    {\"x\":1.5},\n    {\"x\":[2]}\n"), "{text}");
        assert!(text.contains("\n  \"config\": {\n    "), "{text}");
    }

    fn line(pace: Pace) -> String {
        let load = Load {
            connections: 2,
            matrix: 15,
            pace,
            seconds: 5,
            warm_up_seconds: 1,
            settle_seconds: 4,
            drain_seconds: 3,
        };
        load.arguments(RAMP_PER_SECOND).join(" ")
    }

    #[test]
    fn the_client_gets_what_was_asked_for() {
        let common =
            "--connections 2 --matrix 15 --seconds 5 --drain-seconds 3 --ramp-per-second 200";
        assert_eq!(
            line(Pace::every_ms(100)),
            format!("{common} --period-ms 100 --warmup-seconds 1 --settle-seconds 4")
        );
        assert!(line(Pace::Open { period_us: 3_456 }).contains("--period-ms 3.456 "));
        assert_eq!([0.75, 1.0, 1.25].map(settle_seconds), [3, 0, 0]);
        assert_eq!(line(Pace::Closed), format!("{common} --warmup-seconds 1 --closed"));
        assert_eq!(
            line(Pace::Pause { pause_ms: 100 }),
            format!("{common} --pause-ms 100 --warmup-seconds 1")
        );
        assert_eq!(line(Pace::Counted { requests: 7 }), format!("{common} --requests 7 --closed"));
    }

    #[test]
    fn a_client_that_could_not_do_its_work_says_why() {
        let mut server = Server::of_script("sleep 60");
        let mut command = Command::new("sh");
        command.args(["-c", "echo at most 8 files >&2; exit 3"]).stderr(Stdio::piped());
        let failure = drive(&mut server, &mut command).unwrap_err().to_string();
        assert!(failure.ends_with("\nat most 8 files"), "{failure}");
    }

    /// In an overload the answers to the requests of the window may be none.
    #[test]
    fn what_is_counted_is_divided_by_all_answers_of_the_run() {
        let series = json!([{"answers": [40, 0, 7]}, {"answers": [3]}]);
        let Value::Object(result) = json!({"config": {"connections": 50}, "rows": [{"received": 0}],
            "throughput_over_time": {"series": series}})
        else {
            panic!("not an object")
        };
        assert_eq!(answered(&result), 100);
        assert_eq!(answered(&Map::new()), 0);

        let counters = |calls: u32| Statistics::parse(&format!("statistics: system_calls={calls}"));
        let (before, after) = (counters(100).expect("a line"), counters(350).expect("a line"));
        let each =
            |requests| per_request(&before, &after, requests)["system_calls_per_request"].clone();
        assert_eq!((each(100), each(0)), (json!(2.5), Value::Null));
    }

    #[test]
    fn a_result_says_what_it_was_measured_on() {
        let Value::Object(load) =
            json!({"bench": "models", "config": {"seed": 1}, "rows": [{"sent": 3}]})
        else {
            panic!("not an object")
        };
        let more = Map::from_iter([("qemu".to_owned(), Value::from("7.2"))]);
        let document = Value::Object(with_configuration(load, more));
        assert_eq!(document["config"], json!({"seed": 1, "qemu": "7.2"}));
        assert_eq!(document["rows"][0]["sent"], 3);
    }
}
