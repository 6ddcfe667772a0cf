//! `./cops run`: the main job. Boots the matrix server, drives it with the real client, shows and records the result.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Map, Value, json};

use super::Prepared;
use crate::build::host::load_generator;
use crate::cli::Run;
use crate::error::{Because, Failure, Outcome};
use crate::interrupt;
use crate::process::shown;
use crate::qemu::console::PassThrough;
use crate::qemu::server::Server;
use crate::terminal::Progress;
use crate::workspace::Workspace;

/// The port the matrix server listens on (SPEC 5.1).
pub const MATRIX_PORT: u16 = 9000;
/// Time before measuring, for caches, code translation and TCP windows to settle.
const WARM_UP_SECONDS: u32 = 2;
/// QEMU's user network accepts with a backlog of one: connections are opened gently.
const RAMP_PER_SECOND: u32 = 200;

pub fn run(workspace: &Workspace, options: &Run) -> Outcome<u8> {
    let prepared = Prepared::new(workspace, Progress::Lines)?;
    let load_generator = load_generator(workspace, Progress::Lines)?;
    let boot = prepared.boot(&options.machine, &server_arguments(options), &[])?;
    let sink = PassThrough { show_firmware: options.machine.verbose };
    eprintln!(
        "booting on {} harts with {}, QEMU {}",
        options.machine.smp, options.machine.mem, prepared.qemu.version
    );
    let (mut server, port) = Server::start_on_free_port(&prepared.qemu, &boot, MATRIX_PORT, sink)?;

    let results = workspace.results_folder().join("run");
    std::fs::create_dir_all(&results).because(|| format!("cannot make {}", results.display()))?;
    let measured = results.join("load.json");
    let mut load = load_command(&load_generator, options, port, &measured, &results);
    let is_clean = drive(&mut server, &mut load)?;
    server.shut_down();

    let ours = json!({
        "command": std::env::args().skip(1).collect::<Vec<_>>().join(" "),
        "commit": workspace.commit(),
        "qemu": prepared.qemu.version,
        "toolchain": prepared.guest.toolchain,
        "smp": options.machine.smp,
        "mem": options.machine.mem,
        "network": "user",
    });
    let document = with_configuration(read_object(&measured)?, ours);
    let text = serde_json::to_string_pretty(&document).because(|| "cannot write JSON".into())? + "\n";
    let mut files = vec![results.join("result.json")];
    files.extend(options.json.clone());
    for file in &files {
        std::fs::write(file, &text).because(|| format!("cannot write {}", file.display()))?;
    }
    println!("plots and data: {}", results.display());
    if let Some(file) = &options.json {
        println!("result: {}", file.display());
    }
    Ok(if is_clean { 0 } else { 1 })
}

fn server_arguments(options: &Run) -> Vec<String> {
    let vcpus = options.machine.smp.to_string();
    ["/bin/matrix-server", "--model", options.model.name(), "--vcpus", &vcpus].map(str::to_owned).to_vec()
}

fn load_command(program: &Path, options: &Run, port: u16, json: &Path, plots: &Path) -> Command {
    let mut command = interrupt::tied_to_us(program);
    command.args(["--connect", &format!("127.0.0.1:{port}")]);
    let numbers = [
        ("--connections", options.connections),
        ("--matrix", options.matrix),
        ("--period-ms", options.period_ms),
        ("--seconds", options.seconds),
        ("--warmup-seconds", WARM_UP_SECONDS),
        ("--ramp-per-second", RAMP_PER_SECOND),
    ];
    for (name, value) in numbers {
        command.args([name, &value.to_string()]);
    }
    if options.closed {
        command.arg("--closed");
    }
    let labels = [format!("model={}", options.model.name()), format!("vcpus={}", options.machine.smp)];
    for label in labels {
        command.args(["--label", &label]);
    }
    command.arg("--json").arg(json).arg("--plots").arg(plots);
    command
}

/// Runs the load generator beside the server. Gives whether it found no error.
fn drive(server: &mut Server, load: &mut Command) -> Outcome<bool> {
    let mut child = load.stdin(Stdio::null()).spawn().because(|| format!("cannot start {}", shown(load)))?;
    let _guard = interrupt::guard(&child);
    let ended = server.attend(|| child.try_wait().because(|| "cannot wait for the load generator".into()));
    if ended.is_err() {
        // It may have noticed by itself that the server has gone.
        let _ = child.kill();
        let _ = child.wait();
    }
    let status = ended?;
    match status.code() {
        Some(0) => Ok(true),
        // It counted errors and has said so; its result is still written.
        Some(1) => Ok(false),
        _ => Err(Failure::new(format!("the load generator failed ({status}): {}", shown(load)))),
    }
}

fn read_object(path: &PathBuf) -> Outcome<Map<String, Value>> {
    let text = std::fs::read(path).because(|| format!("cannot read {}", path.display()))?;
    serde_json::from_slice(&text).because(|| format!("{} is not the load generator's JSON", path.display()))
}

/// The load generator's document (SPEC 5.6, `models`), its configuration completed with ours.
fn with_configuration(mut document: Map<String, Value>, ours: Value) -> Map<String, Value> {
    let configuration = document.entry("config").or_insert_with(|| json!({}));
    if let (Value::Object(configuration), Value::Object(ours)) = (configuration, ours) {
        configuration.extend(ours);
    }
    document
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command as Chosen};
    use clap::Parser;

    fn options(words: &[&str]) -> Run {
        match Cli::try_parse_from([&["cops", "run"], words].concat()).unwrap().command {
            Chosen::Run(options) => options,
            other => panic!("not run: {other:?}"),
        }
    }

    #[test]
    fn the_load_generator_gets_what_was_asked_for() {
        let options = options(&["--connections", "2", "--closed"]);
        let command = load_command(Path::new("/load"), &options, 1234, Path::new("/j"), Path::new("/p"));
        let line = shown(&command);
        assert!(
            line.ends_with(
                "/load --connect 127.0.0.1:1234 --connections 2 --matrix 15 --period-ms 100 --seconds 5 \
                 --warmup-seconds 2 --ramp-per-second 200 --closed \
                 --label model=kcuc --label vcpus=4 --json /j --plots /p"
            ),
            "{line}"
        );
    }

    #[test]
    fn a_result_says_what_it_was_measured_on() {
        let load = json!({"bench": "models", "config": {"seed": 1}, "rows": [{"sent": 3}]});
        let Value::Object(load) = load else { panic!("not an object") };
        let document = Value::Object(with_configuration(load, json!({"qemu": "7.2"})));
        assert_eq!(document["config"], json!({"seed": 1, "qemu": "7.2"}));
        assert_eq!(document["rows"][0]["sent"], 3);
    }
}
