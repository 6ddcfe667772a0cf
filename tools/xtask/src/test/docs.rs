//! Documentation builds without a warning. Private items are documented too: in a kernel they are where a reader goes,
//! and their links must not be dead either. What the book names must exist (see `book`), and public
//! items of the executor have examples (see `examples`).

use std::path::Path;
use std::process::Command;

use super::cargo_output::complaints;
use super::{Case, Context, book, examples, step};
use crate::build::{host, vdso};
use crate::error::Outcome;
use crate::figures;
use crate::process::capture;
use crate::terminal::Progress;

/// Documented apart from each other for the same reason for which they are built apart (see `clippy`).
const GUEST_PACKAGES: [&str; 3] = ["cops-vdso", "cops-kernel", "cops"];

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let workspace = context.workspace;
    let mut cases = vec![Case::judged("book", &book::judge(&workspace.root)?)];
    cases.push(judge_figures(&workspace.root));
    cases.push(Case::judged("examples of the executor", &examples::judge(&workspace.root)?));
    cases.push(document("host", host::cargo(workspace).arg("doc"))?);
    let toolchain = context.toolchain()?;
    let vdso = vdso::build(workspace, toolchain, Progress::Transient)?;
    for package in GUEST_PACKAGES {
        let mut cargo = toolchain.cargo("doc", workspace, workspace.guest_target(), &[]);
        cargo.args(["-p", package]).env("COPS_VDSO", &vdso.image);
        cases.push(document(package, &mut cargo)?);
    }
    Ok(cases)
}

/// Figures are those of the data, and no number stands where a figure should.
fn judge_figures(root: &Path) -> Case {
    match figures::judge(root) {
        Ok((_, wrong)) => Case::judged("figures", &wrong),
        Err(failure) => Case::failed("figures", failure.to_string()),
    }
}

fn document(name: &str, cargo: &mut Command) -> Outcome<Case> {
    let mut step = step(format!("documentation, {name}"));
    cargo.args(["--no-deps", "--document-private-items"]).env("RUSTDOCFLAGS", "-D warnings");
    let captured = capture(cargo, None, |line| step.detail(line))?;
    Ok(if captured.succeeded() {
        Case::passed(name)
    } else {
        Case::failed(name, complaints(&captured.everything()))
    })
}
