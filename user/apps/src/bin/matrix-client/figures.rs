//! The result as a line of JSON.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use cops::time::Duration;

use crate::tally::Tally;

/// Nanoseconds, shown in microseconds.
struct Microseconds(u64);

impl fmt::Display for Microseconds {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// The line for these connections, which have been measured for this time; `common`: members for
/// all lines.
pub fn line(class: Option<u8>, tally: &Tally, measured: Duration, common: &str) -> String {
    let latencies = &tally.latencies;
    let count = latencies.len() as u64;
    let sum: u128 = latencies.iter().map(|&each| u128::from(each)).sum();
    let mean = (sum / u128::from(count.max(1))) as u64;
    let squares =
        latencies.iter().map(|&each| u128::from(each.abs_diff(mean)).pow(2)).sum::<u128>();
    let deviation = (squares / u128::from(count.max(1))).isqrt() as u64;
    let class = class.map_or_else(|| String::from("null"), |class| format!("{class}"));
    // Thousandths of an answer a second.
    let throughput = u128::from(tally.in_window) * 1_000_000_000 / measured.as_micros().max(1);
    format!(
        "{{\"class\":{class},\"sent\":{},\"received\":{},\"errors\":{},\"wrong\":{},\"throughput_rps\":{}.{:03},{common},\
         \"latency_us\":{{\"mean\":{},\"p50\":{},\"p90\":{},\"p99\":{},\"p999\":{},\"max\":{},\"jitter\":{},\
         \"deviation\":{}}},\"distribution_us\":[{}]}}",
        tally.sent,
        tally.received,
        tally.errors(),
        tally.wrong,
        throughput / 1000,
        throughput % 1000,
        Microseconds(mean),
        Microseconds(quantile(latencies, 500)),
        Microseconds(quantile(latencies, 900)),
        Microseconds(quantile(latencies, 990)),
        Microseconds(quantile(latencies, 999)),
        Microseconds(latencies.last().copied().unwrap_or(0)),
        Microseconds(tally.jitter.0 / tally.jitter.1.max(1)),
        Microseconds(deviation),
        distribution(latencies),
    )
}

/// The smallest of the sorted `latencies` that `per_mille` of all do not exceed.
fn quantile(latencies: &[u64], per_mille: usize) -> u64 {
    let at = (latencies.len() * per_mille).div_ceil(1000).saturating_sub(1);
    latencies.get(at).copied().unwrap_or(0)
}

/// Pairs of a latency, to two digits, and how many have it.
fn distribution(latencies: &[u64]) -> String {
    let mut buckets = BTreeMap::<u64, u64>::new();
    for &latency in latencies {
        let unit = 10_u64.pow(latency.checked_ilog10().unwrap_or(0).saturating_sub(1));
        *buckets.entry(latency.div_ceil(unit) * unit).or_default() += 1;
    }
    let pairs = buckets.iter().map(|(edge, count)| format!("[{},{count}]", Microseconds(*edge)));
    pairs.collect::<Vec<_>>().join(",")
}
