//! The C programs of `user/linux`, built with the static C library of Debian
//! ([`crate::packages::LINUX_GCC`]).

use std::path::Path;
use std::process::Command;

use crate::error::Outcome;
use crate::process::run_step;
use crate::terminal::Step;
use crate::workspace::Workspace;

/// Builds `user/linux/NAME.c` as `NAME` in `folder`.
pub fn compile(workspace: &Workspace, name: &str, folder: &Path, step: &mut Step) -> Outcome<()> {
    let source = workspace.root.join("user/linux").join(name).with_extension("c");
    let mut compiler = Command::new("riscv64-linux-gnu-gcc");
    compiler.args(["-static", "-pthread", "-O2", "-Wall", "-Wextra", "-Werror", "-o"]);
    run_step(compiler.arg(folder.join(name)).arg(source), step)?;
    Ok(())
}
