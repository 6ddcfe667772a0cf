//! Checks that links between documents lead somewhere, and that a newcomer's questions are answered
//! within two hops of README.md.
//!
//! A relative link must name a file or folder of the repository; after `#`, a heading of that
//! document. The index of questions is the table below the heading [`QUESTIONS`] in the book's
//! README: one question per row, each with at least one link in its answer. Each answer must be
//! reachable from README.md by at most [`HOPS`] links.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path};

use crate::error::Outcome;
use crate::repository::{markdown_files, read, unfenced_lines};

/// The document with the questions.
const INDEX: &str = "docs/book/README.md";
/// Their heading.
const QUESTIONS: &str = "## Questions of a newcomer";
const FEWEST_QUESTIONS: usize = 10;
const HOPS: usize = 2;

/// The faults of links and questions.
pub fn judge(root: &Path) -> Outcome<Vec<String>> {
    let mut documents = BTreeMap::new();
    for path in markdown_files(root)? {
        let (name, text) = read(root, &path)?;
        documents.insert(name, text);
    }
    Ok(judge_documents(&documents, |path| root.join(path).exists()))
}

/// A link in a document to another place in the repository.
#[derive(Debug, PartialEq, Eq)]
struct Link {
    line: usize,
    /// Relative to the root; the document itself for a link within it.
    path: String,
    /// The text after `#`.
    anchor: Option<String>,
}

fn judge_documents(
    documents: &BTreeMap<String, String>,
    exists: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut targets: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (name, text) in documents {
        for link in links(name, text) {
            let place = format!("{name}:{}", link.line);
            if !documents.contains_key(&link.path) && !exists(&link.path) {
                wrong.push(format!("{place}: there is no {}", link.path));
            } else if let (Some(anchor), Some(target)) = (&link.anchor, documents.get(&link.path))
                && !anchors(target).contains(anchor)
            {
                wrong.push(format!("{place}: {} has no heading #{anchor}", link.path));
            }
            targets.entry(name).or_default().push(link.path);
        }
    }
    wrong.extend(judge_questions(documents, &targets));
    wrong
}

/// Checks that there are enough questions, each with an answer within [`HOPS`].
fn judge_questions(
    documents: &BTreeMap<String, String>,
    targets: &BTreeMap<&str, Vec<String>>,
) -> Vec<String> {
    let Some(index) = documents.get(INDEX) else { return vec![format!("there is no {INDEX}")] };
    let hops = distances("README.md", targets);
    let mut wrong = Vec::new();
    let mut questions = 0;
    let mut is_table = false;
    for (number, line) in index.lines().enumerate() {
        if line.starts_with('#') {
            is_table = line.trim_end() == QUESTIONS;
        }
        let is_row = is_table && line.starts_with('|') && line.contains('?');
        if !is_row {
            continue;
        }
        questions += 1;
        let answers = links(INDEX, line);
        if answers.is_empty() {
            wrong.push(format!("{INDEX}:{}: a question without a link to its answer", number + 1));
        }
        for answer in answers {
            if hops.get(answer.path.as_str()).is_none_or(|&hops| hops > HOPS) {
                wrong.push(format!(
                    "{INDEX}:{}: {} is more than {HOPS} hops from README.md",
                    number + 1,
                    answer.path
                ));
            }
        }
    }
    if questions < FEWEST_QUESTIONS {
        wrong.push(format!(
            "{INDEX}: {questions} questions below {QUESTIONS:?}; there should be {FEWEST_QUESTIONS}"
        ));
    }
    wrong
}

/// The number of links from a document to each other one.
fn distances<'a>(
    from: &'a str,
    targets: &'a BTreeMap<&str, Vec<String>>,
) -> BTreeMap<&'a str, usize> {
    let mut distances = BTreeMap::from([(from, 0)]);
    let mut reached = vec![from];
    let mut hops = 0;
    while !reached.is_empty() {
        hops += 1;
        let next: BTreeSet<&str> = reached
            .iter()
            .filter_map(|name| targets.get(name))
            .flatten()
            .map(String::as_str)
            .collect();
        reached = next.into_iter().filter(|name| !distances.contains_key(name)).collect();
        distances.extend(reached.iter().map(|&name| (name, hops)));
    }
    distances
}

