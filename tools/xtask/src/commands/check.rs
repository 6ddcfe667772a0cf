//! `./cops check`: the compiler's messages for every package, those of the host and those of the
//! guest.
//!
//! For editors: rust-analyzer runs it instead of `cargo check`, which builds all packages for one
//! target.

use std::process::Command;

use crate::build::{GUEST_GROUPS, host, vdso};
use crate::cli::Check;
use crate::error::Outcome;
use crate::process;
use crate::terminal::Progress;
use crate::toolchain::GuestToolchain;
use crate::workspace::Workspace;

/// Checks all groups of packages, also after one of them had errors.
pub fn run(workspace: &Workspace, options: &Check) -> Outcome<u8> {
    let mut on_host = host::cargo(workspace);
    on_host.args(["check", "--all-targets"]);
    let mut passed = check(&mut on_host, options)?;

    let toolchain = GuestToolchain::find(workspace, Progress::Transient)?;
    // The kernel embeds the image, so the image must exist.
    let vdso = vdso::build(workspace, &toolchain, Progress::Transient)?;
    for (_, packages) in GUEST_GROUPS {
        let mut cargo = toolchain.cargo("check", workspace, workspace.guest_target(), &[]);
        cargo
            .args(packages.iter().flat_map(|package| ["-p", package]))
            .env("COPS_VDSO", &vdso.image);
        passed &= check(&mut cargo, options)?;
    }
    Ok(u8::from(!passed))
}

/// Runs cargo with this program's standard output and error. Returns true if it found no error.
fn check(cargo: &mut Command, options: &Check) -> Outcome<bool> {
    if let Some(format) = &options.message_format {
        cargo.args(["--message-format", format]);
    } else {
        cargo.arg("--quiet");
    }
    Ok(process::run(cargo)?.success())
}
