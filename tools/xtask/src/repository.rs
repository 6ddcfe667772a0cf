//! The repository's text files: finding and reading them, and what several of their formats share.

use std::path::{Path, PathBuf};

use crate::error::{Because, Outcome};

/// The wanted files in a folder and its subfolders, sorted. Build output and git's own files are
/// left out.
pub fn files_below(folder: &Path, is_wanted: impl Fn(&Path) -> bool) -> Outcome<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let cannot = || format!("cannot list {}", folder.display());
        for entry in std::fs::read_dir(&folder).because(cannot)? {
            let path = entry.because(cannot)?.path();
            if path.is_dir() {
                if !path.ends_with("target") && !path.ends_with(".git") {
                    folders.push(path);
                }
            } else if is_wanted(&path) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

pub fn has_extension(path: &Path, extension: &str) -> bool {
    path.extension().is_some_and(|present| present == extension)
}

/// Every document below a folder.
pub fn markdown_files(folder: &Path) -> Outcome<Vec<PathBuf>> {
    files_below(folder, |path| has_extension(path, "md"))
}

/// The name of a file, relative to the root, and its text.
pub fn read(root: &Path, path: &Path) -> Outcome<(String, String)> {
    let name = path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned();
    let text = std::fs::read_to_string(path).because(|| format!("cannot read {name}"))?;
    Ok((name, text))
}

/// The lines of a document outside of fenced code, each with its number, from 1.
pub fn unfenced_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (!is_fence && !is_fenced).then_some((index + 1, line))
    })
}

/// A line with `_` instead of each code span.
pub fn without_code_spans(line: &str) -> String {
    line.split('`')
        .enumerate()
        .map(|(part, text)| if part % 2 == 0 { text } else { " _ " })
        .collect()
}

/// The entries of a list that is checked in, each with its line: fields between bars. Lines that
/// begin with `#` are comments.
pub fn list_entries(list: &str) -> impl Iterator<Item = (usize, Vec<&str>)> {
    list.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
        .map(|(index, line)| (index + 1, line.split('|').map(str::trim).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_in_order_and_not_in_build_output() {
        let root = std::env::temp_dir().join(format!("xtask-files-{}", std::process::id()));
        for folder in ["b/.hidden", "target", ".git"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in ["z.md", "b/.hidden/a.md", "b/a.rs", "target/a.md", ".git/a.md"] {
            std::fs::write(root.join(file), file).unwrap();
        }
        let found = markdown_files(&root).unwrap();
        let read: Vec<_> = found.iter().map(|path| read(&root, path).unwrap()).collect();
        assert_eq!(read, ["b/.hidden/a.md", "z.md"].map(|name| (name.to_owned(), name.to_owned())));
        std::fs::remove_dir_all(&root).unwrap();
        let failure = markdown_files(&root).unwrap_err().to_string();
        assert!(failure.starts_with("cannot list "), "{failure}");
    }

    #[test]
    fn fences_and_code_spans_are_left_out() {
        let text = "a\n```rust\nb\n```\nc\n  ```\nd";
        assert_eq!(unfenced_lines(text).collect::<Vec<_>>(), [(1, "a"), (5, "c")]);
        assert_eq!(without_code_spans("a `b` c `open"), "a  _  c  _ ");
    }

    #[test]
    fn entries_have_their_line_and_fields() {
        let list = "# comment\n\na | b | c\nd\n";
        assert_eq!(
            list_entries(list).collect::<Vec<_>>(),
            [(3, vec!["a", "b", "c"]), (4, vec!["d"])]
        );
    }
}
