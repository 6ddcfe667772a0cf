//! Plots of an outcome.

use cops_report::{Colours, LatencyPlot, PlotError, ThroughputPlot, ThroughputSeries};

use super::Outcome;

/// Maximum number of steps in the throughput plot, and minimum number of answers per step.
const PLOTTED_INTERVALS: u64 = 120;
const ANSWERS_PER_INTERVAL: f64 = 5.0;

impl Outcome {
    /// Latency distribution and percentiles, with a line per class.
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

    /// Answers per second over time, with a layer per class.
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
            window_seconds: self.window_seconds(),
            offered_rps: (!config.waits_for_answers())
                .then(|| f64::from(config.connections) / config.period_ms * 1e3),
            series: series.iter().map(coarsen).collect(),
        };
        plot.to_svg()
    }

    /// The measuring window; for a counted run, the whole run.
    fn window_seconds(&self) -> (f64, f64) {
        let window_ns = self.config.window_ns();
        let length_ms = |series: &ThroughputSeries| {
            series.answers.len() as f64 * self.throughput_over_time.interval_ms
        };
        let last_ms = self.throughput_over_time.series.iter().map(length_ms).fold(0.0, f64::max);
        let end =
            if self.config.requests.is_some() { last_ms / 1e3 } else { window_ns.end as f64 / 1e9 };
        (window_ns.start as f64 / 1e9, end)
    }

    fn subtitle(&self) -> String {
        format!("{}; {} errors", self.description(), self.errors())
    }
}

/// The number of fine intervals per plotted interval, a round number: so that there are few enough
/// steps to be visible, and enough answers in each that their granularity does not look like a
/// fluctuation.
fn coarsening(fine_intervals: u64, answers: u64) -> usize {
    let for_width = fine_intervals.div_ceil(PLOTTED_INTERVALS).max(1);
    let for_answers = (ANSWERS_PER_INTERVAL * fine_intervals as f64 / answers.max(1) as f64) as u64;
    let wanted = for_width.max(for_answers.min(fine_intervals / 4));
    let round = (0..).flat_map(|power| [1, 2, 5].map(|factor| factor * 10_u64.pow(power)));
    round.into_iter().find(|factor| *factor >= wanted).unwrap_or(wanted) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plotted_intervals_are_round_and_hold_answers() {
        assert_eq!(coarsening(600, 4_000), 5, "6 s at 640 per second: 50 ms");
        assert_eq!(coarsening(600, 60), 50, "10 per second: half a second");
        assert_eq!(coarsening(0, 0), 1);
    }
}
