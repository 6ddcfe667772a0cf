//! Latencies, jitter, and answers over time, for one group of connections. Sums and extremes are
//! exact; percentiles come from a histogram with a fixed relative resolution.

use hdrhistogram::Histogram;

/// Resolution of the time series.
pub const INTERVAL_NS: u64 = 10_000_000;
/// Latencies are resolved from 100 ns to one hour, with three significant digits.
const HISTOGRAM_RANGE_NS: (u64, u64) = (100, 3_600_000_000_000);

/// A distribution of durations.
#[derive(Clone, Debug)]
pub struct Durations {
    histogram: Histogram<u64>,
    sum_ns: u128,
    /// Of the squares, in microseconds.
    squares_us: f64,
    max_ns: u64,
}

impl Durations {
    /// An empty distribution; about 220 KiB.
    ///
    /// # Panics
    ///
    /// Never: the bounds are valid.
    #[must_use]
    pub fn new() -> Self {
        let (low, high) = HISTOGRAM_RANGE_NS;
        Self {
            histogram: Histogram::new_with_bounds(low, high, 3).expect("valid bounds"),
            sum_ns: 0,
            squares_us: 0.0,
            max_ns: 0,
        }
    }

    /// Adds a duration.
    pub fn record(&mut self, duration_ns: u64) {
        self.histogram.saturating_record(duration_ns);
        self.sum_ns += u128::from(duration_ns);
        self.squares_us += (duration_ns as f64 / 1e3).powi(2);
        self.max_ns = self.max_ns.max(duration_ns);
    }

    /// Adds all of `other`.
    ///
    /// # Panics
    ///
    /// Never: both have the same bounds.
    pub fn add(&mut self, other: &Self) {
        self.histogram.add(&other.histogram).expect("the same bounds");
        self.sum_ns += other.sum_ns;
        self.squares_us += other.squares_us;
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// Number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// Exact mean in microseconds; 0 if empty.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        self.sum_ns as f64 / self.count().max(1) as f64 / 1e3
    }

    /// Standard deviation in microseconds; 0 if empty.
    #[must_use]
    pub fn deviation_us(&self) -> f64 {
        let mean_square = self.squares_us / self.count().max(1) as f64;
        (mean_square - self.mean_us().powi(2)).max(0.0).sqrt()
    }

    /// The smallest recorded duration that `fraction` of all do not exceed, in microseconds,
    /// accurate to 0.1%.
    #[must_use]
    pub fn percentile_us(&self, fraction: f64) -> f64 {
        // The value of a bucket is its upper edge, which may be above everything recorded.
        self.histogram.value_at_quantile(fraction).min(self.max_ns) as f64 / 1e3
    }

    /// Exact maximum in microseconds; 0 if empty.
    #[must_use]
    pub fn max_us(&self) -> f64 {
        self.max_ns as f64 / 1e3
    }

    /// `(duration in microseconds, count)` of all buckets that are not empty, ascending.
    #[must_use]
    pub fn buckets_us(&self) -> Vec<(f64, u64)> {
        let edge_us = |ns: u64| ns.min(self.max_ns).max(1) as f64 / 1e3;
        self.histogram
            .iter_recorded()
            .map(|at| (edge_us(at.value_iterated_to()), at.count_at_value()))
            .collect()
    }
}

impl Default for Durations {
    fn default() -> Self {
        Self::new()
    }
}

/// The counts of a priority class, or by addition of all.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    /// Requests scheduled in the measuring window.
    pub sent: u64,
    /// Correct answers to those.
    pub received: u64,
    /// Answers with a wrong product, in the whole run.
    pub wrong: u64,
    /// Requests without an answer at the end of the run.
    pub missing: u64,
    /// Number of lost connections.
    pub lost: u64,
    /// Correct answers that arrived in the measuring window.
    pub answers_in_window: u64,
    /// Latencies of `received`.
    pub latency: Durations,
    /// Sum and number of differences between successive latencies of a connection.
    jitter_sum_ns: u128,
    jitter_count: u64,
    /// Correct answers per [`INTERVAL_NS`] since the load began.
    pub answers_by_interval: Vec<u64>,
}

