//! The matrix service on COPS and on Linux, in the same emulator on the same tap device with the
//! same client (decision 58), by the wall clock: a closed loop, which saturates; or an open one,
//! which shows latencies at a given load, and what a server answers when that load is too much.
//!
//! An open loop needs no limit of the requests that await their answer: there are at most those of
//! warm-up and measured time. The client counts each of them, sent or not, and what has no answer
//! at the end of the drain is missing. The throughput is of answers within the measured time.
//!
//! In each round each server gets a machine that has just been booted, and all loads, an overload
//! on a machine of its own. The rounds take turns, so that a busy minute of the host hits all of
//! them alike. After each load, the data file has what has been measured; `--resume` measures the
//! rest (`resume`).

mod cells;
mod linux;
mod resume;

use serde_json::{Map, Value};

use super::matrix::{PERIOD_MS, Row, number};
use super::tap::{self, Urgency};
use crate::cli::{Bench, Loop, Model, Peer};
use crate::commands::Prepared;
use crate::error::{Failure, Outcome};
use crate::qemu::namespace::Namespace;
use crate::qemu::server::Server;
use crate::service::{self, Client, Pace};
use crate::terminal::Progress;
use crate::workspace::{Scratch, Workspace};

use cells::{Cells, Key, Load};
use linux::Linux;

const CONNECTIONS: [u32; 5] = [1, 16, 64, 256, 1024];
/// Of an open loop; the last one is an overload.
const OPEN_CONNECTIONS: [u32; 5] = [1, 64, 256, 512, 1024];
const ROUNDS: u32 = 5;

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
    /// System and model.
    fn names(self) -> [&'static str; 2] {
        match self {
            Self::Cops(model) => ["cops", model.name()],
            Self::Linux(peer) => ["linux", peer.name()],
        }
    }

    fn key(self, load: Load) -> Key {
        let [system, model] = self.names().map(str::to_owned);
        Key { system, model, load }
    }
}

/// Measures and prints.
pub fn measure(
    workspace: &Workspace,
    prepared: &Prepared,
    options: &Bench,
    save: Save<'_>,
) -> Outcome<Measured> {
    let plan = Plan::new(options)?;
    let namespace = Namespace::make()?;
    let linux = Linux::prepare(workspace, prepared)?;
    let client = Client::build(workspace, Progress::Lines)?;
    let configuration = Map::from_iter([
        ("linux".to_owned(), Value::from(linux.version())),
        ("network".to_owned(), "tap".into()),
        ("seconds".to_owned(), seconds(options).into()),
    ]);
    let mut like = service::provenance(workspace, prepared, &options.machine);
    like.remove("command");
    like.extend(configuration.clone());
    let mut cells = resume::earlier(options, &like)?;

    let setting =
        Setting { prepared, options, linux, client, namespace, scratch: workspace.scratch()? };
    for round in 1..=plan.rounds {
        for &contender in &plan.contenders {
            let loads = plan.left(&cells, contender, round);
            if loads.is_empty() {
                continue;
            }
            let [system, model] = contender.names();
            eprintln!("round {round} of {}: {system} {model}, {} loads", plan.rounds, loads.len());
            let mut server = None;
            for load in loads {
                if load.is_overload() {
                    // It may have been behind with the load before.
                    stop(contender, server.take());
                }
                let running = match &mut server {
                    Some(running) => running,
                    None => server.insert(setting.start(contender)?),
                };
                let result = setting.load(running, load)?;
                let key = contender.key(load);
                println!("{}", line(&key, &cells.add(&key, &result)));
                save(&cells.rows(), &configuration)?;
            }
            stop(contender, server);
        }
    }
    println!("\nanswers a second, medians of {} runs\n{}", plan.rounds, cells.table().plain());
    Ok(Measured { rows: cells.rows(), configuration })
}

/// Ends a server, if one runs.
fn stop(contender: Contender, server: Option<Server>) {
    match (contender, server) {
        (Contender::Cops(_), Some(server)) => drop(server.shut_down()),
        // Linux knows no request to power off.
        (_, server) => drop(server),
    }
}

/// What is to be measured.
#[derive(Debug)]
struct Plan {
    contenders: Vec<Contender>,
    loads: Vec<Load>,
    rounds: u32,
}

