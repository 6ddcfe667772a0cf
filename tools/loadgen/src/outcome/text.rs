//! An outcome as text: a table, JSON and CSV.

use std::collections::{BTreeMap, BTreeSet};

use cops_report::Table;
use cops_report::units::{duration_text, three_digits};
use serde_json::Value;

use super::Outcome;
use crate::arguments::OperationName;

impl Outcome {
    /// The table: the configuration, a row for all and, if there are several classes, one per
    /// class.
    #[must_use]
    pub fn table(&self) -> String {
        let titles = [
            "class",
            "sent",
            "received",
            "errors",
            "answers/s",
            "mean",
            "p50",
            "p99",
            "p99.9",
            "max",
            "jitter",
        ];
        let mut table = Table::new(titles);
        let classes = if self.classes.len() > 1 { self.classes.as_slice() } else { &[] };
        for row in self.rows.iter().chain(classes) {
            let latency = &row.latency_us;
            let durations =
                [latency.mean, latency.p50, latency.p99, latency.p999, latency.max, latency.jitter];
            let counts = [row.sent, row.received, row.errors].map(|count| count.to_string());
            let cells =
                [row.name()].into_iter().chain(counts).chain([three_digits(row.throughput_rps)]);
            // Without an answer there is no latency, and in particular none of zero.
            let text = |us| if row.received == 0 { "-".into() } else { duration_text(us) };
            table.push(cells.chain(durations.map(text)));
        }
        let mut text = format!("{}\n{table}", self.description());
        for row in &self.rows {
            if let Some(lateness) = &row.send_lateness_us {
                let [p50, p99, max] = [lateness.p50, lateness.p99, lateness.max].map(duration_text);
                text +=
                    &format!("client's own lateness in sending: p50 {p50}, p99 {p99}, max {max}\n");
            }
            if row.errors > 0 {
                let (wrong, missing, lost) = (row.wrong, row.missing, row.lost);
                text += &format!(
                    "errors: {wrong} wrong products, {missing} answers missing, {lost} connections lost\n"
                );
            }
        }
        text
    }

    /// A line that describes what was run.
    pub(super) fn description(&self) -> String {
        let config = &self.config;
        let labels =
            self.rows.iter().flat_map(|row| &row.labels).filter(|(_, value)| !value.is_null());
        let labels: Vec<String> =
            labels.map(|(key, value)| format!("{key} {}", plain(value))).collect();
        let kind = match config.operation {
            OperationName::U64 => "u64",
            OperationName::F64 => "f64",
            OperationName::Echo => "echoed",
        };
        let mode = if let Some(pause_ms) = config.pause_ms {
            format!("pause of {} ms after each answer", three_digits(pause_ms))
        } else if config.closed {
            "closed loop".into()
        } else {
            format!("open loop, period {} ms", three_digits(config.period_ms))
        };
        let (connections, side) = (config.connections, config.matrix);
        let plural = if connections == 1 { "" } else { "s" };
        let length = match config.requests {
            Some(requests) => format!("{requests} requests each"),
            None => format!(
                "{} s after {} s warm-up",
                three_digits(config.seconds),
                three_digits(config.warmup_seconds)
            ),
        };
        let mut text =
            format!("{connections} connection{plural}, {side} x {side} {kind}, {mode}, {length}");
        if !labels.is_empty() {
            text += &format!("; {}", labels.join(", "));
        }
        text
    }

    /// The document as JSON, with one line per row and series, so that differences are readable.
    ///
    /// # Panics
    ///
    /// Never: everything in it can be written as JSON.
    #[must_use]
    pub fn to_json(&self) -> String {
        let Value::Object(document) = serde_json::to_value(self).expect("plain data") else {
            return String::new();
        };
        let lines: Vec<String> = document
            .iter()
            .map(|(key, value)| match value {
                Value::Array(elements) => {
                    let elements: Vec<String> =
                        elements.iter().map(|element| format!("    {element}")).collect();
                    format!("  \"{key}\": [\n{}\n  ]", elements.join(",\n"))
                }
                other => format!("  \"{key}\": {other}"),
            })
            .collect();
        format!("{{\n{}\n}}\n", lines.join(",\n"))
    }

    /// The rows as CSV: class `all` first, then one per class. Names of nested columns are joined
    /// with an underscore.
    ///
    /// # Panics
    ///
    /// Never: everything in it can be written as JSON.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let flat_rows: Vec<BTreeMap<String, String>> = self
            .rows
            .iter()
            .chain(&self.classes)
            .map(|row| {
                let mut cells = BTreeMap::new();
                flatten("", &serde_json::to_value(row).expect("plain data"), &mut cells);
                cells.insert("class".into(), row.name());
                cells
            })
            .collect();
        let columns: BTreeSet<&String> = flat_rows.iter().flat_map(BTreeMap::keys).collect();
        let titles: Vec<&str> = columns.iter().map(|column| column.as_str()).collect();
        let mut text = titles.join(",") + "\n";
        for row in &flat_rows {
            let cells: Vec<String> = columns
                .iter()
                .map(|column| row.get(*column).map_or(String::new(), |cell| csv_cell(cell)))
                .collect();
            text += &(cells.join(",") + "\n");
        }
        text
    }
}

/// A value without the quotes of a string.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn flatten(prefix: &str, value: &Value, cells: &mut BTreeMap<String, String>) {
    if let Value::Object(members) = value {
        for (key, member) in members {
            // latency_us {p50} becomes latency_p50_us: units stay last.
            let name = match prefix.strip_suffix("_us") {
                Some(quantity) => format!("{quantity}_{key}_us"),
                None => key.clone(),
            };
            flatten(&name, member, cells);
        }
    } else {
        cells.insert(prefix.into(), plain(value));
    }
}

fn csv_cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::outcome;

    #[test]
    fn csv_lines_have_as_many_cells_as_titles() {
        let csv = outcome("--classes 2 --label note=a,b").to_csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 4, "titles, all, two classes");
        let cells = |line: &str| line.replace("\"a,b\"", "quoted").split(',').count();
        assert!(lines.iter().all(|line| cells(line) == cells(lines[0])), "{csv}");
        assert!(lines[0].contains("latency_p99_us") && lines[1].contains("all"));
    }
}
