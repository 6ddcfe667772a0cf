//! Tests the executor as external users get it: as a package that builds by itself, and with the
//! oldest compiler that it supports (`rust-version` of its manifest), with every feature. The
//! latter is skipped if rustup does not have that compiler.

use std::process::Command;

use super::cargo_output::complaints;
use super::{Case, Context, step};
use crate::build::host;
use crate::error::{Because, Failure, Outcome};
use crate::process::{Captured, capture};

const FEATURES: [&str; 6] = ["", "static-tasks", "front", "image", "std", "reactor"];

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let mut cases = vec![package(context)?];
    let promised = promised_version(context)?;
    let Some(toolchain) = installed(&promised) else {
        context.note(format!(
            "the compiler is skipped: rustup toolchain install --profile minimal {promised}"
        ));
        return Ok(cases);
    };
    for features in FEATURES {
        let name = format!(
            "{promised}, features: {}",
            if features.is_empty() { "none" } else { features }
        );
        let mut step = step(&name);
        let mut command = Command::new("rustup");
        command.args(["run", &toolchain, "cargo", "check", "-p", "cops-executor", "--lib"]);
        command.args(["--no-default-features", "--features", features]);
        command.current_dir(&context.workspace.root);
        // A separate target folder; otherwise each compiler would rebuild everything.
        command.env("CARGO_TARGET_DIR", context.workspace.target.join("msrv"));
        let captured = capture(&mut command, None, |line| step.detail(line))?;
        cases.push(judged(name, &captured));
    }
    Ok(cases)
}

/// Packages it as for a registry, and builds the package.
fn package(context: &Context<'_>) -> Outcome<Case> {
    let mut step = step("cargo package");
    let mut cargo = host::cargo(context.workspace);
    cargo.args(["package", "-p", "cops-executor", "--allow-dirty"]);
    let captured = capture(&mut cargo, None, |line| step.detail(line))?;
    Ok(judged("cargo package", &captured))
}

fn judged(name: impl Into<String>, captured: &Captured) -> Case {
    if captured.succeeded() {
        Case::passed(name)
    } else {
        Case::failed(name, complaints(&captured.everything()))
    }
}

fn promised_version(context: &Context<'_>) -> Outcome<String> {
    let mut cargo = host::cargo(context.workspace);
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]);
    let captured = capture(&mut cargo, None, |_| ())?;
    let metadata: serde_json::Value =
        serde_json::from_str(&captured.stdout).because(|| "cargo metadata is not JSON".into())?;
    let mut packages = metadata["packages"].as_array().into_iter().flatten();
    let executor = packages.find(|package| package["name"] == "cops-executor");
    let version = executor.and_then(|package| package["rust_version"].as_str());
    version.map(str::to_owned).ok_or_else(|| Failure::new("cops-executor has no rust-version"))
}

/// The name of rustup's toolchain of this version.
fn installed(version: &str) -> Option<String> {
    let output = Command::new("rustup").args(["toolchain", "list"]).output().ok()?;
    toolchain_of(version, &String::from_utf8_lossy(&output.stdout))
}

fn toolchain_of(version: &str, list: &str) -> Option<String> {
    let names = list.lines().filter_map(|line| line.split_whitespace().next());
    let mut fitting = names
        .filter(|name| name.strip_prefix(version).is_some_and(|rest| rest.starts_with(['-', '.'])));
    fitting.next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn toolchains_are_found_by_version() {
        let list = "stable-x86 (active, default)\n1.9-x86\n1.90.0-x86\n1.95-x86\n";
        assert_eq!(toolchain_of("1.90", list).as_deref(), Some("1.90.0-x86"));
        assert_eq!(toolchain_of("1.95", list).as_deref(), Some("1.95-x86"));
        assert_eq!(toolchain_of("1.88", list), None);
    }
}
