//! What a run comes to: rows, and the data behind the plots. One document holds all of it, so
//! that a figure can be drawn again from the file.

use std::collections::BTreeMap;

use cops_report::units::{duration_text, three_digits};
use cops_report::{Colours, LatencyPlot, LatencySeries, PlotError, Table, ThroughputPlot, ThroughputSeries};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arguments::{LoadSettings, OperationName};
use crate::load::Measurements;
use crate::statistics::{Durations, INTERVAL_NS, Statistics};

/// Columns of a row that a label may not take.
pub const COLUMNS: [&str; 16] = [
    "loop",
    "connections",
    "matrix",
    "operation",
    "period_ms",
    "class",
    "sent",
    "received",
    "errors",
    "wrong",
    "missing",
    "lost",
    "throughput_rps",
    "latency_us",
    "send_lateness_us",
    "config",
];
/// Columns that the data contract wants in every row, given or not.
const EXPECTED_LABELS: [&str; 2] = ["model", "vcpus"];
/// Most steps in the throughput plot, and fewest answers that a step should stand for.
const PLOTTED_INTERVALS: u64 = 120;
const ANSWERS_PER_INTERVAL: f64 = 5.0;

/// The document: `{"bench": "models", "config": {…}, "rows": […], …}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    bench: String,
    config: LoadSettings,
    /// One row: the whole run.
    rows: Vec<Row>,
    /// One row per priority class.
    classes: Vec<Row>,
    /// Right answers by class.
    throughput_over_time: TimeSeries,
    /// Latencies in the measuring window by class.
    latency_distribution: Vec<LatencySeries>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct TimeSeries {
    interval_ms: f64,
    series: Vec<ThroughputSeries>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    #[serde(flatten)]
    labels: BTreeMap<String, Value>,
    r#loop: String,
    connections: u32,
    matrix: u16,
    operation: OperationName,
    /// None in a closed loop.
    period_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    class: Option<u8>,
    sent: u64,
    received: u64,
    errors: u64,
    wrong: u64,
    missing: u64,
    lost: u64,
    throughput_rps: f64,
    latency_us: LatencyColumns,
    /// Of the whole run, in an open loop.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    send_lateness_us: Option<LatenessColumns>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct LatencyColumns {
    mean: f64,
    p50: f64,
    p90: f64,
    p99: f64,
    p999: f64,
    max: f64,
    jitter: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct LatenessColumns {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Row {
    fn new(settings: &LoadSettings, labels: &[(String, String)], statistics: &Statistics) -> Self {
        let nothing = EXPECTED_LABELS.map(|key| (key.to_owned(), Value::Null));
        let given = labels.iter().map(|(key, value)| (key.clone(), label_value(value)));
        let latency = &statistics.latency;
        Self {
            labels: nothing.into_iter().chain(given).collect(),
            r#loop: if settings.closed { "closed" } else { "open" }.into(),
            connections: settings.connections,
            matrix: settings.matrix,
            operation: settings.operation,
            period_ms: (!settings.closed).then_some(settings.period_ms),
            class: None,
            sent: statistics.sent,
            received: statistics.received,
            errors: statistics.errors(),
            wrong: statistics.wrong,
            missing: statistics.missing,
            lost: statistics.lost,
            throughput_rps: thousandths(statistics.answers_in_window as f64 / settings.seconds),
            latency_us: LatencyColumns {
                mean: thousandths(latency.mean_us()),
                p50: latency.percentile_us(0.5),
                p90: latency.percentile_us(0.9),
                p99: latency.percentile_us(0.99),
                p999: latency.percentile_us(0.999),
                max: latency.max_us(),
                jitter: thousandths(statistics.jitter_us()),
            },
            send_lateness_us: None,
        }
    }

    fn name(&self) -> String {
        self.class.map_or("all".into(), |class| class.to_string())
    }
}

impl Outcome {
    /// Sums up a run.
    #[must_use]
    pub fn new(settings: &LoadSettings, labels: &[(String, String)], measurements: &Measurements) -> Self {
        let mut whole = Statistics::default();
        measurements.classes.iter().for_each(|class| whole.add(class));
        let lateness = &measurements.send_lateness;
        let columns = |lateness: &Durations| LatenessColumns {
            p50: lateness.percentile_us(0.5),
            p99: lateness.percentile_us(0.99),
            max: lateness.max_us(),
        };
        let row = Row {
            send_lateness_us: (lateness.count() > 0).then(|| columns(lateness)),
            ..Row::new(settings, labels, &whole)
        };
        let by_class = || (0..=u8::MAX).zip(&measurements.classes);
        let label =
            |class: u8| if measurements.classes.len() == 1 { "all".into() } else { format!("class {class}") };
        Self {
            bench: "models".into(),
            config: settings.clone(),
            rows: vec![row],
            classes: by_class()
                .map(|(class, statistics)| Row {
                    class: Some(class),
                    ..Row::new(settings, labels, statistics)
                })
                .collect(),
            throughput_over_time: TimeSeries {
                interval_ms: INTERVAL_NS as f64 / 1e6,
                series: by_class()
                    .map(|(class, statistics)| ThroughputSeries {
                        label: label(class),
                        answers: statistics.answers_by_interval.clone(),
                    })
                    .collect(),
            },
            latency_distribution: by_class()
                .map(|(class, statistics)| LatencySeries {
                    label: label(class),
                    buckets: statistics.latency.buckets_us(),
                })
                .collect(),
        }
    }

    /// Errors of the whole run.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.rows.iter().map(|row| row.errors).sum()
    }

    /// For a person: the configuration, a row for all and, if there are several, one per class.
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
            let cells = [row.name()].into_iter().chain(counts).chain([three_digits(row.throughput_rps)]);
            // Without an answer there is no latency, least of all one of zero.
            let text = |us| if row.received == 0 { "-".into() } else { duration_text(us) };
            table.push(cells.chain(durations.map(text)));
        }
        let mut text = format!("{}\n{table}", self.description());
        for row in &self.rows {
            if let Some(lateness) = &row.send_lateness_us {
                let [p50, p99, max] = [lateness.p50, lateness.p99, lateness.max].map(duration_text);
                text += &format!("client's own lateness in sending: p50 {p50}, p99 {p99}, max {max}\n");
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

    /// One line that says what was run.
    fn description(&self) -> String {
        let config = &self.config;
        let labels = self.rows.iter().flat_map(|row| &row.labels).filter(|(_, value)| !value.is_null());
        let labels: Vec<String> = labels.map(|(key, value)| format!("{key} {}", plain(value))).collect();
        let kind = match config.operation {
            OperationName::U64 => "u64",
            OperationName::F64 => "f64",
            OperationName::Echo => "echoed",
        };
        let mode = if config.closed {
            "closed loop".into()
        } else {
            format!("open loop, period {} ms", three_digits(config.period_ms))
        };
        let (connections, side) = (config.connections, config.matrix);
        let plural = if connections == 1 { "" } else { "s" };
        let (seconds, warmup) = (three_digits(config.seconds), three_digits(config.warmup_seconds));
        let mut text = format!(
            "{connections} connection{plural}, {side} x {side} {kind}, {mode}, {seconds} s after {warmup} s warm-up"
        );
        if !labels.is_empty() {
            text += &format!("; {}", labels.join(", "));
        }
        text
    }

    /// The document as JSON, one line per row and series, so that a change can be read as one.
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

    /// Reads what [`Self::to_json`] wrote.
    ///
    /// # Errors
    ///
    /// The text is not such a document.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The rows as CSV: class `all` first, then one per class; nested columns are joined with an underscore.
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
        let columns: std::collections::BTreeSet<&String> =
            flat_rows.iter().flat_map(BTreeMap::keys).collect();
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

    /// Latency distribution and percentiles, a line per class.
    ///
    /// # Errors
    ///
    /// See [`PlotError`].
    pub fn latency_svg(&self) -> Result<String, PlotError> {
        let plot = LatencyPlot {
            title: "Latency of the matrix service".into(),
            subtitle: self.subtitle(),
            colours: Colours::Ordered,
            series: self.latency_distribution.clone(),
        };
        plot.to_svg()
    }

    /// Answers per second over time, a layer per class.
    ///
    /// # Errors
    ///
    /// See [`PlotError`].
    pub fn throughput_svg(&self) -> Result<String, PlotError> {
        let series = &self.throughput_over_time.series;
        let answers: u64 = series.iter().flat_map(|series| &series.answers).sum();
        let fine = series.iter().map(|series| series.answers.len()).max().unwrap_or(0) as u64;
        let factor = coarsening(fine, answers);
        let coarsen = |series: &ThroughputSeries| ThroughputSeries {
            label: series.label.clone(),
            answers: series.answers.chunks(factor).map(|chunk| chunk.iter().sum()).collect(),
        };
        let config = &self.config;
        let plot = ThroughputPlot {
            title: "Throughput of the matrix service".into(),
            subtitle: self.subtitle(),
            colours: Colours::Ordered,
            interval_seconds: self.throughput_over_time.interval_ms / 1e3 * factor as f64,
            window_seconds: (config.warmup_seconds, config.warmup_seconds + config.seconds),
            offered_rps: (!config.closed).then(|| f64::from(config.connections) / config.period_ms * 1e3),
            series: series.iter().map(coarsen).collect(),
        };
        plot.to_svg()
    }

    fn subtitle(&self) -> String {
        format!("{}; {} errors", self.description(), self.errors())
    }
}

/// How many fine intervals make a plotted one, a round number: few enough steps to be seen,
/// and enough answers in each that their granularity is not taken for a fluctuation.
fn coarsening(fine_intervals: u64, answers: u64) -> usize {
    let for_width = fine_intervals.div_ceil(PLOTTED_INTERVALS).max(1);
    let for_answers = (ANSWERS_PER_INTERVAL * fine_intervals as f64 / answers.max(1) as f64) as u64;
    let wanted = for_width.max(for_answers.min(fine_intervals / 4));
    let round = (0..).flat_map(|power| [1, 2, 5].map(|factor| factor * 10_u64.pow(power)));
    round.into_iter().find(|factor| *factor >= wanted).unwrap_or(wanted) as usize
}

fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Labels that look like numbers are numbers, but not those whose spelling would change (a
/// version 10.0, a commit 0012).
fn label_value(text: &str) -> Value {
    match text.parse::<u64>() {
        Ok(number) if number.to_string() == text => number.into(),
        _ => text.into(),
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
    use clap::Parser;

    use super::*;
    use crate::arguments::Arguments;

    fn outcome(line: &str) -> Outcome {
        let arguments = Arguments::parse_from(["cops-loadgen"].into_iter().chain(line.split_whitespace()));
        let mut class = Statistics::default();
        class.sent = 2;
        for at_us in [1_000, 3_000] {
            class.record_arrival(1_000_000_000 + at_us * 1_000, &arguments.load.window_ns());
            class.record_latency(at_us * 1_000, None);
        }
        let classes = vec![class; arguments.load.classes.into()];
        let measurements = Measurements { classes, send_lateness: Durations::new(), complaints: Vec::new() };
        Outcome::new(&arguments.load, &arguments.label, &measurements)
    }

    #[test]
    fn rows_have_the_contracted_columns() {
        let json: Value =
            serde_json::from_str(&outcome("--label model=kcuc --label qemu=10.0").to_json()).unwrap();
        let row = &json["rows"][0];
        assert_eq!(json["bench"], "models");
        assert_eq!(
            (&row["model"], &row["vcpus"], &row["qemu"]),
            (&"kcuc".into(), &Value::Null, &"10.0".into())
        );
        assert_eq!(
            (&row["connections"], &row["matrix"], &row["period_ms"]),
            (&64.into(), &15.into(), &100.0.into())
        );
        assert_eq!((&row["sent"], &row["received"], &row["errors"]), (&2.into(), &2.into(), &0.into()));
        assert_eq!((&row["throughput_rps"], &row["latency_us"]["mean"]), (&0.4.into(), &2000.0.into()));
        for column in ["p50", "p99", "p999", "max", "jitter"] {
            assert!(row["latency_us"][column].is_f64(), "{column}");
        }
        assert_eq!(json["classes"][0]["class"], 0);
    }

    #[test]
    fn every_column_is_reserved() {
        let json = serde_json::to_value(outcome("--classes 2")).unwrap();
        let columns = [&json["rows"][0], &json["classes"][1]]
            .into_iter()
            .flat_map(|row| row.as_object().unwrap().keys());
        for column in columns.filter(|column| !EXPECTED_LABELS.contains(&column.as_str())) {
            assert!(COLUMNS.contains(&column.as_str()), "{column}");
        }
    }

    #[test]
    fn what_is_written_can_be_plotted_again() {
        let first = outcome("--classes 3 --closed --label model=kcuc");
        let again = Outcome::from_json(&first.to_json()).unwrap();
        assert_eq!(first.latency_svg().unwrap(), again.latency_svg().unwrap());
        assert_eq!(first.throughput_svg().unwrap(), again.throughput_svg().unwrap());
        assert_eq!(first.table(), again.table());
    }

    #[test]
    fn csv_lines_have_as_many_cells_as_titles() {
        let csv = outcome("--classes 2 --label note=a,b").to_csv();
        let lines: Vec<&str> = csv.lines().collect();
        assert_eq!(lines.len(), 4, "titles, all, two classes");
        let cells = |line: &str| line.replace("\"a,b\"", "quoted").split(',').count();
        assert!(lines.iter().all(|line| cells(line) == cells(lines[0])), "{csv}");
        assert!(lines[0].contains("latency_p99_us") && lines[1].contains("all"));
    }

    #[test]
    fn plotted_intervals_are_round_and_hold_answers() {
        assert_eq!(coarsening(600, 4_000), 5, "6 s at 640 per second: 50 ms");
        assert_eq!(coarsening(600, 60), 50, "10 per second: half a second");
        assert_eq!(coarsening(0, 0), 1);
    }
}
