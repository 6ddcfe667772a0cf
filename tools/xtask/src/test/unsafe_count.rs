//! Compares the number of unsafe blocks per folder with the record in docs/unsafe-count.txt, so
//! that an increase must be recorded, where a reviewer sees it.
//!
//! It counts the keyword `unsafe` before a block, outside of comments and literals, in every Rust
//! file of the repository.

use std::collections::BTreeMap;
use std::path::Path;

use super::rust_source::{code_only, rust_files};
use super::{Case, Context};
use crate::error::{Because, Outcome};
use crate::workspace::{Workspace, write_if_changed};

/// Folders with sources.
const ROOTS: [&str; 4] = ["crates", "kernel", "user", "tools"];
const RECORD: &str = "docs/unsafe-count.txt";
const HEADER: &str = "\
# Unsafe blocks per folder. Checked by `./cops test --only unsafe`; rewritten by `./cops test --record-unsafe`.
# A number that grows is a decision: say why in the commit that grows it.
";

pub fn run(context: &Context<'_>) -> Outcome<Vec<Case>> {
    let record = context.workspace.root.join(RECORD);
    let recorded =
        std::fs::read_to_string(&record).because(|| format!("cannot read {}", record.display()))?;
    let counted = count(&context.workspace.root)?;
    let mut wrong = differences(&parse(&recorded), &counted);
    if !wrong.is_empty() {
        wrong.push(
            "if that is meant: ./cops test --record-unsafe, and commit docs/unsafe-count.txt"
                .to_owned(),
        );
    }
    Ok(vec![Case::judged("blocks per folder", &wrong)])
}

/// Rewrites the record.
pub fn record(workspace: &Workspace) -> Outcome<u8> {
    let counted = count(&workspace.root)?;
    let lines = counted.iter().map(|(folder, count)| format!("{count:4} {folder}\n"));
    let path = workspace.root.join(RECORD);
    write_if_changed(&path, (HEADER.to_owned() + &lines.collect::<String>()).as_bytes())?;
    println!(
        "{} unsafe blocks in {} folders: {}",
        counted.values().sum::<usize>(),
        counted.len(),
        path.display()
    );
    Ok(0)
}

/// Number of blocks per folder, without folders that have none.
fn count(root: &Path) -> Outcome<BTreeMap<String, usize>> {
    let mut counted = BTreeMap::new();
    for source in ROOTS {
        for file in rust_files(&root.join(source))? {
            let text = std::fs::read_to_string(&file)
                .because(|| format!("cannot read {}", file.display()))?;
            let blocks = blocks_in(&code_only(&text));
            let folder = file.parent().and_then(|folder| folder.strip_prefix(root).ok());
            if let (Some(folder), true) = (folder, blocks > 0) {
                *counted.entry(folder.display().to_string()).or_default() += blocks;
            }
        }
    }
    Ok(counted)
}

fn parse(record: &str) -> BTreeMap<String, usize> {
    let lines = record.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(' '))
        .filter_map(|(count, folder)| Some((folder.to_owned(), count.parse().ok()?)))
        .collect()
}

fn differences(
    recorded: &BTreeMap<String, usize>,
    counted: &BTreeMap<String, usize>,
) -> Vec<String> {
    let folders: std::collections::BTreeSet<&String> =
        recorded.keys().chain(counted.keys()).collect();
    let of = |counts: &BTreeMap<String, usize>, folder: &String| {
        counts.get(folder).copied().unwrap_or_default()
    };
    folders
        .into_iter()
        .map(|folder| (folder, of(recorded, folder), of(counted, folder)))
        .filter(|(_, recorded, counted)| recorded != counted)
        .map(|(folder, recorded, counted)| {
            format!("{folder}: {recorded} recorded, {counted} counted")
        })
        .collect()
}

/// Number of occurrences of `unsafe` before a block.
fn blocks_in(code: &str) -> usize {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    code.match_indices("unsafe")
        .filter(|(start, word)| {
            let is_whole = !code[..*start].ends_with(is_word);
            is_whole && code[start + word.len()..].trim_start().starts_with('{')
        })
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn counts(source: &str, expected: usize) {
        let code = code_only(source);
        assert_eq!(blocks_in(&code), expected, "{code:?}");
        assert_eq!(code.matches('\n').count(), source.matches('\n').count(), "lines moved");
    }

    #[test]
    fn blocks_are_counted_and_other_uses_are_not() {
        counts("unsafe { a }; unsafe{b};\nlet x = unsafe\n{ c };", 3);
        counts(
            "unsafe fn f() {} unsafe impl T for U {} #[unsafe(no_mangle)] unsafe extern \"C\" {}",
            0,
        );
        counts("not_unsafe { } unsafe_code {}", 0);
    }

    #[test]
    fn comments_and_literals_do_not_count() {
        counts("// unsafe { }\n/* unsafe { /* nested */ unsafe { } */ unsafe { x }", 1);
        counts(
            r##"let s = "unsafe { \" } "; let r = r#"unsafe { " "# ; let b = br"unsafe {"; unsafe {}"##,
            1,
        );
        counts("let c = '\"'; unsafe { } let d = '\\''; let e = '\\u{27}'; unsafe { }", 2);
        counts("fn f<'a>(x: &'a str) { unsafe { } }", 1);
        counts("\"open unsafe {", 0);
    }

    #[test]
    fn every_difference_from_the_record_is_named() {
        let recorded = parse("# comment\n   3 kernel/src/arch\n   1 gone\n");
        let counted = BTreeMap::from([("kernel/src/arch".to_owned(), 4), ("new".to_owned(), 1)]);
        assert_eq!(
            differences(&recorded, &counted),
            [
                "gone: 1 recorded, 0 counted",
                "kernel/src/arch: 3 recorded, 4 counted",
                "new: 0 recorded, 1 counted"
            ]
        );
        assert!(differences(&counted, &counted).is_empty());
    }
}
