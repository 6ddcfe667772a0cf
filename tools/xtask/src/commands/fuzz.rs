//! `./cops fuzz`: `/bin/fuzz` makes system calls with nearly valid or arbitrary arguments in a
//! fresh system. With `--linux` it lets a Linux program make them, `user/linux/fuzz.c`.
//!
//! One hart runs under `-icount`, so that the whole run follows from the seed, and the kernel
//! measures the portions of its work, which may not be too long. The machine has no
//! access to a network outside of it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::Prepared;
use crate::build::linux::compile;
use crate::cli::{Fuzz, Machine as MachineOptions};
use crate::error::{Because, Outcome};
use crate::packages;
use crate::process::last_lines;
use crate::qemu::command::Network;
use crate::qemu::console::{Ending, Sink, follow_while_it_writes};
use crate::qemu::demux::Channel;
use crate::qemu::machine::Machine;
use crate::qemu::portions::{self, Portion};
use crate::service;
use crate::terminal::{Progress, Step};
use crate::workspace::Workspace;

/// A boot without output for this time has hung: a round takes about a second, and ends children
/// that hang.
const SILENCE: Duration = Duration::from_secs(300);
/// Number of bytes at the end of the console's output that are kept.
const KEPT_BYTES: usize = 64 << 10;
/// Number of lines of it that are shown if the run failed.
const SHOWN_LINES: usize = 60;

/// The work of one boot.
#[derive(Debug, Clone)]
pub struct Campaign {
    pub calls: u64,
    pub seed: u64,
    /// The first round.
    pub first: u64,
    pub harts: u32,
    /// The folder with the Linux program that makes the calls. `None`: `/bin/fuzz` makes them.
    pub linux: Option<PathBuf>,
}

/// The Linux program, in `user/linux` and in the root image.
const LINUX: &str = "fuzz";

/// Builds the Linux program; returns the folder that has it, and nothing else.
pub fn build_linux(workspace: &Workspace, step: &mut Step) -> Outcome<PathBuf> {
    packages::ensure(&[packages::LINUX_GCC], Progress::Lines)?;
    let folder = workspace.target.join("linux-fuzz");
    std::fs::create_dir_all(&folder).because(|| format!("cannot make {}", folder.display()))?;
    compile(workspace, LINUX, &folder, step)?;
    Ok(folder)
}

/// The result.
#[derive(Debug)]
pub struct Outcomes {
    /// The values of the program's summary: `seed`, `rounds`, `calls`, `processes`, `killed`,
    /// `faulted`; of a Linux program also the number of different calls that were `reached` and
    /// `known`, and how often each error was the result.
    pub summary: Vec<(String, u64)>,
    /// Why it failed, with the end of the console's output.
    pub wrong: Option<String>,
}

fn machine(harts: u32) -> MachineOptions {
    MachineOptions::new(harts, "512M")
}

/// Runs `/bin/fuzz` once; `progress` gets its lines.
pub fn campaign(
    prepared: &Prepared,
    wanted: &Campaign,
    progress: impl FnMut(&str),
) -> Outcome<Outcomes> {
    let mut argv = vec![
        "/bin/fuzz".to_owned(),
        format!("calls={}", wanted.calls),
        format!("seed={}", wanted.seed),
        format!("first={}", wanted.first),
    ];
    argv.extend(wanted.linux.iter().map(|_| format!("linux=/{LINUX}")));
    let added = wanted.linux.as_slice();
    let mut boot = prepared.boot(&machine(wanted.harts), &argv, added)?;
    boot.network = Network::Isolated;
    if wanted.harts == 1 {
        boot.make_repeatable();
        portions::measure(&mut boot);
    }
    let machine = Machine::start(&prepared.qemu, &boot)?;
    let mut console = Console { text: Vec::new(), line: Vec::new(), progress };
    let ending = follow_while_it_writes(machine, SILENCE, &mut console);
    let text = String::from_utf8_lossy(&console.text);
    let mut result = judge(&ending, &text);
    if wanted.harts == 1 && result.wrong.is_none() {
        result.wrong = too_long(&text);
    }
    Ok(result)
}

/// What is wrong with the portions that the kernel has measured (SPEC 3.13a).
fn too_long(text: &str) -> Option<String> {
    let measured = portions::parse(text);
    if measured.is_empty() {
        return Some("no portions were measured".into());
    }
    let wrong = measured.iter().filter(|portion| portion.is_too_long()).map(|portion| {
        let Portion { longest, about, .. } = portion;
        format!("a portion of {longest} instructions: {}, about {about}", portion.name())
    });
    Some(wrong.collect::<Vec<_>>().join("\n")).filter(|wrong| !wrong.is_empty())
}

