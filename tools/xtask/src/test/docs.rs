//! Builds the documentation without a warning. Private items are documented too, because readers of
//! a kernel look there, and their links must not be broken either. The other cases read the text of
//! the repository: its words (see `prose`), its links (see `links`), files and sections that it
//! refers to (see `references`), what the book names (see `book`), the table of system calls (see
//! `calls`), its figures and plots, and the examples of the executor's public items (see
//! `examples`). `./cops test --only docs prose` runs one of them.

use std::path::Path;
use std::process::Command;

use super::cargo_output::complaints;
use super::{Case, Context, book, calls, examples, links, prose, references, step};
use crate::build::{host, vdso};
use crate::error::Outcome;
use crate::figures::{self, plots};
use crate::process::capture;
use crate::terminal::Progress;

/// Documented separately, for the same reason for which they are built separately (see `clippy`).
const GUEST_PACKAGES: [&str; 3] = ["cops-vdso", "cops-kernel", "cops"];

/// Reads the text below a folder and returns what is wrong with it.
type Judge = fn(&Path) -> Outcome<Vec<String>>;

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let workspace = context.workspace;
    let root = &workspace.root;
    let mut cases = Vec::new();
    let of_text: [(&str, Judge); 7] = [
        ("prose", prose::judge),
        ("links", links::judge),
        ("book", book::judge),
        ("references", references::judge),
        ("calls", calls::judge),
        ("figures", judge_figures),
        ("examples of the executor", examples::judge),
    ];
    for (name, judge) in of_text {
        if context.is_chosen(name) {
            cases.push(Case::judged(name, &judge(root)?));
        }
    }
    if context.is_chosen("plots") {
        cases.push(Case::judged("plots", &plots::judge(&plots::draw_all(workspace)?)));
    }
    if context.is_chosen("host") {
        cases.push(document("host", host::cargo(workspace).arg("doc"))?);
    }
    if !GUEST_PACKAGES.iter().any(|package| context.is_chosen(package)) {
        return Ok(cases);
    }
    let toolchain = context.toolchain()?;
    let vdso = vdso::build(workspace, toolchain, Progress::Transient)?;
    for package in GUEST_PACKAGES.into_iter().filter(|package| context.is_chosen(package)) {
        let mut cargo = toolchain.cargo("doc", workspace, workspace.guest_target(), &[]);
        cargo.args(["-p", package]).env("COPS_VDSO", &vdso.image);
        cases.push(document(package, &mut cargo)?);
    }
    Ok(cases)
}

/// Figures must match the data, and no number may be where a figure should be.
fn judge_figures(root: &Path) -> Outcome<Vec<String>> {
    Ok(match figures::judge(root) {
        Ok((_, wrong)) => wrong,
        Err(failure) => vec![failure.to_string()],
    })
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
