//! `./cops run`: boots the matrix server, drives it with the real client, shows and records the
//! result.

use serde_json::Value;

use super::Prepared;
use crate::cli::Run;
use crate::error::{Because, Outcome};
use crate::open_files::allow_files;
use crate::qemu::console::PassThrough;
use crate::qemu::server::Server;
use crate::service::{self, Client, Load, Pace};
use crate::terminal::Progress;
use crate::workspace::Workspace;

const WARM_UP_SECONDS: u32 = 2;

pub fn run(workspace: &Workspace, options: &Run) -> Outcome<u8> {
    allow_files(options.connections)?;
    let prepared = Prepared::new(workspace, Progress::Lines)?
        .with_scheduler(workspace, options.scheduler.as_deref())?;
    let client = Client::build(workspace, Progress::Lines)?;
    let machine = &options.machine;
    let boot =
        prepared.boot(machine, &service::server_arguments(options.model, machine.smp), &[])?;
    let sink = PassThrough { show_firmware: machine.verbose, show_stdout: true };
    eprintln!("booting: {} harts, {}, QEMU {}", machine.smp, machine.mem, prepared.qemu.version);
    let (mut server, port) =
        Server::start_on_free_port(&prepared.qemu, &boot, service::PORT, sink)?;

    let results = workspace.results_folder().join("run");
    std::fs::create_dir_all(&results).because(|| format!("cannot make {}", results.display()))?;
    let measured = results.join("load.json");
    let mut load = client.load(port, &load(options), &measured);
    load.args(["--label", &format!("model={}", options.model.name())]);
    load.args(["--label", &format!("vcpus={}", machine.smp)]);
    load.arg("--plots").arg(&results);
    let before = server.statistics()?;
    let is_clean = service::drive(&mut server, &mut load)?;
    let after = server.statistics()?;
    server.shut_down();

    let provenance = service::provenance(workspace, &prepared, machine);
    let mut document = service::with_configuration(service::read_result(&measured)?, provenance);
    let requests = service::answered(&document);
    if let Some(Value::Object(row)) = document.get_mut("rows").and_then(|rows| rows.get_mut(0)) {
        let entries = service::per_request(&before, &after, requests);
        service::print_per_request(&entries);
        row.extend(entries);
    }
    service::write_document(&document, &results.join("result.json"))?;
    println!("plots and data: {}", workspace.shown(&results));
    if let Some(file) = &options.json {
        service::write_document(&document, file)?;
        println!("result: {}", file.display());
    }
    Ok(u8::from(!is_clean))
}

fn load(options: &Run) -> Load {
    Load {
        connections: options.connections,
        matrix: options.matrix,
        pace: match options.pause_ms {
            Some(pause_ms) => Pace::Pause { pause_ms },
            None if options.closed => Pace::Closed,
            None => Pace::every_ms(options.period_ms),
        },
        seconds: options.seconds,
        warm_up_seconds: WARM_UP_SECONDS,
        settle_seconds: 0,
        drain_seconds: service::DRAIN_SECONDS,
    }
}
