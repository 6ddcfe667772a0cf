//! Dependencies point one way: between packages as cargo knows them, and between the folders of the kernel as its
//! `crate::` paths show them. The tables below are the layout of docs/book/architecture.md.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::{Case, Context};
use crate::build::host;
use crate::error::{Because, Outcome};
use crate::process::capture;
use crate::test::unsafe_count::{code_only, rust_files};

/// Package, and the packages of ours that it may depend on (development dependencies included).
const PACKAGES: [(&str, &[&str]); 12] = [
    ("cops-executor", &[]),
    ("cops-abi", &["cops-executor"]),
    ("cops-vdso", &["cops-executor", "cops-abi"]),
    ("cops-net", &["cops-executor"]),
    ("cops-kernel", &["cops-abi", "cops-executor", "cops-net"]),
    ("cops-macros", &[]),
    ("cops", &["cops-abi", "cops-executor", "cops-macros"]),
    ("matrix-message", &[]),
    ("cops-apps", &["cops", "matrix-message"]),
    ("xtask", &[]),
    ("cops-report", &[]),
    ("cops-loadgen", &["matrix-message", "cops-report"]),
];

/// Folder of kernel/src, and the folders it must not name. Only what stands higher is listed: what a layer needs from
/// above reaches it as an argument or a hook.
const KERNEL_LAYERS: [(&str, &[&str]); 5] = [
    ("arch", &["mm", "drivers", "task", "syscall", "call", "fs", "net"]),
    ("mm", &["drivers", "task", "syscall", "call", "fs", "net"]),
    ("drivers", &["syscall", "call", "fs", "net"]),
    ("fs", &["task", "syscall"]),
    ("net", &["task", "syscall"]),
];

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let mut cargo = host::cargo(context.workspace);
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]);
    let captured = capture(&mut cargo, None, |_| ())?;
    if !captured.succeeded() {
        return Ok(vec![Case::failed("packages", captured.everything())]);
    }
    let metadata =
        serde_json::from_str(&captured.stdout).because(|| "cargo metadata printed no JSON".into())?;
    Ok(vec![
        Case::judged("packages", &judge_packages(&dependencies(&metadata))),
        Case::judged("kernel folders", &judge_kernel(&context.workspace.root.join("kernel/src"))?),
    ])
}

/// Our packages, each with what it depends on by path.
fn dependencies(metadata: &Value) -> BTreeMap<String, Vec<String>> {
    let list =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let name = |value: &Value| value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
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

fn judge_kernel(source: &Path) -> Outcome<Vec<String>> {
    let mut wrong = Vec::new();
    for (layer, forbidden) in KERNEL_LAYERS {
        for file in rust_files(&source.join(layer))? {
            let text =
                std::fs::read_to_string(&file).because(|| format!("cannot read {}", file.display()))?;
            wrong.extend(upward_paths(&code_only(&text), forbidden).into_iter().map(|(line, path)| {
                format!("{}:{line} names {path}, which is above {layer}", file.display())
            }));
        }
    }
    Ok(wrong)
}

/// The lines that name a forbidden folder, as `crate::task::...`.
fn upward_paths(code: &str, forbidden: &[&str]) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in code.lines().enumerate() {
        for part in line.split("crate::").skip(1) {
            let folder: String = part
                .chars()
                .take_while(|character| character.is_alphanumeric() || *character == '_')
                .collect();
            if forbidden.contains(&folder.as_str()) {
                found.push((index + 1, format!("crate::{folder}")));
            }
        }
    }
    found
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
            let is_before =
                |dependency: &&str| place(dependency) < place(package) || *dependency == "cops-report";
            assert!(allowed.iter().all(is_before), "{package}");
        }
    }

    #[test]
    fn a_path_to_a_higher_folder_is_found_in_code_only() {
        let code = code_only(
            "use crate::arch;\n// crate::task is above\nlet x = crate::task::now() + crate::tasks::y;\n",
        );
        assert_eq!(upward_paths(&code, &["task"]), [(3, "crate::task".to_owned())]);
    }
}
