//! Programs for rCore-Tutorial-v3 in `./cops exec`: C programs of `user/tutorial`, without a
//! library, linked as that tutorial links its own. Each prints what it finds wrong.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::exec::{cops_exec, status};
use super::{Case, Context, step};
use crate::error::{Because, Outcome};
use crate::packages;
use crate::process::{Captured, run_step};
use crate::terminal::Progress;
use crate::workspace::Workspace;

/// A program, and the last line that it prints.
const PROGRAMS: [(&str, &str); 3] = [
    ("calls", "the calls are in order"),
    ("threads", "the threads are in order"),
    ("network", "the network is in order"),
];

/// A program for Linux, which connects to the server of `network`.
const CLIENT: &str = "connects";

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let is_chosen = |(name, _): &&(&str, &str)| context.is_chosen(name);
    let chosen: Vec<_> = PROGRAMS.iter().filter(is_chosen).collect();
    let choice = "personality: forced by --personality";
    if chosen.is_empty() && !context.is_chosen(choice) {
        return Ok(Vec::new());
    }
    packages::ensure(&[packages::LINUX_GCC], Progress::Lines)?;
    context.prepared()?;
    let folder = build(context.workspace)?;
    let add = &*folder.to_string_lossy();
    let mut cases = Vec::new();
    for (program, last_line) in chosen {
        for harts in ["1", "4"] {
            let name = format!("{program}, {harts} hart(s)");
            let result = cops_exec(&name, &["--smp", harts, "--add", add, &format!("/{program}")])?;
            let mut wrong = status(&result, 0);
            if result.stdout.lines().last() != Some(last_line) {
                wrong.push(format!("the last line of standard output is not {last_line:?}"));
            }
            cases.push(judged(name, wrong, &result));
        }
    }
    if context.is_chosen(choice) {
        let mut words = vec!["--smp", "1", "--add", add];
        // The numbers of this program's calls are other calls of Linux, which ends it with 1.
        words.extend(["--personality", "linux", "/calls"]);
        let result = cops_exec(choice, &words)?;
        cases.push(judged(choice.into(), status(&result, 1), &result));
    }
    Ok(cases)
}

fn judged(name: String, mut wrong: Vec<String>, result: &Captured) -> Case {
    if !wrong.is_empty() {
        wrong.push(result.everything());
    }
    Case::judged(name, &wrong)
}

/// Builds the programs; returns the folder that has them, and nothing else.
fn build(workspace: &Workspace) -> Outcome<PathBuf> {
    let folder = workspace.target.join("tutorial");
    // A program of an earlier run would be in every root image.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).because(|| format!("cannot make {}", folder.display()))?;
    let sources = workspace.root.join("user");
    let mut step = step("programs for the tutorial's kernel");
    let script = sources.join("tutorial/tutorial.lds");
    let script = format!("-Wl,--build-id=none,-T,{}", script.display());
    let alone = ["-ffreestanding", "-nostdlib", "-fno-pic", "-mno-relax", &script];
    for (program, _) in PROGRAMS {
        let source = sources.join("tutorial").join(program).with_extension("c");
        run_step(compiler(&folder.join(program), &source).args(alone), &mut step)?;
    }
    let source = sources.join("linux").join(CLIENT).with_extension("c");
    run_step(&mut compiler(&folder.join(CLIENT), &source), &mut step)?;
    step.done();
    Ok(folder)
}

fn compiler(program: &Path, source: &Path) -> Command {
    let mut compiler = Command::new("riscv64-linux-gnu-gcc");
    compiler.args(["-static", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]).arg(program).arg(source);
    compiler
}
