//! Checks that the files and functions that the book's chapters mention exist, so that a chapter
//! about code cannot become obsolete unnoticed.
//!
//! In a chapter, `` `a/path.rs` `` is a file of the repository, and `` `name()` `` or ``
//! `place::name()` `` is a function defined in one of the files that this chapter names; `place` is
//! a word of that file, or the name of the file or its folder.
//!
//! `` `./cops test --only guest name` `` runs tests, so a group of them, or one of them, has this
//! in its name. Text in fences is not checked.

use std::collections::BTreeSet;
use std::path::Path;

use super::rust_source::code_only;
use crate::error::Outcome;
use crate::repository::{files_below, has_extension, markdown_files, read, unfenced_lines};

/// The faults of all chapters of the book.
pub fn judge(root: &Path) -> Outcome<Vec<String>> {
    let mut wrong = Vec::new();
    let read_source = |file: &str| std::fs::read_to_string(root.join(file)).ok();
    let mut tests = BTreeSet::new();
    let of_usertests = |path: &Path| has_extension(path, "rs");
    for path in files_below(&root.join("user/apps/src/bin/usertests"), of_usertests)? {
        tests.extend(guest_tests(&read(root, &path)?.1));
    }
    for path in markdown_files(&root.join("docs/book"))? {
        let (name, text) = read(root, &path)?;
        wrong.extend(
            judge_chapter(&text, read_source, &tests)
                .into_iter()
                .map(|what| format!("{name}: {what}")),
        );
    }
    wrong.sort();
    Ok(wrong)
}

/// A file that a chapter names.
struct File<'a> {
    path: &'a str,
    words: BTreeSet<String>,
    functions: BTreeSet<String>,
}

/// The groups of `tests! { group: name, name }`, and the tests in them.
fn guest_tests(source: &str) -> impl Iterator<Item = String> {
    let declared = source.split("tests! {").skip(1).filter_map(|rest| rest.split('}').next());
    declared
        .flat_map(|names| names.split([':', ',']))
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
}

fn judge_chapter(
    text: &str,
    read: impl Fn(&str) -> Option<String>,
    guest_tests: &BTreeSet<String>,
) -> Vec<String> {
    let (mut files, mut wrong) = (Vec::new(), Vec::new());
    let spans = code_spans(text);
    for path in spans.iter().copied().filter(|span| span.contains('/') && span.ends_with(".rs")) {
        match read(path) {
            Some(source) => files.push(File::new(path, &source)),
            None => wrong.push(format!("there is no {path}")),
        }
    }
    for function in spans.iter().filter_map(|span| span.strip_suffix("()")) {
        if !files.iter().any(|file| file.defines(function)) {
            wrong.push(format!("no file that is named there defines {function}()"));
        }
    }
    for filter in spans.iter().filter_map(|span| span.strip_prefix("./cops test --only guest ")) {
        let is_placeholder = filter.chars().all(char::is_uppercase);
        if !is_placeholder && !guest_tests.iter().any(|test| test.contains(filter)) {
            wrong.push(format!("no test of usertests has {filter:?} in its name"));
        }
    }
    wrong
}

impl<'a> File<'a> {
    fn new(path: &'a str, source: &str) -> Self {
        let code = code_only(source);
        let is_part = |character: char| character.is_alphanumeric() || character == '_';
        let words: Vec<&str> =
            code.split(|character| !is_part(character)).filter(|word| !word.is_empty()).collect();
        let functions =
            words.windows(2).filter(|pair| pair[0] == "fn").map(|pair| pair[1].to_owned());
        Self {
            path,
            functions: functions.collect(),
            words: words.iter().map(|&word| word.to_owned()).collect(),
        }
    }

    fn defines(&self, function: &str) -> bool {
        let (place, name) = match function.rsplit_once("::") {
            Some((places, name)) => (places.rsplit("::").next(), name),
            None => (None, function),
        };
        let is_here = |place: &str| {
            let of_path =
                self.path.trim_end_matches(".rs").rsplit('/').take(2).any(|part| part == place);
            of_path || self.words.contains(place)
        };
        self.functions.contains(name) && place.is_none_or(is_here)
    }
}

/// The text between single backticks, outside of fences.
pub fn code_spans(text: &str) -> Vec<&str> {
    unfenced_lines(text).flat_map(|(_, line)| line.split('`').skip(1).step_by(2)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str) -> Vec<String> {
        let read = |path: &str| {
            (path == "kernel/src/call/cell.rs")
                .then(|| "impl Cell { fn poll(&self) {} } // fn gone()\nfn longer_name() {}".into())
        };
        judge_chapter(
            text,
            read,
            &guest_tests("use x;\ntests! { pipes:\n    ends_meet,\n}\n").collect(),
        )
    }

    #[test]
    fn what_exists_passes() {
        let chapter = "In `kernel/src/call/cell.rs`: `poll()`, `Cell::poll()`, `cell::poll()`, `call::poll()`, `longer_name()`.
Not looked at: `read(..)`, `cell.rs`, `poll`, and
```text
`gone()` `kernel/src/gone.rs`
```
";
        assert_eq!(judged(chapter), Vec::<String>::new());
    }

    #[test]
    fn what_does_not_exist_is_named() {
        let chapter = "`kernel/src/call/cell.rs` has `gone()`, `name()`, `Other::poll()`; `kernel/src/gone.rs` nothing.";
        let wrong = judged(chapter);
        assert_eq!(wrong.len(), 4, "{wrong:?}");
        assert_eq!(wrong[0], "there is no kernel/src/gone.rs");
        assert!(
            wrong[1].ends_with("gone()")
                && wrong[2].ends_with("name()")
                && wrong[3].ends_with("Other::poll()")
        );
    }

    #[test]
    fn a_filter_that_selects_no_test_is_named() {
        let chapter = "`./cops test --only guest pipe`, `./cops test --only guest ends`, `./cops test --only guest NAME`";
        assert_eq!(judged(chapter), Vec::<String>::new());
        let wrong = judged("`./cops test --only guest network`");
        assert_eq!(wrong, ["no test of usertests has \"network\" in its name"]);
    }

    #[test]
    fn a_function_elsewhere_does_not_count() {
        assert_eq!(judged("`poll()`").len(), 1);
    }
}
