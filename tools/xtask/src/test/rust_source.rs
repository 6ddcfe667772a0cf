//! This repository's Rust sources as text: the list of files, and code without comments and
//! literals. It suffices to count keywords and to find paths; rustc and clippy do everything that
//! requires understanding Rust.

use std::path::{Path, PathBuf};

use crate::error::Outcome;
use crate::repository::{files_below, has_extension};

/// All Rust files below a folder, sorted; none if the folder does not exist.
pub fn rust_files(folder: &Path) -> Outcome<Vec<PathBuf>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    files_below(folder, |path| has_extension(path, "rs"))
}

/// The code without comments, strings and character literals. The number of lines stays the same.
pub fn code_only(source: &str) -> String {
    let mut rest = source;
    let mut code = String::with_capacity(source.len());
    while let Some(first) = rest.chars().next() {
        let skipped = skipped_length(rest, code.chars().next_back());
        if skipped > 0 {
            let (gone, after) = rest.split_at(skipped);
            code.extend(gone.chars().filter(|character| *character == '\n'));
            code.push(' ');
            rest = after;
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    code
}

/// Comments, strings and character literals without the code; lines stay where they are, and a full
/// stop stands for code.
pub fn comments_and_literals(source: &str) -> String {
    let mut rest = source;
    let mut kept = String::with_capacity(source.len());
    let (mut before, mut is_in_code) = (None, false);
    while let Some(first) = rest.chars().next() {
        let skipped = skipped_length(rest, before);
        let length = if skipped > 0 { skipped } else { first.len_utf8() };
        let (text, after) = rest.split_at(length);
        if skipped > 0 {
            if std::mem::take(&mut is_in_code) {
                kept.push_str(" . ");
            }
            kept.push_str(text);
        } else if first == '\n' {
            kept.push('\n');
        } else {
            is_in_code |= !first.is_whitespace();
        }
        before = text.chars().next_back();
        rest = after;
    }
    kept
}

/// The length of the comment or literal with which `rest` begins; 0 if it begins with code.
fn skipped_length(rest: &str, before: Option<char>) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment_length(rest);
    }
    let in_word = before.is_some_and(|character| character.is_alphanumeric() || character == '_');
    if let Some(after) = rest.strip_prefix('"') {
        return 1 + quoted_length(after, '"');
    }
    if !in_word {
        // r"..", r#".."#, br"..": nothing is escaped, and the numbers of hashes must match.
        let raw = rest.strip_prefix('b').or(rest.strip_prefix('c')).unwrap_or(rest);
        if let Some(raw) = raw.strip_prefix('r') {
            let hashes = raw.len() - raw.trim_start_matches('#').len();
            if raw[hashes..].starts_with('"') {
                let end = format!("\"{}", "#".repeat(hashes));
                let start = rest.len() - raw.len() + hashes + 1;
                return rest[start..]
                    .find(&end)
                    .map_or(rest.len(), |length| start + length + end.len());
            }
        }
    }
    if let Some(after) = rest.strip_prefix('\'') {
        // A character literal ends with a quote after one character or an escape; a lifetime does
        // not.
        let mut characters = after.chars();
        return match (characters.next(), characters.next()) {
            (Some('\\'), _) => 1 + quoted_length(after, '\''),
            (Some(character), Some('\'')) => 2 + character.len_utf8(),
            _ => 0,
        };
    }
    0
}

/// The length up to and including the closing quote. A backslash escapes the next character.
fn quoted_length(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (index, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if character == quote => return index + quote.len_utf8(),
            _ => {}
        }
    }
    text.len()
}

/// Block comments nest.
fn block_comment_length(text: &str) -> usize {
    let mut depth = 0;
    let mut index = 0;
    while index < text.len() {
        let rest = &text.as_bytes()[index..];
        if rest.starts_with(b"/*") {
            depth += 1;
            index += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            index += 2;
            if depth == 0 {
                return index;
            }
        } else {
            index += 1;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn leaves(source: &str, expected: &str) {
        let code = code_only(source);
        assert_eq!(code.split_whitespace().collect::<Vec<_>>().join(" "), expected);
        assert_eq!(code.matches('\n').count(), source.matches('\n').count(), "lines moved");
    }

    #[test]
    fn comments_are_left_out() {
        leaves("a // b { }\nc /* d /* nested\n */ e */ f", "a c f");
        leaves("a /* open", "a");
    }

    #[test]
    fn literals_are_left_out() {
        leaves(r##"s("a \" b"); t(r#"c " "#); u(br"d\"); v"##, "s( ); t( ); u( ); v");
        leaves("c('\"'); d('\\''); e('\\u{27}'); f(b'x')", "c( ); d( ); e( ); f(b )");
        leaves("\"open {\n", "");
    }

    #[test]
    fn lifetimes_are_code() {
        leaves(
            "fn f<'a>(x: &'a str, y: &'static u8) {}",
            "fn f<'a>(x: &'a str, y: &'static u8) {}",
        );
    }
}
