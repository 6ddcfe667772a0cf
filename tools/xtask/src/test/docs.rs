//! Documentation builds without a warning: no dead link, no missing page of a public item where that is asked for.

use std::process::Command;

use super::{Case, Context, step};
use crate::build::host;
use crate::error::Outcome;
use crate::process::capture;

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let mut on_host = host::cargo(context.workspace);
    on_host.args(["doc", "--no-deps"]);
    let workspace = context.workspace;
    let mut library = context.toolchain()?.cargo("doc", workspace, workspace.guest_target(), &[]);
    library.args(["--no-deps", "-p", "cops"]);
    Ok(vec![document("host", &mut on_host)?, document("user library", &mut library)?])
}

fn document(name: &str, command: &mut Command) -> Outcome<Case> {
    let mut step = step(format!("documentation, {name}"));
    let captured = capture(command.env("RUSTDOCFLAGS", "-D warnings"), None, |line| step.detail(line))?;
    Ok(if captured.succeeded() { Case::passed(name) } else { Case::failed(name, captured.everything()) })
}
