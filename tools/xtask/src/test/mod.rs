//! `./cops test`: everything that CI checks, in stages that can be run separately, with one summary
//! line.

mod book;
mod busybox;
mod calls;
mod cargo_output;
mod clippy;
mod debug;
mod disk;
mod docs;
mod examples;
mod exec;
mod executor;
mod firmware;
mod format;
mod fuzz;
mod guest;
mod host;
mod hostile;
mod layers;
mod links;
mod linux;
mod miri;
mod msrv;
mod mutations;
mod peers;
mod portions;
mod power_cut;
mod profile;
mod prose;
mod references;
mod rust_source;
mod shell;
mod starve;
mod system;
mod tap;
mod top;
mod tutorial;
mod unsafe_count;
mod vdso;

use std::cell::OnceCell;
use std::time::Instant;

use crate::cli::Test;
use crate::commands::Prepared;
use crate::error::{Failure, Outcome};
use crate::qemu::console::{Ending, Transcript};
use crate::terminal::{Progress, Step, stdout_palette};
use crate::toolchain::GuestToolchain;
use crate::workspace::Workspace;

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    pub name: String,
    /// The reason and the output, if it failed.
    pub failure: Option<String>,
}

impl Case {
    pub fn passed(name: impl Into<String>) -> Self {
        Self { name: name.into(), failure: None }
    }

    pub fn failed(name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { name: name.into(), failure: Some(why.into()) }
    }

    /// Passed if there are no faults.
    pub fn judged(name: impl Into<String>, wrong: &[String]) -> Self {
        if wrong.is_empty() { Self::passed(name) } else { Self::failed(name, wrong.join("\n")) }
    }
}

/// What the stages share.
pub struct Context<'a> {
    pub workspace: &'a Workspace,
    pub options: &'a Test,
    toolchain: OnceCell<GuestToolchain>,
    prepared: OnceCell<Prepared>,
    /// The boot that the stages `guest` and `portions` both use.
    counted_usertests: OnceCell<(Ending, Transcript)>,
}

impl Context<'_> {
    /// The text that the names of chosen tests contain; empty for all.
    pub fn filter(&self) -> &str {
        self.options.filter().unwrap_or_default()
    }

    /// Whether to run a test with this name.
    pub fn is_chosen(&self, name: &str) -> bool {
        name.contains(self.filter())
    }

    /// The toolchain for the guest, searched for once.
    pub fn toolchain(&self) -> Outcome<&GuestToolchain> {
        once(&self.toolchain, || GuestToolchain::find(self.workspace, Progress::Lines))
    }

    /// The guest and a QEMU, built and searched for once.
    pub fn prepared(&self) -> Outcome<&Prepared> {
        once(&self.prepared, || Prepared::new(self.workspace, Progress::Lines))
    }
}

/// `OnceCell::get_or_try_init`, which is not stable yet.
fn once<T>(cell: &OnceCell<T>, make: impl FnOnce() -> Outcome<T>) -> Outcome<&T> {
    if let Some(value) = cell.get() {
        return Ok(value);
    }
    let made = make()?;
    Ok(cell.get_or_init(|| made))
}

