//! The matrix service on COPS and on Linux, in the same emulator on the same tap device with the
//! same client (decision 58): a closed loop by the wall clock.
//!
//! In each round each server gets a machine that has just been booted, and all loads. The rounds
//! take turns, so that a busy minute of the host hits all of them alike. After each load, the data
//! file has what has been measured; `--resume` measures the rest.

mod cells;
mod linux;

use std::process::Stdio;

use serde_json::{Map, Value};

use super::matrix::{Row, number};
use crate::cli::{Bench, Model, Peer};
use crate::commands::Prepared;
use crate::error::{Because, Failure, Outcome};
use crate::qemu::command::{Boot, Network};
use crate::qemu::console::PassThrough;
use crate::qemu::namespace::{GUEST, HOST, Namespace, PREFIX, TAP, command_in};
use crate::qemu::server::Server;
use crate::service::{self, Client, Load, Pace};
use crate::terminal::Progress;
use crate::workspace::{Scratch, Workspace};

use cells::{Cells, Key};
use linux::Linux;

const CONNECTIONS: [u32; 5] = [1, 16, 64, 256, 1024];
const ROUNDS: u32 = 5;
/// Connections opened per second: the tap device loses none.
const RAMP_PER_SECOND: u32 = 1000;

/// What was measured.
pub struct Measured {
    pub rows: Vec<Row>,
    /// Entries of the configuration.
    pub configuration: Map<String, Value>,
}

/// Keeps what has been measured, with these entries of the configuration.
pub type Save<'a> = &'a dyn Fn(&[Row], &Map<String, Value>) -> Outcome<()>;

/// A server of one of the systems.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Contender {
    Cops(Model),
    Linux(Peer),
}

impl Contender {
    fn key(self, connections: u32, matrix: u32) -> Key {
        let (system, model) = match self {
            Self::Cops(model) => ("cops", model.name()),
            Self::Linux(peer) => ("linux", peer.name()),
        };
        Key { system: system.to_owned(), model: model.to_owned(), connections, matrix }
    }
}

/// Measures and prints.
pub fn measure(
    workspace: &Workspace,
    prepared: &Prepared,
    options: &Bench,
    save: Save<'_>,
) -> Outcome<Measured> {
    // First, because it is what a host most often does not allow.
    let namespace = Namespace::make()?;
    let linux = Linux::prepare(workspace, prepared)?;
    let client = Client::build(workspace, Progress::Lines)?;
    let configuration = Map::from_iter([
        ("linux".to_owned(), Value::from(linux.version())),
        ("network".to_owned(), "tap".into()),
    ]);
    let mut like = service::provenance(workspace, prepared, &options.machine);
    like.remove("command");
    like.extend(configuration.clone());
    let mut cells = earlier(options, &like)?;

    let plan = Plan::new(options);
    let setting =
        Setting { prepared, options, linux, client, namespace, scratch: workspace.scratch()? };
    for round in 1..=plan.rounds {
        for &contender in &plan.contenders {
            let loads = plan.open(&cells, contender, round);
            if loads.is_empty() {
                continue;
            }
            let Key { system, model, .. } = contender.key(0, 0);
            eprintln!("round {round} of {}: {system} {model}, {} loads", plan.rounds, loads.len());
            let mut server = setting.start(contender)?;
            for (connections, matrix) in loads {
                let result = setting.load(&mut server, connections, matrix)?;
                let key = contender.key(connections, matrix);
                println!("{}", line(&key, &cells.add(&key, &result)));
                save(&cells.rows(), &configuration)?;
            }
            match contender {
                Contender::Cops(_) => drop(server.shut_down()),
                // It knows no request to power off.
                Contender::Linux(_) => drop(server),
            }
        }
    }
    println!("\nanswers a second, medians of {} runs\n{}", plan.rounds, cells.table().plain());
    Ok(Measured { rows: cells.rows(), configuration })
}

/// Those of the data file, with `--resume`.
fn earlier(options: &Bench, like: &Map<String, Value>) -> Outcome<Cells> {
    let file = options.json.as_ref().filter(|file| options.resume && file.exists());
    let Some(file) = file else { return Ok(Cells::default()) };
    let text = std::fs::read(file).because(|| format!("cannot read {}", file.display()))?;
    let document: Value =
        serde_json::from_slice(&text).because(|| format!("{} is no JSON", file.display()))?;
    Ok(Cells::read(&document, like).unwrap_or_else(|| {
        eprintln!("cops: {} was made by another build or machine: all anew", file.display());
        Cells::default()
    }))
}

/// What is to be measured.
#[derive(Debug)]
struct Plan {
    contenders: Vec<Contender>,
    /// Numbers of connections and sides of matrices.
    loads: Vec<(u32, u32)>,
    rounds: u32,
}

impl Plan {
    fn new(options: &Bench) -> Self {
        let models = if options.model.is_empty() { &[Model::Kcuc] } else { &*options.model };
        let peers = if options.peer.is_empty() { &Peer::ALL } else { &*options.peer };
        let counts: &[u32] = match (options.connections.is_empty(), options.quick) {
            (false, _) => &options.connections,
            (true, true) => &[1, 64],
            (true, false) => &CONNECTIONS,
        };
        let matrices = if options.matrix.is_empty() { &[1] } else { &*options.matrix };
        let cops = models.iter().map(|&model| Contender::Cops(model));
        let loads = matrices
            .iter()
            .flat_map(|&matrix| counts.iter().map(move |&connections| (connections, matrix)));
        Self {
            contenders: cops.chain(peers.iter().map(|&peer| Contender::Linux(peer))).collect(),
            loads: loads.collect(),
            rounds: options.rounds.unwrap_or(if options.quick { 1 } else { ROUNDS }),
        }
    }

