//! The command line: what to measure, and where the result goes.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use cops_executor_peers::contender::Contender;
use cops_executor_peers::driver::{self, Plan};
use cops_executor_peers::earlier;
use cops_executor_peers::limits;
use cops_executor_peers::report::Report;
use cops_executor_peers::rows::TABLES;

/// cops-executor beside tokio, async-executor, embassy-executor, LocalPool, threads and bare
/// polling
#[derive(Debug, Parser)]
#[command(
    after_help = "A whole run writes docs/results/executor.md and executor.json; a part of one is printed only.\n\
    Instructions need valgrind. Progress goes to standard error.\n\n\
    Examples (after `cargo run --release --manifest-path crates/executor/peers/Cargo.toml --`):\n  \
    --counts --times-of docs/results/executor.json --output docs/results\n  \
    --counts                         no times: for a machine that has other things to do\n  \
    --limits                         what `./cops test --only peers` counts\n  \
    --only yield --contender cops --contender embassy\n  \
    --only urgent-2\n  \
    --times --only contended --runs 100\n  \
    --list"
)]
struct Arguments {
    /// Only instructions, bytes and polls: nothing that depends on the machine's load
    #[arg(long, visible_alias = "instructions", conflicts_with = "times")]
    counts: bool,
    /// Only the instructions that src/limits.rs limits; it is an error if one is not counted
    #[arg(long, conflicts_with_all = ["times", "only", "contender", "quick"])]
    limits: bool,
    /// Only times
    #[arg(long, visible_alias = "time")]
    times: bool,
    /// Only this row, or all with a key that begins with this (repeatable)
    #[arg(long, value_name = "ROW")]
    only: Vec<String>,
    /// Only this runtime (repeatable)
    #[arg(long, value_name = "NAME", value_parser = parse_contender)]
    contender: Vec<Contender>,
    /// Runs of each timed measurement, of which the fastest counts
    #[arg(long, value_name = "K", default_value_t = 25, value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// A tenth of the operations, and five runs
    #[arg(long)]
    quick: bool,
    /// Write executor.md and executor.json into this folder
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// With --counts: take what depends on load from this file, which an earlier run wrote
    #[arg(long, value_name = "FILE", requires = "counts")]
    times_of: Option<PathBuf>,
    /// Write the data into this file too
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Name rows and runtimes, and do nothing
    #[arg(long)]
    list: bool,
}

fn parse_contender(key: &str) -> Result<Contender, String> {
    Contender::from_key(key).ok_or_else(|| {
        let keys = Contender::ALL.map(Contender::key).join(", ");
        format!("there are {keys}")
    })
}

fn main() -> ExitCode {
    let no_bytes = || panic!("bytes are measured by live-bytes");
    if let Some(code) = cops_executor_peers::child::run_if_asked(no_bytes) {
        return code;
    }
    let arguments = Arguments::parse();
    if arguments.list {
        list();
        return ExitCode::SUCCESS;
    }
    let unknown = |only: &&String| {
        !TABLES.iter().flat_map(|table| table.rows).any(|row| row.is_meant_by(only))
    };
    if let Some(only) = arguments.only.iter().find(unknown) {
        eprintln!("no row begins with {only:?}; --list names them");
        return ExitCode::from(2);
    }
    if cfg!(debug_assertions) {
        eprintln!(
            "this build has debug assertions: its figures are of no use (cargo run --release)"
        );
    }
    let (only, contenders) = if arguments.limits {
        (limits::rows().map(str::to_owned).collect(), limits::contenders().to_vec())
    } else {
        (arguments.only, arguments.contender)
    };
    let plan = Plan {
        only,
        contenders,
        counts: !arguments.times,
        times: !arguments.counts && !arguments.limits,
        runs: if arguments.quick { 5 } else { arguments.runs },
        is_quick: arguments.quick,
    };
    measure(&plan, arguments.limits, arguments.times_of, arguments.output, arguments.json)
}

fn measure(
    plan: &Plan,
    needs_all_limits: bool,
    times_of: Option<PathBuf>,
    output: Option<PathBuf>,
    json: Option<PathBuf>,
) -> ExitCode {
    let mut outcome = driver::execute(plan);
    let mut exceeded = limits::exceeded(&outcome.results);
    if needs_all_limits {
        exceeded.extend(limits::not_counted(&outcome.results));
    }
    exceeded.iter().for_each(|words| eprintln!("{words}"));
    if let Some(file) = times_of
        && let Err(error) = earlier::take_times(&mut outcome, &file)
    {
        eprintln!("cannot read {}: {error}", file.display());
        return ExitCode::FAILURE;
    }
    let report = Report::new(plan, &outcome);
    // The files first: they must not be lost with an output that is closed (`| head`).
    let are_written = write(&report, plan, output, json);
    let _ = writeln!(io::stdout(), "{}", report.text.trim_end());
    if !are_written {
        return ExitCode::FAILURE;
    }
    let is_good = outcome.failures.is_empty() && exceeded.is_empty();
    if is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Writes the files that are asked for. Returns whether that succeeded.
fn write(report: &Report, plan: &Plan, output: Option<PathBuf>, json: Option<PathBuf>) -> bool {
    let published = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/results");
    if let Some(folder) = output.or_else(|| (!plan.is_partial()).then(published)) {
        if let Err(error) = report.write(&folder) {
            eprintln!("cannot write into {}: {error}", folder.display());
            return false;
        }
        eprintln!("executor.md and executor.json are in {}", folder.display());
    }
    if let Some(file) = json
        && let Err(error) = report.write_data(&file)
    {
        eprintln!("cannot write {}: {error}", file.display());
        return false;
    }
    true
}

fn list() {
    for table in TABLES {
        println!("{}", table.title);
        for row in table.rows {
            let takes =
                Contender::ALL.into_iter().filter(|contender| contender.takes(row.operation));
            let keys: Vec<&str> = takes.map(Contender::key).collect();
            println!("  {:17} {}: {}", row.key, row.head, keys.join(", "));
        }
    }
}
