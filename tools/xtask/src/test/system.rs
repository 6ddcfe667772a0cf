//! The real client against the real server, over QEMU's network: every product checked, and hostile clients.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::{Case, Context, step, tap};
use crate::build::host::load_generator;
use crate::cli::Machine as MachineOptions;
use crate::commands::run::MATRIX_PORT;
use crate::error::Outcome;
use crate::interrupt;
use crate::process::{Captured, capture};
use crate::qemu::console::{Ending, PassThrough};
use crate::qemu::server::Server;
use crate::terminal::Progress;

/// For one run of the load generator; the longest measures for 5 s after 2 s and a ramp.
const LIMIT: Duration = Duration::from_secs(120);
/// What may be missing from the offered load: one part in a hundred.
const TOLERANCE: f64 = 0.01;
/// Request period of the open loop, in milliseconds.
const PERIOD_MS: u32 = 100;

/// One run of the client.
struct Load {
    name: &'static str,
    connections: u32,
    arguments: &'static [&'static str],
    is_open_loop: bool,
}

const LOADS: [Load; 4] = [
    Load {
        name: "1 connection",
        connections: 1,
        arguments: &["--matrix", "15", "--seconds", "2"],
        is_open_loop: true,
    },
    Load {
        name: "64 connections",
        connections: 64,
        arguments: &["--matrix", "15", "--seconds", "3"],
        is_open_loop: true,
    },
    Load {
        name: "256 connections",
        connections: 256,
        arguments: &["--matrix", "15", "--seconds", "5"],
        is_open_loop: true,
    },
    Load {
        name: "64 connections, closed loop",
        connections: 64,
        arguments: &["--matrix", "1", "--seconds", "3", "--closed"],
        is_open_loop: false,
    },
];
/// The name of the test that runs the client's hostile half.
const HOSTILE: &str = "hostile clients";

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let client = Client { program: load_generator(context.workspace, Progress::Lines)?, port: 0 };
    let prepared = context.prepared()?;
    let machine = MachineOptions { smp: 4, mem: "512M".into(), verbose: false };
    let argv = ["/bin/matrix-server", "--model", "kcuc", "--vcpus", "4"].map(str::to_owned);
    let boot = prepared.boot(&machine, &argv, &[])?;
    let sink = PassThrough { show_firmware: false };
    let (server, port) = Server::start_on_free_port(&prepared.qemu, &boot, MATRIX_PORT, sink)?;
    let mut session =
        Session { server, client: Client { port, ..client }, scratch: context.workspace.scratch()? };

    let mut cases = Vec::new();
    for load in LOADS.iter().filter(|load| context.is_chosen(load.name)) {
        cases.push(session.load(load)?);
    }
    if context.is_chosen(HOSTILE) {
        cases.extend(session.hostile()?);
        // The server must serve the next client as if nothing had been.
        cases.push(Case { name: "64 connections after hostile clients".into(), ..session.load(&LOADS[1])? });
    }
    cases.push(match session.server.shut_down() {
        Ending::Broken(why) => Case::failed("shut down", why),
        Ending::TimedOut => Case::failed("shut down", "the system did not power off when it was asked to"),
        Ending::Status(_) => Case::passed("shut down"),
    });
    Ok(cases)
}

struct Client {
    program: std::path::PathBuf,
    port: u16,
}

struct Session {
    server: Server,
    client: Client,
    scratch: crate::workspace::Scratch,
}

impl Session {
    fn load(&mut self, load: &Load) -> Outcome<Case> {
        let measured = self.scratch.file("load.json");
        let connections = load.connections.to_string();
        let period = PERIOD_MS.to_string();
        let json = measured.display().to_string();
        let mut arguments =
            vec!["--connections", &connections, "--period-ms", &period, "--warmup-seconds", "2"];
        arguments.extend(["--ramp-per-second", "200", "--json", &json]);
        arguments.extend(load.arguments);
        let captured = self.run_client(load.name, &arguments)?;
        let mut wrong = Vec::new();
        if !captured.succeeded() {
            wrong.push(format!("the client ended with {}", captured.ending()));
        }
        match std::fs::read(&measured).map(|text| serde_json::from_slice(&text)) {
            Ok(Ok(result)) => wrong.extend(judge(load, &result)),
            _ => wrong.push("the client wrote no result".to_owned()),
        }
        if !wrong.is_empty() {
            wrong.push(captured.everything());
        }
        Ok(Case::judged(load.name, &wrong))
    }

    fn hostile(&mut self) -> Outcome<Vec<Case>> {
        let captured = self.run_client(HOSTILE, &["--hostile"])?;
        let mut cases = tap::cases(&captured.stdout);
        if !captured.succeeded() && cases.iter().all(|case| case.failure.is_none()) {
            cases.push(Case::failed(HOSTILE, format!("{}\n{}", captured.ending(), captured.everything())));
        }
        Ok(cases)
    }

    /// Runs the client on a thread of its own while the server's output is passed on here.
    fn run_client(&mut self, name: &str, arguments: &[&str]) -> Outcome<Captured> {
        let mut step = step(name);
        let mut command: Command = interrupt::tied_to_us(&self.client.program);
        command.arg("--connect").arg(format!("127.0.0.1:{}", self.client.port)).args(arguments);
        std::thread::scope(|scope| {
            let running = scope.spawn(move || capture(&mut command, Some(LIMIT), |_| ()));
            let attended = self.server.attend(|| {
                step.detail("running");
                Ok(running.is_finished().then_some(()))
            });
            let captured =
                running.join().map_err(|_| crate::error::Failure::new("running the client panicked"))?;
            attended.and(captured)
        })
    }
}

/// What is wrong with a result.
fn judge(load: &Load, document: &Value) -> Vec<String> {
    let result = &document["rows"][0];
    let number = |name: &str| result.get(name).and_then(Value::as_f64);
    let (Some(sent), Some(received), Some(errors), Some(rate)) =
        (number("sent"), number("received"), number("errors"), number("throughput_rps"))
    else {
        return vec![format!(
            "the client's result has not all of sent, received, errors, throughput_rps: {result}"
        )];
    };
    let mut wrong = Vec::new();
    if errors != 0.0 {
        wrong.push(format!("{errors} errors"));
    }
    if received == 0.0 || received < sent * (1.0 - TOLERANCE) {
        wrong.push(format!("{sent} requests, {received} answers"));
    }
    let offered = f64::from(load.connections) * 1000.0 / f64::from(PERIOD_MS);
    if load.is_open_loop && (rate - offered).abs() > offered * TOLERANCE {
        wrong.push(format!("{rate} answers per second to {offered} requests per second"));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn results_are_judged_by_errors_answers_and_rate() {
        let result = |sent: u32, received: u32, errors: u32, rate: f64| {
            let row = json!({"sent": sent, "received": received, "errors": errors, "throughput_rps": rate});
            judge(&LOADS[1], &json!({"rows": [row]})).len()
        };
        assert_eq!(result(1920, 1920, 0, 640.0), 0);
        assert_eq!(result(1920, 1915, 0, 634.0), 0);
        assert_eq!(result(1920, 1920, 1, 640.0), 1);
        assert_eq!(result(1920, 1800, 0, 640.0), 1);
        assert_eq!(result(1920, 1920, 0, 600.0), 1);
        assert_eq!(result(0, 0, 0, 0.0), 2);
        assert_eq!(judge(&LOADS[1], &json!({"sent": 1})).len(), 1);
    }
}
