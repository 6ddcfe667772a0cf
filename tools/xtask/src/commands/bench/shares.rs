//! The CPU share of a normal program beside hostile programs of the same priority: `/bin/victim
//! shares`, as a table.
//!
//! The normal program computes on all harts for a given time; its share is its progress divided by
//! its progress alone. Beside n programs of the same priority its fair share is 1/(n+1), and the
//! goal is nine tenths of that: 45% beside one.

use std::time::Duration;

use serde_json::{Map, Value};

use super::Rows;
use super::table::Table;
use super::words::{self, Line};
use crate::cli::Machine;
use crate::commands::Prepared;
use crate::error::{Failure, Outcome};
use crate::qemu::console::Ending;

/// The part of its fair share that a normal program must get.
const OF_ITS_DUE: f64 = 0.9;
/// Time limit of one boot with all kinds.
const LIMIT: Duration = Duration::from_secs(1800);

/// The goal beside this many hostile programs.
pub fn goal(hostile: u64) -> f64 {
    OF_ITS_DUE / (hostile + 1) as f64
}

/// Boots and measures. `counted`: by instructions; `words`: further options of `/bin/victim
/// shares`.
pub fn run(prepared: &Prepared, machine: &Machine, counted: bool, words: &[&str]) -> Outcome<Rows> {
    let argv: Vec<String> =
        ["/bin/victim", "shares"].iter().chain(words).map(|&word| word.to_owned()).collect();
    let mut boot = prepared.boot(machine, &argv, &[])?;
    if counted {
        boot.make_repeatable();
    }
    let said = words::listen(&prepared.qemu, &boot, LIMIT)?;
    match said.ending {
        Ending::Status(0) if said.lines.iter().any(|line| line.tag == "end") => {
            rows(&said.lines, if counted { "instructions" } else { "wall" }, machine.smp)
        }
        other => Err(Failure::new(format!(
            "the shares were not measured: {other:?}\n{}",
            said.complaints
        ))),
    }
}

/// A row for each `share` line, with the `work` line before it.
fn rows(lines: &[Line], clock: &str, harts: u32) -> Outcome<Rows> {
    let mut rows = Rows::new();
    let (mut work, mut alone) = (None, None);
    for line in lines {
        match line.tag.as_str() {
            "work" => work = Some(line.number("rounds")?),
            "share" => {
                let hostile = line.number("hostile")?;
                // Without a `work` line the program has not finished: it had no share.
                let rounds = work.take().unwrap_or(0);
                if hostile == 0 {
                    alone = Some(rounds).filter(|&rounds| rounds > 0);
                    continue;
                }
                let alone = alone.ok_or_else(|| {
                    Failure::new("the honest program did not finish alone".to_owned())
                })?;
                let share = rounds as f64 / alone as f64;
                let mut row = Map::new();
                row.insert("table".into(), "shares".into());
                row.insert("clock".into(), clock.into());
                row.insert("harts".into(), harts.into());
                row.insert("kind".into(), line.text("kind").into());
                row.insert("hostile".into(), hostile.into());
                row.insert("share".into(), share.into());
                row.insert("goal".into(), goal(hostile).into());
                row.insert("ok".into(), (share >= goal(hostile)).into());
                rows.push(row);
            }
            _ => {}
        }
    }
    Ok(rows)
}

/// The table.
pub fn table(rows: &Rows) -> Table {
    let mut table = Table::new(1, &["beside", "programs", "honest share %", "goal %", "ok"]);
    for row in rows {
        let percent = |name: &str| {
            format!("{:.1}", row.get(name).and_then(Value::as_f64).unwrap_or(0.0) * 100.0)
        };
        table.add([
            row["kind"].as_str().unwrap_or_default().to_owned(),
            row["hostile"].to_string(),
            percent("share"),
            percent("goal"),
            if row["ok"] == true { "yes" } else { "NO" }.to_owned(),
        ]);
    }
    table
}

/// The number of rows that miss the goal, and their names.
pub fn judge(rows: &Rows) -> String {
    let missing: Vec<String> = rows
        .iter()
        .filter(|row| row["ok"] != true)
        .map(|row| format!("{} x {}", row["kind"].as_str().unwrap_or_default(), row["hostile"]))
        .collect();
    let named =
        if missing.is_empty() { String::new() } else { format!(" ({})", missing.join(", ")) };
    format!("Share below the goal: {} of {}{named}.", missing.len(), rows.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_what_it_does_alone() {
        let lines: Vec<Line> = [
            "work: rounds=1000",
            "share: kind=alone hostile=0 ceiling=32 finished=1",
            "work: rounds=449",
            "share: kind=spin hostile=1 ceiling=32 finished=1",
            "work: rounds=230",
            "share: kind=spin hostile=3 ceiling=32 finished=1",
            "share: kind=flood hostile=1 ceiling=32 finished=0",
        ]
        .iter()
        .map(|line| Line::parse(line).unwrap())
        .collect();
        let rows = rows(&lines, "instructions", 1).unwrap();
        let ok: Vec<_> = rows.iter().map(|row| row["ok"].as_bool().unwrap()).collect();
        assert_eq!(ok, [false, true, false]);
        assert_eq!(judge(&rows), "Share below the goal: 2 of 3 (spin x 1, flood x 1).");
    }
}
