//! Several runs of the same points: medians, and how far the runs are apart.

use serde_json::{Value, json};

use super::{Row, number};

/// What names a point.
const NAMES: [&str; 13] = [
    "model",
    "connections",
    "matrix",
    "loop",
    "period_ms",
    "pause_ms",
    "vcpus",
    "harts",
    "idle",
    "classes",
    "class",
    "load",
    "clock_shift",
];
/// Columns of which the extremes are kept.
const SPREAD: [&str; 4] = ["throughput_rps", "latency_us.mean", "latency_us.p50", "latency_us.p99"];

/// Columns of which a row has the most of a run. A median would hide one bad run of three.
pub const WORST: [&str; 4] = ["errors", "wrong", "missing", "lost"];

/// One row for each point, in the order of their first runs: each number is the median of those of
/// the runs; of an even number of runs, the mean of the two in the middle. Counts of errors are the
/// most of a run. What is no number is that of the first run; what is true must be so in each of
/// them. Latencies are those of the runs with answers, if there are any.
pub fn medians(rows: &[Row]) -> Vec<Row> {
    medians_over(rows, &[])
}

/// As [`medians`], of points that these names do not tell apart: they are numbers like others.
pub fn medians_over(rows: &[Row], numbers: &[&str]) -> Vec<Row> {
    let names: Vec<&str> = NAMES.into_iter().filter(|name| !numbers.contains(name)).collect();
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    let is_same =
        |left: &Row, right: &Row| names.iter().all(|name| left.get(*name) == right.get(*name));
    for row in rows {
        match groups.iter_mut().find(|group| is_same(group[0], row)) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups.iter().map(|group| median(group, &names)).collect()
}

fn median(runs: &[&Row], names: &[&str]) -> Row {
    // A run without answers has no latency; its zeros are none.
    let is_answered = |run: &&&Row| run.get("received").is_none_or(|received| *received != 0);
    let answered: Vec<&Row> = runs.iter().filter(is_answered).copied().collect();
    let of_latency = if answered.is_empty() { runs } else { &answered };
    let runs_of = |path: &str| if path.starts_with("latency_us") { of_latency } else { runs };
    let mut row = Row::new();
    for (name, first) in runs[0] {
        let values: Vec<&Value> = runs_of(name).iter().filter_map(|run| run.get(name)).collect();
        let is_of = |names: &[&str]| names.contains(&name.as_str());
        let value = if is_of(names) {
            first.clone()
        } else if is_of(&WORST) {
            most_of(&values)
        } else {
            median_of(&values)
        };
        row.insert(name.clone(), value);
    }
    row.insert("runs".into(), runs.len().into());
    if runs.len() > 1 {
        let extremes = SPREAD.map(|path| {
            let values = runs_of(path).iter().map(|run| number(run, path));
            let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
                (low.min(value), high.max(value))
            });
            (path.to_owned(), json!([low, high]))
        });
        row.insert("spread".into(), Value::Object(extremes.into_iter().collect()));
    }
    row
}

/// The largest of the numbers.
fn most_of(values: &[&Value]) -> Value {
    let numbers = values.iter().filter_map(|value| Some((value.as_f64()?, *value)));
    let most = numbers.max_by(|(left, _), (right, _)| left.total_cmp(right));
    most.map_or(Value::Null, |(_, value)| value.clone())
}