/// A stage: cases that are run together.
struct Stage {
    name: &'static str,
    about: &'static str,
    /// Omitted with --quick.
    is_long: bool,
    /// Can run single tests with --filter.
    can_choose: bool,
    run: fn(&Context<'_>) -> Outcome<Vec<Case>>,
}

/// All stages, in order: those that fail fast first.
const STAGES: [Stage; 26] = [
    Stage {
        name: "fmt",
        about: "cargo fmt --check",
        is_long: false,
        can_choose: false,
        run: format::run,
    },
    Stage {
        name: "layers",
        about: "dependencies point one way, between packages and inside the kernel",
        is_long: false,
        can_choose: false,
        run: layers::run,
    },
    Stage {
        name: "unsafe",
        about: "unsafe blocks per folder are those in docs/unsafe-count.txt",
        is_long: false,
        can_choose: false,
        run: unsafe_count::run,
    },
    Stage {
        name: "clippy",
        about: "no lint of clippy or rustc, host and guest",
        is_long: false,
        can_choose: false,
        run: clippy::run,
    },
    Stage {
        name: "docs",
        about: "words, links, figures and what the book names; cargo doc without a warning",
        is_long: true,
        can_choose: true,
        run: docs::run,
    },
    Stage {
        name: "host",
        about: "unit, property and documentation tests of everything that runs on the host",
        is_long: false,
        can_choose: true,
        run: host::run,
    },
    Stage {
        name: "loom",
        about: "the executor's core under the model checker: a scene for every pair of transitions",
        is_long: true,
        can_choose: true,
        run: executor::loom,
    },
    Stage {
        name: "stress",
        about: "the executor on 2, 3 and 4 threads, everything mixed (--stress-seconds says how long)",
        is_long: true,
        can_choose: false,
        run: executor::stress,
    },
    Stage {
        name: "peers",
        about: "the executor beside others: each operation answers; the instructions of ours have limits",
        is_long: true,
        can_choose: true,
        run: peers::run,
    },
    Stage {
        name: "firmware",
        about: "the executor without an allocator, on RV32IMAC and RV64GC without an operating system",
        is_long: true,
        can_choose: true,
        run: firmware::run,
    },
    Stage {
        name: "vdso",
        about: "the vDSO image is relocation-free, read-only and exports what it should",
        is_long: false,
        can_choose: false,
        run: vdso::run,
    },
    Stage {
        name: "guest",
        about: "/bin/usertests in QEMU, with 1 hart and with 4",
        is_long: false,
        can_choose: true,
        run: guest::run,
    },
    Stage {
        name: "disk",
        about: "the disk and its file system in QEMU, with 1 hart and with 4; power cuts; the file on this host afterwards",
        is_long: false,
        can_choose: true,
        run: disk::run,
    },
    Stage {
        name: "starve",
        about: "each allocation of the kernel fails once, while every kind of system call is made",
        is_long: true,
        can_choose: true,
        run: starve::run,
    },
    Stage {
        name: "portions",
        about: "no portion of the kernel's work is longer than 50,000 instructions, counted while usertests runs",
        is_long: true,
        can_choose: true,
        run: portions::run,
    },
    Stage {
        name: "hostile",
        about: "an honest program beside some hostile ones: its latency and its share of the CPU, counted",
        is_long: true,
        can_choose: false,
        run: hostile::run,
    },
    Stage {
        name: "fuzz",
        about: "/bin/fuzz in QEMU, with 1 hart and with 4: 100,000 system calls each with arguments that are nearly right",
        is_long: true,
        can_choose: true,
        run: fuzz::run,
    },
    Stage {
        name: "exec",
        about: "./cops exec: output, exit codes, faults, time-outs",
        is_long: false,
        can_choose: true,
        run: exec::run,
    },
    Stage {
        name: "linux",
        about: "static C programs for Linux, unmodified: output and exit codes, with 1 hart and with 4",
        is_long: false,
        can_choose: true,
        run: linux::run,
    },
    Stage {
        name: "tutorial",
        about: "programs for rCore-Tutorial-v3: each of its system calls, with 1 hart and with 4",
        is_long: false,
        can_choose: true,
        run: tutorial::run,
    },
    Stage {
        name: "shell",
        about: "./cops shell: keys, Ctrl-C, background, beside programs that mean harm",
        is_long: false,
        can_choose: true,
        run: shell::run,
    },
    Stage {
        name: "debug",
        about: "./cops debug: breakpoints and backtraces in kernel, vDSO and program",
        is_long: false,
        can_choose: true,
        run: debug::run,
    },
    Stage {
        name: "top",
        about: "./cops top on running servers",
        is_long: false,
        can_choose: false,
        run: top::run,
    },
    Stage {
        name: "profile",
        about: "./cops profile: every instruction is counted once, for its function; what a system call may cost",
        is_long: false,
        can_choose: false,
        run: profile::run,
    },
    Stage {
        name: "boots",
        about: "boots in a row on 4 harts, each ending cleanly (--boots says how many)",
        is_long: true,
        can_choose: false,
        run: exec::boots,
    },
    Stage {
        name: "system",
        about: "the real client against the real server: 64 and 256 connections, hostile clients",
        is_long: true,
        can_choose: true,
        run: system::run,
    },
];

/// Stages that run only with --only, because they need compilers that are rarely installed.
const EXTRA_STAGES: [Stage; 2] = [
    Stage {
        name: "msrv",
        about: "the executor as a package, and with the oldest compiler that it promises",
        is_long: true,
        can_choose: false,
        run: msrv::run,
    },
    Stage {
        name: "miri",
        about: "the executor's tests under Miri",
        is_long: true,
        can_choose: true,
        run: miri::run,
    },
];

fn all_stages() -> impl Iterator<Item = &'static Stage> {
    STAGES.iter().chain(&EXTRA_STAGES)
}

