//! What has been measured: samples of each server at each load. They are rows of the data file,
//! with their medians, and are read from it again by `--resume`.

use clap::ValueEnum;
use serde_json::Value;

use super::super::matrix::{PERIOD_MS, Row, number, rounds};
use super::super::table::Table;
use crate::cli::Loop;

/// What the client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Load {
    pub kind: Loop,
    pub matrix: u32,
    pub connections: u32,
}

/// So many connections of an open loop offer more than any server here answers.
const OVERLOADING: u32 = 1024;

impl Load {
    pub fn is_overload(self) -> bool {
        self.kind == Loop::Open && self.connections >= OVERLOADING
    }
}

/// A server at a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// `cops` or `linux`.
    pub system: String,
    pub model: String,
    pub load: Load,
}

/// The samples of one.
#[derive(Debug, Clone)]
struct Cell {
    key: Key,
    samples: Vec<Row>,
}

/// All of them, in the order in which they were measured first.
#[derive(Debug, Clone, Default)]
pub struct Cells(Vec<Cell>);

/// What is kept of the result of the load generator. `sent` and `received` are of the measured
/// time. The errors are of the whole run: wrong answers, missing ones, lost connections.
const COLUMNS: [&str; 9] = [
    "sent",
    "received",
    "errors",
    "wrong",
    "missing",
    "lost",
    "throughput_rps",
    "latency_us",
    "send_lateness_us",
];

impl Cells {
    /// Those of a data file. What has another form is left out.
    pub fn read(document: &Value) -> Self {
        let rows = document.get("rows").and_then(Value::as_array).into_iter().flatten();
        Self(rows.filter_map(|row| cell(row.as_object()?)).collect())
    }

    pub fn samples(&self, key: &Key) -> usize {
        self.0.iter().find(|cell| cell.key == *key).map_or(0, |cell| cell.samples.len())
    }

    /// Adds a result of the load generator. Returns the sample.
    pub fn add(&mut self, key: &Key, result: &Row) -> Row {
        let columns = COLUMNS
            .iter()
            .filter_map(|&name| result.get(name).map(|value| (name.to_owned(), value.clone())));
        let sample: Row = columns.collect();
        match self.0.iter_mut().find(|cell| cell.key == *key) {
            Some(cell) => cell.samples.push(sample.clone()),
            None => self.0.push(Cell { key: key.clone(), samples: vec![sample.clone()] }),
        }
        sample
    }

    /// The rows of the data file: medians, with the samples.
    pub fn rows(&self) -> Vec<Row> {
        self.0.iter().map(Cell::row).collect()
    }

    /// COPS beside Linux, by loop, matrix and number of connections: the answers a second of each,
    /// and ratios to a server of Linux. In a closed loop that is the server with the most answers;
    /// in an open loop, in which all have the same number unless they are overloaded, it is for
    /// each value the best one, and the server with the lowest p99 is named.
    pub fn table(&self) -> Table {
        let mut models: Vec<(&str, &str)> = Vec::new();
        let mut loads: Vec<Load> = Vec::new();
        for Cell { key, .. } in &self.0 {
            let model = (key.system.as_str(), key.model.as_str());
            if !models.contains(&model) {
                models.push(model);
            }
            loads.push(key.load);
        }
        models.sort_by_key(|(system, _)| *system != "cops");
        loads.sort_unstable();
        loads.dedup();
        let names = models.iter().map(|(system, model)| {
            if *system == "cops" { format!("COPS {model}") } else { (*model).to_owned() }
        });
        let mut heading = ["loop", "matrix", "connections"].map(str::to_owned).to_vec();
        heading.extend(names);
        heading.extend(["best of Linux", "ratio", "of p50", "of p99"].map(str::to_owned));
        let mut table = Table::new(0, &heading.iter().map(String::as_str).collect::<Vec<_>>());
        let rows = self.rows();
        for load in loads {
            let of_load = self.0.iter().zip(&rows).filter(|(cell, _)| cell.key.load == load);
            let at: Vec<&Row> = of_load.map(|(_, row)| row).collect();
            let Load { kind, matrix, connections } = load;
            let mut cells =
                vec![kind.name().to_owned(), matrix.to_string(), connections.to_string()];
            cells.extend(models.iter().map(|(system, model)| {
                let row = at.iter().find(|row| row["system"] == *system && row["model"] == *model);
                row.map_or_else(|| "-".to_owned(), |row| throughput(row))
            }));
            let cops = best(&at, "cops");
            let of_linux = |path: &str| match (kind, path) {
                (Loop::Closed, _) | (_, THROUGHPUT) => best(&at, "linux"),
                _ => lowest(&at, "linux", path),
            };
            let named = of_linux(P99).and_then(|row| row["model"].as_str());
            cells.push(named.unwrap_or("-").to_owned());
            let ratio = |path: &str| {
                // Without answers there are no latencies.
                let cops = cops.filter(|row| path == THROUGHPUT || number(row, "received") > 0.0);
                let pair = cops.zip(of_linux(path));
                let ratio = pair.map(|(cops, linux)| number(cops, path) / number(linux, path));
                ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
            };
            cells.extend([THROUGHPUT, "latency_us.p50", P99].map(ratio));
            table.add(cells);
        }
        table
    }
}

