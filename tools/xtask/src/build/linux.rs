//! The programs of `user/linux`: those in C, built with the static C library of Debian, and the
//! packages in Rust. Both need [`crate::packages::LINUX_GCC`].
//!
//! A program is put in place whole: another run of `./cops` may be reading the one before it.

use std::path::Path;
use std::process::Command;

use crate::error::{Because, Outcome};
use crate::process::run_step;
use crate::terminal::{Progress, Step};
use crate::toolchain::GuestToolchain;
use crate::workspace::Workspace;

const RUST_TARGET: &str = "riscv64gc-unknown-linux-gnu";

/// Builds `user/linux/NAME.c` as `NAME` in `folder`.
pub fn compile(workspace: &Workspace, name: &str, folder: &Path, step: &mut Step) -> Outcome<()> {
    let source = workspace.root.join("user/linux").join(name).with_extension("c");
    let mut compiler = Command::new("riscv64-linux-gnu-gcc");
    compiler.args(["-static", "-pthread", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]);
    let scratch = workspace.scratch()?;
    let built = scratch.file(name);
    run_step(compiler.arg(&built).arg(source), step)?;
    put(&built, &folder.join(name))
}

/// Moves a program within the target folder.
fn put(built: &Path, place: &Path) -> Outcome<()> {
    std::fs::rename(built, place).because(|| format!("cannot put {} in place", place.display()))
}

/// Builds the package `user/linux/PACKAGE`, and copies these of its programs into `folder`.
pub fn package(
    workspace: &Workspace,
    package: &str,
    programs: &[&str],
    folder: &Path,
    step: &mut Step,
) -> Outcome<()> {
    let toolchain = GuestToolchain::find_for(RUST_TARGET, workspace, Progress::Lines)?;
    // One for all packages, so that Rust's libraries are built once.
    let target = workspace.target.join("linux-rust");
    let source = workspace.root.join("user/linux").join(package);
    run_step(&mut toolchain.cargo_for_linux(&source, "build", target.clone()), step)?;
    let scratch = workspace.scratch()?;
    for program in programs {
        let built = target.join(RUST_TARGET).join("release").join(program);
        let copy = scratch.file(program);
        std::fs::copy(&built, &copy).because(|| format!("cannot copy {}", built.display()))?;
        put(&copy, &folder.join(program))?;
    }
    Ok(())
}