    /// The loads of a server that have no sample of this round.
    fn open(&self, cells: &Cells, contender: Contender, round: u32) -> Vec<(u32, u32)> {
        let is_open = |&(connections, matrix): &(u32, u32)| {
            cells.samples(&contender.key(connections, matrix)) < round as usize
        };
        self.loads.iter().copied().filter(is_open).collect()
    }
}

/// What all measurements have in common.
struct Setting<'a> {
    prepared: &'a Prepared,
    options: &'a Bench,
    linux: Linux,
    client: Client,
    namespace: Namespace,
    scratch: Scratch,
}

impl Setting<'_> {
    /// Boots a server.
    fn start(&self, contender: Contender) -> Outcome<Server> {
        let machine = &self.options.machine;
        let model = if let Contender::Cops(model) = contender { model } else { Model::Kcuc };
        let arguments = service::server_arguments(model, machine.smp);
        let mut boot = self.prepared.boot(machine, &arguments, &[])?;
        boot.network = Network::Tap(TAP.to_owned());
        let boot: Boot = match contender {
            Contender::Cops(_) => {
                boot.boot_arguments.push(format!("ip={GUEST}/{PREFIX},{HOST}"));
                boot
            }
            Contender::Linux(peer) => self.linux.boot(&boot, peer, machine),
        };
        let mut qemu = self.prepared.qemu.clone();
        qemu.namespace = Some(self.namespace.file());
        let sink = PassThrough { show_firmware: machine.verbose, show_stdout: false };
        Server::start(&qemu, &boot, sink)
    }

    /// The result of the load generator: a row.
    fn load(&self, server: &mut Server, connections: u32, matrix: u32) -> Outcome<Row> {
        let load = Load {
            connections,
            matrix,
            pace: Pace::Closed,
            seconds: self.options.seconds.unwrap_or(if self.options.quick { 1 } else { 3 }),
            warm_up_seconds: 1,
            drain_seconds: service::DRAIN_SECONDS,
        };
        let json = self.scratch.file("load.json");
        let _ = std::fs::remove_file(&json);
        let mut command = command_in(Some(&self.namespace.file()), self.client.program());
        command.arg("--connect").arg(format!("{GUEST}:{}", service::PORT));
        command.args(load.arguments(RAMP_PER_SECOND)).arg("--json").arg(&json);
        // Errors are a column.
        service::drive(server, command.stdout(Stdio::null()).stderr(Stdio::null()))?;
        let document = service::read_result(&json)?;
        let row = document.get("rows").and_then(|rows| rows.get(0)).and_then(Value::as_object);
        row.cloned().ok_or_else(|| Failure::new("the load generator's result has no row"))
    }
}

/// A sample as a line, while the measurement runs.
fn line(key: &Key, sample: &Row) -> String {
    format!(
        "{:<5} {:<10} {:>5} connections {:>3} x {:<3} {:>9.0}/s  mean {:>9.0} p99 {:>9.0} us  errors {}",
        key.system,
        key.model,
        key.connections,
        key.matrix,
        key.matrix,
        number(sample, "throughput_rps"),
        number(sample, "latency_us.mean"),
        number(sample, "latency_us.p99"),
        number(sample, "errors"),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn plan(words: &[&str]) -> Plan {
        let cli = Cli::try_parse_from([&["cops", "bench", "peers"], words].concat()).unwrap();
        let Command::Bench(options) = cli.command else { panic!("not bench") };
        Plan::new(&options)
    }

    #[test]
    fn everything_is_measured_if_nothing_is_chosen() {
        let all = plan(&[]);
        assert_eq!((all.contenders.len(), all.rounds), (7, 5));
        assert_eq!(all.loads, CONNECTIONS.map(|connections| (connections, 1)));
        let quick = plan(&["--quick"]);
        assert_eq!((quick.loads.len(), quick.rounds), (2, 1));
    }

    #[test]
    fn models_servers_and_loads_can_be_chosen() {
        let words = "--model kcuc,ktut --peer io-uring --connections 1,64 --matrix 1,15 --repeat 2";
        let chosen = plan(&words.split(' ').collect::<Vec<_>>());
        let names = chosen.contenders.iter().map(|contender| contender.key(0, 0).model);
        assert_eq!(names.collect::<Vec<_>>(), ["kcuc", "ktut", "io-uring"]);
        assert_eq!(chosen.loads, [(1, 1), (64, 1), (1, 15), (64, 15)]);
        assert_eq!(chosen.rounds, 2);
    }

    #[test]
    fn a_round_measures_what_has_no_sample_of_it() {
        let (plan, mut cells) = (plan(&["--connections", "1,64"]), Cells::default());
        let (cops, linux) = (plan.contenders[0], plan.contenders[1]);
        cells.add(&cops.key(64, 1), &Row::new());
        assert_eq!(plan.open(&cells, cops, 1), [(1, 1)]);
        assert_eq!(plan.open(&cells, cops, 2).len(), 2);
        assert_eq!(plan.open(&cells, linux, 1).len(), 2);
    }
}
