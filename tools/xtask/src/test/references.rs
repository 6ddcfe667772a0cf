//! What documents and comments refer to exists: files and folders that a document names, and
//! sections of the specification that text or code names.
//!
//! A path is a code span that begins with a folder of the repository, as in `` `kernel/src/{mm,fs}`
//! ``; braces are expanded. A section is a number behind the word SPEC; docs/specification.md must
//! have it as a heading or as a paragraph that begins with it in bold.

use std::collections::BTreeSet;
use std::path::Path;

use super::book::code_spans;
use super::rust_source::rust_files;
use crate::error::Outcome;
use crate::repository::{markdown_files, read};

const SPECIFICATION: &str = "docs/specification.md";
/// How a reference to a section begins.
const SECTION: &str = "SPEC ";
/// Folders that a path of the repository begins with.
const FOLDERS: [&str; 5] = ["crates/", "docs/", "kernel/", "tools/", "user/"];

/// What is wrong with references.
pub fn judge(root: &Path) -> Outcome<Vec<String>> {
    let sections = sections(&read(root, &root.join(SPECIFICATION))?.1);
    let mut wrong = Vec::new();
    for path in markdown_files(root)? {
        let (name, text) = read(root, &path)?;
        wrong.extend(missing_paths(&name, &text, |path| root.join(path).exists()));
        wrong.extend(missing_sections(&name, &text, &sections));
    }
    for folder in FOLDERS {
        for path in rust_files(&root.join(folder))? {
            let (name, text) = read(root, &path)?;
            wrong.extend(missing_sections(&name, &text, &sections));
        }
    }
    wrong.sort();
    Ok(wrong)
}

/// Paths in code spans of a document that do not exist.
fn missing_paths(name: &str, text: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let is_path = |span: &&str| {
        let is_plain =
            span.chars().all(|letter| letter.is_alphanumeric() || "/._-{},".contains(letter));
        is_plain && FOLDERS.iter().any(|folder| span.starts_with(folder)) && !span.contains("NAME")
    };
    let paths = code_spans(text).into_iter().filter(is_path).flat_map(expanded);
    paths.filter(|path| !exists(path)).map(|path| format!("{name}: there is no {path}")).collect()
}

/// A path with each of the alternatives in its braces.
fn expanded(path: &str) -> Vec<String> {
    let parts =
        path.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)));
    match parts {
        None => vec![path.to_owned()],
        Some((before, (choices, after))) => choices
            .split(',')
            .flat_map(|choice| expanded(&format!("{before}{choice}{after}")))
            .collect(),
    }
}

/// References to sections that the specification does not have, each with its line.
fn missing_sections(name: &str, text: &str, sections: &BTreeSet<String>) -> Vec<String> {
    let mut missing = Vec::new();
    for (index, line) in text.lines().enumerate() {
        for (place, _) in line.match_indices(SECTION) {
            let number = number(&line[place + SECTION.len()..]);
            if !number.is_empty() && !sections.contains(number) {
                missing
                    .push(format!("{name}:{}: {SPECIFICATION} has no section {number}", index + 1));
            }
        }
    }
    missing
}

/// The sections of the specification.
fn sections(specification: &str) -> BTreeSet<String> {
    let headings = specification
        .lines()
        .filter_map(|line| line.strip_prefix("## ").or_else(|| line.strip_prefix("**")))
        .map(number);
    headings.filter(|number| !number.is_empty()).map(str::to_owned).collect()
}

/// The number of a section at the beginning of a text, as in `3.13a`; empty if there is none.
fn number(text: &str) -> &str {
    let length =
        text.find(|letter: char| !letter.is_ascii_digit() && letter != '.').unwrap_or(text.len());
    let number = text[..length].trim_end_matches('.');
    let letter = &text[number.len()..];
    let has_letter = letter.starts_with(|letter: char| letter.is_ascii_lowercase())
        && !letter[1..].starts_with(char::is_alphanumeric);
    &text[..number.len() + usize::from(has_letter && !number.is_empty())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_path_is_named_and_braces_are_expanded() {
        let text =
            "`kernel/src/{mm,fs}/mod.rs`, `docs/`, `kernel/NAME.rs`, `other/x.rs`, `kernel/src: a`";
        let exists = |path: &str| ["kernel/src/mm/mod.rs", "docs/"].contains(&path);
        assert_eq!(missing_paths("a.md", text, exists), ["a.md: there is no kernel/src/fs/mod.rs"]);
    }

    #[test]
    fn a_missing_section_is_named_with_its_line() {
        let sections =
            sections("# S\n## 1. One\n**1.1** a\n**1.2 Name.** b\n**3.13a Portions.** c\n");
        assert_eq!(
            sections.iter().map(String::as_str).collect::<Vec<_>>(),
            ["1", "1.1", "1.2", "3.13a"]
        );
        let text = "x\n// SPEC 1.1, SPEC 1.2. SPEC 3.13a: SPEC 3.13 and the SPEC itself";
        assert_eq!(
            missing_sections("a.rs", text, &sections),
            ["a.rs:2: docs/specification.md has no section 3.13"]
        );
    }
}