/// Runs the chosen stages; returns 0 if nothing failed.
pub fn run(workspace: &Workspace, options: &Test) -> Outcome<u8> {
    if options.list {
        for stage in all_stages() {
            println!("{:8} {}", stage.name, stage.about);
        }
        return Ok(0);
    }
    if options.mutations {
        return mutations::run(workspace, options.filter().unwrap_or_default());
    }
    if options.record_unsafe {
        return unsafe_count::record(workspace);
    }
    let context = Context {
        workspace,
        options,
        toolchain: OnceCell::new(),
        prepared: OnceCell::new(),
        counted_usertests: OnceCell::new(),
    };
    let mut passed = 0;
    let mut failures = Vec::new();
    for stage in chosen(options)? {
        let started = Instant::now();
        println!(
            "{}{}{} ({})",
            stdout_palette().bold,
            stage.name,
            stdout_palette().reset,
            stage.about
        );
        let cases = (stage.run)(&context)
            .and_then(|cases| chosen_cases(options, stage, cases))
            .unwrap_or_else(|failure| vec![Case::failed("(stage)", failure.to_string())]);
        let failed: Vec<&Case> = cases.iter().filter(|case| case.failure.is_some()).collect();
        passed += cases.len() - failed.len();
        for case in &failed {
            show_failure(stage.name, case);
            failures.push(format!("{}/{}", stage.name, case.name));
        }
        println!(
            "  {} passed, {} failed, {:.1} s",
            cases.len() - failed.len(),
            failed.len(),
            started.elapsed().as_secs_f64()
        );
    }
    summarise(passed, &failures)
}

/// If a stage is chosen by name with a filter that selects none of its tests, that is an error.
fn chosen_cases(options: &Test, stage: &Stage, cases: Vec<Case>) -> Outcome<Vec<Case>> {
    match options.filter() {
        Some(filter) if cases.is_empty() && !options.only.is_empty() => {
            Err(Failure::new(format!("no test of this stage has {filter:?} in its name"))
                .advise(format!("./cops test --only {} runs all of them", stage.name)))
        }
        _ => Ok(cases),
    }
}

/// Prints the summary as the last line: `N passed, M failed`.
fn summarise(passed: usize, failures: &[String]) -> Outcome<u8> {
    let palette = stdout_palette();
    println!();
    for name in failures {
        println!("{}failed: {name}{}", palette.red, palette.reset);
    }
    if passed == 0 && failures.is_empty() {
        return Err(
            Failure::new("no test was chosen").advise("./cops test --list names the stages")
        );
    }
    let colour = if failures.is_empty() { palette.green } else { palette.red };
    println!("{colour}{passed} passed, {} failed{}", failures.len(), palette.reset);
    Ok(u8::from(!failures.is_empty()))
}

fn show_failure(stage: &str, case: &Case) {
    let palette = stdout_palette();
    println!("  {}FAILED {stage}/{}{}", palette.red, case.name, palette.reset);
    for line in case.failure.as_deref().unwrap_or_default().lines() {
        println!("    {line}");
    }
}

/// The stages that the options choose.
fn chosen(options: &Test) -> Outcome<Vec<&'static Stage>> {
    if let Some(unknown) =
        options.only.iter().find(|name| all_stages().all(|stage| stage.name != name.as_str()))
    {
        let names = all_stages().map(|stage| stage.name).collect::<Vec<_>>().join(" ");
        return Err(Failure::new(format!("there is no stage {unknown:?}"))
            .advise(format!("there are: {names}")));
    }
    if !options.only.is_empty() {
        return Ok(all_stages()
            .filter(|stage| options.only.iter().any(|name| name == stage.name))
            .collect());
    }
    Ok(STAGES
        .iter()
        .filter(|stage| stage.can_choose || options.filter().is_none())
        .filter(|stage| !(options.quick && stage.is_long))
        .collect())
}

/// A step of a test stage.
fn step(name: impl Into<String>) -> Step {
    Step::begin(Progress::Transient, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser;

    fn names(words: &[&str]) -> Outcome<Vec<&'static str>> {
        let Command::Test(options) =
            Cli::try_parse_from([&["cops", "test"], words].concat()).unwrap().command
        else {
            panic!("not test")
        };
        Ok(chosen(&options)?.iter().map(|stage| stage.name).collect())
    }

    #[test]
    fn stages_are_chosen_by_name_length_and_filter() {
        assert_eq!(names(&[]).unwrap().len(), STAGES.len());
        assert_eq!(names(&["--only", "unsafe", "--only", "fmt"]).unwrap(), ["fmt", "unsafe"]);
        assert_eq!(names(&["--only", "miri"]).unwrap(), ["miri"]);
        assert!(!names(&["--quick"]).unwrap().contains(&"system"));
        assert_eq!(
            names(&["--filter", "x"]).unwrap(),
            [
                "docs", "host", "loom", "peers", "firmware", "guest", "disk", "starve", "portions",
                "fuzz", "exec", "linux", "tutorial", "shell", "debug", "system"
            ]
        );
        assert_eq!(names(&["x"]).unwrap(), names(&["--filter", "x"]).unwrap());
        assert!(names(&["--only", "nothing"]).unwrap_err().to_string().contains("\"nothing\""));
    }

    #[test]
    fn failures_decide_the_status_and_nothing_chosen_is_one() {
        assert_eq!(summarise(3, &[]).unwrap(), 0);
        assert_eq!(summarise(3, &["a/b".into()]).unwrap(), 1);
        assert!(summarise(0, &[]).is_err());
    }
}
