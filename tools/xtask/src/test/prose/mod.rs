//! Plain English stays plain: words that CONTRIBUTING.md forbids are errors in Markdown, in
//! comments, in messages and in names.
//!
//! - [`text`]: the prose of a file, without its code
//! - [`names`]: the names in a file's code, as prose
//! - [`words`]: the word list, and where its words occur
//!
//! Four lists lie beside this file. `words.txt` has the words, each with its replacement;
//! `names.txt` has those that are not used in names.
//! `exceptions.txt` has the places where a word is right, each with the reason. `pending.txt` has
//! the files and folders that are not clean yet; an entry without a fault must be taken out, so
//! that the list only shrinks.

mod names;
mod text;
mod words;

use std::path::Path;

use crate::error::Outcome;
use crate::repository::{files_below, list_entries, read};

use text::Kind;
use words::WordList;

/// The lists. They are parts of this program, so that a test without a repository can replace them.
const WORDS: &str = include_str!("words.txt");
const NAMES: &str = include_str!("names.txt");
const EXCEPTIONS: &str = include_str!("exceptions.txt");
const PENDING: &str = include_str!("pending.txt");
/// Where the lists are, for messages.
const HERE: &str = "tools/xtask/src/test/prose";
/// The longest line of prose.
const COLUMNS: usize = 100;
/// Documents that programs write: their lines are as long as the programs make them.
const GENERATED: [&str; 9] = [
    "crates/executor/tests/simulator/tables.md",
    "docs/results/costs.md",
    "docs/results/executor.md",
    "docs/results/files.md",
    "docs/results/libc-test.md",
    "docs/results/hostile.md",
    "docs/results/portions.md",
    "docs/results/wakeups.md",
    "docs/results/two-classes.md",
];

/// What is wrong with the text of the repository.
pub fn judge(root: &Path) -> Outcome<Vec<String>> {
    let mut checker = Checker::new(WORDS, NAMES, EXCEPTIONS, PENDING);
    for path in files_below(root, |path| Kind::of(path).is_some())? {
        let (name, text) = read(root, &path)?;
        checker.look_at(&name, &text);
    }
    Ok(checker.finish())
}

/// A place where a word is right.
struct Exception {
    file: String,
    /// A part of the line; `*` is any line.
    text: String,
    is_used: bool,
}

impl Exception {
    fn covers(&self, name: &str, line: &str) -> bool {
        contains(&self.file, name) && (self.text == "*" || line.contains(&self.text))
    }
}

/// A file or folder that is not clean yet.
struct Pending {
    path: String,
    rule: Rule,
    is_used: bool,
}

/// What can be wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    Words,
    Names,
    Columns,
}

impl Rule {
    const fn name(self) -> &'static str {
        match self {
            Self::Words => "words",
            Self::Names => "names",
            Self::Columns => "columns",
        }
    }
}

struct Checker {
    words: WordList,
    names: WordList,
    exceptions: Vec<Exception>,
    pending: Vec<Pending>,
    wrong: Vec<String>,
}

impl Checker {
    fn new(words: &str, names: &str, exceptions: &str, pending: &str) -> Self {
        let (words, mut wrong) = WordList::parse("words.txt", words);
        let (names, wrong_names) = WordList::parse("names.txt", names);
        wrong.extend(wrong_names);
        let mut checker =
            Self { words, names, exceptions: Vec::new(), pending: Vec::new(), wrong: Vec::new() };
        for (line, fields) in list_entries(exceptions) {
            match fields.as_slice() {
                [file, text, reason] if !text.is_empty() && !reason.is_empty() => checker
                    .exceptions
                    .push(Exception { file: (*file).into(), text: (*text).into(), is_used: false }),
                _ => wrong.push(format!(
                    "{HERE}/exceptions.txt:{line}: not `FILE | PART OF THE LINE | REASON`"
                )),
            }
        }
        for (line, fields) in list_entries(pending) {
            let rule = match fields.as_slice() {
                [_, "words"] => Rule::Words,
                [_, "names"] => Rule::Names,
                [_, "columns"] => Rule::Columns,
                _ => {
                    wrong.push(format!(
                        "{HERE}/pending.txt:{line}: not `PATH | words`, `names` or `columns`"
                    ));
                    continue;
                }
            };
            checker.pending.push(Pending { path: fields[0].into(), rule, is_used: false });
        }
        checker.wrong = wrong;
        checker
    }

