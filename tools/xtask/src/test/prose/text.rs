//! The prose of a file: comments and messages of Rust, Markdown without code, other text as it is.
//! Lines stay where they are, so that a fault can be named with its line.

use std::path::Path;

use super::super::rust_source::comments_and_literals;
use crate::repository::without_code_spans;

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Rust,
    Markdown,
    /// Comments begin with `#`; the rest is read too.
    Plain,
}

impl Kind {
    /// The kind of a file; `None` if it has no prose.
    pub fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        match path.extension().and_then(|extension| extension.to_str()) {
            Some("rs") => Some(Self::Rust),
            Some("md") => Some(Self::Markdown),
            Some("toml" | "lds") => Some(Self::Plain),
            None if name == "cops" || name == "run" => Some(Self::Plain),
            _ => None,
        }
    }
}

/// The prose; what is left out becomes spaces, or the end of a sentence where code stands between
/// two comments.
pub fn prose(text: &str, kind: Kind) -> String {
    match kind {
        Kind::Rust => without_code(&comments_and_literals(text), kind),
        Kind::Markdown => without_code(text, kind),
        Kind::Plain => text.to_owned(),
    }
}

/// The lines of prose that are longer than `columns`, counted from 1. Tables, code, links by
/// themselves and comments of HTML cannot be wrapped.
pub fn wide_lines(text: &str, kind: Kind, columns: usize) -> Vec<usize> {
    let mut wide = Vec::new();
    let (mut is_fenced, mut in_comment) = (false, false);
    for (index, line) in text.split('\n').enumerate() {
        let trimmed = line.trim_start();
        let is_prose = match kind {
            Kind::Rust => {
                let text = without_marks(trimmed);
                let is_fence = trimmed.starts_with("//") && text.starts_with("```");
                is_fenced ^= is_fence;
                trimmed.starts_with("//") && !is_fenced && !is_fence && !text.starts_with('|')
            }
            Kind::Plain => trimmed.starts_with('#'),
            Kind::Markdown => {
                let is_fence = trimmed.starts_with("```");
                is_fenced ^= is_fence;
                let in_html = touches_html_comment(line, &mut in_comment);
                !is_fenced && !is_fence && !in_html && !trimmed.starts_with('|')
            }
        };
        // A line with one word that is too long (an address, a path, a code span) stays.
        let plain: String =
            without_marks(trimmed).split('`').step_by(2).collect::<Vec<_>>().join("_");
        let can_wrap = plain.trim_end_matches(['.', ';', ',', ':']).trim().contains(' ');
        if is_prose && can_wrap && line.chars().count() > columns {
            wide.push(index + 1);
        }
    }
    wide
}

/// Whether a part of the line of Markdown is in a comment of HTML; `in_comment` says whether one is
/// open, before the line and after it.
fn touches_html_comment(line: &str, in_comment: &mut bool) -> bool {
    let was_comment = *in_comment;
    if let Some(last) = line.rfind("<!--") {
        *in_comment = !line[last..].contains("-->");
    } else if line.contains("-->") {
        *in_comment = false;
    }
    was_comment || line.contains("<!--") || line.contains("-->")
}

/// The rows of tables that are not like their table's head, counted from 1: those that continue in
/// the next line, which Markdown takes for another row, and those with other numbers of cells.
pub fn broken_rows(text: &str, kind: Kind) -> Vec<usize> {
    let mut broken = Vec::new();
    let (mut is_fenced, mut in_comment) = (false, false);
    let mut bars_of_head = None;
    for (index, line) in text.split('\n').enumerate() {
        let is_documentation =
            ["///", "//!"].iter().any(|mark| line.trim_start().starts_with(mark));
        let row = match kind {
            Kind::Rust if is_documentation => without_marks(line),
            Kind::Markdown if !touches_html_comment(line, &mut in_comment) => line.trim_start(),
            Kind::Rust | Kind::Markdown | Kind::Plain => "",
        };
        is_fenced ^= row.starts_with("```");
        if is_fenced || !row.starts_with('|') {
            bars_of_head = None;
            continue;
        }
        let bars = row.matches('|').count() - row.matches("\\|").count();
        let is_complete = row.trim_end().ends_with('|');
        if !is_complete || bars != *bars_of_head.get_or_insert(bars) {
            broken.push(index + 1);
        }
    }
    broken
}

/// The first lines of Mermaid diagrams that have more than the kind of the diagram, counted from 1:
/// text that was wrapped as prose, which Mermaid cannot read.
pub fn wrapped_diagrams(text: &str, kind: Kind) -> Vec<usize> {
    if kind != Kind::Markdown {
        return Vec::new();
    }
    let lines: Vec<&str> = text.split('\n').collect();
    let is_wrapped = |pair: &&[&str]| {
        let words = pair[1].split_whitespace().count();
        pair[0] == "```mermaid" && words > 1 + usize::from(pair[1].starts_with("flowchart "))
    };
    let pairs = lines.windows(2).enumerate().filter(|(_, pair)| is_wrapped(pair));
    pairs.map(|(index, _)| index + 2).collect()
}

