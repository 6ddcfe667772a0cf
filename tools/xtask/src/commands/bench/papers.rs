//! The experiments of Wang's paper: `ring` and `pipe`, with coroutines and threads on COPS
//! (`/bin/measure papers`), and with threads of Linux (`user/linux/papers.c`) and tasks of tokio on
//! Linux (`user/linux/peers`) in the same emulator.
//!
//! Each row is a process of its own, measured from within and, as `process_..`, from outside. By
//! the wall clock, it is the median of several processes; those of different models take turns.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::Rows;
use super::cpio::{Entry, archive};
use super::linux;
use super::table::Table;
use super::words::{Line, listen_to_success};
use crate::build::linux::{compile, package};
use crate::cli::{Bench, Machine};
use crate::commands::Prepared;
use crate::error::{Because, Failure, Outcome};
use crate::linux_kernel::{self, LinuxKernel};
use crate::packages;
use crate::service;
use crate::terminal::{Progress, Step};
use crate::workspace::Workspace;

/// An experiment.
pub struct Experiment {
    pub name: &'static str,
    /// The threads that yield until it is their turn, as the paper's do.
    literal_thread: &'static str,
    /// Lengths of messages.
    bytes: &'static [u64],
}

/// Experiment A.
pub const RING: Experiment =
    Experiment { name: "ring", literal_thread: "thread-yield", bytes: &[0] };
/// Experiment B.
pub const PIPE: Experiment =
    Experiment { name: "pipe", literal_thread: "thread-retry", bytes: &[1, 256, 4096] };

/// Numbers of tasks below the paper's, where its coroutines lose.
const FEW: [u64; 3] = [1, 2, 10];
/// The paper's: from 200 to 4,000 by 200.
const STEP: u64 = 200;
const STEPS: u64 = 20;
/// Those of a quick run.
const QUICK: [u64; 5] = [1, 2, 10, 200, 1000];
/// All tasks together have at least so many turns in the steady mode.
const TURNS: u64 = 2000;
/// The models of Linux: threads that sleep, tasks of tokio.
const ON_LINUX: [&str; 2] = ["thread", "task"];
/// Processes of each row by the wall clock.
const REPEATS: u32 = 5;
/// Time limit of a boot; not a criterion.
const LIMIT: Duration = Duration::from_secs(1800);
/// 4,000 threads of Linux take most of half a gigabyte.
pub const MEMORY: &str = "1G";

