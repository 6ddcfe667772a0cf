//! Runs the executor's tests under Miri, which detects undefined behaviour and leaks; with few
//! cases, because it is slow. Skipped if Miri is not installed.

use std::process::Command;

use super::cargo_output;
use super::{Case, Context, step};
use crate::error::Outcome;
use crate::process::capture;

/// Number of cases of a property test that does not set it.
const CASES: &str = "4";
const TESTS: [&str; 5] = ["notify", "stress", "behaviour", "corpus", "model"];
/// Unit tests that would take an hour.
const SKIPPED: [&str; 3] = ["lists_are_fifo", "indices_are_distinct", "racing_threads"];

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let mut version = Command::new("rustup");
    version.args(["run", "nightly", "cargo", "miri", "--version"]);
    if !version.output().is_ok_and(|output| output.status.success()) {
        context.note("skipped: rustup toolchain install nightly --component miri,rust-src");
        return Ok(Vec::new());
    }
    // The unit tests leak deliberately: a slab never frees, and these tests have no host that
    // would.
    let mut cases = under_miri(context, "unit tests", "-Zmiri-ignore-leaks", &["--lib"])?;
    let tests: Vec<&str> = TESTS.iter().flat_map(|test| ["--test", test]).collect();
    cases.extend(under_miri(context, "tests", "", &tests)?);
    Ok(cases)
}

fn under_miri(
    context: &Context<'_>,
    name: &str,
    leaks: &str,
    targets: &[&str],
) -> Outcome<Vec<Case>> {
    // A single stream, as in `host`.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 2>&1", "sh", "rustup", "run", "nightly"]);
    command.args(["cargo", "miri", "test", "-p", "cops-executor", "--no-fail-fast"]).args(targets);
    command.args(["--", context.filter()]).args(SKIPPED.iter().flat_map(|test| ["--skip", test]));
    command.current_dir(&context.workspace.root);
    command
        .env("CARGO_TARGET_DIR", context.workspace.target.join("miri"))
        .env("PROPTEST_CASES", CASES);
    // Not isolated: the corpus is read from files.
    command.env("MIRIFLAGS", format!("-Zmiri-strict-provenance -Zmiri-disable-isolation {leaks}"));
    let mut step = step(format!("{name} under Miri"));
    let captured = capture(&mut command, None, |line| step.detail(line))?;
    let mut cases = cargo_output::cases(&captured.stdout);
    if !captured.succeeded() && cases.iter().all(|case| case.failure.is_none()) {
        // An error found by Miri ends the program.
        cases.push(Case::failed(name, cargo_output::complaints(&captured.stdout)));
    }
    Ok(cases)
}
