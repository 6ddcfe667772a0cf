//! The models of the papers (decision 56), by the number of connections: throughput and latency by
//! the wall clock, with the client on this host; or, with counted instructions, inside the machine.
//!
//! By the wall clock the models take turns in each round, because only ratios of one run count, and
//! each round begins with another model: the first one has the host as it is after a rest.
//! There are three kinds of points: an open loop, which is how latency should be measured; a closed
//! loop, which saturates; and the papers' client, which pauses after each answer.

use super::awake::Awake;
use super::matrix::{
    self, PERIOD_MS, Point, Row, Save, Session, Setup, chosen, guest, number, rounds,
};
use super::table::Table;
use crate::cli::{Bench, Idle, Loop, Measurement, Model};
use crate::commands::Prepared;
use crate::error::{Failure, Outcome};
use crate::service::{self, Client, Pace};
use crate::terminal::Progress;
use crate::workspace::Workspace;

const PAUSE_MS: u32 = 100;
const CONNECTIONS: [u32; 11] = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024];
const MATRICES: [u32; 5] = [1, 8, 12, 15, 20];
/// The numbers of connections with which a closed loop saturates the server.
const SATURATING: [u32; 4] = [8, 64, 256, 1024];
/// The papers' matrices, and their counts of connections: Figure 5 of 000; 001 and 003; 004.
const OF_THE_PAPERS: [(u32, &[u32]); 5] = [
    (15, &[1, 2, 4, 8, 16, 32, 64, 96]),
    (1, &[1, 2, 4, 8, 16, 32, 64, 128]),
    (20, &[1, 2, 4, 8, 16, 32, 64, 128]),
    (8, &[1, 2, 4, 8, 16, 32, 64]),
    (12, &[1, 2, 4, 8, 16, 32, 64]),
];
const ROUNDS: u32 = 3;

pub fn measure(
    workspace: &Workspace,
    prepared: &Prepared,
    options: &Bench,
    save: Save<'_>,
) -> Outcome<Vec<Row>> {
    if options.icount {
        return count(prepared, options, save);
    }
    let client = Client::build(workspace, Progress::Lines)?;
    let machine = &options.machine;
    let points = points(options);
    let _awake = if options.host_awake { Some(Awake::keep()?) } else { None };
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { ROUNDS });
    let mut rows = Vec::new();
    for round in 1..=rounds {
        for model in turns(models(options), round) {
            eprintln!("round {round} of {rounds}: {}, {} points", model.name(), points.len());
            let shift = options.papers_machine;
            let setup = Setup {
                model,
                vcpus: machine.smp,
                clock_shift: shift,
                has_slow_harts: false,
                by_tap: options.tap,
            };
            let mut session = Session::start(workspace, prepared, &client, machine, setup)?;
            for point in &points {
                for mut row in session.measure(point)? {
                    if let Some(shift) = shift {
                        row.insert("clock_shift".into(), shift.into());
                    }
                    if machine.idle == Idle::Poll {
                        row.insert("idle".into(), "poll".into());
                    }
                    if options.host_awake {
                        row.insert("host".into(), "awake".into());
                    }
                    println!("{}", line(&row));
                    rows.push(row);
                }
                save(&rounds::medians(&rows))?;
            }
            session.shut_down();
        }
    }
    let rows = rounds::medians(&rows);
    println!("\n{}", table(&rows).plain());
    Ok(rows)
}

/// Fails if the options choose no load of `bench models`.
pub fn refuse_nothing(options: &Bench) -> Outcome<()> {
    if options.name != Measurement::Models || options.icount || !points(options).is_empty() {
        return Ok(());
    }
    let papers = OF_THE_PAPERS.map(|(matrix, _)| matrix.to_string()).join(", ");
    Err(Failure::new("these options together choose no load").advise(format!(
        "the papers' client (--loop pause) has only matrices of {papers} rows, with --quick and \
         --papers-machine of {}; and --papers-machine has only that client",
        OF_THE_PAPERS[0].0
    )))
}

fn models(options: &Bench) -> Vec<Model> {
    if options.model.is_empty() { Model::ALL.to_vec() } else { options.model.clone() }
}

