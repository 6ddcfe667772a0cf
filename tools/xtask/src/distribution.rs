//! Distributions of latencies in the data: the latencies that certain parts of the answers did not
//! exceed. Each answer by itself would make files of many megabytes.

use serde_json::Value;

/// The parts of the answers, in thousandths: a distribution has a latency for each of them.
pub const PARTS: [u32; 16] =
    [0, 10, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950, 990, 999, 1000];

/// The distribution of answers, given as pairs of a latency and how many have it, in any order.
/// Empty without answers.
pub fn at_parts(pairs: &[(f64, f64)]) -> Value {
    let mut pairs = pairs.to_vec();
    pairs.sort_by(|one, other| one.0.total_cmp(&other.0));
    let all: f64 = pairs.iter().map(|(_, count)| count).sum();
    if all <= 0.0 {
        return Value::Array(Vec::new());
    }
    let at = |part: u32| {
        let mut sum = 0.0;
        let reaches = |pair: &&(f64, f64)| {
            sum += pair.1;
            sum * 1000.0 >= all * f64::from(part) && sum > 0.0
        };
        shortened(pairs.iter().find(reaches).or(pairs.last()).map_or(0.0, |(latency, _)| *latency))
    };
    PARTS.map(at).into_iter().collect()
}

/// To four digits.
fn shortened(latency: f64) -> Value {
    let digits = latency.abs().max(1.0).log10().floor() as i32;
    let unit = 10_f64.powi(3 - digits);
    let rounded = (latency * unit).round() / unit;
    if rounded.fract() == 0.0 { Value::from(rounded as u64) } else { Value::from(rounded) }
}

/// Pairs of a latency and how many answers have it. Those of a distribution by parts are not known.
pub fn pairs(distribution: &Value) -> Vec<(f64, f64)> {
    let pair = |pair: &Value| Some((pair.get(0)?.as_f64()?, pair.get(1)?.as_f64()?));
    distribution.as_array().into_iter().flatten().filter_map(pair).collect()
}

/// Pairs of a latency and the part of the answers that did not exceed it, from 0 to 1. Reads older
/// data too, which have pairs of a latency and how many have it.
pub fn points(distribution: &Value) -> Vec<(f64, f64)> {
    let counted = pairs(distribution);
    if counted.is_empty() {
        let latencies = distribution.as_array().into_iter().flatten().filter_map(Value::as_f64);
        return latencies.zip(PARTS.map(|part| f64::from(part) / 1000.0)).collect();
    }
    let all: f64 = counted.iter().map(|(_, count)| count).sum();
    let mut sum = 0.0;
    let parts = counted.into_iter().map(|(latency, count)| {
        sum += count;
        (latency, sum / all)
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_distribution_has_the_latency_of_each_part() {
        let pairs: Vec<(f64, f64)> = (1..=1000).rev().map(|at| (f64::from(at), 1.0)).collect();
        let expected =
            [1, 10, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950, 990, 999, 1000];
        assert_eq!(at_parts(&pairs), json!(expected));
        let many = [(7.25, 990.0), (123_456.7, 10.0)];
        let shown = at_parts(&many);
        assert_eq!((&shown[13], &shown[14]), (&json!(7.25), &json!(123_500)));
        assert_eq!(at_parts(&[]), json!([]));
    }

    #[test]
    fn both_forms_are_read() {
        let old = points(&json!([[110.5, 3], [130.0, 1]]));
        assert_eq!(old, [(110.5, 0.75), (130.0, 1.0)]);
        let new = points(&at_parts(&[(110.5, 3.0), (130.0, 1.0)]));
        assert_eq!(new.len(), PARTS.len());
        assert_eq!((new[0], new[9], new[10]), ((110.5, 0.0), (110.5, 0.7), (130.0, 0.8)));
        assert_eq!(new[15], (130.0, 1.0));
        assert!(points(&Value::Null).is_empty() && points(&json!([])).is_empty());
    }
}
