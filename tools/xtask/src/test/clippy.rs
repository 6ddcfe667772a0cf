//! Runs clippy and rustc's lints on host code (including tests) and guest code; there must be no
//! warning.

use std::process::Command;

use super::cargo_output::complaints;
use super::{Case, Context, step};
use crate::build::{GUEST_GROUPS, KERNEL_GROUP, host, vdso};
use crate::error::Outcome;
use crate::packages;
use crate::process::capture;
use crate::terminal::Progress;

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    host::ensure_tool("cargo-clippy", packages::DEBIAN_CLIPPY, Progress::Lines)?;
    let mut on_host = host::cargo(context.workspace);
    on_host.args(["clippy", "--all-targets", "--", "-D", "warnings"]);
    let mut cases = vec![lint("host", &mut on_host)?];

    let toolchain = context.toolchain()?;
    // The kernel embeds the image, so it must exist.
    let vdso = vdso::build(context.workspace, toolchain, Progress::Transient)?;
    for (name, group) in GUEST_GROUPS {
        let mut in_guest = toolchain.clippy(context.workspace, Progress::Lines)?;
        in_guest
            .args(group.iter().flat_map(|package| ["-p", package]))
            .env("COPS_VDSO", &vdso.image);
        if name == KERNEL_GROUP {
            // Forbids functions that allocate infallibly. Not in the executor, because its other
            // users may use them; the list contains those of its functions that the kernel must not
            // call.
            in_guest
                .arg("--no-deps")
                .env("CLIPPY_CONF_DIR", context.workspace.root.join("kernel/lints"));
        }
        in_guest.args(["--", "-D", "warnings"]);
        cases.push(lint(name, &mut in_guest)?);
    }
    Ok(cases)
}

fn lint(name: &str, command: &mut Command) -> Outcome<Case> {
    let mut step = step(format!("clippy, {name}"));
    let captured = capture(command, None, |line| step.detail(line))?;
    Ok(if captured.succeeded() {
        Case::passed(name)
    } else {
        Case::failed(name, complaints(&captured.everything()))
    })
}
