//! Tests of everything that runs on the host, by `cargo test`; every test it counts is one of ours.

use std::process::Command;

use super::cargo_output;
use super::{Case, Context, step};
use crate::build::host;
use crate::error::Outcome;
use crate::process::capture;

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let cargo = host::cargo(context.workspace);
    // One stream, so that the test programs' names (standard error) stay in order with their results.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 2>&1", "sh"]).arg(cargo.get_program()).args([
        "test",
        "--no-fail-fast",
        // What the executor does only if it is asked to.
        "--features",
        "cops-executor/reactor",
    ]);
    command.envs(cargo.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(&context.workspace.root);
    if !context.filter().is_empty() {
        command.args(["--", context.filter()]);
    }
    let mut step = step("host tests");
    let captured = capture(&mut command, None, |line| step.detail(line))?;
    let mut cases = cargo_output::cases(&captured.stdout);
    if !captured.succeeded() && cases.iter().all(|case| case.failure.is_none()) {
        // No test failed, but cargo did: something did not compile, or a test program died.
        cases.push(Case::failed("cargo test", cargo_output::complaints(&captured.stdout)));
    }
    Ok(cases)
}