/// The models in their order in this round, of which the first is 1.
fn turns(mut models: Vec<Model>, round: u32) -> Vec<Model> {
    let begins_with = (round as usize).saturating_sub(1) % models.len().max(1);
    models.rotate_left(begins_with);
    models
}

fn points(options: &Bench) -> Vec<Point> {
    let seconds = |full: u32| options.seconds.unwrap_or(if options.quick { 1 } else { full });
    let point = |connections, matrix, pace| Point {
        connections,
        matrix,
        pace,
        classes: 1,
        seconds: seconds(3),
        warm_up_seconds: 1,
        settle_seconds: service::SETTLE_SECONDS,
    };
    // Literally: five seconds, and no warm-up.
    let of_the_papers = |connections, matrix| Point {
        seconds: seconds(5),
        warm_up_seconds: 0,
        ..point(connections, matrix, Pace::Pause { pause_ms: PAUSE_MS })
    };
    let is_asked = |kind| options.loops.is_empty() || options.loops.contains(&kind);
    let mut points = Vec::new();
    if options.papers_machine.is_none() {
        let (counts, saturating, matrices): (&[u32], &[u32], &[u32]) = if options.quick {
            (&[1, 64], &[64], &[1])
        } else {
            (&CONNECTIONS, &SATURATING, &MATRICES)
        };
        for &matrix in chosen(&options.matrix, matrices) {
            let paces = [
                (Loop::Open, counts, Pace::every_ms(PERIOD_MS)),
                (Loop::Closed, saturating, Pace::Closed),
            ];
            for (_, counts, pace) in paces.into_iter().filter(|(kind, ..)| is_asked(*kind)) {
                let counts = chosen(&options.connections, counts).iter().copied();
                points.extend(counts.map(|connections| point(connections, matrix, pace)));
            }
        }
    }
    // Their machine is that of Figure 5.
    let is_short = options.quick || options.papers_machine.is_some();
    let figures = if is_short { &OF_THE_PAPERS[..1] } else { &OF_THE_PAPERS };
    let is_chosen = |matrix: u32| options.matrix.is_empty() || options.matrix.contains(&matrix);
    for &(matrix, counts) in figures.iter().filter(|(matrix, _)| is_chosen(*matrix)) {
        let counts = if options.quick { &[1, 64] } else { counts };
        for &connections in chosen(&options.connections, counts) {
            if is_asked(Loop::Pause) {
                points.push(of_the_papers(connections, matrix));
            }
        }
    }
    points
}

/// In the machine, with counted instructions.
fn count(prepared: &Prepared, options: &Bench, save: Save<'_>) -> Outcome<Vec<Row>> {
    let (counts, matrices, requests): (&[u32], &[u32], u32) = if options.quick {
        (&[1, 64], &[1], 1500)
    } else {
        (&[1, 8, 64, 256, 512], &MATRICES, 6000)
    };
    let mut rows = Vec::new();
    for &matrix in chosen(&options.matrix, matrices) {
        for &connections in chosen(&options.connections, counts) {
            for model in models(options) {
                let each = (requests / connections).max(if options.quick { 10 } else { 20 });
                let mut paces = vec![guest::Pace::Counted(each)];
                if !options.quick {
                    paces.push(guest::Pace::Open {
                        jitter_seed: None,
                        period_us: PERIOD_MS * 1000,
                        warm_up_ms: PERIOD_MS,
                        milliseconds: 500,
                    });
                }
                for pace in paces {
                    let point =
                        guest::Point { model, connections, matrix, classes: 1, vcpus: 1, pace };
                    for row in guest::measure_or_fail(prepared, &options.machine, &point)? {
                        println!("{}", line(&row));
                        rows.push(row);
                    }
                }
                save(&rows)?;
            }
        }
    }
    println!("\n{}", table(&rows).plain());
    Ok(rows)
}