/// The relative links of a document, outside of code.
fn links(name: &str, text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    for (number, line) in unfenced_lines(text) {
        // Code spans keep their length, so that a link's text may contain them.
        let mut rest = line;
        while let Some(place) = rest.find("](") {
            let in_code = line[..line.len() - rest.len() + place].matches('`').count() % 2 == 1;
            rest = &rest[place + 2..];
            let Some(end) = rest.find(')') else { break };
            let target = &rest[..end];
            if !in_code && !target.contains("://") && !target.starts_with("mailto:") {
                links.push(link(name, number, target));
            }
        }
    }
    links
}

fn link(name: &str, line: usize, target: &str) -> Link {
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor.to_owned())),
        None => (target, None),
    };
    let path = if path.is_empty() { name.to_owned() } else { resolved(name, path) };
    Link { line, path, anchor }
}

/// Converts a path relative to a document's folder to one relative to the root.
fn resolved(name: &str, path: &str) -> String {
    let mut parts: Vec<&str> = name.split('/').collect();
    parts.pop();
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(part) => parts.push(part.to_str().unwrap_or_default()),
            _ => {}
        }
    }
    parts.join("/")
}

/// The anchors of a document's headings, as GitHub makes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    for (_, line) in unfenced_lines(text).filter(|(_, line)| line.starts_with('#')) {
        let heading = line.trim_start_matches('#').trim();
        let letters = heading.chars().filter_map(|letter| match letter {
            ' ' => Some('-'),
            '-' | '_' => Some(letter),
            _ if letter.is_alphanumeric() => Some(letter),
            _ => None,
        });
        anchors.insert(letters.flat_map(char::to_lowercase).collect());
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index with `count` questions, which are answered in `answer`.
    fn index(count: usize, answer: &str) -> String {
        format!("{QUESTIONS}\n\n| question | answer |\n| --- | --- |\n")
            + &format!("| Where? | [there]({answer}) |\n").repeat(count)
    }

    fn judged(documents: &[(&str, &str)]) -> Vec<String> {
        let documents =
            documents.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect();
        judge_documents(&documents, |path| path == "kernel/src")
    }

    #[test]
    fn an_answer_two_hops_away_passes() {
        let index = index(10, "order.md#one-worker");
        let order = "# Order\n## One `worker`\n[up](../../README.md), [code](../../kernel/src)";
        let documents = [
            ("README.md", "[book](docs/book/)[x](docs/book/README.md)"),
            (INDEX, &*index),
            ("docs/book/order.md", order),
        ];
        let wrong = judge_documents(
            &documents.iter().map(|&(name, text)| (name.to_owned(), text.to_owned())).collect(),
            |path| ["kernel/src", "docs/book"].contains(&path),
        );
        assert_eq!(wrong, Vec::<String>::new());
    }

    #[test]
    fn a_far_answer_or_a_missing_one_is_named() {
        let far = index(10, "a.md");
        let wrong = judged(&[
            ("README.md", "[more](more.md)"),
            ("more.md", "[book](docs/book/README.md)"),
            (INDEX, &far),
            ("docs/book/a.md", ""),
        ]);
        assert_eq!(wrong.len(), 10);
        assert!(
            wrong[0].ends_with("docs/book/a.md is more than 2 hops from README.md"),
            "{wrong:?}"
        );
        let unanswered = format!("{QUESTIONS}\n| Where? | nowhere |\n");
        let wrong = judged(&[("README.md", ""), (INDEX, &unanswered)]);
        assert!(wrong[0].contains(":2: a question without a link"), "{wrong:?}");
        assert!(wrong[1].contains("1 questions"), "{wrong:?}");
    }

    #[test]
    fn dead_links_are_named() {
        let index = index(10, "README.md");
        let text = "[book](docs/book/README.md)\n[a](gone.md) [b](docs/book/README.md#gone) `[c](x.md)`\n```\n[d](y)\n```\n[e](https://a.b/c)";
        let wrong = judged(&[("README.md", text), (INDEX, &index)]);
        assert_eq!(
            wrong,
            [
                "README.md:2: there is no gone.md",
                "README.md:2: docs/book/README.md has no heading #gone"
            ]
        );
    }
}
