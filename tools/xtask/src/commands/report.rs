//! `./cops report`: the data under docs/results as a page, and the figures of them in the
//! documents.

use std::path::Path;
use std::process::Command;

use crate::build::host;
use crate::cli::{Report, ReportAction};
use crate::error::{Because, Failure, Outcome};
use crate::figures::sources::{self, Age, Make, SOURCES, Source};
use crate::figures::{self, Data, plots};
use crate::page;
use crate::process;
use crate::qemu::version::Qemu;
use crate::workspace::{Workspace, write_if_changed};

/// Data are old, and a list says so, after so many commits that have changed what they measure.
const OLD: usize = 50;

pub fn run(workspace: &Workspace, options: &Report) -> Outcome<u8> {
    match &options.action {
        None => html(workspace, None),
        Some(ReportAction::Html { output }) => html(workspace, output.as_deref()),
        Some(ReportAction::List) => list(workspace),
        Some(ReportAction::Figures { check }) => figures(workspace, *check),
        Some(ReportAction::Measure { names, stale }) => measure(workspace, names, *stale),
    }
}

/// Writes the page and its data.
fn html(workspace: &Workspace, output: Option<&Path>) -> Outcome<u8> {
    let page = page::make(&workspace.root)?;
    let folder = output.map_or_else(|| workspace.target.join("report"), Path::to_owned);
    std::fs::create_dir_all(&folder).because(|| format!("cannot make {}", folder.display()))?;
    let index = ("index.html".to_owned(), page.html);
    for (name, text) in page.csv.iter().chain([&index]) {
        let file = folder.join(name);
        std::fs::write(&file, text).because(|| format!("cannot write {}", file.display()))?;
    }
    for name in &page.missing {
        println!("not measured yet: docs/results/{name}.json");
    }
    println!("report: {}", folder.join("index.html").display());
    Ok(0)
}

fn list(workspace: &Workspace) -> Outcome<u8> {
    let data = Data::read(&workspace.root)?;
    let mut old = Vec::new();
    println!("{:14} {:13} {:10} command", "data", "commit", "age");
    for source in &SOURCES {
        let commit = data.get(source.name).and_then(sources::commit).unwrap_or("-");
        let age = sources::age(workspace, &data, source);
        if matches!(age, Age::Stale(OLD..)) {
            old.push(source.name);
        }
        let age = match age {
            Age::Current => "current".to_owned(),
            Age::Stale(commits) => format!("stale, {commits}"),
            Age::Unknown => "unknown".to_owned(),
            Age::Missing => "missing".to_owned(),
        };
        println!("{:14} {commit:13} {age:10} {}", source.name, source.make.shown());
    }
    println!("\nstale, N: N commits have changed what is measured since the data were made.");
    if !old.is_empty() {
        println!(
            "\nOf {OLD} commits ago or more: a figure of these may have become worse unseen.\n    \
             ./cops report measure {}",
            old.join(" ")
        );
    }
    Ok(0)
}

fn figures(workspace: &Workspace, check: bool) -> Outcome<u8> {
    if check {
        let (documents, mut wrong) = figures::judge(&workspace.root)?;
        wrong.extend(plots::judge(&plots::draw_all(workspace)?));
        for fault in &wrong {
            println!("{fault}");
        }
        println!("{documents} documents, {} faults", wrong.len());
        return Ok(u8::from(!wrong.is_empty()));
    }
    let documents = figures::render_all(&workspace.root, &Data::read(&workspace.root)?)?;
    let mut changed = 0;
    for document in documents.iter().filter(|document| document.text != document.rendered) {
        write_if_changed(&document.path, document.rendered.as_bytes())?;
        println!("written: {}", document.name);
        changed += 1;
    }
    println!("{} documents, {changed} changed", documents.len());
    let plots = plots::draw_all(workspace)?;
    for plot in plots.iter().filter(|plot| plot.is_stale()) {
        write_if_changed(&plot.path, &plot.drawn)?;
        println!("written: {}", plot.name);
    }
    Ok(0)
}

fn measure(workspace: &Workspace, names: &[String], stale: bool) -> Outcome<u8> {
    if let Some(unknown) = names.iter().find(|name| sources::find(name).is_none()) {
        let known = SOURCES.iter().map(|source| source.name).collect::<Vec<_>>().join(" ");
        return Err(Failure::new(format!("there are no data {unknown:?}"))
            .advise(format!("there are: {known}")));
    }
    let data = Data::read(&workspace.root)?;
    let chosen: Vec<&Source> = SOURCES
        .iter()
        .filter(|source| names.is_empty() || names.iter().any(|name| name == source.name))
        .filter(|source| !stale || sources::age(workspace, &data, source) != Age::Current)
        .collect();
    let mut failed = Vec::new();
    for (index, source) in chosen.iter().enumerate() {
        println!("{} of {}: {}", index + 1, chosen.len(), source.make.shown());
        if source.has_times_of_linux()
            && let Ok(qemu) = Qemu::find()
            && !sources::is_fit_for_linux(&qemu.version)
        {
            println!(
                "not measured: it has times of Linux, which QEMU {} slows down; \
                 COPS_QEMU must name QEMU 10 or newer",
                qemu.version
            );
            failed.push(source.name);
            continue;
        }
        if !make(workspace, source.make)? {
            failed.push(source.name);
        }
    }
    conclude(&failed, || figures(workspace, false))
}

/// Inserts the figures of what was measured, then fails if something was not.
fn conclude(failed: &[&str], insert: impl FnOnce() -> Outcome<u8>) -> Outcome<u8> {
    let inserted = insert()?;
    if failed.is_empty() {
        return Ok(inserted);
    }
    Err(Failure::new(format!("not measured: {}", failed.join(" "))))
}

/// Runs the command. Returns whether it succeeded.
fn make(workspace: &Workspace, make: Make) -> Outcome<bool> {
    let mut command = match make {
        Make::Cops(words) => {
            let ourselves =
                std::env::current_exe().because(|| "cannot find our own program".into())?;
            let mut command = Command::new(ourselves);
            command.args(words).current_dir(&workspace.root);
            command
        }
        Make::Cargo(words) => {
            let mut command = host::cargo(workspace);
            command.args(words);
            command
        }
    };
    Ok(process::run(&mut command)?.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_inserted_also_if_something_was_not_measured() {
        for failed in [&[][..], &["ring", "pipe"]] {
            let mut inserted = 0;
            let outcome = conclude(failed, || {
                inserted += 1;
                Ok(0)
            });
            assert_eq!(inserted, 1, "{failed:?}");
            assert_eq!(outcome.is_ok(), failed.is_empty(), "{failed:?}");
        }
        let failure = conclude(&["ring", "pipe"], || Ok(0)).unwrap_err().to_string();
        assert!(failure.contains("not measured: ring pipe"), "{failure}");
    }
}