impl Cell {
    fn row(&self) -> Row {
        let mut row = rounds::medians(&self.samples).into_iter().next().unwrap_or_default();
        let key = &self.key;
        let names = [
            ("system", Value::from(key.system.as_str())),
            ("model", key.model.as_str().into()),
            ("connections", key.load.connections.into()),
            ("matrix", key.load.matrix.into()),
            ("loop", key.load.kind.name().into()),
            ("samples", self.samples.clone().into()),
        ];
        row.extend(names.map(|(name, value)| (name.to_owned(), value)));
        if key.load.kind == Loop::Open {
            row.insert("period_ms".to_owned(), PERIOD_MS.into());
        }
        row
    }
}

fn cell(row: &Row) -> Option<Cell> {
    let text = |name: &str| row.get(name)?.as_str().map(str::to_owned);
    let count = |name: &str| u32::try_from(row.get(name)?.as_u64()?).ok();
    let key = Key {
        system: text("system")?,
        model: text("model")?,
        load: Load {
            kind: Loop::from_str(&text("loop")?, false).ok()?,
            matrix: count("matrix")?,
            connections: count("connections")?,
        },
    };
    let samples = row.get("samples")?.as_array()?;
    Some(Cell { key, samples: samples.iter().filter_map(Value::as_object).cloned().collect() })
}

const THROUGHPUT: &str = "throughput_rps";
const P99: &str = "latency_us.p99";

/// The row of a system with the highest throughput.
fn best<'r>(rows: &[&'r Row], system: &str) -> Option<&'r Row> {
    let of_it = rows.iter().copied().filter(|row| row["system"] == system);
    of_it.max_by(|one, other| number(one, THROUGHPUT).total_cmp(&number(other, THROUGHPUT)))
}

/// The row of a system with the lowest value. A server without answers has none.
fn lowest<'r>(rows: &[&'r Row], system: &str, path: &str) -> Option<&'r Row> {
    let of_it = rows.iter().copied().filter(|row| row["system"] == system);
    of_it
        .filter(|row| number(row, "received") > 0.0)
        .min_by(|one, other| number(one, path).total_cmp(&number(other, path)))
}

