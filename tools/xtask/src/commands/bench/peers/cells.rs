//! What has been measured: samples of each server at each load. They are rows of the data file,
//! with their medians, and are read from it again by `--resume`.

use serde_json::{Map, Value};

use super::super::matrix::{Row, number, rounds};
use super::super::table::Table;

/// A server at a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// `cops` or `linux`.
    pub system: String,
    pub model: String,
    pub connections: u32,
    pub matrix: u32,
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

/// What is kept of the result of the load generator.
const COLUMNS: [&str; 5] = ["sent", "received", "errors", "throughput_rps", "latency_us"];

impl Cells {
    /// Those of a data file, if it was made like this: the given entries of its configuration are
    /// the same. What has another form is left out.
    pub fn read(document: &Value, configuration: &Map<String, Value>) -> Option<Self> {
        let config = document.get("config")?;
        let is_same = |(name, value): (&String, &Value)| config.get(name) == Some(value);
        if !configuration.iter().all(is_same) {
            return None;
        }
        let rows = document.get("rows")?.as_array()?;
        Some(Self(rows.iter().filter_map(|row| cell(row.as_object()?)).collect()))
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

    /// COPS beside Linux, by matrix and number of connections.
    pub fn table(&self) -> Table {
        let mut models: Vec<(&str, &str)> = Vec::new();
        let mut loads: Vec<(u32, u32)> = Vec::new();
        for Cell { key, .. } in &self.0 {
            let model = (key.system.as_str(), key.model.as_str());
            if !models.contains(&model) {
                models.push(model);
            }
            loads.push((key.matrix, key.connections));
        }
        models.sort_by_key(|(system, _)| *system != "cops");
        loads.sort_unstable();
        loads.dedup();
        let names = models.iter().map(|(system, model)| {
            if *system == "cops" { format!("COPS {model}") } else { (*model).to_owned() }
        });
        let mut heading = vec!["matrix".to_owned(), "connections".to_owned()];
        heading.extend(names);
        heading.extend(["best of Linux", "ratio", "of p50", "of p99"].map(str::to_owned));
        let mut table = Table::new(0, &heading.iter().map(String::as_str).collect::<Vec<_>>());
        let rows = self.rows();
        for (matrix, connections) in loads {
            let at: Vec<&Row> = rows
                .iter()
                .filter(|row| row["matrix"] == matrix && row["connections"] == connections)
                .collect();
            let mut cells = vec![matrix.to_string(), connections.to_string()];
            cells.extend(models.iter().map(|(system, model)| {
                let row = at.iter().find(|row| row["system"] == *system && row["model"] == *model);
                row.map_or_else(|| "-".to_owned(), |row| throughput(row))
            }));
            let best = |system: &str| best(&at, system);
            let (cops, linux) = (best("cops"), best("linux"));
            cells.push(linux.map_or("-", |row| row["model"].as_str().unwrap_or("-")).to_owned());
            let ratio = |path: &str| {
                let pair =
                    cops.zip(linux).map(|(cops, linux)| number(cops, path) / number(linux, path));
                pair.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}"))
            };
            cells.extend(["throughput_rps", "latency_us.p50", "latency_us.p99"].map(ratio));
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
            ("connections", key.connections.into()),
            ("matrix", key.matrix.into()),
            ("loop", "closed".into()),
            ("samples", self.samples.clone().into()),
        ];
        row.extend(names.map(|(name, value)| (name.to_owned(), value)));
        row
    }
}

fn cell(row: &Row) -> Option<Cell> {
    let text = |name: &str| row.get(name)?.as_str().map(str::to_owned);
    let count = |name: &str| u32::try_from(row.get(name)?.as_u64()?).ok();
    let key = Key {
        system: text("system")?,
        model: text("model")?,
        connections: count("connections")?,
        matrix: count("matrix")?,
    };
    let samples = row.get("samples")?.as_array()?;
    Some(Cell { key, samples: samples.iter().filter_map(Value::as_object).cloned().collect() })
}

/// The row of a system with the highest throughput.
fn best<'r>(rows: &[&'r Row], system: &str) -> Option<&'r Row> {
    let of_it = rows.iter().copied().filter(|row| row["system"] == system);
    of_it.max_by(|one, other| {
        number(one, "throughput_rps").total_cmp(&number(other, "throughput_rps"))
    })
}

/// Answers a second, with the errors if there were any.
fn throughput(row: &Row) -> String {
    let errors = number(row, "errors");
    let mark = if errors > 0.0 { format!(" ({errors:.0} errors)") } else { String::new() };
    format!("{:.0}{mark}", number(row, "throughput_rps"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn key(system: &str, model: &str, connections: u32) -> Key {
        let [system, model] = [system, model].map(str::to_owned);
        Key { system, model, connections, matrix: 1 }
    }

    fn result(rps: f64) -> Row {
        let result = json!({ "sent": 9, "received": 9, "errors": 0, "throughput_rps": rps,
            "latency_us": { "p50": 1e6 / rps, "p99": 3.0 }, "operation": "u64" });
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
        assert!(!rows[0].contains_key("operation"));
    }

    #[test]
    fn a_file_is_resumed_if_it_was_made_in_the_same_way() {
        let document = json!({ "config": { "commit": "a", "smp": 1, "command": "x" },
            "rows": measured().rows() });
        let configuration = |commit: &str| {
            let entries = json!({ "commit": commit, "smp": 1 });
            entries.as_object().expect("an object").clone()
        };
        assert!(Cells::read(&document, &configuration("b")).is_none());
        let mut again = Cells::read(&document, &configuration("a")).expect("is the same");
        assert_eq!(again.rows(), measured().rows());
        let epoll = key("linux", "epoll", 16);
        assert_eq!((again.samples(&epoll), again.samples(&key("linux", "epoll", 64))), (3, 0));
        again.add(&epoll, &result(7.0));
        assert_eq!(again.samples(&epoll), 4);
        assert!(Cells::read(&json!({}), &configuration("a")).is_none());
    }

    #[test]
    fn cops_is_compared_with_the_best_of_linux() {
        let mut cells = measured();
        cells.add(&key("cops", "kcuc", 64), &result(10.0));
        let text = cells.table().plain();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["1", "16", "300", "150", "200", "io-uring", "1.50", "0.67", "1.00"]);
        assert_eq!(lines[2], ["1", "64", "10", "-", "-", "-", "-", "-", "-"]);
    }

    #[test]
    fn errors_are_shown() {
        let mut row = result(5.0);
        row.insert("errors".into(), 2.into());
        assert_eq!(throughput(&row), "5 (2 errors)");
    }
}
