//! Tests the real server with the real client over QEMU's network: every product is checked, and
//! there are hostile clients.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{Case, Context, cops, long_segments, step, tap};
use crate::cli::{Machine as MachineOptions, Model};
use crate::error::{Failure, Outcome};
use crate::process::{Captured, capture};
use crate::qemu::console::{Ending, PassThrough};
use crate::qemu::server::Server;
use crate::qemu::statistics::Statistics;
use crate::service::{self, Client, Load, Pace};
use crate::terminal::Progress;
use crate::workspace::Scratch;

/// Time limit of one run of the client. The longest measures for 5 s after 2 s of warm-up and a
/// ramp; the hostile part takes a minute.
const LIMIT: Duration = Duration::from_secs(180);
const PERIOD_MS: u32 = 100;
/// Time until closed connections are removed: time-wait, and retransmissions to peers that have
/// vanished.
const SETTLE_LIMIT: Duration = Duration::from_secs(30);
/// How long hostile clients wait for each answer or close of a server of coroutines; and of one of
/// threads, which on a busy host takes some seconds to be done with connections opened before.
const PATIENCE_SECONDS: u32 = 5;
const PATIENCE_WITH_THREADS_SECONDS: u32 = 20;

const fn load(connections: u32, matrix: u32, pace: Pace, seconds: u32) -> Load {
    // Every request is answered, however busy the host. How soon is a question for benchmarks.
    let (warm_up_seconds, settle_seconds, drain_seconds) = (2, 0, 120);
    Load { connections, matrix, pace, seconds, warm_up_seconds, settle_seconds, drain_seconds }
}

const OPEN: Pace = Pace::every_ms(PERIOD_MS);
const LOADS: [(&str, Load); 4] = [
    ("1 connection", load(1, 15, OPEN, 2)),
    ("64 connections", load(64, 15, OPEN, 3)),
    ("256 connections", load(256, 15, OPEN, 5)),
    ("64 connections, closed loop", load(64, 1, Pace::Closed, 3)),
];
/// The loads of the other models.
const MODEL_LOADS: [(&str, Load); 2] = [
    ("64 connections", load(64, 15, OPEN, 1)),
    ("64 connections, closed loop", load(64, 1, Pace::Closed, 1)),
];
/// The counters that a round of hostile clients must leave unchanged, and the allowed differences.
/// The number of simultaneously live objects differs between rounds, and a fragmented heap takes
/// another frame. A frame or a buffer lost per client would be a thousand.
const LEFT_BEHIND: [(&str, u64); 5] = [
    ("connections", 0),
    ("calls_in_flight", 0),
    ("kernel_coroutines", 0),
    ("frames_free", 100),
    ("heap_used_bytes", 65_536),
];
/// The name of the test that runs the client's hostile part.
const HOSTILE: &str = "hostile clients";

/// The name of the test with more connections than a process may have files open by default.
const MANY: &str = "more connections than open files";

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let client = Client::build(context.workspace, Progress::Lines)?;
    let prepared = context.prepared()?;
    let machine = MachineOptions::new(4, "512M");
    let boot =
        prepared.boot(&machine, &service::server_arguments(Model::Kcuc, machine.smp), &[])?;
    let sink = PassThrough { show_firmware: false, show_stdout: false };
    let (server, port) = Server::start_on_free_port(&prepared.qemu, &boot, service::PORT, sink)?;
    let mut session = Session { server, client, port, scratch: context.workspace.scratch()? };

    let mut cases = Vec::new();
    for (name, load) in LOADS.iter().filter(|(name, _)| context.is_chosen(name)) {
        cases.push(session.load(name, load)?);
    }
    if context.is_chosen(HOSTILE) {
        // Twice: heaps grow to their peak and keep the memory, so what the first round needed is
        // not lost; what the second round needs in addition is.
        cases.extend(session.hostile("", PATIENCE_SECONDS)?);
        let before = session.idle_statistics()?;
        cases.extend(session.hostile("again: ", PATIENCE_SECONDS)?);
        cases.push(nothing_left_behind(&before, &session.idle_statistics()?, |line| {
            context.note(line)
        }));
        // The server must serve the next client normally.
        cases.push(session.load("64 connections after hostile clients", &LOADS[1].1)?);
    }
    let Session { server, client, .. } = session;
    cases.push(shut_down(server, "shut down"));
    if context.is_chosen(MANY) {
        cases.push(many_connections(context)?);
    }
    if context.is_chosen(long_segments::NAME) {
        cases.extend(long_segments::run(context, &client)?);
    }
    for model in Model::ALL {
        if model != Model::Kcuc && context.is_chosen(model.name()) {
            cases.extend(other_model(context, &client, model)?);
        }
    }
    Ok(cases)
}

