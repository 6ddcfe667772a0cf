//! Checks that the files and functions that the book's chapters mention exist, so that a chapter
//! about code cannot become obsolete unnoticed.
//!
//! In a chapter, `` `a/path.rs` `` is a file of the repository, and `` `name()` `` or ``
//! `place::name()` `` is a function defined in one of the files that this chapter names; `place` is
//! a word of that file, or the name of the file or its folder. Text in fences is not checked.

use std::collections::BTreeSet;
use std::path::Path;

use super::rust_source::code_only;
use crate::error::Outcome;
use crate::repository::{markdown_files, read, unfenced_lines};

/// The faults of all chapters of the book.
pub fn judge(root: &Path) -> Outcome<Vec<String>> {
    let mut wrong = Vec::new();
    let read_source = |file: &str| std::fs::read_to_string(root.join(file)).ok();
    for path in markdown_files(&root.join("docs/book"))? {
        let (name, text) = read(root, &path)?;
        wrong.extend(
            judge_chapter(&text, read_source).into_iter().map(|what| format!("{name}: {what}")),
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

fn judge_chapter(text: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
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
        judge_chapter(text, |path| {
            (path == "kernel/src/call/cell.rs")
                .then(|| "impl Cell { fn poll(&self) {} } // fn gone()\nfn longer_name() {}".into())
        })
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
    fn a_function_elsewhere_does_not_count() {
        assert_eq!(judged("`poll()`").len(), 1);
    }
}