/// Fails unless the program reports success and exits accordingly.
fn judge(ending: &Ending, text: &str) -> Outcomes {
    // Children write arbitrary text to the console, including beginnings of lines.
    let said =
        |what: &str| text.rfind(what).map(|at| text[at..].lines().next().unwrap_or_default());
    let summary = said("fuzz: seed=").map(summary).unwrap_or_default();
    let is_well = *ending == Ending::Status(0)
        && said("fuzz: nothing wrong").is_some()
        && !summary.is_empty();
    let wrong = (!is_well)
        .then(|| format!("{ending:?}\nthe end of the console:\n{}", last_lines(text, SHOWN_LINES)));
    Outcomes { summary, wrong }
}

/// Parses `fuzz: name=number ...` to names and numbers.
fn summary(line: &str) -> Vec<(String, u64)> {
    let words = line.split_whitespace().skip(1).filter_map(|word| word.split_once('='));
    words.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
}

/// Keeps the end of the output, and passes on whole lines.
struct Console<F> {
    text: Vec<u8>,
    line: Vec<u8>,
    progress: F,
}

impl<F: FnMut(&str)> Sink for Console<F> {
    fn bytes(&mut self, channel: Channel, bytes: &[u8]) {
        if matches!(channel, Channel::Firmware | Channel::Trace) {
            return;
        }
        self.text.extend_from_slice(bytes);
        if self.text.len() > 2 * KEPT_BYTES {
            self.text.drain(..self.text.len() - KEPT_BYTES);
        }
        for &byte in bytes {
            if byte == b'\n' {
                (self.progress)(&String::from_utf8_lossy(&self.line));
                self.line.clear();
            } else if self.line.len() < KEPT_BYTES {
                self.line.push(byte);
            }
        }
    }
}

/// Boots several times, each time with another seed, until all calls are made.
pub fn run(workspace: &Workspace, options: &Fuzz) -> Outcome<u8> {
    let prepared = Prepared::new(workspace, Progress::Lines)?;
    let linux = match options.linux {
        true => {
            let mut step = Step::begin(Progress::Lines, "program for Linux");
            let folder = build_linux(workspace, &mut step)?;
            step.done();
            Some(folder)
        }
        false => None,
    };
    let begin = Instant::now();
    let (mut left, mut seed) = (options.calls, options.seed);
    let mut rows = Vec::new();
    let mut status = 0;
    while left > 0 && status == 0 {
        let calls = left.min(options.calls_per_boot);
        let (first, harts) = (options.first, options.smp);
        let wanted = Campaign { calls, seed, first, harts, linux: linux.clone() };
        println!("seed {seed}: {calls} calls on {} harts", options.smp);
        let started = Instant::now();
        let mut step = Step::begin(Progress::Transient, format!("seed {seed}"));
        let result = campaign(&prepared, &wanted, |line| step.detail(line))?;
        drop(step);
        let mut row = Map::new();
        row.insert("linux".into(), options.linux.into());
        row.insert("harts".into(), options.smp.into());
        row.insert("seed".into(), seed.into());
        row.extend(result.summary.iter().map(|(name, value)| (name.clone(), Value::from(*value))));
        row.insert("seconds".into(), started.elapsed().as_secs().into());
        row.insert("wrong".into(), result.wrong.is_some().into());
        let said: Vec<String> = row.iter().map(|(name, value)| format!("{name} {value}")).collect();
        println!("  {}", said.join(", "));
        rows.push(Value::Object(row));
        if let Some(wrong) = result.wrong {
            println!("{wrong}\nrepeat with: {}", repeat(&wanted));
            status = 1;
        }
        left -= calls;
        seed += 1;
    }
    println!("{} s", begin.elapsed().as_secs());
    if let Some(file) = &options.json {
        record(workspace, &prepared, &machine(options.smp), file, rows)?;
    }
    Ok(status)
}

/// The command that repeats one boot.
fn repeat(Campaign { calls, seed, first, harts, linux }: &Campaign) -> String {
    let linux = if linux.is_some() { " --linux" } else { "" };
    format!(
        "./cops fuzz{linux} --seed {seed} --first {first} --smp {harts} --calls {calls} \
         --calls-per-boot {calls}"
    )
}

