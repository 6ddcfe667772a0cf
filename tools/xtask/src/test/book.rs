//! Checks that the files and functions that the book's chapters mention exist, so that a chapter
//! about code cannot become obsolete unnoticed.
//!
//! In a chapter, `` `a/path.rs` `` is a file of the repository, and `` `name()` `` or ``
//! `place::name()` `` is a function defined in one of the files that this chapter names; `place` is
//! a word of that file, or the name of the file or its folder. Text in fences is not checked.

use std::collections::BTreeSet;
use std::path::Path;

use super::rust_source::code_only;
use crate::error::{Because, Outcome};

/// The faults of all chapters of the book.
pub fn judge(root: &Path) -> Outcome<Vec<String>> {
    let mut wrong = Vec::new();
    let folder = root.join("docs/book");
    for entry in std::fs::read_dir(&folder).because(|| format!("cannot list {}", folder.display()))? {
        let path = entry.because(|| format!("cannot list {}", folder.display()))?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let text =
                std::fs::read_to_string(&path).because(|| format!("cannot read {}", path.display()))?;
            let read = |file: &str| std::fs::read_to_string(root.join(file)).ok();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            wrong.extend(judge_chapter(&text, read).into_iter().map(|what| format!("{name}: {what}")));
        }
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
        let functions = words.windows(2).filter(|pair| pair[0] == "fn").map(|pair| pair[1].to_owned());
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
            let of_path = self.path.trim_end_matches(".rs").rsplit('/').take(2).any(|part| part == place);
            of_path || self.words.contains(place)
        };
        self.functions.contains(name) && place.is_none_or(is_here)
    }
}

/// The text between single backticks, outside of fences.
pub fn code_spans(text: &str) -> Vec<&str> {
    let mut spans = Vec::new();
    let mut is_fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            spans.extend(line.split('`').skip(1).step_by(2));
        }
    }
    spans
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
