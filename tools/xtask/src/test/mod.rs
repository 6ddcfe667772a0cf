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
mod flood;
mod format;
mod fuzz;
mod guest;
mod host;
mod hostile;
mod lanes;
mod layers;
mod links;
mod linux;
mod long_segments;
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
mod stages;
mod starve;
mod system;
mod tap;
mod top;
mod tutorial;
mod unsafe_count;
mod vdso;

use std::process::Command;
use std::sync::{Mutex, OnceLock};

use crate::cli::Test;
use crate::commands::{AS_BUILT, Prepared};
use crate::error::{Because, Failure, Outcome};
use crate::interrupt;
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

/// What all stages share.
struct Shared<'a> {
    workspace: &'a Workspace,
    options: &'a Test,
    toolchain: Once<GuestToolchain>,
    prepared: Once<Prepared>,
    /// The boot that the stages `guest` and `portions` both use.
    counted_usertests: Once<(Ending, Transcript)>,
}

/// What a stage works with.
pub struct Context<'a> {
    shared: &'a Shared<'a>,
    pub workspace: &'a Workspace,
    pub options: &'a Test,
    notes: Mutex<Vec<String>>,
}

impl<'a> Context<'a> {
    fn new(shared: &'a Shared<'a>) -> Self {
        let Shared { workspace, options, .. } = *shared;
        Self { shared, workspace, options, notes: Mutex::default() }
    }

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
        let find = || GuestToolchain::find(self.workspace, Progress::Lines);
        self.shared.toolchain.get_or_make(find)
    }

    /// The guest and a QEMU, built and searched for once.
    pub fn prepared(&self) -> Outcome<&Prepared> {
        let make = || Prepared::new(self.workspace, Progress::Lines);
        self.shared.prepared.get_or_make(make)
    }

    /// The boot that counts instructions while `usertests` runs, made once.
    pub fn counted_usertests(
        &self,
        boot: impl FnOnce() -> Outcome<(Ending, Transcript)>,
    ) -> Outcome<&(Ending, Transcript)> {
        self.shared.counted_usertests.get_or_make(boot)
    }

    /// A line that is printed with the stage's result.
    pub fn note(&self, line: impl Into<String>) {
        self.notes.lock().unwrap().push(line.into());
    }
}

/// A value that is made when it is first needed. Others wait for it meanwhile; after a failure the
/// next one tries again.
struct Once<T> {
    value: OnceLock<T>,
    making: Mutex<()>,
}

impl<T> Once<T> {
    const fn new() -> Self {
        Self { value: OnceLock::new(), making: Mutex::new(()) }
    }

    fn get_or_make(&self, make: impl FnOnce() -> Outcome<T>) -> Outcome<&T> {
        let _making = self.making.lock().unwrap();
        if let Some(value) = self.value.get() {
            return Ok(value);
        }
        let made = make()?;
        Ok(self.value.get_or_init(|| made))
    }
}

/// Runs the chosen stages; returns 0 if nothing failed.
pub fn run(workspace: &Workspace, options: &Test) -> Outcome<u8> {
    if options.list {
        for stage in stages::all() {
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
    let shared = Shared {
        workspace,
        options,
        toolchain: Once::new(),
        prepared: Once::new(),
        counted_usertests: Once::new(),
    };
    let mut passed = 0;
    let mut failures = Vec::new();
    lanes::run(&shared, &stages::chosen(options)?, |stage, result| {
        passed += result.cases.len();
        for case in result.failed() {
            passed -= 1;
            failures.push(format!("{}/{}", stage.name, case.name));
        }
    });
    summarise(passed, &failures)
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

/// `./cops`, with the guest that has been built. Ends together with this program.
fn cops() -> Outcome<Command> {
    let ourselves = std::env::current_exe().because(|| "cannot find our own program".into())?;
    let mut command = interrupt::tied_to_us(&ourselves);
    command.env(AS_BUILT, "1");
    Ok(command)
}

/// A step of a test stage.
fn step(name: impl Into<String>) -> Step {
    Step::begin(Progress::Transient, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_decide_the_status_and_nothing_chosen_is_one() {
        assert_eq!(summarise(3, &[]).unwrap(), 0);
        assert_eq!(summarise(3, &["a/b".into()]).unwrap(), 1);
        assert!(summarise(0, &[]).is_err());
    }
}
