//! `./cops run`: boots the matrix server, drives it with the real client, shows and records the
//! result.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Prepared;
use crate::cli::Run;
use crate::error::{Because, Outcome};
use crate::open_files::allow_files;
use crate::qemu::console::PassThrough;
use crate::qemu::server::Server;
use crate::service::{self, Client, Load, Pace};
use crate::terminal::Progress;
use crate::workspace::{Scratch, Workspace};

/// What the client draws.
const PLOTS: [&str; 2] = ["latency.svg", "throughput.svg"];
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
    let files = Files::of_a_run(workspace)?;
    let mut load = client.load(port, &load(options), &files.result());
    load.args(["--label", &format!("model={}", options.model.name())]);
    load.args(["--label", &format!("vcpus={}", machine.smp)]);
    load.arg("--plots").arg(files.plots());
    let before = server.statistics()?;
    let is_clean = service::drive(&mut server, &mut load)?;
    let after = server.statistics()?;
    server.shut_down();

    let provenance = service::provenance(workspace, &prepared, machine);
    let mut document =
        service::with_configuration(service::read_result(&files.result())?, provenance);
    let requests = service::answered(&document);
    if let Some(Value::Object(row)) = document.get_mut("rows").and_then(|rows| rows.get_mut(0)) {
        let entries = service::per_request(&before, &after, requests);
        service::print_per_request(&entries);
        row.extend(entries);
    }
    service::write_document(&document, &results.join("result.json"))?;
    files.publish_plots(&results)?;
    println!("plots and data: {}", workspace.shown(&results));
    if let Some(file) = &options.json {
        service::write_document(&document, file)?;
        println!("result: {}", file.display());
    }
    Ok(u8::from(!is_clean))
}

/// The files that the client writes. They are of this run alone: another one at the same time has
/// its own, and the last one that ends leaves its files in the folder of the results.
struct Files {
    scratch: Scratch,
}

impl Files {
    fn of_a_run(workspace: &Workspace) -> Outcome<Self> {
        Ok(Self { scratch: workspace.scratch()? })
    }

    fn result(&self) -> PathBuf {
        self.scratch.file("load.json")
    }

    fn plots(&self) -> PathBuf {
        self.scratch.file("plots")
    }

    /// Moves the plots to the folder of the results, which exists.
    fn publish_plots(&self, results: &Path) -> Outcome<()> {
        PLOTS.iter().try_for_each(|name| {
            let place = results.join(name);
            std::fs::rename(self.plots().join(name), &place)
                .because(|| format!("cannot put {} in place", place.display()))
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_runs_at_the_same_time_have_their_own_results() {
        let root = std::env::temp_dir().join(format!("xtask-runs-{}", std::process::id()));
        let workspace = Workspace { root: root.clone(), target: root.join("target") };
        let results = workspace.results_folder().join("run");
        let runs = [(); 2].map(|()| Files::of_a_run(&workspace).unwrap());
        for (number, files) in runs.iter().enumerate() {
            let result = format!("{{\"rows\": [{{\"sent\": {number}}}]}}");
            std::fs::write(files.result(), result).unwrap();
            std::fs::create_dir_all(files.plots()).unwrap();
            for name in PLOTS {
                std::fs::write(files.plots().join(name), number.to_string()).unwrap();
            }
        }
        std::fs::create_dir_all(&results).unwrap();
        for (number, files) in runs.iter().enumerate() {
            assert_eq!(service::read_row(&files.result()).unwrap()["sent"], number);
            files.publish_plots(&results).unwrap();
            for name in PLOTS {
                let plot = std::fs::read_to_string(results.join(name)).unwrap();
                assert_eq!(plot, number.to_string());
            }
        }
        std::fs::remove_dir_all(root).unwrap();
    }
}
