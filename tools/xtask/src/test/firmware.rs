//! Tests the executor in firmware: the programs of crates/executor/firmware are built for 32 and 64
//! bits and run on the bare machine. They check themselves and end with an exit code; their output
//! is checked too.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{Case, Context, step};
use crate::error::Outcome;
use crate::packages;
use crate::process::{Captured, capture, run_step};
use crate::qemu::version::Qemu;
use crate::terminal::Progress;
use crate::toolchain::GuestToolchain;
use crate::workspace::GUEST_TRIPLE;

const TRIPLE_32: &str = "riscv32imac-unknown-none-elf";
/// Time limit of one program. The longest takes some ten seconds.
const LIMIT: Duration = Duration::from_secs(120);

/// Name, options of QEMU, check of the output's lines.
type Program = (&'static str, &'static [&'static str], fn(&[&str]) -> Vec<String>);
const PROGRAMS: [Program; 3] = [
    // With a clock that counts instructions, so that every run is the same.
    ("firmware", &["-icount", "shift=0,sleep=off"], judge_order),
    ("sleepers", &["-icount", "shift=0,sleep=off"], |_| Vec::new()),
    ("late-wakes", &[], |_| Vec::new()),
];

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let mut cases = Vec::new();
    for triple in [TRIPLE_32, GUEST_TRIPLE] {
        // If a target is not available, that is a failure with a name, and the other one is still
        // tested.
        match on_machine(context, triple) {
            Ok(tested) => cases.extend(tested),
            Err(failure) => cases.push(Case::failed(short(triple), failure.to_string())),
        }
    }
    Ok(cases)
}

fn on_machine(context: &Context<'_>, triple: &'static str) -> Outcome<Vec<Case>> {
    let name = |program: &str| format!("{}/{program}", short(triple));
    if !PROGRAMS.iter().any(|(program, ..)| context.is_chosen(&name(program))) {
        return Ok(Vec::new());
    }
    let qemu = qemu_for(triple)?;
    let folder = build(context, triple)?;
    let mut cases = Vec::new();
    for (program, options, judge) in PROGRAMS {
        let name = name(program);
        if context.is_chosen(&name) {
            let result = boot(&name, &qemu, options, &folder.join(program))?;
            cases.push(Case::judged(name, &judge_run(&result, judge)));
        }
    }
    Ok(cases)
}

/// `riscv32imac` of the triple.
fn short(triple: &str) -> &str {
    triple.split('-').next().unwrap_or(triple)
}

fn qemu_for(triple: &str) -> Outcome<PathBuf> {
    if triple != TRIPLE_32 {
        packages::ensure(&[packages::QEMU], Progress::Lines)?;
        return Ok(Qemu::find()?.program);
    }
    packages::ensure(&[packages::QEMU_32], Progress::Lines)?;
    Ok("qemu-system-riscv32".into())
}

/// Builds the programs; returns their folder.
fn build(context: &Context<'_>, triple: &'static str) -> Outcome<PathBuf> {
    let toolchain = GuestToolchain::find_for(triple, context.workspace, Progress::Lines)?;
    let source = context.workspace.root.join("crates/executor/firmware");
    let target = context.workspace.target.join("firmware");
    let mut step = step(format!("building for {triple}"));
    run_step(&mut toolchain.cargo_in(&source, "build", target.clone()), &mut step)?;
    Ok(target.join(triple).join("release"))
}

fn boot(name: &str, qemu: &Path, options: &[&str], program: &Path) -> Outcome<Captured> {
    let mut step = step(name);
    let mut command = Command::new(qemu);
    command.args([
        "-machine",
        "virt",
        "-bios",
        "none",
        "-nographic",
        "-monitor",
        "none",
        "-serial",
        "stdio",
    ]);
    command.args(options).arg("-kernel").arg(program);
    capture(&mut command, Some(LIMIT), |line| step.detail(line))
}

/// The faults of a run: it must succeed and print that, and the figures must be right.
fn judge_run(result: &Captured, judge: fn(&[&str]) -> Vec<String>) -> Vec<String> {
    let lines: Vec<&str> = result.stdout.lines().collect();
    let mut wrong = judge(&lines);
    if !result.succeeded() {
        wrong.push(format!("it did not succeed: {}", result.ending()));
    }
    if lines.last() != Some(&"passed") {
        wrong.push("the last line is not `passed`".to_owned());
    }
    if !wrong.is_empty() {
        wrong.push(result.everything());
    }
    wrong
}

/// There must be samples, each preceded by at most one poll of another coroutine.
fn judge_order(lines: &[&str]) -> Vec<String> {
    const LABEL: &str = "samples before which 0 / 1 / more polls of others came: ";
    let Some(counts) = lines.iter().find_map(|line| line.strip_prefix(LABEL)) else {
        return vec![format!("no line begins with {LABEL:?}")];
    };
    match counts.split(" / ").map(str::parse).collect::<Result<Vec<u32>, _>>().as_deref() {
        Ok([none, _, 0]) if *none > 0 => Vec::new(),
        _ => vec![format!("the order is not kept: {counts}")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    fn complaints(code: i32, stdout: &str, judge: fn(&[&str]) -> Vec<String>) -> usize {
        let status = Some(ExitStatus::from_raw(code << 8));
        judge_run(&Captured { status, stdout: stdout.into(), stderr: String::new() }, judge).len()
    }

    #[test]
    fn the_order_must_be_kept_and_shown() {
        let with = |counts: &str| {
            format!("samples before which 0 / 1 / more polls of others came: {counts}\npassed\n")
        };
        assert_eq!(complaints(0, &with("19 / 1 / 0"), judge_order), 0);
        assert_ne!(complaints(0, &with("18 / 1 / 1"), judge_order), 0);
        assert_ne!(complaints(0, &with("0 / 0 / 0"), judge_order), 0);
        assert_ne!(complaints(0, "passed\n", judge_order), 0);
    }

    #[test]
    fn exit_code_and_last_line_must_agree() {
        assert_eq!(complaints(0, "passed\n", |_| Vec::new()), 0);
        assert_ne!(complaints(1, "passed\n", |_| Vec::new()), 0);
        assert_ne!(complaints(0, "FAILED\n", |_| Vec::new()), 0);
    }
}
