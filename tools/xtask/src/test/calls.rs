//! The table of system calls in docs/abi.md has every number of `crates/abi/src/syscall.rs`, and no
//! other.

use std::collections::BTreeSet;
use std::path::Path;

use crate::error::{Because, Outcome};

const DOCUMENT: &str = "docs/abi.md";
const NUMBERS: &str = "crates/abi/src/syscall.rs";
/// The head of the table.
const TABLE: &str = "| number | call |";

/// What is wrong with the table.
pub fn judge(root: &Path) -> Outcome<Vec<String>> {
    let read = |name: &str| {
        std::fs::read_to_string(root.join(name)).because(|| format!("cannot read {name}"))
    };
    Ok(compare(&read(NUMBERS)?, &read(DOCUMENT)?))
}

fn compare(source: &str, document: &str) -> Vec<String> {
    let (defined, documented) = (defined(source), documented(document));
    if defined.is_empty() || documented.is_empty() {
        return vec![format!("no numbers in {NUMBERS}, or no table {TABLE:?} in {DOCUMENT}")];
    }
    let missing = defined
        .difference(&documented)
        .map(|number| format!("{DOCUMENT}: call {number} has no row"));
    let gone = documented
        .difference(&defined)
        .map(|number| format!("{DOCUMENT}: call {number} is not in {NUMBERS}"));
    missing.chain(gone).collect()
}

/// The numbers in lines `NAME = NUMBER;` of the list.
fn defined(source: &str) -> BTreeSet<u32> {
    let list = source.split_once("\nnumbers! {").map_or("", |(_, list)| list);
    let list = list.split_once("\n}").map_or("", |(list, _)| list);
    list.lines()
        .filter_map(|line| line.trim().strip_suffix(';')?.split_once(" = ")?.1.parse().ok())
        .collect()
}

/// The numbers in the first cells of the table.
fn documented(document: &str) -> BTreeSet<u32> {
    let table = document.lines().skip_while(|line| !line.starts_with(TABLE));
    table
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| line.split('|').nth(1))
        .flat_map(|cell| cell.split(','))
        .filter_map(|number| number.trim().parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "numbers\n\nnumbers! {\n    /// Reads.\n    READ = 63;\n    WRITE = 64;\n}\npub const X: usize = 5;\n";

    #[test]
    fn a_call_without_a_row_and_a_row_without_a_call_are_named() {
        let table = |rows: &str| {
            format!("text\n| number | call | can wait |\n| --- | --- | --- |\n{rows}\n\n| 7 | x |")
        };
        assert_eq!(
            compare(SOURCE, &table("| 63, 64 | `read`, `write` | yes |")),
            Vec::<String>::new()
        );
        assert_eq!(
            compare(SOURCE, &table("| 63 | `read` | |")),
            ["docs/abi.md: call 64 has no row"]
        );
        assert_eq!(
            compare(SOURCE, &table("| 63, 64 | | |\n| 65 | `readv` | |")),
            ["docs/abi.md: call 65 is not in crates/abi/src/syscall.rs"]
        );
        assert_eq!(compare(SOURCE, "no table").len(), 1);
    }
}