/// `./cops run` with more connections than its soft limit of open files is, and QEMU's and the
/// client's.
fn many_connections(context: &Context<'_>) -> Outcome<Case> {
    let mut step = step(MANY);
    let ours = cops()?;
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -Sn 256 && exec \"$@\"", "sh"]);
    command.arg(ours.get_program()).args(ours.get_args());
    command.envs(ours.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let scratch = context.workspace.scratch()?;
    let file = scratch.file("load.json");
    let load = "run --smp 2 --connections 300 --matrix 1 --period-ms 500 --seconds 1 --json";
    command.args(load.split(' ')).arg(&file);
    let captured = capture(&mut command, Some(LIMIT), |line| step.detail(line))?;
    let mut wrong = Vec::new();
    if !captured.succeeded() || !file.exists() {
        wrong.push(format!("it ended with {}", captured.ending()));
        wrong.push(captured.everything());
    }
    Ok(Case::judged(MANY, &wrong))
}

pub(super) fn shut_down(server: Server, name: &str) -> Case {
    match server.shut_down() {
        Ending::Broken(why) => Case::failed(name, why),
        Ending::TimedOut => Case::failed(name, "the system did not power off when it was asked to"),
        Ending::Status(_) => Case::passed(name),
    }
}

/// The models of the papers (decision 56): each serves, and `ktut`, with threads that block in the
/// kernel, also survives hostile clients.
fn other_model(context: &Context<'_>, client: &Client, model: Model) -> Outcome<Vec<Case>> {
    let prepared = context.prepared()?;
    let machine = MachineOptions::new(2, "512M");
    let boot = prepared.boot(&machine, &service::server_arguments(model, machine.smp), &[])?;
    let sink = PassThrough { show_firmware: false, show_stdout: false };
    let (server, port) = Server::start_on_free_port(&prepared.qemu, &boot, service::PORT, sink)?;
    let (client, scratch) = (client.clone(), context.workspace.scratch()?);
    let mut session = Session { server, client, port, scratch };
    let mut cases = Vec::new();
    for (name, load) in MODEL_LOADS {
        cases.push(session.load(&format!("{}: {name}", model.name()), &load)?);
    }
    if model == Model::Ktut {
        cases.extend(session.hostile("ktut: ", PATIENCE_WITH_THREADS_SECONDS)?);
        cases.push(session.load("ktut: after hostile clients", &MODEL_LOADS[0].1)?);
    }
    cases.push(shut_down(session.server, &format!("{}: shut down", model.name())));
    Ok(cases)
}

struct Session {
    server: Server,
    client: Client,
    port: u16,
    scratch: Scratch,
}

impl Session {
    fn load(&mut self, name: &str, load: &Load) -> Outcome<Case> {
        let measured = self.scratch.file("load.json");
        let command = self.client.load(self.port, load, &measured);
        let wrong = run_load(&mut self.server, name, load, command, &measured)?;
        Ok(Case::judged(name, &wrong))
    }

    /// One round of the client's hostile part, each case named with `prefix`.
    fn hostile(&mut self, prefix: &str, patience_seconds: u32) -> Outcome<Vec<Case>> {
        let mut command = self.client.command(self.port);
        command.args(["--hostile", "--patience-seconds", &patience_seconds.to_string()]);
        let captured = run_client(&mut self.server, HOSTILE, command)?;
        let mut cases = tap::cases(&captured.stdout);
        if !captured.succeeded() {
            cases.push(Case::failed(
                HOSTILE,
                format!("{}\n{}", captured.ending(), captured.everything()),
            ));
        }
        for case in &mut cases {
            case.name.insert_str(0, prefix);
        }
        Ok(cases)
    }

    /// The counters once no connection is left, or at the limit.
    fn idle_statistics(&mut self) -> Outcome<Statistics> {
        self.server.statistics_when(SETTLE_LIMIT, |now| now.get("connections") == 0)
    }
}

