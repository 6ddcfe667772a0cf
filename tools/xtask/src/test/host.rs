//! Runs all tests of the host by `cargo test`; each test is counted separately.

use std::process::Command;

use super::cargo_output;
use super::{Case, Context, step};
use crate::build::host;
use crate::error::Outcome;
use crate::packages;
use crate::process::capture;
use crate::terminal::Progress;

/// Features of the executor that are off by default.
const REACTOR: [&str; 2] = ["--features", "cops-executor/reactor"];
/// Separately, because with this feature nothing works before an image is installed.
const IMAGE: [&str; 4] = ["-p", "cops-executor", "--features", "image"];

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    packages::ensure(&[packages::E2FSPROGS], Progress::Lines)?;
    let filter = context.filter();
    let mut cases = tests(context, &REACTOR, &[filter])?;
    cases.extend(tests(context, &[&IMAGE[..], &["--test", "image"]].concat(), &[filter])?);
    if filter.is_empty() {
        cases.extend(tests(context, &[&IMAGE[..], &["--doc"]].concat(), &["image::"])?);
    }
    Ok(cases)
}

/// Runs the tests with one of these texts in their names.
fn tests(context: &Context<'_>, options: &[&str], names: &[&str]) -> Outcome<Vec<Case>> {
    let cargo = host::cargo(context.workspace);
    // A single stream, so that the test programs' names (on standard error) stay in order with
    // their results.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 2>&1", "sh"]).arg(cargo.get_program());
    command
        .args(["test", "--no-fail-fast"])
        .args(options)
        .arg("--")
        .args(names.iter().filter(|name| !name.is_empty()));
    command.envs(cargo.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(&context.workspace.root);
    let mut step = step("host tests");
    let captured = capture(&mut command, None, |line| step.detail(line))?;
    let mut cases = cargo_output::cases(&captured.stdout);
    if !captured.succeeded() && cases.iter().all(|case| case.failure.is_none()) {
        // No test failed, but cargo did: there was a compile error, or a test program crashed.
        cases.push(Case::failed("cargo test", cargo_output::complaints(&captured.stdout)));
    }
    Ok(cases)
}