/// Appends the rows to those in `file`.
fn record(
    workspace: &Workspace,
    prepared: &Prepared,
    machine: &MachineOptions,
    file: &Path,
    rows: Vec<Value>,
) -> Outcome<()> {
    let mut provenance = service::provenance(workspace, prepared, machine);
    provenance.insert("network".into(), "isolated".into());
    let mut earlier = Value::Null;
    if file.exists() {
        let cannot = || format!("cannot read {}", file.display());
        let text = std::fs::read_to_string(file).because(cannot)?;
        earlier = serde_json::from_str(&text).because(cannot)?;
    }
    let mut document = Map::new();
    document.insert("bench".into(), "fuzz".into());
    document.insert("config".into(), json!({}));
    document.insert("rows".into(), joined(&earlier, rows, &provenance).into());
    let document = service::with_configuration(document, provenance);
    service::write_document(&document, file)
}

/// What each row says of its own run. The configuration of the file is that of the last one.
const OF_EACH_RUN: [&str; 3] = ["commit", "qemu", "toolchain"];

/// The rows of an earlier document and those that are new. Each names the code that it is of; a
/// row that does not yet was made as the configuration of its document says.
fn joined(earlier: &Value, new: Vec<Value>, provenance: &Map<String, Value>) -> Vec<Value> {
    let none = Map::new();
    let config = earlier["config"].as_object().unwrap_or(&none);
    let old = earlier["rows"].as_array().cloned().unwrap_or_default();
    let named = |rows: Vec<Value>, config: &Map<String, Value>| {
        let mut rows = rows;
        for row in rows.iter_mut().filter_map(Value::as_object_mut) {
            for name in OF_EACH_RUN {
                let value = config.get(name).cloned().unwrap_or_default();
                row.entry(name).or_insert(value);
            }
        }
        rows
    };
    [named(old, config), named(new, provenance)].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn long_portions_are_wrong() {
        let line = |longest: u32| {
            format!(
                "portion: kind=system-call what=READ hart=0 longest={longest} count=1 about=0x0,0x0,0x0,0x0\n"
            )
        };
        assert_eq!(too_long(&line(50_000)), None);
        assert!(too_long(&line(50_001)).is_some_and(|why| why.contains("50001")));
        assert!(too_long("fuzz: nothing wrong\n").is_some());
    }

    #[test]
    fn each_row_keeps_the_commit_that_it_is_of() {
        let of = |commit: &str| {
            let entries = json!({ "commit": commit, "qemu": "7.2", "toolchain": "rustc" });
            entries.as_object().expect("an object").clone()
        };
        let seed = |seed: u32| vec![json!({ "seed": seed })];
        let mut document = Value::Null;
        for (number, commit) in [(1, "a"), (2, "b"), (3, "c")] {
            let mut rows = joined(&document, seed(number), &of(commit));
            // A file of before, of which the rows do not say it.
            if number == 1 {
                rows = seed(1);
            }
            document = json!({ "config": of(commit), "rows": rows });
        }
        let rows = document["rows"].as_array().expect("rows");
        let commits: Vec<_> =
            rows.iter().map(|row| (row["seed"].clone(), row["commit"].clone())).collect();
        assert_eq!(commits, [(1, "a"), (2, "b"), (3, "c")].map(|(s, c)| (json!(s), json!(c))));
        assert_eq!(rows[0]["qemu"], "7.2");
    }

    #[test]
    fn a_boot_can_be_repeated() {
        let linux = Some(PathBuf::from("folder"));
        let wanted = Campaign { calls: 5_000_000, seed: 7, first: 30, harts: 2, linux };
        let command = repeat(&wanted);
        let cli = Cli::parse_words(command.split(' ')).unwrap();
        let Command::Fuzz(options) = cli.command else { panic!("{command}") };
        assert_eq!((options.seed, options.first, options.smp), (7, 30, 2));
        assert_eq!(
            (options.calls, options.calls_per_boot, options.linux),
            (5_000_000, 5_000_000, true)
        );
    }

    #[test]
    fn only_a_run_that_says_so_is_well() {
        let good =
            "noise# round 0\nnoisefuzz: seed=3 rounds=2 calls=10 killed=1\nfuzz: nothing wrong\n";
        let result = judge(&Ending::Status(0), good);
        assert!(result.wrong.is_none());
        assert_eq!(result.summary[2], ("calls".to_owned(), 10));
        assert!(judge(&Ending::Status(1), good).wrong.is_some());
        assert!(judge(&Ending::TimedOut, good).wrong.is_some());
        assert!(judge(&Ending::Status(0), "fuzz: nothing wrong\n").wrong.is_some());
        let bad = "fuzz: seed=3 rounds=2 calls=10\nfuzz: FAULT: left behind\n";
        assert!(judge(&Ending::Status(1), bad).wrong.is_some_and(|why| why.contains("FAULT")));
    }
}