/// Runs the client with this load, of which it writes the result to `measured`. Returns what is
/// wrong with that.
pub(super) fn run_load(
    server: &mut Server,
    name: &str,
    load: &Load,
    command: Command,
    measured: &Path,
) -> Outcome<Vec<String>> {
    // The result of an earlier run must not be used for this one.
    let _ = std::fs::remove_file(measured);
    let captured = run_client(server, name, command)?;
    let mut wrong = Vec::new();
    if !captured.succeeded() {
        wrong.push(format!("the client ended with {}", captured.ending()));
    }
    match service::read_result(measured) {
        Ok(document) => wrong.extend(judge(load, &Value::Object(document))),
        Err(failure) => wrong.push(failure.to_string()),
    }
    if !wrong.is_empty() {
        wrong.push(captured.everything());
    }
    Ok(wrong)
}

/// Runs the client on a thread of its own while the server's output is passed on here.
fn run_client(server: &mut Server, name: &str, mut command: Command) -> Outcome<Captured> {
    let mut step = step(name);
    std::thread::scope(|scope| {
        let running = scope.spawn(move || capture(&mut command, Some(LIMIT), |_| ()));
        let attended = server.attend(|| {
            step.detail("running");
            Ok(running.is_finished().then_some(()))
        });
        let captured = running.join().map_err(|_| Failure::new("running the client panicked"))?;
        attended.and(captured)
    })
}

/// After hostile clients, all frames and sockets must be free again. `note` gets the counters,
/// as evidence.
fn nothing_left_behind(
    before: &Statistics,
    after: &Statistics,
    mut note: impl FnMut(String),
) -> Case {
    let mut wrong = Vec::new();
    for (name, slack) in LEFT_BEHIND {
        let (first, last) = (before.get(name), after.get(name));
        note(format!("{name}: {first} before hostile clients, {last} after"));
        let lost = if name == "frames_free" {
            first.saturating_sub(last)
        } else {
            last.saturating_sub(first)
        };
        if lost > slack {
            wrong.push(format!("{name} was {first} and is {last}"));
        }
    }
    Case::judged("nothing is left behind by hostile clients", &wrong)
}

/// The faults of a result.
fn judge(load: &Load, document: &Value) -> Vec<String> {
    let result = &document["rows"][0];
    let number = |name: &str| result.get(name).and_then(Value::as_f64);
    let (Some(sent), Some(received), Some(errors)) =
        (number("sent"), number("received"), number("errors"))
    else {
        return vec![format!(
            "the client's result has not all of sent, received, errors: {result}"
        )];
    };
    let mut wrong = Vec::new();
    if errors != 0.0 {
        wrong.push(format!("{errors} errors"));
    }
    if received == 0.0 || received < sent {
        wrong.push(format!("{sent} requests, {received} answers"));
    }
    if let Pace::Open { period_us } = load.pace {
        let offered = f64::from(load.connections * load.seconds) * 1e6 / f64::from(period_us);
        // The first and last request of each connection may be on either side of the window's ends.
        if (sent - offered).abs() > f64::from(load.connections) {
            wrong.push(format!("{sent} requests were sent instead of {offered}"));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_are_judged_by_errors_answers_and_requests() {
        let result = |sent: u32, received: u32, errors: u32| {
            let row = json!({"sent": sent, "received": received, "errors": errors});
            judge(&LOADS[1].1, &json!({"rows": [row]})).len()
        };
        assert_eq!(result(1920, 1920, 0), 0);
        assert_eq!(result(1900, 1900, 0), 0);
        assert_eq!(result(1920, 1919, 0), 1);
        assert_eq!(result(1920, 1920, 1), 1);
        assert_eq!(result(1800, 1800, 0), 1);
        assert_eq!(result(0, 0, 0), 2);
        assert_eq!(judge(&LOADS[1].1, &json!({"sent": 1})).len(), 1);
    }

    #[test]
    fn what_is_left_behind_is_named() {
        let statistics = |connections: u32, frames: u32| {
            Statistics::parse(&format!(
                "statistics: connections={connections} frames_free={frames}"
            ))
            .unwrap()
        };
        let lost = |connections, frames| {
            let case =
                nothing_left_behind(&statistics(0, 9000), &statistics(connections, frames), |_| ());
            case.failure.unwrap_or_default()
        };
        assert_eq!(lost(0, 9000), "");
        assert_eq!(lost(0, 9500), "", "more than before is no loss");
        assert!(lost(1, 9000).contains("connections"));
        assert!(lost(0, 8000).contains("frames_free"));
    }
}