/// Answers a second, with the errors if there were any.
fn throughput(row: &Row) -> String {
    let errors = number(row, "errors");
    let mark = if errors > 0.0 { format!(" ({errors:.0} errors)") } else { String::new() };
    format!("{:.0}{mark}", number(row, THROUGHPUT))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(system: &str, model: &str, connections: u32) -> Key {
        let [system, model] = [system, model].map(str::to_owned);
        Key { system, model, load: Load { kind: Loop::Closed, matrix: 1, connections } }
    }

    fn open(system: &str, model: &str, connections: u32) -> Key {
        let closed = key(system, model, connections);
        Key { load: Load { kind: Loop::Open, ..closed.load }, ..closed }
    }

    fn result(rps: f64) -> Row {
        let result = json!({ "sent": 9, "received": 9, "errors": 0, "throughput_rps": rps,
            "latency_us": { "p50": 1e6 / rps, "p99": 3.0 }, "operation": "u64",
            "missing": 4, "send_lateness_us": { "p99": 7.0 } });
        result.as_object().expect("an object").clone()
    }

    fn measured() -> Cells {
        let mut cells = Cells::default();
        for rps in [100.0, 400.0, 300.0] {
            cells.add(&key("cops", "kcuc", 16), &result(rps));
            cells.add(&key("linux", "epoll", 16), &result(rps / 2.0));
            cells.add(&key("linux", "io-uring", 16), &result(rps / 1.5));
        }
        cells
    }

    #[test]
    fn rows_are_medians_with_their_samples() {
        let rows = measured().rows();
        assert_eq!(rows.len(), 3);
        assert_eq!((number(&rows[0], "throughput_rps"), number(&rows[0], "runs")), (300.0, 3.0));
        assert_eq!(rows[0]["spread"]["throughput_rps"], json!([100.0, 400.0]));
        assert_eq!(rows[0]["samples"][1]["throughput_rps"], 400.0);
        assert_eq!((&rows[2]["system"], &rows[2]["model"]), (&"linux".into(), &"io-uring".into()));
        assert!(!rows[0].contains_key("operation") && !rows[0].contains_key("period_ms"));
        assert_eq!((&rows[0]["loop"], number(&rows[0], "missing")), (&"closed".into(), 4.0));
        assert_eq!(number(&rows[0], "send_lateness_us.p99"), 7.0);
    }

    #[test]
    fn what_was_written_is_read_and_more_is_added() {
        let document = json!({ "config": {}, "rows": measured().rows() });
        let mut again = Cells::read(&document);
        assert_eq!(again.rows(), measured().rows());
        let epoll = key("linux", "epoll", 16);
        assert_eq!((again.samples(&epoll), again.samples(&key("linux", "epoll", 64))), (3, 0));
        again.add(&epoll, &result(7.0));
        assert_eq!(again.samples(&epoll), 4);
        assert!(Cells::read(&json!({})).rows().is_empty());
    }

    #[test]
    fn an_open_loop_is_a_load_of_its_own_also_after_it_was_read() {
        let mut cells = measured();
        cells.add(&open("linux", "epoll", 16), &result(5.0));
        let document = json!({ "config": {}, "rows": cells.rows() });
        let again = Cells::read(&document);
        let count = |key: &Key| (cells.samples(key), again.samples(key));
        assert_eq!(count(&key("linux", "epoll", 16)), (3, 3));
        assert_eq!(count(&open("linux", "epoll", 16)), (1, 1));
        assert_eq!(count(&open("linux", "epoll", 64)), (0, 0));
        let rows = again.rows();
        assert_eq!((&rows[3]["loop"], &rows[3]["period_ms"]), (&"open".into(), &100.into()));
        // No loop that is known.
        let mut other = cells.rows()[3].clone();
        other.insert("loop".into(), "spiral".into());
        let document = json!({ "config": {}, "rows": [other] });
        assert!(Cells::read(&document).rows().is_empty());
    }

    #[test]
    fn cops_is_compared_with_the_best_of_linux() {
        let mut cells = measured();
        cells.add(&key("cops", "kcuc", 64), &result(10.0));
        let text = cells.table().plain();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        let closed = ["closed", "1", "16", "300", "150", "200", "io-uring", "1.50", "0.67", "1.00"];
        assert_eq!(lines[1], closed);
        assert_eq!(lines[2], ["closed", "1", "64", "10", "-", "-", "-", "-", "-", "-"]);
    }

    #[test]
    fn latencies_of_an_open_loop_are_compared_with_the_lowest_of_linux() {
        let with = |rps: f64, p50: f64, p99: f64, received: u32| {
            let mut result = result(rps);
            result.insert("latency_us".into(), json!({ "p50": p50, "p99": p99 }));
            result.insert("received".into(), received.into());
            result
        };
        let mut cells = Cells::default();
        for (connections, received) in [(16, 9), (64, 0)] {
            let [cops, epoll, uring, none] =
                [("cops", "kcuc"), ("linux", "epoll"), ("linux", "io-uring"), ("linux", "tokio")]
                    .map(|(system, model)| open(system, model, connections));
            cells.add(&cops, &with(160.0, 30.0, 60.0, received));
            cells.add(&epoll, &with(160.0, 60.0, 400.0, 9));
            cells.add(&uring, &with(100.0, 90.0, 120.0, 9));
            // What answers nothing has no latency, and not the lowest one.
            cells.add(&none, &with(0.0, 0.0, 0.0, 0));
        }
        let text = cells.table().plain();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1][..3], ["open", "1", "16"]);
        assert_eq!(lines[1][lines[1].len() - 4..], ["io-uring", "1.00", "0.50", "0.50"]);
        assert_eq!(lines[2][lines[2].len() - 4..], ["io-uring", "1.00", "-", "-"]);
    }

    #[test]
    fn errors_are_shown() {
        let mut row = result(5.0);
        row.insert("errors".into(), 2.into());
        assert_eq!(throughput(&row), "5 (2 errors)");
    }
}
