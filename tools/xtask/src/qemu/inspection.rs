//! The state of harts and processes, as the kernel writes it on request (DLE `i`): lines of
//! `NAME=VALUE` words (`kernel/src/inspect/report.rs`).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::error::{Failure, Outcome};

/// Named numbers.
pub type Numbers = BTreeMap<String, u64>;

/// A process, with the name it was started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    pub numbers: Numbers,
    pub name: String,
}

/// A snapshot of the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picture {
    pub statistics: Numbers,
    pub harts: Vec<Numbers>,
    /// By number.
    pub processes: BTreeMap<u64, Process>,
    pub now_ticks: u64,
    pub ticks_per_second: u64,
}

/// Whether the last line has arrived.
pub fn is_complete(text: &[u8]) -> bool {
    let Some(lines) = text.strip_suffix(b"\n") else { return false };
    lines.rsplit(|&byte| byte == b'\n').next().is_some_and(|last| last.starts_with(b"end:"))
}

/// A number of a line; 0 if this kernel does not have it.
pub fn get(numbers: &Numbers, name: &str) -> u64 {
    numbers.get(name).copied().unwrap_or_default()
}

impl Picture {
    /// Parses the kernel's lines.
    pub fn parse(text: &str) -> Outcome<Self> {
        let mut picture = Self::default();
        for line in text.lines() {
            let damaged = || Failure::new(format!("cannot parse the kernel's line {line:?}"));
            let (what, words) = line.split_once(": ").ok_or_else(damaged)?;
            let (words, name) = words.split_once(" name=").unwrap_or((words, ""));
            let numbers = words.split_whitespace().map(|word| {
                let (name, value) = word.split_once('=')?;
                Some((name.to_owned(), value.parse().ok()?))
            });
            let numbers: Numbers = numbers.collect::<Option<_>>().ok_or_else(damaged)?;
            match what {
                "statistics" => picture.statistics = numbers,
                "hart" => picture.harts.push(numbers),
                "process" => {
                    picture.processes.insert(
                        get(&numbers, "process"),
                        Process { numbers, name: name.to_owned() },
                    );
                }
                "end" => {
                    picture.now_ticks = get(&numbers, "now_ticks");
                    picture.ticks_per_second = get(&numbers, "ticks_per_second").max(1);
                    return Ok(picture);
                }
                _ => return Err(damaged()),
            }
        }
        Err(Failure::new("the kernel's picture has no end"))
    }

    /// Converts it for other programs.
    pub fn to_json(&self) -> Value {
        let processes = self.processes.values().map(|process| {
            let mut object: Map<String, Value> =
                process.numbers.iter().map(|(name, &value)| (name.clone(), value.into())).collect();
            object.insert("state".into(), state(get(&process.numbers, "state")).into());
            object.insert("name".into(), process.name.clone().into());
            Value::Object(object)
        });
        json!({
            "now_ticks": self.now_ticks,
            "ticks_per_second": self.ticks_per_second,
            "statistics": self.statistics,
            "harts": self.harts,
            "processes": processes.collect::<Vec<_>>(),
        })
    }
}

/// The name of a state (docs/abi.md, section 5).
pub fn state(number: u64) -> &'static str {
    match number {
        1 => "ready",
        2 => "running",
        3 => "suspended",
        4 => "blocked",
        5 => "parked",
        6 => "ended",
        _ => "?",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "statistics: frames_total=10 frames_free=4\nhart: hart=0 polls=7\n\
        process: process=1 state=5 level=64 name=/bin/a server\nend: now_ticks=9 ticks_per_second=10000000\n";

    #[test]
    fn a_picture_is_read() {
        assert!(is_complete(TEXT.as_bytes()));
        assert!(!is_complete(&TEXT.as_bytes()[..TEXT.len() - 1]));
        assert!(!is_complete(b"process: name=\nx end:\n"));
        let picture = Picture::parse(TEXT).unwrap();
        assert_eq!(get(&picture.statistics, "frames_free"), 4);
        assert_eq!(get(&picture.harts[0], "polls"), 7);
        assert_eq!(picture.processes[&1].name, "/bin/a server");
        let json = picture.to_json();
        assert_eq!(
            (&json["processes"][0]["state"], &json["now_ticks"]),
            (&json!("parked"), &json!(9))
        );
    }

    #[test]
    fn damaged_pictures_are_refused() {
        for text in
            ["", "hart: hart=0\n", "hart: hart\nend: a=1\n", "other: a=1\nend: a=1\n", "end\n"]
        {
            assert!(Picture::parse(text).is_err(), "{text:?}");
        }
    }
}
