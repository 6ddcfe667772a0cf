//! What the page shows: the papers' series, and the data files under docs/results.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Map, Value};

use crate::distribution;
use crate::error::{Because, Failure, Outcome};
use crate::figures::Data;
use crate::repository::read;

/// The papers' series; docs/papers/README.md says where they come from.
pub const PAPERS: &str = "docs/papers/series.json";

/// A row of a data file.
#[derive(Debug, Clone, Default)]
pub struct Row(pub Map<String, Value>);

impl Row {
    fn get(&self, path: &str) -> Option<&Value> {
        let mut words = path.split('.');
        let first = self.0.get(words.next()?)?;
        words.try_fold(first, |value, word| value.get(word))
    }

    /// A number; names of nested values are joined by dots.
    pub fn number(&self, path: &str) -> Option<f64> {
        self.get(path)?.as_f64()
    }

    /// A text; empty if it is missing.
    pub fn text(&self, path: &str) -> &str {
        self.get(path).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether a value, written as text, is this one. What is missing is the empty text.
    pub fn is(&self, path: &str, value: &str) -> bool {
        self.shown(path) == value
    }

    /// A value as text.
    pub fn shown(&self, path: &str) -> String {
        match self.get(path) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => other.to_string(),
        }
    }

    /// The points of a distribution; see [`distribution::points`].
    pub fn points(&self, path: &str) -> Vec<(f64, f64)> {
        self.get(path).map(distribution::points).unwrap_or_default()
    }

    /// The extremes of a number in several runs. Their names have dots.
    pub fn spread(&self, path: &str) -> Option<(f64, f64)> {
        let pair = self.0.get("spread")?.get(path)?;
        Some((pair.get(0)?.as_f64()?, pair.get(1)?.as_f64()?))
    }

    /// Names and values of all columns, those of nested objects with dots.
    fn columns(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (name, value) in &self.0 {
            match value {
                Value::Object(inner) => {
                    let inner = Self(inner.clone()).columns().into_iter();
                    found.extend(inner.map(|(inner, value)| (format!("{name}.{inner}"), value)));
                }
                // Distributions, which the page draws.
                Value::Array(_) => {}
                _ => found.push((name.clone(), self.shown(name))),
            }
        }
        found
    }
}

/// A data file of ours.
#[derive(Debug, Clone)]
pub struct File {
    /// Its path below docs/results, without the ending.
    pub name: String,
    pub rows: Vec<Row>,
    config: Row,
}

impl File {
    /// Where the data come from: command, commit, emulator.
    pub fn origin(&self) -> String {
        let of = |name: &str| self.config.shown(name);
        let linux = of("linux");
        let linux = if linux.is_empty() { String::new() } else { format!(", Linux {linux}") };
        format!(
            "<code>docs/results/{}.json</code>: <code>./cops {}</code>, commit {}, QEMU {}{linux}",
            self.name,
            super::html::escape(&of("command")),
            of("commit"),
            super::html::escape(&of("qemu")),
        )
    }

    /// The scheduler that was booted in place of the built one; empty if none was.
    pub fn scheduler(&self) -> &str {
        self.config.text("scheduler")
    }

    /// The number of harts, if there are several; the measurement says how many.
    pub fn several_harts(&self) -> Option<f64> {
        self.config.number("smp").filter(|harts| *harts > 1.0)
    }

    /// Whether the emulator ran one instruction at a time.
    pub fn has_slow_harts(&self) -> bool {
        self.config.is("slow_harts", "true")
    }

    /// Whether time is counted instructions.
    pub fn is_counted(&self) -> bool {
        self.config.is("icount", "true")
    }
}

/// Everything.
#[derive(Debug, Default)]
pub struct Material {
    pub papers: Vec<Row>,
    pub files: Vec<File>,
}

impl Material {
    /// Reads the files of a repository.
    ///
    /// # Errors
    /// If one cannot be read or has another form.
    pub fn read(root: &Path) -> Outcome<Self> {
        let (_, text) = read(root, &root.join(PAPERS))?;
        let papers: Value =
            serde_json::from_str(&text).because(|| format!("{PAPERS} is no JSON"))?;
        let data = Data::read(root)?;
        let files = data.names().filter_map(|name| file(name, data.get(name)?)).collect();
        Ok(Self {
            papers: rows(&papers).ok_or_else(|| Failure::new(format!("{PAPERS} has no rows")))?,
            files,
        })
    }

    /// The file of this name.
    pub fn file(&self, name: &str) -> Option<&File> {
        self.files.iter().find(|file| file.name == name)
    }

    /// The files of an experiment: `NAME`, and `NAME-..` for other settings.
    pub fn files_of<'s>(&'s self, experiment: &'s str) -> impl Iterator<Item = &'s File> {
        self.files.iter().filter(move |file| {
            file.name
                .strip_prefix(experiment)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
    }

    /// The rows of a paper's figure.
    pub fn paper(&self, seed: &str, figure: &str) -> Vec<&Row> {
        let is_it = |row: &&Row| row.is("seed", seed) && row.is("figure", figure);
        self.papers.iter().filter(is_it).collect()
    }
}

/// A file of the form of SPEC 5.6; `None` if it has another one.
pub fn file(name: &str, value: &Value) -> Option<File> {
    let config = value.get("config")?.as_object()?.clone();
    Some(File { name: name.to_owned(), rows: rows(value)?, config: Row(config) })
}

fn rows(value: &Value) -> Option<Vec<Row>> {
    let rows = value.get("rows")?.as_array()?;
    rows.iter().map(|row| row.as_object().cloned().map(Row)).collect()
}

/// Rows as comma-separated values, with a column for each name that a row has.
pub fn csv(rows: &[Row]) -> String {
    let all: Vec<Vec<(String, String)>> = rows.iter().map(Row::columns).collect();
    let names: BTreeSet<&str> = all.iter().flatten().map(|(name, _)| name.as_str()).collect();
    let mut text = names.iter().copied().collect::<Vec<_>>().join(",") + "\n";
    for row in &all {
        let cells = names.iter().map(|name| {
            let value = row.iter().find(|(found, _)| found == name);
            quoted(value.map_or("", |(_, value)| value))
        });
        text += &(cells.collect::<Vec<_>>().join(",") + "\n");
    }
    text
}

fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rows_are_comma_separated_values() {
        let value = json!({
            "config": {"command": "bench x", "icount": true},
            "rows": [{"a": 1, "latency_us": {"mean": 2.5}}, {"b": "x,\"y\""}],
        });
        let file = file("x", &value).unwrap();
        assert_eq!(csv(&file.rows), "a,b,latency_us.mean\n1,,2.5\n,\"x,\"\"y\"\"\",\n");
        assert_eq!(file.rows[0].number("latency_us.mean"), Some(2.5));
        assert!(file.is_counted() && file.origin().contains("./cops bench x"));
        assert!(super::file("x", &json!({"rows": []})).is_none());
    }

    #[test]
    fn the_files_of_an_experiment_have_its_name() {
        let of = |name: &str| File { name: name.into(), rows: Vec::new(), config: Row::default() };
        let files = ["models", "models-wall", "modelsx", "priority"].map(of).to_vec();
        let material = Material { papers: Vec::new(), files };
        assert_eq!(material.files_of("models").count(), 2);
    }
}
