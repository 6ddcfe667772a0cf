//! Dependencies point one way: between packages as cargo knows them, and between the folders of the
//! kernel as its `crate::` paths show them. The tables below are the layout of
//! docs/book/architecture.md.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::rust_source::{code_only, rust_files};
use super::{Case, Context};
use crate::build::host;
use crate::error::{Because, Outcome};
use crate::process::capture;

/// Package, and the packages of ours that it may depend on (development dependencies included).
const PACKAGES: [(&str, &[&str]); 14] = [
    ("cops-executor", &[]),
    ("cops-abi", &["cops-executor"]),
    ("cops-vdso", &["cops-executor", "cops-abi"]),
    ("cops-fallible", &["cops-abi"]),
    ("cops-algorithms", &["cops-abi", "cops-fallible"]),
    ("cops-net", &["cops-executor", "cops-fallible"]),
    ("cops-kernel", &["cops-abi", "cops-algorithms", "cops-executor", "cops-fallible", "cops-net"]),
    ("cops-macros", &[]),
    ("cops", &["cops-abi", "cops-executor", "cops-macros"]),
    ("matrix-message", &[]),
    ("cops-apps", &["cops", "matrix-message"]),
    ("xtask", &[]),
    ("cops-report", &[]),
    ("cops-loadgen", &["matrix-message", "cops-report"]),
];

/// A folder of kernel/src and what it must not name.
struct Layer {
    folder: &'static str,
    /// Folders above it: what it needs from there reaches it as an argument.
    above: &'static [&'static str],
    /// The modules of those that it may name all the same.
    except: &'static [&'static str],
}

const KERNEL_LAYERS: [Layer; 7] = [
    Layer {
        folder: "arch",
        above: &[
            "mm", "drivers", "sched", "process", "inspect", "boot", "trace", "call", "syscall", "fs", "net",
        ],
        // Where things lie; the spaces to load, at entry and before user mode; what the tree says
        // of clock and interrupt controller; and the places to which a trap handler passes an
        // interrupt on.
        except: &[
            "mm::layout",
            "mm::kernel_space",
            "mm::AddressSpace",
            "drivers::device_tree",
            "drivers::interrupt",
            "sched::interrupt",
        ],
    },
    Layer {
        folder: "mm",
        above: &["drivers", "sched", "process", "inspect", "boot", "trace", "call", "syscall", "fs", "net"],
        // Which memory there is.
        except: &["drivers::device_tree"],
    },
    Layer {
        folder: "drivers",
        above: &["sched", "process", "inspect", "boot", "trace", "call", "syscall", "fs", "net"],
        // An interrupt ends in waking a coroutine.
        except: &["sched::interrupt"],
    },
    Layer { folder: "trace", above: &["call", "syscall", "fs", "net"], except: &[] },
    Layer { folder: "fs", above: &["call", "syscall"], except: &[] },
    Layer { folder: "net", above: &["call", "syscall"], except: &[] },
    Layer { folder: "call", above: &["syscall"], except: &[] },
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
    for layer in &KERNEL_LAYERS {
        let mut unused: Vec<&str> = layer.except.to_vec();
        for file in rust_files(&source.join(layer.folder))? {
            let text =
                std::fs::read_to_string(&file).because(|| format!("cannot read {}", file.display()))?;
            for (line, path) in upward_paths(&code_only(&text), layer) {
                match layer.exception_for(&path) {
                    Some(allowed) => unused.retain(|exception| *exception != allowed),
                    None => wrong.push(format!(
                        "{}:{line} names crate::{path}, which is above {}",
                        file.display(),
                        layer.folder
                    )),
                }
            }
        }
        let folder = layer.folder;
        wrong.extend(
            unused.iter().map(|path| format!("{folder} names {path} no more: take the exception away")),
        );
    }
    Ok(wrong)
}

impl Layer {
    /// The exception that covers this path.
    fn exception_for(&self, path: &str) -> Option<&'static str> {
        self.except.iter().copied().find(|allowed| {
            path.strip_prefix(allowed).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
        })
    }
}

/// The lines that name something above the layer, excepted or not, and what.
fn upward_paths(code: &str, layer: &Layer) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (start, marker) in code.match_indices("crate::") {
        // `$crate::` in a macro is named by the code that uses the macro.
        if code[..start].ends_with('$') {
            continue;
        }
        let line = code[..start].matches('\n').count() + 1;
        let mut paths = Vec::new();
        expand("", &code[start + marker.len()..], &mut paths);
        let is_above = |path: &String| layer.above.contains(&path.split("::").next().unwrap_or_default());
        found.extend(paths.into_iter().filter(is_above).map(|path| (line, path)));
    }
    found
}

/// Adds the paths that the path or use tree at the start of `text` names, each with `prefix` before
/// it; gives what comes after it.
fn expand<'a>(prefix: &str, text: &'a str, paths: &mut Vec<String>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = expand(prefix, rest, paths).trim_start();
            match rest.strip_prefix(',') {
                Some(after) => rest = after,
                None => return rest.strip_prefix('}').unwrap_or(rest),
            }
        }
    }
    let length =
        text.find(|character: char| !character.is_alphanumeric() && character != '_').unwrap_or(text.len());
    let (segment, mut rest) = text.split_at(length);
    if segment.is_empty() {
        // Everything in the prefix, or the end of a list.
        return match rest.strip_prefix('*') {
            Some(after) => {
                paths.push(prefix.to_owned());
                after
            }
            None => rest,
        };
    }
    let path = match (prefix, segment) {
        ("", _) => segment.to_owned(),
        (_, "self") => prefix.to_owned(),
        _ => format!("{prefix}::{segment}"),
    };
    match rest.strip_prefix("::") {
        Some(after) => expand(&path, after, paths),
        None => {
            paths.push(path);
            if let Some(renamed) = rest.trim_start().strip_prefix("as ") {
                rest = renamed
                    .trim_start_matches(|character: char| character.is_alphanumeric() || character == '_');
            }
            rest
        }
    }
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
    fn use_trees_are_expanded() {
        let mut paths = Vec::new();
        let rest = expand("", "mm::{self, layout::{A, B as C}, frames::*}; next", &mut paths);
        assert_eq!(paths, ["mm", "mm::layout::A", "mm::layout::B", "mm::frames"]);
        assert_eq!(rest, "; next");
    }

    #[test]
    fn a_path_to_a_higher_folder_is_found_in_code_only() {
        let layer =
            Layer { folder: "arch", above: &["task", "mm"], except: &["mm::layout", "task::interrupt"] };
        let code = "\
use crate::arch::task;
// crate::task is above
use crate::mm::{layout::PAGE, layout, frames};
let x = crate::task::now() + crate::tasks::y + $crate::task::z;
crate::task::interrupt::on_timer(crate::mm::layouts());
";
        let mut found = upward_paths(&code_only(code), &layer);
        assert_eq!(found.len(), 6, "{found:?}");
        found.retain(|(_, path)| layer.exception_for(path).is_none());
        let expected = [(3, "mm::frames"), (4, "task::now"), (5, "mm::layouts")];
        assert_eq!(found, expected.map(|(line, path)| (line, path.to_owned())));
    }
}