impl Plan {
    fn new(options: &Bench) -> Outcome<Self> {
        if options.loops.contains(&Loop::Pause) {
            return Err(Failure::new("bench peers has no client that pauses (--loop pause)")
                .advise("give --loop open, --loop closed or both"));
        }
        let models = if options.model.is_empty() { &[Model::Kcuc] } else { &*options.model };
        let peers = if options.peer.is_empty() { &Peer::ALL } else { &*options.peer };
        let cops = models.iter().map(|&model| Contender::Cops(model));
        // The closed loop comes first: after an overload a server may still work on its requests.
        let kinds = [Loop::Closed, Loop::Open].into_iter().filter(|kind| match &*options.loops {
            [] => *kind == Loop::Closed,
            asked => asked.contains(kind),
        });
        let loads = kinds.flat_map(|kind| {
            let (matrix, counts): (u32, &[u32]) = match kind {
                Loop::Open => (15, &OPEN_CONNECTIONS),
                _ => (1, &CONNECTIONS),
            };
            let counts = match (&*options.connections, options.quick) {
                ([], true) => &[1, 64],
                ([], false) => counts,
                (asked, _) => asked,
            };
            let matrices =
                if options.matrix.is_empty() { vec![matrix] } else { options.matrix.clone() };
            matrices.into_iter().flat_map(move |matrix| {
                counts.iter().map(move |&connections| Load { kind, matrix, connections })
            })
        });
        Ok(Self {
            contenders: cops.chain(peers.iter().map(|&peer| Contender::Linux(peer))).collect(),
            loads: loads.collect(),
            rounds: options.rounds.unwrap_or(if options.quick { 1 } else { ROUNDS }),
        })
    }

    /// The loads of a server that have no sample of this round.
    fn left(&self, cells: &Cells, contender: Contender, round: u32) -> Vec<Load> {
        let is_left = |load: &Load| cells.samples(&contender.key(*load)) < round as usize;
        self.loads.iter().copied().filter(is_left).collect()
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
        let boot = tap::boot(self.prepared, machine, model)?;
        let boot = match contender {
            Contender::Cops(_) => boot,
            Contender::Linux(peer) => self.linux.boot(&boot, peer, machine),
        };
        tap::start(self.prepared, &self.namespace, &boot, machine)
    }

    /// The result of the load generator: a row.
    ///
    /// In an overload the load generator has the lowest priority of the host, and the tap device a
    /// long queue, as in `bench overload`: otherwise what would be measured is the host, which has
    /// two processors for machine and client, and drops frames.
    fn load(&self, server: &mut Server, load: Load) -> Outcome<Row> {
        let (urgency, queue) = if load.is_overload() {
            (Urgency::Lowest, tap::QUEUE_OF_AN_OVERLOAD)
        } else {
            (Urgency::Usual, tap::QUEUE)
        };
        self.namespace.set_queue_frames(queue)?;
        let load = service::Load {
            connections: load.connections,
            matrix: load.matrix,
            pace: pace(load.kind),
            seconds: seconds_of(self.options, load),
            warm_up_seconds: 1,
            settle_seconds: if load.is_overload() { 0 } else { service::SETTLE_SECONDS },
            drain_seconds: service::DRAIN_SECONDS,
        };
        let json = self.scratch.file("load.json");
        let client = tap::client(&self.namespace, &self.client, &load, urgency, &json);
        tap::run(server, client, &json)
    }
}

/// Answers of an open loop, at least: of fewer, p99 would be the slowest one or two.
const ANSWERS_MIN: u32 = 300;

/// The measured time of each load, at least.
fn seconds(options: &Bench) -> u32 {
    options.seconds.unwrap_or(if options.quick { 1 } else { 3 })
}

/// The measured time of this load.
fn seconds_of(options: &Bench, load: Load) -> u32 {
    let asked = seconds(options);
    match load.kind {
        Loop::Open if !options.quick => {
            let milliseconds = ANSWERS_MIN * PERIOD_MS;
            asked.max(milliseconds.div_ceil(1000 * load.connections.max(1)))
        }
        _ => asked,
    }
}

/// When the client sends. A plan has no load with pauses.
fn pace(kind: Loop) -> Pace {
    match kind {
        Loop::Open => Pace::every_ms(PERIOD_MS),
        Loop::Closed | Loop::Pause => Pace::Closed,
    }
}

