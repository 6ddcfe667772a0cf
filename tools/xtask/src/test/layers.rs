//! Dependencies point one way: between packages as cargo knows them, and between the folders of the
//! kernel as their paths show them ([`kernel`]). The tables are the layout of
//! docs/book/architecture.md.

mod kernel;

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Case, Context};
use crate::build::host;
use crate::error::{Because, Outcome};
use crate::process::capture;

/// Package, and the packages of ours that it may depend on (development dependencies included).
const PACKAGES: [(&str, &[&str]); 20] = [
    ("cops-executor", &[]),
    ("cops-abi", &["cops-executor"]),
    ("cops-vdso", &["cops-executor", "cops-abi"]),
    ("cops-vdso-fifo", &["cops-executor"]),
    ("cops-memcpy", &[]),
    ("cops-ext4", &["cops-executor"]),
    ("cops-fallible", &["cops-abi"]),
    ("cops-lock", &[]),
    ("cops-algorithms", &["cops-abi", "cops-fallible"]),
    ("cops-net", &["cops-executor", "cops-fallible", "cops-lock"]),
    (
        "cops-kernel",
        &[
            "cops-abi",
            "cops-algorithms",
            "cops-executor",
            "cops-fallible",
            "cops-lock",
            "cops-memcpy",
            "cops-net",
        ],
    ),
    ("cops-macros", &[]),
    ("cops", &["cops-abi", "cops-executor", "cops-macros", "cops-memcpy"]),
    ("matrix-message", &[]),
    ("command-line", &[]),
    ("cops-apps", &["cops", "cops-ext4", "command-line", "matrix-message"]),
    ("cops-profiler", &[]),
    ("xtask", &[]),
    ("cops-report", &[]),
    ("cops-loadgen", &["matrix-message", "cops-report"]),
];

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let mut cargo = host::cargo(context.workspace);
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]);
    let captured = capture(&mut cargo, None, |_| ())?;
    if !captured.succeeded() {
        return Ok(vec![Case::failed("packages", captured.everything())]);
    }
    let metadata = serde_json::from_str(&captured.stdout)
        .because(|| "cargo metadata printed no JSON".into())?;
    let kernel = kernel::judge(&context.workspace.root.join("kernel/src"))?;
    context.note(format!("{} arrows upward, {} lines of code", kernel.upward, kernel.lines));
    Ok(vec![
        Case::judged("packages", &judge_packages(&dependencies(&metadata))),
        Case::judged("kernel folders", &kernel.wrong),
    ])
}

/// Our packages, each with what it depends on by path.
fn dependencies(metadata: &Value) -> BTreeMap<String, Vec<String>> {
    let list = |value: &Value, key: &str| {
        value.get(key).and_then(Value::as_array).cloned().unwrap_or_default()
    };
    let name =
        |value: &Value| value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let ours = |package: &Value| {
        let dependencies = list(package, "dependencies");
        dependencies
            .iter()
            .filter(|dependency| dependency.get("path").is_some_and(Value::is_string))
            .map(name)
            .collect()
    };
    list(metadata, "packages").iter().map(|package| (name(package), ours(package))).collect()
}

fn judge_packages(dependencies: &BTreeMap<String, Vec<String>>) -> Vec<String> {
    let allowed = BTreeMap::from(PACKAGES);
    let mut wrong = Vec::new();
    for (package, present) in dependencies {
        match allowed.get(package.as_str()) {
            None => wrong.push(format!(
                "package {package} has no place in the layout: add it to PACKAGES in {}",
                file!()
            )),
            Some(allowed) => wrong.extend(
                present
                    .iter()
                    .filter(|dependency| !allowed.contains(&dependency.as_str()))
                    .map(|dependency| format!("{package} must not depend on {dependency}")),
            ),
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_upward_dependency_is_named() {
        let metadata = json!({"packages": [
            {"name": "cops-abi", "dependencies": [{"name": "cops-executor", "path": "/x"}, {"name": "proptest", "path": null}]},
            {"name": "cops-executor", "dependencies": [{"name": "cops-abi", "path": "/y"}]},
            {"name": "stranger", "dependencies": []},
        ]});
        let wrong = judge_packages(&dependencies(&metadata));
        assert_eq!(wrong.len(), 2, "{wrong:?}");
        assert_eq!(wrong[0], "cops-executor must not depend on cops-abi");
        assert!(wrong[1].contains("stranger has no place"));
    }

    #[test]
    fn the_table_itself_points_one_way() {
        let place = |name: &str| PACKAGES.iter().position(|(package, _)| *package == name).unwrap();
        for (package, allowed) in PACKAGES {
            // Everything a package may use is in the table before it, so there can be no circle.
            let is_before = |dependency: &&str| {
                place(dependency) < place(package) || *dependency == "cops-report"
            };
            assert!(allowed.iter().all(is_before), "{package}");
        }
    }
}