impl Statistics {
    /// Records the arrival of an answer, at this time since the load began.
    pub fn record_arrival(&mut self, arrival_ns: u64, window_ns: &std::ops::Range<u64>) {
        let interval = (arrival_ns / INTERVAL_NS) as usize;
        if self.answers_by_interval.len() <= interval {
            self.answers_by_interval.resize(interval + 1, 0);
        }
        self.answers_by_interval[interval] += 1;
        self.answers_in_window += u64::from(window_ns.contains(&arrival_ns));
    }

    /// Records the latency of a request of the measuring window. `previous_ns` is the connection's
    /// previous latency, if there was one in the window.
    pub fn record_latency(&mut self, latency_ns: u64, previous_ns: Option<u64>) {
        self.received += 1;
        self.latency.record(latency_ns);
        if let Some(previous_ns) = previous_ns {
            self.jitter_sum_ns += u128::from(latency_ns.abs_diff(previous_ns));
            self.jitter_count += 1;
        }
    }

    /// Mean absolute difference of successive latencies on the same connection, in microseconds.
    #[must_use]
    pub fn jitter_us(&self) -> f64 {
        self.jitter_sum_ns as f64 / self.jitter_count.max(1) as f64 / 1e3
    }

    /// Number of all errors.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.wrong + self.missing + self.lost
    }

    /// Adds all of `other`.
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.received += other.received;
        self.wrong += other.wrong;
        self.missing += other.missing;
        self.lost += other.lost;
        self.answers_in_window += other.answers_in_window;
        self.latency.add(&other.latency);
        self.jitter_sum_ns += other.jitter_sum_ns;
        self.jitter_count += other.jitter_count;
        let intervals = self.answers_by_interval.len().max(other.answers_by_interval.len());
        self.answers_by_interval.resize(intervals, 0);
        for (sum, answers) in self.answers_by_interval.iter_mut().zip(&other.answers_by_interval) {
            *sum += answers;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_exact_where_promised() {
        let mut durations = Durations::new();
        for millisecond in 1..=1000_u64 {
            durations.record(millisecond * 1_000_000);
        }
        assert_eq!(durations.mean_us(), 500_500.0);
        assert_eq!(durations.max_us(), 1_000_000.0);
        for (fraction, exact) in [(0.5, 500e3), (0.99, 990e3), (0.999, 999e3), (1.0, 1000e3)] {
            let reported = durations.percentile_us(fraction);
            assert!((reported / exact - 1.0).abs() < 0.001, "{fraction}: {reported}");
        }
        let buckets = durations.buckets_us();
        assert_eq!(buckets.iter().map(|bucket| bucket.1).sum::<u64>(), 1000);
        assert!(buckets.is_sorted_by(|a, b| a.0 < b.0));
        assert_eq!(Durations::new().percentile_us(0.99), 0.0);
    }

    #[test]
    fn groups_add_up() {
        let mut first = Statistics::default();
        first.record_arrival(INTERVAL_NS, &(0..INTERVAL_NS));
        first.record_latency(1_000, None);
        first.record_latency(4_000, Some(1_000));
        first.wrong = 1;
        let mut second = Statistics { lost: 1, missing: 2, ..Statistics::default() };
        second.record_arrival(3 * INTERVAL_NS - 1, &(0..u64::MAX));
        second.record_latency(1_000, Some(2_000));
        first.add(&second);
        assert_eq!((first.received, first.errors(), first.answers_in_window), (3, 4, 1));
        assert_eq!(first.jitter_us(), 2.0, "differences of 3 and 1 microseconds");
        let spread = first.latency.deviation_us();
        assert!(spread > 0.0 && spread < first.latency.max_us(), "{spread}");
        assert_eq!(first.answers_by_interval, [0, 1, 1]);
        assert_eq!(first.latency.mean_us(), 2.0);
    }
}