fn median_of(values: &[&Value]) -> Value {
    match values.first() {
        Some(Value::Object(first)) => {
            let each = first.keys().map(|name| {
                let inner: Vec<&Value> =
                    values.iter().filter_map(|value| value.get(name)).collect();
                (name.clone(), median_of(&inner))
            });
            Value::Object(each.collect())
        }
        Some(first @ Value::Number(_)) => {
            let mut numbers: Vec<(f64, &Value)> =
                values.iter().filter_map(|value| Some((value.as_f64()?, *value))).collect();
            numbers.sort_by(|(left, _), (right, _)| left.total_cmp(right));
            let Some(&(high, middle)) = numbers.get(numbers.len() / 2) else {
                return (*first).clone();
            };
            let (low, _) = numbers[(numbers.len() - 1) / 2];
            // A whole number remains one.
            if low < high { f64::midpoint(low, high).into() } else { middle.clone() }
        }
        Some(Value::Bool(_)) => values.iter().all(|value| **value == Value::Bool(true)).into(),
        Some(first) => (*first).clone(),
        None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_medians_and_points_stay_apart() {
        let run = |connections: u32, rps: f64, p99: f64| {
            let row = json!({ "model": "kcuc", "connections": connections, "throughput_rps": rps,
                "latency_us": { "mean": p99 / 2.0, "p50": p99 / 4.0, "p99": p99 } });
            row.as_object().expect("an object").clone()
        };
        let rows = [run(1, 10.0, 5.0), run(64, 7.0, 1.0), run(1, 30.0, 9.0), run(1, 20.0, 7.0)];
        let medians = medians(&rows);
        assert_eq!(medians.len(), 2);
        assert_eq!((number(&medians[0], "connections"), number(&medians[0], "runs")), (1.0, 3.0));
        assert_eq!(number(&medians[0], "throughput_rps"), 20.0);
        assert_eq!(number(&medians[0], "latency_us.p99"), 7.0);
        assert_eq!(medians[0]["spread"]["throughput_rps"], json!([10.0, 30.0]));
        assert_eq!(medians[0]["spread"]["latency_us.p50"], json!([1.25, 2.25]));
        assert_eq!(number(&medians[1], "throughput_rps"), 7.0);
    }

    #[test]
    fn a_run_without_answers_has_no_latency() {
        let run = |received: u32, p50: f64| {
            let row = json!({ "received": received, "throughput_rps": f64::from(received),
                "latency_us": { "mean": p50, "p50": p50, "p99": p50 } });
            row.as_object().expect("an object").clone()
        };
        let silent = run(0, 0.0);
        for (runs, p50, spread) in [
            (vec![silent.clone(), run(8, 3.0), run(6, 5.0)], 4.0, json!([3.0, 5.0])),
            (vec![run(8, 3.0), silent.clone(), silent.clone()], 3.0, json!([3.0, 3.0])),
            (vec![silent.clone(), silent.clone()], 0.0, json!([0.0, 0.0])),
        ] {
            let median = &medians(&runs)[0];
            assert_eq!(number(median, "latency_us.p50"), p50, "{runs:?}");
            assert_eq!(median["spread"]["latency_us.p50"], spread, "{runs:?}");
        }
        // It counts as a run, and for the throughput.
        let median = &medians(&[silent.clone(), silent, run(8, 3.0)])[0];
        assert_eq!((number(median, "runs"), number(median, "throughput_rps")), (3.0, 0.0));
        assert_eq!(median["spread"]["throughput_rps"], json!([0.0, 8.0]));
    }

    #[test]
    fn errors_of_one_run_are_not_hidden_by_the_others() {
        let run = |count: u32| {
            let row = json!({ "model": "kcuc", "received": 9 - count, "errors": count,
                "wrong": count, "missing": count, "lost": count });
            row.as_object().expect("an object").clone()
        };
        let row = &medians(&[run(0), run(0), run(3), run(0), run(1)])[0];
        for column in ["errors", "wrong", "missing", "lost"] {
            assert_eq!(row[column], 3, "{column}");
        }
        assert_eq!(row["received"], 9);
    }

    #[test]
    fn the_median_of_an_even_number_of_runs_is_the_mean_of_the_two_in_the_middle() {
        let median = |values: &[Value]| median_of(&values.iter().collect::<Vec<_>>());
        assert_eq!(median(&[json!(9), json!(1), json!(4), json!(3)]), json!(3.5));
        assert_eq!(median(&[json!(1), json!(3), json!(3), json!(9)]), json!(3));
        assert_eq!(median(&[json!(5), json!(2)]), json!(3.5));
        assert_eq!(median(&[json!(5), json!(2), json!(4)]), json!(4));
    }
}
