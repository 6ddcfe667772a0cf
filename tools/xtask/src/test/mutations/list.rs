//! Parses the list of mutations: a change, and the test that must fail with it.
//!
//! ```text
//! == name
//! file: path in the repository
//! run: STAGE FILTER (guest, disk, exec, hostile, linux, loom, starve, system, tutorial) | cargo ARGUMENTS OF its test
//! expect: a text in the failure
//! --- before
//! lines that are in the file exactly once
//! --- after
//! the lines that replace them
//! ---
//! ```

use crate::error::{Failure, Outcome};

/// A change, and the test that must detect it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mutation {
    pub name: String,
    pub file: String,
    pub run: Run,
    pub expect: String,
    pub before: String,
    pub after: String,
}

/// The test to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Run {
    /// `./cops test --only STAGE FILTER`.
    Stage(String, String),
    /// `cargo test ARGUMENTS`.
    Cargo(Vec<String>),
}

impl Mutation {
    /// The file's text with the change applied.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        match text.matches(&self.before).count() {
            1 => Ok(text.replacen(&self.before, &self.after, 1)),
            count => {
                Err(format!("{}: the text to change is {count} times in {}", self.name, self.file))
            }
        }
    }
}

/// Parses the list.
pub fn parse(text: &str) -> Outcome<Vec<Mutation>> {
    let mut all = Vec::new();
    for entry in text.split("\n== ").skip(1) {
        all.push(parse_one(entry).ok_or_else(|| {
            let name = entry.lines().next().unwrap_or_default();
            Failure::new(format!("the mutation {name:?} is not written as the list's head says"))
        })?);
    }
    Ok(all)
}

fn parse_one(entry: &str) -> Option<Mutation> {
    let (head, rest) = entry.split_once("\n--- before\n")?;
    let (before, rest) = rest.split_once("\n--- after\n")?;
    // An empty replacement has no lines.
    let after = rest
        .split_once("\n---")
        .map(|(after, _)| after)
        .or_else(|| rest.strip_prefix("---").map(|_| ""))?;
    let (name, fields) = head.split_once('\n')?;
    let field = |key: &str| {
        let found = fields.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        found.map(str::to_owned)
    };
    let run = field("run")?;
    let run = match run.split_once(' ')? {
        (
            stage @ ("guest" | "disk" | "exec" | "hostile" | "linux" | "loom" | "starve" | "system"
            | "tutorial"),
            filter,
        ) => Run::Stage(stage.to_owned(), filter.to_owned()),
        ("cargo", arguments) => {
            Run::Cargo(arguments.split_whitespace().map(str::to_owned).collect())
        }
        _ => return None,
    };
    Some(Mutation {
        name: name.to_owned(),
        file: field("file")?,
        run,
        expect: field("expect")?,
        before: before.to_owned(),
        after: after.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    const ENTRY: &str = "head\n\n== a b\nfile: x.rs\nrun: guest y\nexpect: z\n--- before\none\ntwo\n--- after\n\n---\n";

    #[test]
    fn an_entry_is_read_and_applied_where_it_fits_once() {
        let all = parse(ENTRY).unwrap();
        assert_eq!(
            (all[0].name.as_str(), &all[0].run),
            ("a b", &Run::Stage("guest".into(), "y".into()))
        );
        assert_eq!(all[0].apply("0\none\ntwo\n3"), Ok("0\n\n3".to_owned()));
        assert!(all[0].apply("one").is_err());
        assert!(all[0].apply("one\ntwo\none\ntwo").is_err());
        assert!(parse("\n== a\nfile: x\n").is_err());
    }

    /// An entry that no longer applies tests nothing.
    #[test]
    fn every_mutation_applies_exactly_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let all = parse(super::super::LIST).unwrap();
        let wrong: Vec<String> = all
            .iter()
            .filter_map(|one| {
                let text = std::fs::read_to_string(root.join(&one.file)).unwrap_or_default();
                one.apply(&text).err()
            })
            .collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert!(all.len() >= 23, "{} mutations", all.len());
        assert!(all.iter().all(|one| one.before != one.after));
    }
}