    /// Notes what is wrong in one file.
    fn look_at(&mut self, name: &str, text: &str) {
        let Some(kind) = Kind::of(Path::new(name)) else { return };
        let lines: Vec<&str> = text.split('\n').collect();
        let in_prose = self.words.find(&text::prose(text, kind)).into_iter();
        let in_names = match kind {
            Kind::Rust => self.names.find(&names::sentences(text)),
            Kind::Markdown | Kind::Plain => Vec::new(),
        };
        let found_by_rule = in_prose
            .map(|found| (Rule::Words, found))
            .chain(in_names.into_iter().map(|found| (Rule::Names, found)));
        for (rule, found) in found_by_rule {
            let line = lines.get(found.line - 1).copied().unwrap_or_default();
            let exception = self.exceptions.iter_mut().find(|known| known.covers(name, line));
            if let Some(exception) = exception {
                exception.is_used = true;
            } else {
                self.complain(
                    name,
                    found.line,
                    rule,
                    &format!("{:?}: {}", found.word, found.advice),
                );
            }
        }
        if GENERATED.contains(&name) {
            return;
        }
        for line in text::wide_lines(text, kind, COLUMNS) {
            self.complain(
                name,
                line,
                Rule::Columns,
                &format!("longer than {COLUMNS} columns: wrap it"),
            );
        }
        for line in text::wrapped_diagrams(text, kind) {
            let what = "not only the kind of the diagram: each statement of a diagram is a line";
            self.complain(name, line, Rule::Columns, what);
        }
        for line in text::broken_rows(text, kind) {
            let what = "not a row of its table: a row is one line, however long, with a cell for each column";
            self.complain(name, line, Rule::Columns, what);
        }
    }

    /// Notes a fault, unless the file is listed as not clean yet.
    fn complain(&mut self, name: &str, line: usize, rule: Rule, what: &str) {
        let listed =
            self.pending.iter_mut().find(|entry| entry.rule == rule && contains(&entry.path, name));
        match listed {
            Some(entry) => entry.is_used = true,
            None => self.wrong.push(format!("{name}:{line}: {what}")),
        }
    }

    fn finish(self) -> Vec<String> {
        let mut wrong = self.wrong;
        wrong.extend(self.exceptions.iter().filter(|exception| !exception.is_used).map(
            |exception| {
                format!(
                    "{HERE}/exceptions.txt: {} has no {:?} any more: take it out",
                    exception.file, exception.text
                )
            },
        ));
        wrong.extend(self.pending.iter().filter(|entry| !entry.is_used).map(|entry| {
            format!(
                "{HERE}/pending.txt: `{} | {}` is clean: take it out",
                entry.path,
                entry.rule.name()
            )
        }));
        wrong
    }
}

