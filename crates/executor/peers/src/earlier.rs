//! Times of an earlier run, beside the counts of this one: instructions can be counted on a machine
//! that has other things to do, times cannot be measured there. Neither can the polls that several
//! threads make side by side, so these are taken over too.

use std::io;
use std::path::Path;

use serde_json::Value;

use crate::contender::Contender;
use crate::driver::Outcome;
use crate::rows::Row;

/// Takes over the times of a file that an earlier run wrote, where this run has none, and the
/// commit that they are of.
pub fn take_times(outcome: &mut Outcome, file: &Path) -> io::Result<()> {
    let data: Value = serde_json::from_str(&std::fs::read_to_string(file)?)?;
    take_times_of(outcome, &data).ok_or_else(|| io::Error::other("not the data of an earlier run"))
}

fn take_times_of(outcome: &mut Outcome, data: &Value) -> Option<()> {
    let config = &data["config"];
    // Its times may themselves be of an earlier one.
    let commit = config["times_of_commit"].as_str().or(config["commit"].as_str())?;
    for figures in data["rows"].as_array()? {
        // Of a row or contender that was renamed since, there is nothing to take.
        let row = Row::from_key(figures["row"].as_str()?);
        let contender = Contender::from_key(figures["contender"].as_str()?);
        let (Some(row), Some(contender)) = (row, contender) else { continue };
        let cell = outcome.results.entry((row.key, contender.key())).or_default();
        if cell.nanoseconds.is_empty() {
            cell.nanoseconds = numbers(&figures["ns_of_runs"]);
            cell.cpu_nanoseconds = numbers(&figures["cpu_ns_of_runs"]);
        }
        if cell.counts.is_empty() && row.operation.count_depends_on_load() {
            let polls = figures["polls_before_urgent"].as_array();
            cell.counts = polls.into_iter().flatten().filter_map(Value::as_u64).collect();
        }
    }
    outcome.times_of_commit = Some(commit.to_owned());
    Some(())
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Cell;
    use serde_json::json;

    #[test]
    fn times_are_taken_where_there_are_none() {
        let mut outcome = Outcome::default();
        let counted = Cell { instructions: Some(60.0), ..Cell::default() };
        let timed = Cell { nanoseconds: vec![1.0], ..Cell::default() };
        outcome.results.insert(("yield-10", "cops"), counted);
        outcome.results.insert(("ring", "cops"), timed);
        let row = |row: &str, times: &[f64]| json!({"row": row, "contender": "cops", "ns_of_runs": times});
        let data = json!({
            "config": {"commit": "newer", "times_of_commit": "older"},
            "rows": [
                row("yield-10", &[7.5, 8.0]), row("ring", &[2.0]), row("gone", &[3.0]),
                {"row": "urgent-1", "contender": "cops", "polls_before_urgent": [1]},
                {"row": "urgent-2", "contender": "cops", "polls_before_urgent": [0, 2]},
            ],
        });
        assert_eq!(take_times_of(&mut outcome, &data), Some(()));
        assert_eq!(outcome.times_of_commit.as_deref(), Some("older"));
        let cell = &outcome.results[&("yield-10", "cops")];
        assert_eq!((cell.instructions, &cell.nanoseconds[..]), (Some(60.0), &[7.5, 8.0][..]));
        assert_eq!(outcome.results[&("ring", "cops")].nanoseconds, [1.0]);
        let polls = |row| &outcome.results[&(row, "cops")].counts;
        assert!(polls("urgent-1").is_empty(), "one thread: this run counts it");
        assert_eq!(*polls("urgent-2"), [0, 2]);
        assert_eq!(outcome.results.len(), 4);
        assert_eq!(take_times_of(&mut outcome, &json!({})), None);
    }
}