/// What was measured.
pub struct Measured {
    pub rows: Rows,
    /// The version of the kernel of Linux. `None`: only COPS was measured.
    pub linux: Option<String>,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sample {
    /// Mode, model, tasks, bytes, rounds.
    what: (String, String, u64, u64, u64),
    instructions: u64,
    nanoseconds: u64,
    create_instructions: u64,
    process_instructions: u64,
    process_nanoseconds: u64,
}

/// Measures and prints. What has been measured so far is kept in a file of its own.
pub fn measure(
    workspace: &Workspace,
    prepared: &Prepared,
    options: &Bench,
    experiment: &Experiment,
) -> Outcome<Measured> {
    let machine = &options.machine;
    let counts = counts(options.quick);
    let mut rows = Rows::new();
    let mut step = Step::begin(Progress::Lines, format!("{} on COPS", experiment.name));
    for &bytes in experiment.bytes {
        for &count in &counts {
            step.detail(&format!("{count} tasks, {bytes} bytes"));
            let samples = on_cops(prepared, options, machine, experiment, count, bytes)?;
            rows.extend(summarise(&samples, "cops", options.icount));
            keep(workspace, experiment, &rows)?;
        }
    }
    step.done();
    let linux = match Linux::prepare(workspace) {
        Ok(linux) => Some(linux),
        Err(error) => {
            eprintln!("cops: only COPS is measured, because Linux cannot be prepared:\n{error}");
            None
        }
    };
    if let Some(linux) = &linux {
        let samples = on_linux(prepared, options, machine, experiment, linux)?;
        rows.extend(summarise(&samples, "linux", options.icount));
        keep(workspace, experiment, &rows)?;
    }
    print(&rows, experiment, &counts, options.icount);
    if options.icount {
        for lost in lost(&rows) {
            println!("coroutines take no fewer instructions than threads: {lost}");
        }
    }
    Ok(Measured { rows, linux: linux.map(|linux| linux.kernel.version) })
}

fn counts(is_quick: bool) -> Vec<u64> {
    if is_quick {
        return QUICK.to_vec();
    }
    FEW.into_iter().chain((1..=STEPS).map(|step| step * STEP)).collect()
}

/// The modes and models that are measured. The threads that yield are the paper's, so they are
/// measured in the paper's way only; for many of them, their number squared decides.
fn combinations(experiment: &Experiment) -> [(&'static str, &'static str); 5] {
    [
        ("literal", "coroutine"),
        ("literal", "thread"),
        ("literal", experiment.literal_thread),
        ("steady", "coroutine"),
        ("steady", "thread"),
    ]
}

fn repeats(options: &Bench) -> u32 {
    options.rounds.unwrap_or(if options.icount || options.quick { 1 } else { REPEATS })
}

fn on_cops(
    prepared: &Prepared,
    options: &Bench,
    machine: &Machine,
    experiment: &Experiment,
    count: u64,
    bytes: u64,
) -> Outcome<Vec<Sample>> {
    let mut samples = Vec::new();
    let models = ["coroutine", "thread", experiment.literal_thread];
    for (mode, models) in [("literal", models.join(",")), ("steady", models[..2].join(","))] {
        let numbers =
            [count, bytes, TURNS, repeats(options).into()].map(|number| number.to_string());
        let mut argv =
            ["/bin/measure", "papers", experiment.name, mode, &models].map(str::to_owned).to_vec();
        argv.extend(numbers);
        let mut boot = prepared.boot(machine, &argv, &[])?;
        if options.icount {
            boot.make_repeatable();
        }
        let lines = listen_to_success(&prepared.qemu, &boot, LIMIT)?;
        samples.extend(self::samples(&lines, experiment)?);
    }
    let expected = combinations(experiment).len() * repeats(options) as usize;
    if samples.len() != expected {
        return Err(Failure::new(format!(
            "{} processes of {expected} said something",
            samples.len()
        )));
    }
    Ok(samples)
}

/// The kernel of Linux, and the programs for it.
struct Linux {
    kernel: LinuxKernel,
    /// Process 1, with the threads.
    papers: Vec<u8>,
    /// Tokio.
    tasks: Vec<u8>,
}

impl Linux {
    fn prepare(workspace: &Workspace) -> Outcome<Self> {
        packages::ensure(&[packages::LINUX_GCC], Progress::Lines)?;
        let kernel = linux_kernel::ensure(workspace, Progress::Lines)?;
        let folder = workspace.target.join("linux-papers");
        std::fs::create_dir_all(&folder).because(|| format!("cannot make {}", folder.display()))?;
        let mut step = Step::begin(Progress::Lines, "programs for Linux");
        compile(workspace, "papers", &folder, &mut step)?;
        package(workspace, "peers", &["tasks"], &folder, &mut step)?;
        step.done();
        let read = |name: &str| {
            std::fs::read(folder.join(name)).because(|| format!("cannot read the program {name}"))
        };
        Ok(Self { kernel, papers: read("papers")?, tasks: read("tasks")? })
    }
}

fn on_linux(
    prepared: &Prepared,
    options: &Bench,
    machine: &Machine,
    experiment: &Experiment,
    linux: &Linux,
) -> Outcome<Vec<Sample>> {
    let name = format!("{} on Linux {}", experiment.name, linux.kernel.version);
    let mut step = Step::begin(Progress::Lines, name);
    let plan = plan(experiment, &counts(options.quick), repeats(options));
    let plan =
        Entry { name: "plan", mode: 0o100_644, contents: plan.as_bytes(), ..Entry::default() };
    let programs = [
        self::linux::program("init", &linux.papers),
        self::linux::program("tasks", &linux.tasks),
        plan,
    ];
    let initramfs = archive(&[&self::linux::console()[..], &programs].concat());
    let more: &[&str] = if options.icount {
        let clock = "base=2026-01-01T00:00:00,clock=vm";
        &["-icount", "shift=0,sleep=off", "-seed", "1", "-rtc", clock]
    } else {
        &[]
    };
    let more: Vec<String> = more.iter().map(ToString::to_string).collect();
    let machine = self::linux::Machine { harts: 1, memory: &machine.mem };
    let lines =
        self::linux::run(prepared, &linux.kernel, &machine, &more, &initramfs, LIMIT, &mut step)?;
    step.done();
    samples(&lines, experiment)
}

/// What Linux does: a line for each process. The models take turns, as on COPS.
fn plan(experiment: &Experiment, counts: &[u64], repeats: u32) -> String {
    let mut plan = String::new();
    for bytes in experiment.bytes {
        for count in counts {
            for mode in ["literal", "steady"] {
                let name = experiment.name;
                let line = |model| format!("{name} {mode} {model} {count} {bytes} {TURNS}\n");
                plan += &ON_LINUX.map(line).concat().repeat(repeats as usize);
            }
        }
    }
    plan
}

/// The samples in the lines: each process says something, and then its parent.
fn samples(lines: &[Line], experiment: &Experiment) -> Outcome<Vec<Sample>> {
    let lines: Vec<&Line> =
        lines.iter().filter(|line| line.tag == experiment.name || line.tag == "process").collect();
    let pair = |pair: &[&Line]| {
        let [inside, outside] = *pair else {
            return Err(Failure::new("a process ended without its line"));
        };
        if inside.tag != experiment.name || outside.tag != "process" {
            return Err(Failure::new("the lines of processes are not in order"));
        }
        Ok(Sample {
            what: (
                inside.text("mode").to_owned(),
                inside.text("model").to_owned(),
                inside.number("n")?,
                inside.number("bytes")?,
                inside.number("rounds")?,
            ),
            instructions: inside.number("instructions")?,
            nanoseconds: inside.number("nanoseconds")?,
            create_instructions: inside.number("create_instructions")?,
            process_instructions: outside.number("instructions")?,
            process_nanoseconds: outside.number("nanoseconds")?,
        })
    };
    lines.chunks(2).map(pair).collect()
}

/// A row for each kind of sample, in the order in which they first come: the medians of all samples
/// of the kind.
fn summarise(samples: &[Sample], system: &str, is_counted: bool) -> Rows {
    let mut groups: Vec<Vec<&Sample>> = Vec::new();
    for sample in samples {
        match groups.iter_mut().find(|group| group[0].what == sample.what) {
            Some(group) => group.push(sample),
            None => groups.push(vec![sample]),
        }
    }
    groups.iter().map(|group| row(group, system, is_counted)).collect()
}

fn row(group: &[&Sample], system: &str, is_counted: bool) -> Map<String, Value> {
    let sorted = |number: fn(&Sample) -> u64| {
        let mut numbers: Vec<u64> = group.iter().copied().map(number).collect();
        numbers.sort_unstable();
        numbers
    };
    // Of an even number, the mean of the two in the middle.
    let median = |number: fn(&Sample) -> u64| {
        let sorted = sorted(number);
        u64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
    };
    let milliseconds = |nanoseconds: u64| json!(nanoseconds as f64 / 1e6);
    let (mode, model, count, bytes, rounds) = &group[0].what;
    let mut row = Map::new();
    row.insert("system".into(), system.into());
    row.insert("mode".into(), mode.as_str().into());
    row.insert("model".into(), model.as_str().into());
    row.insert("n".into(), (*count).into());
    row.insert("bytes".into(), (*bytes).into());
    row.insert("rounds".into(), (*rounds).into());
    // Otherwise the counter of the emulator counts something else.
    if is_counted {
        row.insert("instructions".into(), median(|sample| sample.instructions).into());
        row.insert(
            "create_instructions".into(),
            median(|sample| sample.create_instructions).into(),
        );
        let whole = median(|sample| sample.process_instructions);
        row.insert("process_instructions".into(), whole.into());
    }
    row.insert("ms".into(), milliseconds(median(|sample| sample.nanoseconds)));
    row.insert("process_ms".into(), milliseconds(median(|sample| sample.process_nanoseconds)));
    row.insert("samples".into(), group.len().into());
    if group.len() > 1 {
        let all = sorted(|sample| sample.nanoseconds);
        row.insert("ms_min".into(), milliseconds(all[0]));
        row.insert("ms_max".into(), milliseconds(all[all.len() - 1]));
    }
    row
}

/// Keeps what has been measured so far, in case the rest is not.
fn keep(workspace: &Workspace, experiment: &Experiment, rows: &Rows) -> Outcome<()> {
    let mut document = Map::new();
    document.insert("bench".into(), experiment.name.into());
    document.insert("rows".into(), rows.clone().into());
    let file = workspace.results_folder().join(format!("{}.partial.json", experiment.name));
    service::write_document(&document, &file)
}

/// The rows in which coroutines on COPS take no fewer instructions than threads that sleep.
fn lost(rows: &Rows) -> Vec<String> {
    let of = |row: &Map<String, Value>, model: &str| {
        let same = |other: &&Map<String, Value>| {
            other["model"] == model
                && ["system", "mode", "n", "bytes"].iter().all(|&name| row[name] == other[name])
        };
        rows.iter().find(same).and_then(|row| row.get("instructions")?.as_u64())
    };
    let coroutines = rows.iter().filter(|row| row["model"] == "coroutine");
    let lost = coroutines.filter_map(|row| {
        let (coroutine, thread) = (of(row, "coroutine"), of(row, "thread"));
        let is_won = coroutine.zip(thread).is_some_and(|(coroutine, thread)| coroutine < thread);
        (!is_won).then(|| {
            let [mode, count, bytes] = ["mode", "n", "bytes"].map(|name| &row[name]);
            format!("{mode}, {count} tasks, {bytes} bytes: {coroutine:?} and {thread:?}")
        })
    });
    lost.collect()
}

/// For the tests: whether coroutines take fewer instructions than threads where there are few of
/// them, which is where the paper's lose. Returns what is wrong.
///
/// # Errors
/// If a process has found a wrong answer.
pub fn check_few(prepared: &Prepared, options: &Bench) -> Outcome<Vec<String>> {
    let mut wrong = Vec::new();
    for experiment in [RING, PIPE] {
        let bytes = experiment.bytes[0];
        let mut rows = Rows::new();
        for count in FEW {
            let samples = on_cops(prepared, options, &options.machine, &experiment, count, bytes)?;
            rows.extend(summarise(&samples, "cops", true));
        }
        wrong.extend(lost(&rows).into_iter().map(|lost| format!("{}: {lost}", experiment.name)));
    }
    Ok(wrong)
}

/// The number that a row is judged by: thousands of instructions, or milliseconds.
fn judged(row: &Map<String, Value>, is_counted: bool) -> Option<f64> {
    if is_counted { Some(row["instructions"].as_f64()? / 1e3) } else { row["ms"].as_f64() }
}

fn print(rows: &Rows, experiment: &Experiment, counts: &[u64], is_counted: bool) {
    let unit = if is_counted { "thousands of instructions" } else { "ms" };
    for &bytes in experiment.bytes {
        for mode in ["literal", "steady"] {
            let rounds = if mode == "steady" { ", all rounds" } else { "" };
            println!("\n{}, {bytes} bytes, {mode}: {unit}{rounds}", experiment.name);
            let mut table = Table::new(
                0,
                &[
                    "n",
                    "coroutine",
                    "thread",
                    experiment.literal_thread,
                    "Linux thread",
                    "Linux tokio",
                    "ratio",
                ],
            );
            for &count in counts {
                let find = |system: &str, model: &str| {
                    let is_it = |row: &&Map<String, Value>| {
                        row["system"] == system
                            && row["mode"] == mode
                            && row["model"] == model
                            && row["n"] == count
                            && row["bytes"] == bytes
                    };
                    rows.iter().find(is_it).and_then(|row| judged(row, is_counted))
                };
                let coroutine = find("cops", "coroutine");
                let thread = find("cops", "thread");
                let shown = |number: Option<f64>| {
                    number.map_or_else(|| "-".to_owned(), |number| format!("{number:.1}"))
                };
                let ratio = coroutine.zip(thread).map(|(coroutine, thread)| coroutine / thread);
                table.add([
                    count.to_string(),
                    shown(coroutine),
                    shown(thread),
                    shown(find("cops", experiment.literal_thread)),
                    shown(find("linux", "thread")),
                    shown(find("linux", "task")),
                    ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
                ]);
            }
            print!("{}", table.plain());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
        ring: mode=literal model=thread n=2 bytes=0 rounds=1 instructions=40 nanoseconds=4000000 create_instructions=10\n\
        process: instructions=50 nanoseconds=5000000\n\
        ring: mode=steady model=thread n=2 bytes=0 rounds=9 instructions=90 nanoseconds=1000000 create_instructions=10\n\
        process: instructions=99 nanoseconds=1000000\n\
        ring: mode=literal model=thread n=2 bytes=0 rounds=1 instructions=20 nanoseconds=2000000 create_instructions=10\n\
        process: instructions=30 nanoseconds=3000000\n\
        ring: mode=literal model=thread n=2 bytes=0 rounds=1 instructions=30 nanoseconds=3000000 create_instructions=10\n\
        process: instructions=40 nanoseconds=4000000\n";

    fn lines(text: &str) -> Vec<Line> {
        text.lines().filter_map(Line::parse).collect()
    }

    #[test]
    fn a_row_is_the_median_of_its_processes() {
        let samples = samples(&lines(TEXT), &RING).unwrap();
        let rows = summarise(&samples, "cops", true);
        assert_eq!(rows.len(), 2);
        assert_eq!(rows[0]["instructions"], 30);
        assert_eq!(rows[0]["process_instructions"], 40);
        assert_eq!((&rows[0]["ms_min"], &rows[0]["ms_max"]), (&json!(2.0), &json!(4.0)));
        assert_eq!((&rows[1]["mode"], &rows[1]["rounds"]), (&json!("steady"), &json!(9)));
        assert_eq!(judged(&rows[0], false), Some(3.0));
        assert!(!summarise(&samples, "cops", false)[0].contains_key("instructions"));
    }

    #[test]
    fn coroutines_lose_where_they_take_as_many_instructions() {
        let won = TEXT.replace("model=thread", "model=coroutine").replace("=90 ", "=89 ");
        let won = won.replace("instructions=30 ", "instructions=29 ");
        let of = |text: &str| summarise(&samples(&lines(text), &RING).unwrap(), "cops", true);
        let threads = of(TEXT);
        assert_eq!(lost(&[of(&won), threads.clone()].concat()), [""; 0]);
        let tie = won.replace("=89 ", "=90 ");
        assert_eq!(lost(&[of(&tie), threads].concat()).len(), 1);
        assert_eq!(lost(&of(&won)).len(), 2, "without threads there is nothing to be better than");
    }

    #[test]
    fn a_process_without_its_lines_is_an_error() {
        let all: Vec<&str> = TEXT.lines().collect();
        for missing in 0..2 {
            let text = [&all[..missing], &all[missing + 1..]].concat().join("\n");
            assert!(samples(&lines(&text), &RING).is_err(), "{missing}");
        }
    }

    #[test]
    fn linux_has_threads_and_tasks() {
        let plan = plan(&RING, &[2], 3);
        let lines: Vec<&str> = plan.lines().collect();
        assert_eq!(lines.len(), 12);
        assert_eq!(
            (lines[0], lines[3]),
            ("ring literal thread 2 0 2000", "ring literal task 2 0 2000")
        );
        assert_eq!(lines[2], lines[0], "the models take turns");
        assert!(lines[11].starts_with("ring steady task"));
    }

    #[test]
    fn the_papers_numbers_of_tasks_are_measured() {
        let counts = counts(false);
        assert_eq!(counts[..5], [1, 2, 10, 200, 400]);
        assert_eq!(counts.last(), Some(&4000));
    }
}
