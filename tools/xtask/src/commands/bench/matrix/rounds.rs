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

/// One row for each point, in the order of their first runs: each number is the median of those of
/// the runs; of an even number of runs, the mean of the two in the middle. What is no number is
/// that of the first run; what is true must be so in each of them.
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
    let mut row = Row::new();
    for (name, first) in runs[0] {
        let values: Vec<&Value> = runs.iter().filter_map(|run| run.get(name)).collect();
        let is_name = names.contains(&name.as_str());
        row.insert(name.clone(), if is_name { first.clone() } else { median_of(&values) });
    }
    row.insert("runs".into(), runs.len().into());
    if runs.len() > 1 {
        let extremes = SPREAD.map(|path| {
            let values = runs.iter().map(|run| number(run, path));
            let (low, high) = values.fold((f64::INFINITY, 0.0_f64), |(low, high), value| {
                (low.min(value), high.max(value))
            });
            (path.to_owned(), json!([low, high]))
        });
        row.insert("spread".into(), Value::Object(extremes.into_iter().collect()));
    }
    row
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
        Some(first) => (*first).clone(),
        None => Value::Null,
    }
}

#[cfg(test)]
        Some(Value::Bool(_)) => values.iter().all(|value| **value == Value::Bool(true)).into(),
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
    fn the_median_of_an_even_number_of_runs_is_the_mean_of_the_two_in_the_middle() {
        let median = |values: &[Value]| median_of(&values.iter().collect::<Vec<_>>());
        assert_eq!(median(&[json!(9), json!(1), json!(4), json!(3)]), json!(3.5));
        assert_eq!(median(&[json!(1), json!(3), json!(3), json!(9)]), json!(3));
        assert_eq!(median(&[json!(5), json!(2)]), json!(3.5));
        assert_eq!(median(&[json!(5), json!(2), json!(4)]), json!(4));
    }
}
