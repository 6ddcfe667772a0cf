//! Programs of this repository that run on the host.

use std::path::PathBuf;
use std::process::Command;

use crate::error::{Failure, Outcome};
use crate::packages::{self, Need};
use crate::process::{find_program, run_step};
use crate::terminal::{Progress, Step};
use crate::workspace::Workspace;

/// Builds the optimised load generator, and returns its path.
pub fn load_generator(workspace: &Workspace, progress: Progress) -> Outcome<PathBuf> {
    let mut step = Step::begin(progress, "load generator");
    let mut cargo = cargo(workspace);
    cargo.args(["build", "--release", "-p", "cops-loadgen", "--bin", "cops-loadgen"]);
    run_step(&mut cargo, &mut step)?;
    step.done();
    Ok(workspace.target.join("release/cops-loadgen"))
}

/// Builds the plugin with which QEMU counts for `./cops profile`, and returns its path.
pub fn profiler(workspace: &Workspace, progress: Progress) -> Outcome<PathBuf> {
    let mut step = Step::begin(progress, "profiler");
    run_step(cargo(workspace).args(["build", "--release", "-p", "cops-profiler"]), &mut step)?;
    step.done();
    Ok(workspace.target.join("release/libcops_profiler.so"))
}

/// Makes sure that a tool such as `cargo-fmt` is installed. Debian's package is installed if
/// necessary. Rustup's is part of every default installation; if it is missing, the error names the
/// command that adds it.
pub fn ensure_tool(tool: &str, of_debian: Need, progress: Progress) -> Outcome<()> {
    let is_debians = find_program("cargo").is_some_and(|cargo| cargo.starts_with("/usr/bin"));
    if is_debians {
        return packages::ensure(&[of_debian], progress);
    }
    if find_program(tool).is_none() {
        let component = tool.trim_start_matches("cargo-").replace("fmt", "rustfmt");
        return Err(Failure::new(format!("{tool} is missing"))
            .advise(format!("rustup component add {component}")));
    }
    Ok(())
}

/// The host's cargo, run in the checkout with this tool's target directory.
pub fn cargo(workspace: &Workspace) -> Command {
    let mut command = Command::new("cargo");
    command
        .current_dir(&workspace.root)
        .env("CARGO_TARGET_DIR", &workspace.target)
        .env("CARGO_TERM_PROGRESS_WHEN", "never");
    command
}
