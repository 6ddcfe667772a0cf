//! Lints: none of clippy's or rustc's, in what runs on the host (tests included) and in what runs in the guest.

use std::process::Command;

use super::{Case, Context, step};
use crate::build::{host, vdso};
use crate::error::Outcome;
use crate::packages;
use crate::process::capture;
use crate::terminal::Progress;

/// The packages that are built for the guest.
const GUEST_PACKAGES: [&str; 4] = ["cops-vdso", "cops-kernel", "cops", "cops-apps"];

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    host::ensure_tool("cargo-clippy", packages::DEBIAN_CLIPPY, Progress::Lines)?;
    let mut on_host = host::cargo(context.workspace);
    on_host.args(["clippy", "--all-targets", "--", "-D", "warnings"]);
    let host = lint("host", &mut on_host)?;

    let toolchain = context.toolchain()?;
    let mut in_guest = toolchain.clippy(context.workspace, Progress::Lines)?;
    for package in GUEST_PACKAGES {
        in_guest.args(["-p", package]);
    }
    // The kernel embeds the image, so it must be there to be looked at.
    in_guest.env("COPS_VDSO", vdso::build(context.workspace, toolchain, Progress::Transient)?.image);
    in_guest.args(["--", "-D", "warnings"]);
    Ok(vec![host, lint("guest", &mut in_guest)?])
}

fn lint(name: &str, command: &mut Command) -> Outcome<Case> {
    let mut step = step(format!("clippy, {name}"));
    let captured = capture(command, None, |line| step.detail(line))?;
    Ok(if captured.succeeded() { Case::passed(name) } else { Case::failed(name, captured.everything()) })
}
