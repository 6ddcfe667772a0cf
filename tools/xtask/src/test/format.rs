//! Checks the formatting of all crates with rustfmt.

use super::{Case, Context, step};
use crate::build::host;
use crate::error::Outcome;
use crate::packages;
use crate::process::capture;
use crate::terminal::Progress;

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    host::ensure_tool("cargo-fmt", packages::DEBIAN_RUSTFMT, Progress::Lines)?;
    let mut cargo = host::cargo(context.workspace);
    cargo.args(["fmt", "--all", "--check"]);
    let mut step = step("formatting");
    let captured = capture(&mut cargo, None, |line| step.detail(line))?;
    let wrong = if captured.succeeded() {
        Vec::new()
    } else {
        vec![captured.everything(), "to mend it: cargo fmt --all".to_owned()]
    };
    Ok(vec![Case::judged("all crates", &wrong)])
}
