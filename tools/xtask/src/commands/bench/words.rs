//! Runs a measuring program in the guest and parses its output: lines of `TAG: NAME=VALUE
//! NAME=VALUE..`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::error::{Failure, Outcome};
use crate::qemu::command::Boot;
use crate::qemu::console::{Ending, Transcript, follow};
use crate::qemu::machine::Machine;
use crate::qemu::version::Qemu;

/// One such line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub tag: String,
    words: BTreeMap<String, String>,
}

impl Line {
    /// Parses the line; `None` if it has another form.
    pub fn parse(line: &str) -> Option<Self> {
        let (tag, rest) = line.trim_end().split_once(": ")?;
        let is_tag =
            !tag.is_empty() && tag.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
        let words = rest.split_whitespace().map(|word| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        });
        let words = words.collect::<Option<BTreeMap<_, _>>>()?;
        (is_tag && !words.is_empty()).then(|| Self { tag: tag.to_owned(), words })
    }

    /// A value as text; empty if it is missing.
    pub fn text(&self, name: &str) -> &str {
        self.words.get(name).map_or("", String::as_str)
    }

    /// A value as a number.
    ///
    /// # Errors
    /// If it is missing or not a number: the versions of program and tool do not match.
    pub fn number(&self, name: &str) -> Outcome<u64> {
        self.text(name).parse().map_err(|_| {
            Failure::new(format!(
                "the guest's line `{}` has no number {name}: {:?}",
                self.tag, self.words
            ))
        })
    }
}

/// The output of a program, and how the boot ended.
#[derive(Debug)]
pub struct Said {
    pub ending: Ending,
    pub lines: Vec<Line>,
    /// The kernel's log, the program's errors and its lines of another form, for messages.
    pub complaints: String,
}

/// Boots, runs the program to its end or to the time limit, and parses its lines.
pub fn listen(qemu: &Qemu, boot: &Boot, limit: Duration) -> Outcome<Said> {
    let machine = Machine::start(qemu, boot)?;
    let mut transcript = Transcript::default();
    let ending = follow(machine, Some(Instant::now() + limit), &mut transcript);
    let mut complaints = [&transcript.kernel, &transcript.stderr]
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .concat();
    let mut lines = Vec::new();
    for line in String::from_utf8_lossy(&transcript.stdout).lines() {
        match Line::parse(line) {
            Some(line) => lines.push(line),
            None => complaints += &format!("{line}\n"),
        }
    }
    Ok(Said { ending, lines, complaints })
}

/// Like [`listen`], but fails unless the exit status is 0.
pub fn listen_to_success(qemu: &Qemu, boot: &Boot, limit: Duration) -> Outcome<Vec<Line>> {
    let said = listen(qemu, boot, limit)?;
    match said.ending {
        Ending::Status(0) => Ok(said.lines),
        other => Err(Failure::new(format!(
            "the measuring program ended with {other:?}\n{}",
            said.complaints
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_words_are_read() {
        let line = Line::parse("run: kind=spin-all p99_ns=12 x=\n").unwrap();
        assert_eq!((line.tag.as_str(), line.text("kind"), line.text("x")), ("run", "spin-all", ""));
        assert_eq!(line.number("p99_ns").unwrap(), 12);
        assert!(line.number("kind").is_err() && line.number("other").is_err());
    }

    #[test]
    fn other_lines_are_none() {
        for line in [
            "",
            "run:",
            "run: ",
            "run: a",
            "hello: world",
            "1..4",
            "[ 0.1 0] warning: a=1",
            "Run: a=1",
        ] {
            assert_eq!(Line::parse(line), None, "{line:?}");
        }
    }
}
