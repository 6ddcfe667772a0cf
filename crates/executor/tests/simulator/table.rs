//! Tables in Markdown, and whether they are what is checked in.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::{env, fs};

use super::monitor::Seen;

/// A duration in microseconds with one decimal.
pub fn micros(nanos: u64) -> String {
    let tenths = (nanos + 50) / 100;
    format!("{}.{}", grouped(tenths / 10), tenths % 10)
}

/// A number with its thousands apart.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place != 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Of waiting times.
pub struct Summary {
    pub count: u64,
    pub mean: u64,
    pub p50: u64,
    pub p99: u64,
    pub max: u64,
}

impl Summary {
    pub fn of(waits: impl IntoIterator<Item = u64>) -> Summary {
        let mut waits: Vec<u64> = waits.into_iter().collect();
        waits.sort();
        let count = waits.len() as u64;
        // The nearest rank; 0 of nothing.
        let rank = |percent: u64| {
            waits.get(((count * percent).div_ceil(100)).saturating_sub(1) as usize).copied()
        };
        Summary {
            count,
            mean: waits.iter().sum::<u64>().checked_div(count).unwrap_or(0),
            p50: rank(50).unwrap_or(0),
            p99: rank(99).unwrap_or(0),
            max: waits.last().copied().unwrap_or(0),
        }
    }

    pub fn cells(&self) -> [String; 5] {
        [
            grouped(self.count),
            micros(self.mean),
            micros(self.p50),
            micros(self.p99),
            micros(self.max),
        ]
    }
}

/// Several classes as one.
pub fn together(classes: &[Seen]) -> Seen {
    classes.iter().fold(Seen::default(), |mut all, class| {
        all.waits.extend(&class.waits);
        all.passed = all.passed.max(class.passed);
        all.passed_on_one_worker = all.passed_on_one_worker.max(class.passed_on_one_worker);
        all.overtaken = all.overtaken.max(class.overtaken);
        all
    })
}

pub struct Table {
    text: String,
}

impl Table {
    /// `introduction` stands above it.
    pub fn new(title: &str, introduction: &str, columns: &[&str]) -> Table {
        let rule = columns.iter().map(|_| " ---: |").collect::<String>();
        let text =
            format!("\n## {title}\n\n{introduction}\n\n| {} |\n|{rule}\n", columns.join(" | "));
        Table { text }
    }

    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        let cells: Vec<String> = cells.into_iter().collect();
        self.text += &format!("| {} |\n", cells.join(" | "));
    }
}

/// The lines in which `found` differs from `expected`, the first few of them. `None` if there is
/// none.
pub fn difference(expected: &str, found: &str) -> Option<String> {
    if expected == found {
        return None;
    }
    let (mut expected, mut found) = (expected.lines(), found.lines());
    let mut text = String::new();
    let mut shown = 0;
    for number in 1.. {
        let (old, new) = (expected.next(), found.next());
        if old.is_none() && new.is_none() || shown == 20 {
            break;
        }
        if old != new {
            shown += 1;
            text += &format!(
                "line {number}\n- {}\n+ {}\n",
                old.unwrap_or("(end)"),
                new.unwrap_or("(end)")
            );
        }
    }
    Some(text)
}

const HEAD: &str = "\
# What the simulator saw

Written by `tests/simulator` (how: its `main.rs`), which computes all of it again and compares to the digit. Virtual time: \
only polls take any. Times are microseconds.
";

/// The order of the sections in the file.
const TITLES: [&str; 9] = [
    "One priority in use",
    "4 priorities in use",
    "64 priorities in use",
    "Urgent work beside more and more batch work",
    "Urgent work beside long polls",
    "An urgent wake among 1,000 that are ready",
    "A storm of priorities",
    "Peers share",
    "Aging",
];

static FILE: Mutex<()> = Mutex::new(());

/// Compares a section with the one that is checked in; or replaces it, if `COPS_RECORD_TABLES` is
/// set.
pub fn check(table: Table) {
    let section = table.text;
    let title = section.lines().find_map(|line| line.strip_prefix("## ")).unwrap().to_owned();
    assert!(TITLES.contains(&title.as_str()), "{title} has no place in the file");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulator/tables.md");
    let _alone = FILE.lock().unwrap_or_else(PoisonError::into_inner);
    let recorded = fs::read_to_string(&path).unwrap_or_default();
    let old = |title: &str| {
        let start = recorded.find(&format!("\n## {title}\n"))?;
        let end = recorded[start + 1..].find("\n## ").map_or(recorded.len(), |end| start + 1 + end);
        Some(recorded[start..end].to_owned())
    };
    if env::var_os("COPS_RECORD_TABLES").is_none() {
        if let Some(difference) = difference(&old(&title).unwrap_or_default(), &section) {
            panic!(
                "{title}: not what tables.md says. If it is better: COPS_RECORD_TABLES=1.\n{difference}"
            );
        }
        return;
    }
    let sections = TITLES
        .map(|other| if other == title { section.clone() } else { old(other).unwrap_or_default() });
    fs::write(&path, HEAD.to_owned() + &sections.concat()).unwrap();
}
