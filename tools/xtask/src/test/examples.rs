//! Checks that every public function, type, trait and macro of the executor has an example in its
//! documentation. `cargo test --doc` checks the examples themselves.
//!
//! This reads source lines as formatted by rustfmt: an item begins a line, and the item that
//! contains it is indented less. An item is public if it is `pub` in a module that is public or
//! re-exported by name; `pub` methods of such types are public too.

use std::collections::BTreeSet;
use std::path::Path;

use super::rust_source::{code_only, rust_files};
use crate::error::{Because, Outcome};

const SOURCES: &str = "crates/executor/src";
/// Not public, and full of names of other items.
const PRIVATE: &str = "core/atomic.rs";
/// Hidden; only for tests under the model checker.
const EXCEPTIONS: [&str; 1] = ["begin_sync_model"];
/// Words that may precede the word for the kind of item.
const QUALIFIERS: [&str; 4] = ["pub ", "const ", "unsafe ", "async "];
const ITEMS: [&str; 6] = ["fn ", "struct ", "enum ", "trait ", "union ", "macro_rules! "];

/// The items without an example.
pub fn judge(root: &Path) -> Outcome<Vec<String>> {
    let mut sources = Vec::new();
    let files = rust_files(&root.join(SOURCES))?;
    for file in files.into_iter().filter(|file| !file.ends_with(PRIVATE)) {
        let text =
            std::fs::read_to_string(&file).because(|| format!("cannot read {}", file.display()))?;
        sources.push((file, text));
    }
    let (mut modules, mut known) = (BTreeSet::new(), BTreeSet::new());
    for (_, text) in &sources {
        collect_names(&code_only(text), &mut modules, &mut known);
    }
    // Everything that a public module declares, including in a macro.
    let public = sources.iter().filter(|(file, _)| is_module_of(file, &modules));
    let lines = public.flat_map(|(_, text)| text.lines().map(str::trim_start));
    let types =
        lines.filter(|line| line.starts_with("pub ") && !line.contains("fn ")).filter_map(name_of);
    let types: Vec<_> = types.map(str::to_owned).collect();
    known.extend(types);
    let mut wrong = Vec::new();
    for (file, text) in &sources {
        let place = file.strip_prefix(root).unwrap_or(file).display();
        let lacking = without_example(text, is_module_of(file, &modules), &known);
        let lacking = lacking
            .into_iter()
            .map(|(line, item)| format!("{place}:{line}: {item} has no example"));
        wrong.extend(lacking);
    }
    if known.is_empty() {
        wrong.push(format!("nothing is public in {SOURCES}"));
    }
    Ok(wrong)
}

/// A module has the name of its file or of its folder.
fn is_module_of(file: &Path, modules: &BTreeSet<String>) -> bool {
    let name = if file.ends_with("mod.rs") {
        file.parent().and_then(Path::file_name)
    } else {
        file.file_stem()
    };
    name.is_some_and(|name| modules.contains(&*name.to_string_lossy()))
}

/// The names of public modules, and of re-exported items.
fn collect_names(code: &str, modules: &mut BTreeSet<String>, names: &mut BTreeSet<String>) {
    let declared = code.split("pub mod ").skip(1).filter_map(|rest| rest.split([';', ' ']).next());
    let used = code.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next());
    let is_separator = |character: char| !(character.is_alphanumeric() || character == '_');
    // Of `self::a::b` the last name; of a list, all names.
    let used =
        used.flat_map(|path| path.rsplit("::").next().unwrap_or_default().split(is_separator));
    modules.extend(declared.map(str::to_owned));
    names.extend(used.filter(|name| !name.is_empty()).map(str::to_owned));
}