/// A sample as a line, while the measurement runs.
fn line(Key { system, model, load }: &Key, sample: &Row) -> String {
    let Load { kind, matrix, connections } = load;
    format!(
        "{system:<5} {model:<10} {:<6} {connections:>5} connections {matrix:>3} x {matrix:<3} \
         {:>9.0}/s  mean {:>9.0} p50 {:>9.0} p99 {:>9.0} us  errors {}",
        kind.name(),
        number(sample, "throughput_rps"),
        number(sample, "latency_us.mean"),
        number(sample, "latency_us.p50"),
        number(sample, "latency_us.p99"),
        number(sample, "errors"),
    )
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn planned(words: &str) -> Outcome<Plan> {
        let words = ["cops", "bench", "peers"].into_iter().chain(words.split_whitespace());
        let cli = Cli::try_parse_from(words).unwrap();
        let Command::Bench(options) = cli.command else { panic!("not bench") };
        Plan::new(&options)
    }

    fn plan(words: &str) -> Plan {
        planned(words).unwrap()
    }

    /// Loads as loop, matrix and connections.
    fn loads(words: &str) -> Vec<(Loop, u32, u32)> {
        let loads = plan(words).loads.into_iter();
        loads.map(|load| (load.kind, load.matrix, load.connections)).collect()
    }

    #[test]
    fn everything_is_measured_if_nothing_is_chosen() {
        let all = plan("");
        assert_eq!((all.contenders.len(), all.rounds), (7, 5));
        assert_eq!(loads(""), CONNECTIONS.map(|connections| (Loop::Closed, 1, connections)));
        let quick = plan("--quick");
        assert_eq!((quick.loads.len(), quick.rounds), (2, 1));
    }

    #[test]
    fn the_last_load_of_an_open_loop_is_an_overload() {
        let overloads = |words| {
            let loads = plan(words).loads.into_iter();
            loads.map(Load::is_overload).collect::<Vec<_>>()
        };
        assert_eq!(overloads("--loop open"), [false, false, false, false, true]);
        assert_eq!(overloads("--loop closed"), [false; 5]);
    }

    #[test]
    fn an_open_loop_has_enough_answers_for_p99() {
        let words = "cops bench peers --loop open --seconds 3";
        let times = |words: &str| {
            let cli = Cli::try_parse_from(words.split_whitespace()).unwrap();
            let Command::Bench(options) = cli.command else { panic!("not bench") };
            let loads = Plan::new(&options).unwrap().loads.into_iter();
            loads.map(|load| seconds_of(&options, load)).collect::<Vec<_>>()
        };
        assert_eq!(times(words), [30, 3, 3, 3, 3]);
        assert_eq!(times(&format!("{words} --connections 2,10,11 --quick")), [3, 3, 3]);
        assert_eq!(times(&format!("{words} --connections 2,10,11")), [15, 3, 3]);
        assert_eq!(times("cops bench peers --connections 1 --seconds 3"), [3]);
    }

    #[test]
    fn models_and_servers_can_be_chosen() {
        let chosen = plan("--model kcuc,ktut --peer io-uring --repeat 2");
        let names = chosen.contenders.iter().map(|contender| contender.names()[1]);
        assert_eq!(names.collect::<Vec<_>>(), ["kcuc", "ktut", "io-uring"]);
        assert_eq!(chosen.rounds, 2);
    }

    #[test]
    fn loads_can_be_chosen() {
        use Loop::{Closed, Open};
        assert_eq!(
            loads("--connections 1,64 --matrix 1,15"),
            [(Closed, 1, 1), (Closed, 1, 64), (Closed, 15, 1), (Closed, 15, 64)]
        );
        let open = OPEN_CONNECTIONS.map(|connections| (Open, 15, connections));
        assert_eq!(loads("--loop open"), open);
        assert_eq!(loads("--loop open --quick"), [(Open, 15, 1), (Open, 15, 64)]);
        // Each loop has its matrix, unless one is given; the closed loop comes first.
        assert_eq!(loads("--loop open,closed --connections 64"), [(Closed, 1, 64), (Open, 15, 64)]);
        assert_eq!(
            loads("--loop open,closed --connections 64 --matrix 8"),
            [(Closed, 8, 64), (Open, 8, 64)]
        );
    }

    #[test]
    fn a_client_that_pauses_is_refused() {
        for words in ["--loop pause", "--loop open,pause"] {
            let failure = planned(words).expect_err(words).to_string();
            assert!(failure.contains("--loop pause"), "{failure}");
        }
    }

    #[test]
    fn each_kind_of_loop_has_its_pace() {
        assert_eq!(pace(Loop::Open), Pace::every_ms(100));
        assert_eq!(pace(Loop::Closed), Pace::Closed);
    }

    #[test]
    fn a_round_measures_what_has_no_sample_of_it() {
        let words = "--connections 1,64 --matrix 1 --loop open,closed";
        let (plan, mut cells) = (plan(words), Cells::default());
        let (cops, linux) = (plan.contenders[0], plan.contenders[1]);
        let load = |kind, connections| Load { kind, matrix: 1, connections };
        cells.add(&cops.key(load(Loop::Closed, 64)), &Row::new());
        let (closed, open) = (load(Loop::Closed, 1), load(Loop::Open, 1));
        assert_eq!(plan.left(&cells, cops, 1), [closed, open, load(Loop::Open, 64)]);
        assert_eq!(plan.left(&cells, cops, 2).len(), 4);
        assert_eq!(plan.left(&cells, linux, 1).len(), 4);
    }
}
