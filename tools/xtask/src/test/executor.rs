//! Tests the executor's core, and what the kernel does without a lock, under the model checker, and
//! the core by stress on plain threads. Each is built with its own flags, and therefore in its own
//! target folder.

use std::process::Command;

use super::cargo_output;
use super::{Case, Context, step};
use crate::build::host;
use crate::error::Outcome;
use crate::process::capture;

/// Scenes for every pair of transitions.
pub fn loom(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let targets = ["--test", "loom", "--test", "loom_idle", "--test", "loom_sync"];
    let executor = cargo(context, "cops-executor", "loom", &targets, &[context.filter()]);
    let mut cases = judge(context, "loom", executor, &[])?;
    let targets = ["--test", "loom"];
    for package in ["cops-algorithms", "cops-net"] {
        let kernel = cargo(context, package, "cops_loom", &targets, &[context.filter()]);
        cases.extend(judge(context, "loom", kernel, &[])?);
    }
    Ok(cases)
}

/// A mixture of all operations on threads, with atomics that are sometimes delayed, for
/// `--stress-seconds`.
pub fn stress(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let targets = ["--test", "storm"];
    let mut cargo = cargo(context, "cops-executor", "cops_perturb", &targets, &["--nocapture"]);
    cargo.env("COPS_STRESS_SECONDS", context.options.stress_seconds.to_string());
    judge(context, "stress", cargo, &["COPS_STRESS_SEED=", " workers: "])
}

/// `cargo test` of the package with this `cfg`, and a single stream of output as in `host`.
fn cargo(
    context: &Context<'_>,
    package: &str,
    cfg: &str,
    targets: &[&str],
    arguments: &[&str],
) -> Command {
    let cargo = host::cargo(context.workspace);
    let mut command = Command::new("sh");
    command.args(["-c", "exec \"$@\" 2>&1", "sh"]).arg(cargo.get_program());
    command.args(["test", "--release", "-p", package, "--no-fail-fast"]).args(targets);
    command.arg("--").args(arguments.iter().filter(|argument| !argument.is_empty()));
    command.envs(cargo.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env("RUSTFLAGS", format!("--cfg {cfg}"));
    command.env("CARGO_TARGET_DIR", context.workspace.target.join(cfg));
    command.current_dir(&context.workspace.root);
    command
}

/// Runs it, and prints the lines that contain one of `shown`.
fn judge(
    context: &Context<'_>,
    name: &str,
    mut command: Command,
    shown: &[&str],
) -> Outcome<Vec<Case>> {
    let mut step = step(name);
    let captured = capture(&mut command, None, |line| step.detail(line))?;
    drop(step);
    for line in captured.stdout.lines().filter(|line| shown.iter().any(|part| line.contains(part)))
    {
        context.note(line);
    }
    let mut cases = cargo_output::cases(&captured.stdout);
    if !captured.succeeded() && cases.iter().all(|case| case.failure.is_none()) {
        // A violated rule ends the program.
        cases.push(Case::failed(name, captured.stdout.clone()));
    }
    Ok(cases)
}
