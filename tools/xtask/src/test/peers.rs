//! Tests the program that measures cops-executor beside other executors, and counts by valgrind
//! what cops-executor's operations cost: no more than `crates/executor/peers/src/limits.rs` allows.
//! The program is a workspace of its own. Both parts use its optimised build, so that it is built
//! once. The comparison of services, which has dependencies of its own, is only checked.

use std::process::Command;

use super::cargo_output;
use super::{Case, Context, step};
use crate::build::host;
use crate::error::Outcome;
use crate::packages;
use crate::process::{Captured, capture};
use crate::terminal::Progress;

const MANIFEST: &str = "crates/executor/peers/Cargo.toml";
const LIMITS: &str = "instructions are within their limits";
const SERVICE: &str = "the comparison of services compiles";

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let mut cases = tests(context)?;
    if context.is_chosen(SERVICE) {
        cases.push(service(context)?);
    }
    if context.is_chosen(LIMITS) {
        match packages::ensure(&[packages::VALGRIND], Progress::Lines) {
            Ok(()) => cases.push(limits(context)?),
            Err(failure) => context.note(format!("counting is skipped: {failure}")),
        }
    }
    Ok(cases)
}

/// Each contender does each operation, and answers.
fn tests(context: &Context<'_>) -> Outcome<Vec<Case>> {
    // A single stream, as in `host`.
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 2>&1", "sh", "cargo", "test", "--no-fail-fast"]);
    let captured = cargo(context, command, "peers, tests", &["--", context.filter()])?;
    let mut cases = cargo_output::cases(&captured.stdout);
    if !captured.succeeded() && cases.iter().all(|case| case.failure.is_none()) {
        cases.push(Case::failed("cargo test", cargo_output::complaints(&captured.stdout)));
    }
    Ok(cases)
}

/// Only `./cops report measure two-classes` builds it otherwise.
fn service(context: &Context<'_>) -> Outcome<Case> {
    let mut command = Command::new("cargo");
    command.args(["check", "--quiet", "--features", "service"]);
    let captured = cargo(context, command, "peers, service", &[])?;
    let wrong = if captured.succeeded() { Vec::new() } else { vec![captured.everything()] };
    Ok(Case::judged(SERVICE, &wrong))
}

fn limits(context: &Context<'_>) -> Outcome<Case> {
    let mut command = Command::new("cargo");
    command.args(["run", "--quiet"]);
    let captured = cargo(context, command, "peers, instructions", &["--", "--limits"])?;
    let wrong = if captured.succeeded() { Vec::new() } else { vec![captured.everything()] };
    Ok(Case::judged(LIMITS, &wrong))
}

/// Finishes a command of cargo with the options that both parts share, and runs it.
fn cargo(
    context: &Context<'_>,
    mut command: Command,
    name: &str,
    arguments: &[&str],
) -> Outcome<Captured> {
    command.args(["--release", "--locked", "--manifest-path", MANIFEST]);
    command.args(arguments.iter().filter(|argument| !argument.is_empty()));
    let cargo = host::cargo(context.workspace);
    command.envs(cargo.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(&context.workspace.root);
    let mut step = step(name);
    capture(&mut command, None, |line| step.detail(line))
}
