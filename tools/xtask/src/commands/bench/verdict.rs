//! What no measurement may have: wrong answers and lost connections. Rows with some are data like
//! others, so that they can be looked into; but the command fails. Missing answers are no fault:
//! in an overload there are many.

use serde_json::Value;

use super::matrix::{Row, number};

/// Columns of a fault, and what they count.
const FAULTS: [(&str, &str); 2] = [("wrong", "wrong answers"), ("lost", "lost connections")];
/// Columns that name a row.
const NAMES: [&str; 8] =
    ["system", "model", "loop", "load", "vcpus", "connections", "matrix", "class"];

/// A line for each row with a fault.
pub fn faults(rows: &[Row]) -> Vec<String> {
    let of_row = |row: &Row| {
        let counts: Vec<String> = FAULTS
            .iter()
            .filter(|(column, _)| number(row, column) > 0.0)
            .map(|(column, what)| format!("{what}: {}", number(row, column)))
            .collect();
        (!counts.is_empty()).then(|| format!("{} ({})", counts.join(", "), name(row)))
    };
    rows.iter().filter_map(of_row).collect()
}

/// The columns that tell a row from others.
fn name(row: &Row) -> String {
    let words = NAMES.iter().filter_map(|name| match row.get(*name)? {
        Value::Null => None,
        Value::String(text) => Some(format!("{name} {text}")),
        other => Some(format!("{name} {other}")),
    });
    words.collect::<Vec<_>>().join(", ")
}

/// Prints the faults of the rows, and returns the exit status.
pub fn status(rows: &[Row]) -> u8 {
    let faults = faults(rows);
    for fault in &faults {
        println!("FAULT: {fault}");
    }
    u8::from(!faults.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::matrix::rounds;
    use super::*;

    fn run(connections: u32, wrong: u32, missing: u32, lost: u32) -> Row {
        let row = json!({ "model": "kcuc", "loop": "open", "connections": connections,
            "class": null, "errors": wrong + missing + lost, "wrong": wrong,
            "missing": missing, "lost": lost });
        row.as_object().expect("an object").clone()
    }

    #[test]
    fn wrong_answers_of_one_run_of_several_fail_the_measurement() {
        let rows = rounds::medians(&[
            run(16, 0, 0, 0),
            run(64, 0, 0, 0),
            run(16, 2, 0, 0),
            run(64, 1, 0, 7),
            run(16, 0, 0, 0),
            run(64, 0, 0, 0),
        ]);
        assert_eq!(
            faults(&rows),
            [
                "wrong answers: 2 (model kcuc, loop open, connections 16)",
                "wrong answers: 1, lost connections: 7 (model kcuc, loop open, connections 64)",
            ]
        );
        assert_eq!(status(&rows), 1);
    }

    #[test]
    fn missing_answers_of_an_overload_are_no_fault() {
        assert_eq!(status(&[run(1024, 0, 8000, 0)]), 0);
        // A measurement without a client has no such columns.
        assert_eq!(status(&[Row::new()]), 0);
    }
}
