//! Finds numbers in documents that look measured but are not generated.
//!
//! In the prose of the documents, a number with a unit (a time, a size, a count of instructions, a
//! ratio in %), and a number with decimals in the cell of a table, is an error outside of markers.
//! Exceptions are in `docs/results/constants.txt`, with the reason why the number is not a measured
//! figure: a limit, a parameter, a specified size. Code spans, code blocks in a programming
//! language and comments are not checked; transcripts are.

use std::path::Path;

use super::Document;
use super::template::{Part, parts};
use crate::error::{Because, Outcome};
use crate::repository::{list_entries, without_code_spans};
use crate::workspace::RESULTS;

/// The file of exceptions.
const CONSTANTS: &str = "constants.txt";

const UNITS: [&str; 40] = [
    "ns",
    "µs",
    "us",
    "ms",
    "s",
    "nanosecond",
    "nanoseconds",
    "microsecond",
    "microseconds",
    "millisecond",
    "milliseconds",
    "second",
    "seconds",
    "minute",
    "minutes",
    "hour",
    "hours",
    "instruction",
    "instructions",
    "cycle",
    "cycles",
    "byte",
    "bytes",
    "B",
    "KiB",
    "MiB",
    "GiB",
    "KB",
    "MB",
    "GB",
    "%",
    "percent",
    "times",
    "answer",
    "answers",
    "requests",
    "executions",
    "polls",
    "rps",
    "/s",
];

/// A line of the file of exceptions.
struct Constant {
    file: String,
    text: String,
    used: bool,
}

/// The faults of the documents: stale figures, and numbers that are not generated.
pub fn judge(root: &Path, documents: &[Document]) -> Outcome<Vec<String>> {
    let path = root.join(RESULTS).join(CONSTANTS);
    let text =
        std::fs::read_to_string(&path).because(|| format!("cannot read {}", path.display()))?;
    let mut wrong = Vec::new();
    let mut constants = Vec::new();
    for (line, fields) in list_entries(&text) {
        match fields.as_slice() {
            [file, text, reason] if !reason.is_empty() => {
                constants.push(Constant {
                    file: (*file).into(),
                    text: (*text).into(),
                    used: false,
                });
            }
            _ => wrong
                .push(format!("{RESULTS}/{CONSTANTS}:{line}: not `FILE | NUMBER UNIT | REASON`")),
        }
    }
    for document in documents {
        if document.text != document.rendered {
            wrong.push(format!(
                "{}: its figures are not those of the data; run ./cops report figures",
                document.name
            ));
        }
        for (line, found) in numbers(&document.text) {
            let known = constants
                .iter_mut()
                .find(|constant| constant.file == document.name && constant.text == found);
            match known {
                Some(constant) => constant.used = true,
                None => wrong.push(format!(
                    "{}:{line}: {found:?} is not generated from data; use <!-- figures: ... -->, or say in {RESULTS}/{CONSTANTS} why it is not a figure",
                    document.name
                )),
            }
        }
    }
    wrong.extend(constants.iter().filter(|constant| !constant.used).map(|constant| {
        format!(
            "{RESULTS}/{CONSTANTS}: {} has no {:?} any more: take it out",
            constant.file, constant.text
        )
    }));
    Ok(wrong)
}

/// Numbers that need a source, each with its line.
fn numbers(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let Ok(parts) = parts(text) else { return found };
    let mut fence: Option<bool> = None;
    for (first_line, part) in parts {
        let Part::Prose(prose) = part else { continue };
        for (index, line) in prose.split('\n').enumerate() {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                fence = match fence {
                    Some(_) => None,
                    None => Some(!matches!(language.trim(), "" | "text" | "console")),
                };
                continue;
            }
            if fence == Some(true) {
                continue;
            }
            let line_text = if fence.is_some() { line.to_owned() } else { without_code(line) };
            let is_table = fence.is_none() && line.trim_start().starts_with('|');
            found.extend(
                in_line(&line_text, is_table)
                    .into_iter()
                    .map(|number| (first_line + index, number)),
            );
        }
    }
    found
}