/// A row as a line, while the measurement runs.
pub fn line(row: &Row) -> String {
    let text = |name: &str| row.get(name).and_then(|value| value.as_str()).unwrap_or("").to_owned();
    let class = row.get("class").map_or_else(String::new, |class| format!(" class {class}"));
    format!(
        "{:<10} {:>5} connections {:>3} x {:<3} {:<6}{class} {:>9.0}/s  mean {:>9.0} p99 {:>9.0} us  errors {}",
        text("model"),
        number(row, "connections"),
        number(row, "matrix"),
        number(row, "matrix"),
        text("loop"),
        number(row, "throughput_rps"),
        number(row, "latency_us.mean"),
        number(row, "latency_us.p99"),
        number(row, "errors"),
    ) + &row
        .get("instructions_per_request")
        .map_or_else(String::new, |count| format!("  {count} instructions"))
}

fn table(rows: &[matrix::Row]) -> Table {
    let mut table = Table::new(
        2,
        &[
            "model",
            "loop",
            "matrix",
            "connections",
            "sent",
            "received",
            "errors",
            "answers/s",
            "mean us",
            "p50",
            "p99",
            "deviation",
            "instructions",
            "calls",
            "switches",
        ],
    );
    for row in rows {
        let text =
            |name: &str| row.get(name).and_then(|value| value.as_str()).unwrap_or("").to_owned();
        let mut cells = vec![text("model"), text("loop")];
        for column in ["matrix", "connections", "sent", "received", "errors", "throughput_rps"] {
            cells.push(format!("{:.0}", number(row, column)));
        }
        for column in ["mean", "p50", "p99", "deviation"] {
            cells.push(format!("{:.0}", number(row, &format!("latency_us.{column}"))));
        }
        cells.push(format!("{:.0}", number(row, "instructions_per_request")));
        cells.push(format!("{:.2}", number(row, "system_calls_per_request")));
        cells.push(format!("{:.2}", number(row, "cpu_switches_per_request")));
        table.add(cells);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn each_round_begins_with_another_model() {
        let order = |round| turns(vec![Model::Kcuc, Model::Ktut, Model::Ktuc], round);
        assert_eq!(order(1), [Model::Kcuc, Model::Ktut, Model::Ktuc]);
        assert_eq!(order(2), [Model::Ktut, Model::Ktuc, Model::Kcuc]);
        assert_eq!(order(4), order(1));
        assert_eq!(turns(Vec::new(), 2), []);
    }

    fn options(words: &str) -> Bench {
        let words = ["cops", "bench", "models"].into_iter().chain(words.split_whitespace());
        let cli = Cli::parse_words(words).expect("is a command");
        let Command::Bench(options) = cli.command else { panic!("not bench") };
        options
    }

    /// Number of points of each kind: open, closed, the papers'.
    fn counts(words: &str) -> [usize; 3] {
        let points = points(&options(words));
        let count = |is_it: fn(Pace) -> bool| points.iter().filter(move |point| is_it(point.pace));
        [
            count(|pace| matches!(pace, Pace::Open { .. })).count(),
            count(|pace| pace == Pace::Closed).count(),
            count(|pace| matches!(pace, Pace::Pause { .. })).count(),
        ]
    }

    #[test]
    fn every_figure_of_the_papers_has_its_points() {
        assert_eq!(counts(""), [55, 20, 38]);
        assert_eq!(counts("--quick"), [2, 1, 2]);
        assert_eq!(counts("--papers-machine"), [0, 0, 8]);
    }

    #[test]
    fn options_that_leave_no_load_are_refused() {
        let is_refused = |words: &str| refuse_nothing(&options(words)).is_err();
        for words in [
            "--loop pause --matrix 16",
            "--papers-machine --loop open",
            "--papers-machine --matrix 1",
        ] {
            assert!(is_refused(words), "{words}");
        }
        for words in ["", "--loop pause --matrix 20,16", "--icount --matrix 16", "--papers-machine"]
        {
            assert!(!is_refused(words), "{words}");
        }
    }

    #[test]
    fn loads_can_be_chosen() {
        assert_eq!(counts("--matrix 15"), [11, 4, 8]);
        assert_eq!(counts("--loop closed --matrix 1 --connections 256,1024"), [0, 2, 0]);
        assert_eq!(counts("--loop open,pause --matrix 1,20"), [22, 0, 16]);
    }
}
