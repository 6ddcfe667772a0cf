//! The programs of `user/linux`: those in C, built with the static C library of Debian, and the
//! packages in Rust. Both need [`crate::packages::LINUX_GCC`].

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
    run_step(compiler.arg(folder.join(name)).arg(source), step)?;
    Ok(())
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
    for program in programs {
        let built = target.join(RUST_TARGET).join("release").join(program);
        std::fs::copy(&built, folder.join(program))
            .because(|| format!("cannot copy {}", built.display()))?;
    }
    Ok(())
}