/// The line without code spans, comments, and link targets.
fn without_code(line: &str) -> String {
    let mut kept = without_code_spans(line);
    for (open, close) in [("<!--", "-->"), ("](", ")")] {
        while let Some(begin) = kept.find(open) {
            let end =
                kept[begin..].find(close).map_or(kept.len(), |place| begin + place + close.len());
            kept.replace_range(begin..end, " _ ");
        }
    }
    kept
}

fn in_line(line: &str, is_table: bool) -> Vec<String> {
    let is_number_part = |letter: char| letter.is_ascii_digit() || letter == '.' || letter == ',';
    let mut found = Vec::new();
    let mut rest = line;
    let mut before = ' ';
    while let Some(start) = rest.find(|letter: char| letter.is_ascii_digit()) {
        before = rest[..start].chars().next_back().unwrap_or(before);
        let tail = &rest[start..];
        let length = tail.find(|letter| !is_number_part(letter)).unwrap_or(tail.len());
        let number = tail[..length].trim_end_matches(['.', ',']);
        let behind = &tail[number.len()..];
        let unit_text = behind.strip_prefix([' ', '-', '\u{a0}']).unwrap_or(behind);
        let end = unit_text
            .find(|letter: char| !(letter.is_alphabetic() || letter == 'µ'))
            .unwrap_or(unit_text.len());
        let unit = if unit_text.starts_with('%') { "%" } else { &unit_text[..end] };
        // A number within a word (`p99`, `v2`) or in a version (`1.2.3`) does not count.
        let is_word = before.is_alphanumeric() || before == '_';
        let has_unit = UNITS.contains(&unit);
        let is_decimal = number.matches('.').count() == 1 && is_table;
        if !is_word && (has_unit || is_decimal) {
            found.push(if has_unit { format!("{number} {unit}") } else { number.to_owned() });
        }
        before = number.chars().next_back().unwrap_or(' ');
        rest = behind;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<String> {
        numbers(text).into_iter().map(|(_, number)| number).collect()
    }

    #[test]
    fn numbers_with_units_are_found() {
        assert_eq!(
            found("p99 is 9.2 ms, or 1,200 instructions, 5% less."),
            ["9.2 ms", "1,200 instructions", "5 %"]
        );
        assert_eq!(found("| a | 59.7 / 7 |"), ["59.7"]);
        assert_eq!(found("```console\n$ run\nmean 3 ms\n```\n"), ["3 ms"]);
        assert_eq!(numbers("a\n\nb 1.5 s\n"), [(3, "1.5 s".to_owned())]);
        assert_eq!(found("a 32-byte record"), ["32 byte"]);
    }

    #[test]
    fn other_numbers_are_not() {
        for text in [
            "64 priorities, p99 ms, QEMU 7.2, SPEC 3.5, 4 harts, on 2 cores",
            "`sleep 5 ms` and [a](b-5-ms.md)",
            "```rust\nlet x = 5; // 3 ms\n```\n",
            "<!-- 5 ms -->",
            "<!-- figures: {a:b|us} -->5 ms<!-- end -->",
            "| 1 | 64 |",
        ] {
            assert_eq!(found(text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn constants_are_listed_once_and_used() {
        let root = std::env::temp_dir().join(format!("cops-figures-{}", std::process::id()));
        std::fs::create_dir_all(root.join(RESULTS)).unwrap();
        let constants = root.join(RESULTS).join(CONSTANTS);
        let document = |text: &str| Document {
            path: "README.md".into(),
            name: "README.md".into(),
            text: text.into(),
            rendered: text.into(),
        };
        let judged = |list: &str, text: &str| {
            std::fs::write(&constants, list).unwrap();
            judge(&root, &[document(text)]).unwrap()
        };
        assert_eq!(
            judged("# x\nREADME.md | 4 KiB | a page\n", "pages of 4 KiB"),
            Vec::<String>::new()
        );
        assert!(judged("", "pages of 4 KiB")[0].contains("README.md:1: \"4 KiB\""));
        assert!(judged("README.md | 4 KiB | a page\n", "none")[0].contains("take it out"));
        assert_eq!(judged("README.md | 4 KiB |\n", "pages of 4 KiB").len(), 2);
        std::fs::remove_dir_all(&root).unwrap();
    }
}