/// Text without fenced code and code spans. In Rust's documentation a fence without a language is
/// code, in Markdown it is text.
fn without_code(text: &str, kind: Kind) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut fence: Option<bool> = None;
    for (index, line) in text.split('\n').enumerate() {
        if index > 0 {
            kept.push('\n');
        }
        if let Some(language) = without_marks(line).strip_prefix("```") {
            fence = match fence {
                Some(_) => None,
                None => Some(is_code(language.trim(), kind)),
            };
        } else if fence != Some(true) {
            kept.push_str(&without_code_spans(line));
        }
    }
    kept
}

fn is_code(language: &str, kind: Kind) -> bool {
    match language {
        "text" | "mermaid" => false,
        "" => kind == Kind::Rust,
        _ => true,
    }
}

/// A line without indentation and the signs of a comment.
fn without_marks(line: &str) -> &str {
    line.trim_start().trim_start_matches('/').trim_start_matches(['!', '*']).trim_start()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn leaves(text: &str, kind: Kind, expected: &str) {
        let prose = prose(text, kind);
        assert_eq!(prose.split_whitespace().collect::<Vec<_>>().join(" "), expected);
        assert_eq!(prose.matches('\n').count(), text.matches('\n').count(), "lines moved");
    }

    #[test]
    fn rust_leaves_comments_and_messages() {
        leaves(
            "/// The `who` waits.\nlet who = f(\"a message\"); // why\n",
            Kind::Rust,
            "/// The _ waits. . \"a message\" . // why",
        );
        leaves("/// ```\n/// let who = 1;\n/// ```\n/// text\n", Kind::Rust, "/// text");
        leaves("//! ```text\n//! drawn\n//! ```\n", Kind::Rust, "//! drawn");
    }

    #[test]
    fn a_row_of_a_table_is_one_line() {
        let table = "/// | a | b |\n/// | --- | --- |\n/// | c | d\n/// e |\n";
        assert_eq!(broken_rows(table, Kind::Rust), [3]);
        assert_eq!(broken_rows(&table.replace("/// ", ""), Kind::Markdown), [3]);
        let narrow = "| a | b |\n| --- | --- |\n| c |\n| `x\\|y` | d |\n\n| e |\n";
        assert_eq!(broken_rows(narrow, Kind::Markdown), [3], "an escaped bar is no border");
        let template = "<!-- figures:\n| a | b |\n| {c|d} | e |\n-->\n| a | b |\n| c |\n";
        assert_eq!(broken_rows(template, Kind::Markdown), [6], "not in a comment of HTML");
        assert!(broken_rows("// | drawn\nlet a = b\n    | c;\n", Kind::Rust).is_empty());
        assert!(broken_rows("/// ```\n/// | c\n/// ```\n", Kind::Rust).is_empty());
    }

    #[test]
    fn markdown_leaves_text() {
        leaves("A `who` b\n```rust\nwho\n```\n```\ndrawn\n```\n", Kind::Markdown, "A _ b drawn");
    }

    #[test]
    fn wide_prose_is_found_and_what_cannot_be_wrapped_is_not() {
        let wide = "a ".repeat(60);
        assert_eq!(wide_lines(&format!("short\n{wide}\n"), Kind::Markdown, 100), [2]);
        assert_eq!(wide_lines(&format!("    /// {wide}\n"), Kind::Rust, 100), [1]);
        for text in [
            format!("| {wide} |"),
            format!("```text\n{wide}\n```"),
            format!("<!-- figures:\n{wide}\n-->"),
            format!("{{x}} <!-- figures: {wide} -->5<!-- end -->"),
            "a".repeat(120),
        ] {
            assert_eq!(wide_lines(&text, Kind::Markdown, 100), Vec::<usize>::new(), "{text}");
        }
        assert_eq!(
            wide_lines(&format!("let a = \"{wide}\";"), Kind::Rust, 100),
            Vec::<usize>::new()
        );
        assert_eq!(
            wide_lines(&format!("/// ```\n/// {wide}\n/// ```\n/// {wide}"), Kind::Rust, 100),
            [4]
        );
        assert_eq!(wide_lines(&format!("//! `{wide}`;"), Kind::Rust, 100), Vec::<usize>::new());
        assert_eq!(wide_lines(&format!("<!--\n{wide}\n-->\n{wide}"), Kind::Markdown, 100), [4]);
    }
}