/// Is this file the entry, or in the folder that is the entry?
fn contains(entry: &str, name: &str) -> bool {
    name.strip_prefix(entry)
        .is_some_and(|rest| rest.is_empty() || entry.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "nobody | say what is empty\ngive back | free\nwho | name the thing\n";

    const NAME_LIST: &str = "give way | need_resched\n";

    fn judged(exceptions: &str, pending: &str, files: &[(&str, &str)]) -> Vec<String> {
        let mut checker = Checker::new(LIST, NAME_LIST, exceptions, pending);
        for (name, text) in files {
            checker.look_at(name, text);
        }
        checker.finish()
    }

    #[test]
    fn a_word_is_named_with_its_place_and_what_to_do() {
        assert_eq!(
            judged(
                "",
                "",
                &[
                    ("a/b.md", "fine\n\nNobody waits.\n"),
                    ("c.rs", "// of those who wait\nfn who() {}\n")
                ]
            ),
            ["a/b.md:3: \"nobody\": say what is empty", "c.rs:1: \"who\": name the thing"]
        );
    }

    #[test]
    fn a_name_is_found_in_code_only_and_has_pending_entries_of_its_own() {
        let files = [("a/b.rs", "fn give_way() {}\n"), ("c.md", "`give_way()`\n")];
        let fault = ["a/b.rs:1: \"give way\": need_resched"];
        assert_eq!(judged("", "", &files), fault);
        assert_eq!(judged("", "a | names", &files), Vec::<String>::new());
        assert_eq!(judged("", "a | words", &files).len(), 2, "another rule");
    }

    #[test]
    fn other_files_have_no_prose() {
        assert_eq!(judged("", "", &[("a.json", "nobody")]), Vec::<String>::new());
    }

    #[test]
    fn an_exception_covers_its_line_only_and_must_be_used() {
        let text = [("a.md", "nobody here\nnobody there\n")];
        assert_eq!(
            judged("a.md | nobody here | a name", "", &text),
            ["a.md:2: \"nobody\": say what is empty"]
        );
        assert_eq!(judged("a.md | * | a list of names", "", &text), Vec::<String>::new());
        assert_eq!(judged("b.md | nobody here | a name", "", &text).len(), 3);
        for malformed in ["a.md | nobody |", "a.md | | a reason", "a.md | nobody", "nobody"] {
            assert_eq!(
                judged(malformed, "", &text)[0],
                format!("{HERE}/exceptions.txt:1: not `FILE | PART OF THE LINE | REASON`")
            );
        }
    }

    #[test]
    fn a_pending_folder_is_passed_over_until_it_is_clean() {
        let faulty = [("a/b.md", "nobody")];
        assert_eq!(judged("", "a | words", &faulty), Vec::<String>::new());
        assert_eq!(judged("", "a/b.md | words", &faulty), Vec::<String>::new());
        assert_eq!(judged("", "a/b | words", &faulty).len(), 2, "a/b is not the folder of a/b.md");
        assert_eq!(judged("", "a | columns", &faulty).len(), 2, "another rule");
        for malformed in ["a | spelling", "a", "a | words | until later"] {
            assert_eq!(
                judged("", malformed, &faulty)[0],
                format!("{HERE}/pending.txt:1: not `PATH | words`, `names` or `columns`")
            );
        }
        assert_eq!(
            judged("", "a | words", &[("a/b.md", "clean")]),
            [format!("{HERE}/pending.txt: `a | words` is clean: take it out")]
        );
    }

    #[test]
    fn wrapped_diagrams_are_named() {
        let flow = "```mermaid\nflowchart TB\n    a --> b\n```\n";
        let sequence = "```mermaid\nsequenceDiagram\n    participant C as caller\n```\n";
        let whole = [("a.md", flow), ("b.md", sequence)];
        assert_eq!(judged("", "", &whole), Vec::<String>::new());
        let flow = flow.replace("TB\n    ", "TB ");
        let sequence = sequence.replace("Diagram\n    ", "Diagram ");
        let wrapped = [("a.md", flow.as_str()), ("b.md", sequence.as_str())];
        let what = "not only the kind of the diagram: each statement of a diagram is a line";
        assert_eq!(
            judged("", "", &wrapped),
            [format!("a.md:2: {what}"), format!("b.md:2: {what}")]
        );
    }

    #[test]
    fn long_lines_are_named() {
        let long = format!("// {}\n", "some word ".repeat(12));
        assert_eq!(
            judged("", "", &[("a.rs", &long)]),
            ["a.rs:1: longer than 100 columns: wrap it"]
        );
        assert_eq!(
            judged("", "", &[(GENERATED[1], &long.replace("//", "a"))]),
            Vec::<String>::new()
        );
    }

    #[test]
    fn the_lists_of_the_repository_can_be_read() {
        let checker = Checker::new(WORDS, NAMES, EXCEPTIONS, PENDING);
        assert_eq!(checker.wrong, Vec::<String>::new());
    }
}