/// Line and name of items without an example.
fn without_example(text: &str, is_public: bool, known: &BTreeSet<String>) -> Vec<(usize, String)> {
    let (lines, code) = (text.lines().collect::<Vec<_>>(), code_only(text));
    let mut lacking = Vec::new();
    // The items that contain the line: indentation, whether it is a module, and the name of a
    // public type or trait.
    let mut around: Vec<(usize, bool, Option<&str>)> = Vec::new();
    for (index, line) in code.lines().enumerate() {
        let item = line.trim_start();
        let indentation = line.len() - item.len();
        if item.is_empty() || item == "where" || item.starts_with(['#', '}', '{', ')']) {
            continue;
        }
        while around.last().is_some_and(|(outer, ..)| *outer >= indentation) {
            around.pop();
        }
        let is_in = around.last().and_then(|(.., name)| *name);
        let name = name_of(item);
        let counts = match name {
            _ if item.starts_with("macro_rules!") => {
                above(&lines, index).any(|line| line == "#[macro_export]")
            }
            Some(name) if item.starts_with("pub ") => {
                let is_free =
                    !item.contains("fn ") || around.iter().all(|(_, is_module, _)| *is_module);
                is_in.is_some() || is_free && known.contains(name) || is_public && around.is_empty()
            }
            // Everything declared in a public trait is public.
            Some(_) => is_in.is_some_and(|outer| code.contains(&format!("pub trait {outer}"))),
            None => false,
        };
        if let Some(name) = name
            && counts
            && !EXCEPTIONS.contains(&name)
            && !above(&lines, index).any(|line| line.starts_with("/// ```"))
        {
            let qualified =
                is_in.map_or_else(|| name.to_owned(), |outer| format!("{outer}::{name}"));
            lacking.push((index + 1, qualified));
        }
        let opened = match item.strip_prefix("impl") {
            Some(header) => type_of(header).filter(|name| known.contains(*name)),
            None => name.filter(|name| item.starts_with("pub trait ") && known.contains(*name)),
        };
        let is_module = item.starts_with("mod ") || item.starts_with("pub mod ");
        around.push((indentation, is_module, opened));
    }
    lacking
}

/// The attributes and the documentation directly above a line.
fn above<'a>(lines: &'a [&str], index: usize) -> impl Iterator<Item = &'a str> {
    let lines = lines.iter().take(index).rev().map(|line| line.trim_start());
    lines.take_while(|line| line.starts_with("///") || line.starts_with("#["))
}

/// The name of the item that the line begins.
fn name_of(line: &str) -> Option<&str> {
    let mut rest = line;
    while let Some(after) = QUALIFIERS.iter().find_map(|qualifier| rest.strip_prefix(qualifier)) {
        rest = after;
    }
    first_word(ITEMS.iter().find_map(|item| rest.strip_prefix(item))?)
}

/// The type of an inherent `impl`, from the text after that word.
fn type_of(header: &str) -> Option<&str> {
    let (mut depth, mut before) = (0_u32, ' ');
    let start = header.find(|character| {
        match character {
            '<' => depth += 1,
            '>' if before != '-' => depth = depth.saturating_sub(1),
            ' ' | '>' => {}
            _ if depth == 0 => return true,
            _ => {}
        }
        before = character;
        false
    })?;
    let is_inherent = !header.contains(" for ");
    first_word(&header[start..]).filter(|_| is_inherent)
}

fn first_word(text: &str) -> Option<&str> {
    text.split(|character: char| !(character.is_alphanumeric() || character == '_')).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn lacks(source: &str, expected: &[&str]) {
        let known = ["Public", "free", "Clock"].map(str::to_owned).into();
        let lacking = without_example(source, false, &known);
        assert_eq!(lacking.iter().map(|(_, item)| item.as_str()).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn types_and_functions_need_an_example() {
        lacks(
            "/// What it is.\n#[derive(Debug)]\npub struct Public {}\npub const fn free() {}",
            &["Public", "free"],
        );
        lacks(
            "/// It.\n///\n/// ```\n/// a();\n/// ```\n#[inline]\npub fn free() {\n    pub fn inner() {}\n}",
            &[],
        );
        lacks(
            "pub struct Private;\npub(super) fn free() {}\nfn free() {}\n// pub fn free() {}",
            &[],
        );
        lacks(
            "mod own {\n    pub fn free() {}\n}\nimpl Private {\n    pub fn free() {}\n}",
            &["free"],
        );
    }

    #[test]
    fn methods_are_those_of_public_types() {
        lacks(
            "impl<T: Fn() -> u8> Public<T>\nwhere\n    T: Send,\n{\n    pub unsafe fn method() {}\n    fn private() {}\n}",
            &["Public::method"],
        );
        lacks(
            "impl Private {\n    pub fn method() {}\n}\nimpl Clock for Public {\n    fn now() {}\n}",
            &[],
        );
        lacks("/// ```\npub trait Clock {\n    fn now();\n}", &["Clock::now"]);
    }

    #[test]
    fn macros_are_public_if_exported() {
        lacks("macro_rules! one {\n}\n/// Two.\n#[macro_export]\nmacro_rules! two {\n}", &["two"]);
    }

    #[test]
    fn names_are_those_of_modules_and_uses() {
        let (mut modules, mut names) = (BTreeSet::new(), BTreeSet::new());
        collect_names(
            "pub mod sync;\nmod own;\npub use self::a::{\n    B, c,\n};\npub(super) use d::E;\npub use f::G;",
            &mut modules,
            &mut names,
        );
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["B", "G", "c"]);
        assert_eq!(modules.into_iter().collect::<Vec<_>>(), ["sync"]);
    }
}
