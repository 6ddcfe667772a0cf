//! `./cops bench executor`: compares cops-executor with its peers. The measuring program is in a
//! workspace of its own, crates/executor/peers; this module builds it and passes the options.

use crate::build::host;
use crate::cli::Bench;
use crate::error::{Because, Outcome};
use crate::packages;
use crate::process;
use crate::terminal::Progress;
use crate::workspace::Workspace;

pub fn run(workspace: &Workspace, options: &Bench) -> Outcome<u8> {
    // Without valgrind, times are still measured.
    if let Err(failure) = packages::ensure(&[packages::VALGRIND], Progress::Lines) {
        eprintln!("{failure}");
    }
    let mut cargo = host::cargo(workspace);
    cargo.args([
        "run",
        "--release",
        "--locked",
        "--manifest-path",
        "crates/executor/peers/Cargo.toml",
        "--",
    ]);
    if options.quick {
        cargo.arg("--quick");
    }
    if options.icount {
        cargo.arg("--counts");
    }
    if let Some(file) = &options.json {
        let file = std::path::absolute(file)
            .because(|| format!("{} is no usable path", file.display()))?;
        cargo.arg("--json").arg(file);
    }
    Ok(process::run(&mut cargo)?
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(crate::error::STATUS_FAILED))
}
