//! The results of a run: rows, and the data for the plots. A single document contains all of it, so
//! that a plot can be drawn again from the file. `text` and `plots` write it out.

mod plots;
mod text;

use std::collections::BTreeMap;

use cops_report::{LatencySeries, ThroughputSeries};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::arguments::{LoadSettings, OperationName};
use crate::load::Measurements;
use crate::statistics::{Durations, INTERVAL_NS, Statistics};

/// Columns of a row, which labels may not use.
pub const COLUMNS: [&str; 19] = [
    "loop",
    "connections",
    "matrix",
    "operation",
    "period_ms",
    "pause_ms",
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
    "warm_up_seconds",
    "settled",
    "config",
];
/// Columns that the data contract requires in every row.
const EXPECTED_LABELS: [&str; 2] = ["model", "vcpus"];
/// The document: `{"bench": "models", "config": {…}, "rows": […], …}`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    bench: String,
    /// With the warm-up as it was.
    config: LoadSettings,
    /// One row: the whole run.
    rows: Vec<Row>,
    /// One row per priority class.
    classes: Vec<Row>,
    /// Correct answers by class.
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
    /// `None` in a closed loop.
    period_ms: Option<f64>,
    /// Between an answer and the next request, if the client pauses.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pause_ms: Option<f64>,
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
    /// How long the warm-up was, if it could be longer than asked for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    warm_up_seconds: Option<f64>,
    /// Whether its backlog was gone then. Otherwise the window has answered that too.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    settled: Option<bool>,
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
    #[serde(default)]
    deviation: f64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct LatenessColumns {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Row {
    fn new(
        settings: &LoadSettings,
        labels: &[(String, String)],
        statistics: &Statistics,
        window_seconds: f64,
    ) -> Self {
        let nothing = EXPECTED_LABELS.map(|key| (key.to_owned(), Value::Null));
        let given = labels.iter().map(|(key, value)| (key.clone(), label_value(value)));
        let latency = &statistics.latency;
        Self {
            labels: nothing.into_iter().chain(given).collect(),
            r#loop: match settings.pause_ms {
                Some(_) => "pause",
                None if settings.closed => "closed",
                None => "open",
            }
            .into(),
            connections: settings.connections,
            matrix: settings.matrix,
            operation: settings.operation,
            period_ms: (!settings.waits_for_answers()).then_some(settings.period_ms),
            pause_ms: settings.pause_ms,
            class: None,
            sent: statistics.sent,
            received: statistics.received,
            errors: statistics.errors(),
            wrong: statistics.wrong,
            missing: statistics.missing,
            lost: statistics.lost,
            throughput_rps: thousandths(statistics.answers_in_window as f64 / window_seconds),
            latency_us: LatencyColumns {
                mean: thousandths(latency.mean_us()),
                p50: latency.percentile_us(0.5),
                p90: latency.percentile_us(0.9),
                p99: latency.percentile_us(0.99),
                p999: latency.percentile_us(0.999),
                max: latency.max_us(),
                jitter: thousandths(statistics.jitter_us()),
                deviation: thousandths(latency.deviation_us()),
            },
            send_lateness_us: None,
            warm_up_seconds: None,
            settled: None,
        }
    }

    fn name(&self) -> String {
        self.class.map_or("all".into(), |class| class.to_string())
    }
}

impl Outcome {
    /// Summarises a run.
    #[must_use]
    pub fn new(
        settings: &LoadSettings,
        labels: &[(String, String)],
        measurements: &Measurements,
    ) -> Self {
        let mut whole = Statistics::default();
        measurements.classes.iter().for_each(|class| whole.add(class));
        let window_seconds = match settings.requests {
            // At least 1, in case there was no answer.
            Some(_) => measurements.last_answer_ns.max(1) as f64 / 1e9,
            None => settings.seconds,
        };
        let settled = measurements.settled;
        let warm_up_seconds = thousandths(measurements.warm_up_ns as f64 / 1e9);
        let row_of = |statistics: &Statistics| Row {
            warm_up_seconds: settled.map(|_| warm_up_seconds),
            settled,
            ..Row::new(settings, labels, statistics, window_seconds)
        };
        let lateness = &measurements.send_lateness;
        let columns = |lateness: &Durations| LatenessColumns {
            p50: lateness.percentile_us(0.5),
            p99: lateness.percentile_us(0.99),
            max: lateness.max_us(),
        };
        let row = Row {
            send_lateness_us: (lateness.count() > 0).then(|| columns(lateness)),
            ..row_of(&whole)
        };
        let by_class = || (0..=u8::MAX).zip(&measurements.classes);
        let label = |class: u8| {
            if measurements.classes.len() == 1 { "all".into() } else { format!("class {class}") }
        };
        let mut config = settings.clone();
        if config.settle_seconds > 0.0 {
            config.warmup_seconds = measurements.warm_up_ns as f64 / 1e9;
        }
        Self {
            bench: "models".into(),
            config,
            rows: vec![row],
            classes: by_class()
                .map(|(class, statistics)| Row { class: Some(class), ..row_of(statistics) })
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

    /// Number of errors in the whole run.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.rows.iter().map(|row| row.errors).sum()
    }

    /// Parses the output of [`Self::to_json`].
    ///
    /// # Errors
    ///
    /// The text is not such a document.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

fn thousandths(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Labels that look like numbers are numbers, except those with another spelling than the number (a
/// version 10.0, a commit 0012).
fn label_value(text: &str) -> Value {
    match text.parse::<u64>() {
        Ok(number) if number.to_string() == text => number.into(),
        _ => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::arguments::Arguments;

    pub(super) fn outcome(line: &str) -> Outcome {
        let arguments =
            Arguments::parse_from(["cops-loadgen"].into_iter().chain(line.split_whitespace()));
        let mut class = Statistics::default();
        class.sent = 2;
        for at_us in [1_000, 3_000] {
            class.record_arrival(1_000_000_000 + at_us * 1_000, &arguments.load.window_ns());
            class.record_latency(at_us * 1_000, None);
        }
        let classes = vec![class; arguments.load.classes.into()];
        let measurements = Measurements {
            classes,
            send_lateness: Durations::new(),
            last_answer_ns: 0,
            warm_up_ns: 0,
            settled: None,
            complaints: Vec::new(),
        };
        Outcome::new(&arguments.load, &arguments.label, &measurements)
    }

    #[test]
    fn rows_have_the_contracted_columns() {
        let json: Value =
            serde_json::from_str(&outcome("--label model=kcuc --label qemu=10.0").to_json())
                .unwrap();
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
        assert_eq!(
            (&row["sent"], &row["received"], &row["errors"]),
            (&2.into(), &2.into(), &0.into())
        );
        assert_eq!(
            (&row["throughput_rps"], &row["latency_us"]["mean"]),
            (&0.4.into(), &2000.0.into())
        );
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
}
