//! The latency plot: the distribution of the answers, and its tail.

use std::ops::Range;

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use serde::{Deserialize, Serialize};

use crate::canvas::{
    Axis, Chart, Colours, FAINT_INK, LegendLine, PlotError, base_line, legend, page, panel,
    split_for_legend, text_style,
};
use crate::units::{duration_text, percent_text};

/// The latencies of one line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencySeries {
    /// Name in the legend.
    pub label: String,
    /// Ascending `(latency in microseconds, answers with about that latency)`, from a histogram
    /// with a fixed relative resolution; all latencies are above zero.
    pub buckets: Vec<(f64, u64)>,
}

impl LatencySeries {
    fn answers(&self) -> u64 {
        self.buckets.iter().map(|(_, answers)| answers).sum()
    }

    /// The smallest recorded latency that at least `fraction` of the answers do not exceed.
    fn percentile_us(&self, fraction: f64) -> Option<f64> {
        // The tolerance is for fractions like 0.999, which are not exact in binary.
        let rank = (self.answers() as f64 * fraction - 1e-6).ceil().max(1.0) as u64;
        let mut passed = 0;
        self.buckets.iter().find_map(|(latency_us, answers)| {
            passed += answers;
            (passed >= rank).then_some(*latency_us)
        })
    }
}

/// Two panels with a common logarithmic latency axis: the share of answers per interval (the body
/// of the distribution), and the percentile on a scale of nines (the tail).
#[derive(Clone, Debug)]
pub struct LatencyPlot {
    /// What was measured.
    pub title: String,
    /// The configuration, without which a plot is meaningless.
    pub subtitle: String,
    /// How the series are related.
    pub colours: Colours,
    /// One line each.
    pub series: Vec<LatencySeries>,
}

/// Intervals per decade of the upper panel.
const INTERVALS_PER_DECADE: f64 = 20.0;

impl LatencyPlot {
    /// The plot as an SVG document. Series without answers appear in the legend only.
    ///
    /// # Errors
    ///
    /// See [`PlotError`].
    pub fn to_svg(&self) -> Result<String, PlotError> {
        let mut svg = String::new();
        {
            let below_title = page(&mut svg, (960, 640), &self.title, &self.subtitle)?;
            let (plots, side) = split_for_legend(&below_title, self.series.len(), 3);
            let (upper, lower) = plots.split_vertically(190);

            let x = self.latency_axis();
            let shares: Vec<_> = self.series.iter().map(shares_per_interval).collect();
            let largest_share =
                shares.iter().flatten().map(|(_, share)| *share).fold(0.0, f64::max);
            let y = Axis::linear("answers, %", largest_share * 1.08, 4.0);
            let chart = panel(&upper, &x, &y, false)?;
            self.draw_shares(&chart, &shares)?;
            base_line(&chart, &x, &y)?;

            let y = self.percentile_axis();
            let chart = panel(&lower, &x, &y, true)?;
            self.draw_percentiles(&chart)?;
            base_line(&chart, &x, &y)?;

            if let Some(side) = side {
                legend(&side, &["", "p50", "p99", "p99.9"], &self.legend_lines())?;
            }
            below_title.present()?;
        }
        Ok(svg)
    }

    fn legend_lines(&self) -> Vec<LegendLine> {
        let line = |(at, series): (usize, &LatencySeries)| {
            let figures = [0.5, 0.99, 0.999].map(|fraction| series.percentile_us(fraction));
            let figures = figures.map(|us| us.map_or("-".into(), duration_text));
            LegendLine {
                colour: self.colour(at),
                cells: [series.label.clone()].into_iter().chain(figures).collect(),
            }
        };
        self.series.iter().enumerate().map(line).collect()
    }

    fn colour(&self, at: usize) -> RGBColor {
        self.colours.pick(at, self.series.len())
    }

    fn latency_axis(&self) -> Axis {
        let latencies = || {
            self.series.iter().flat_map(|series| &series.buckets).map(|(latency_us, _)| *latency_us)
        };
        let (from, to) =
            latencies().fold((f64::MAX, 0.0_f64), |(from, to), us| (from.min(us), to.max(us)));
        let (from, to) = if to > 0.0 { (from, to) } else { (100.0, 10_000.0) };
        // Room for the outermost intervals, and at least half a decade in total.
        let (from, to) = (from / 1.2, to * 1.35);
        let spare = (3.2 / (to / from)).max(1.0).sqrt();
        Axis::logarithmic_duration("latency, logarithmic", from / spare, to * spare)
    }

    fn percentile_axis(&self) -> Axis {
        let most = self.series.iter().map(LatencySeries::answers).max().unwrap_or(0).max(10);
        let end = (most as f64).log10() + 0.15;
        let marks = [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999, 0.999_999]
            .map(|fraction| (nines(1.0 - fraction), percent_text(fraction)))
            .into_iter()
            .filter(|(at, _)| *at < end)
            .collect();
        Axis { title: "answers not slower, %", range: 0.0..end, marks }
    }

    fn draw_shares(
        &self,
        chart: &Chart<'_, '_>,
        shares: &[Vec<(f64, f64)>],
    ) -> Result<(), PlotError> {
        let plane = chart.plotting_area();
        let half_width = 0.5 / INTERVALS_PER_DECADE;
        for (at, shares) in shares.iter().enumerate() {
            let colour = self.colour(at);
            let mut outline = Vec::new();
            for (middle, share) in shares {
                let (left, right) = (middle - half_width, middle + half_width);
                if self.series.len() == 1 {
                    plane.draw(&Rectangle::new(
                        [(left, 0.0), (right, *share)],
                        colour.mix(0.25).filled(),
                    ))?;
                }
                outline.extend([(left, *share), (right, *share)]);
            }
            if let (Some(first), Some(last)) = (outline.first().copied(), outline.last().copied()) {
                outline.insert(0, (first.0, 0.0));
                outline.push((last.0, 0.0));
                plane.draw(&PathElement::new(outline, colour.stroke_width(2)))?;
            }
        }
        Ok(())
    }

    fn draw_percentiles(&self, chart: &Chart<'_, '_>) -> Result<(), PlotError> {
        let plane = chart.plotting_area();
        for (at, series) in self.series.iter().enumerate() {
            let colour = self.colour(at);
            let answers = series.answers() as f64;
            let mut line = Vec::new();
            let mut faster = 0.0;
            for (latency_us, count) in merge_finer_than_a_pixel(&series.buckets, &chart.x_range()) {
                // Up to here the share of slower answers is that of the buckets before.
                line.push((latency_us.log10(), nines(1.0 - faster / answers)));
                faster += count as f64;
                let slower = 1.0 - faster / answers;
                // No answer is slower than the slowest, which would be at infinity: stop at one
                // answer.
                line.push((latency_us.log10(), nines(slower.max(1.0 / answers))));
            }
            let end = line.last().copied();
            plane.draw(&PathElement::new(line, colour.stroke_width(2)))?;
            if let Some(end) = end {
                plane.draw(&Circle::new(end, 4, colour.filled()))?;
                if self.series.len() == 1 {
                    self.mark_percentiles(chart, series, end)?;
                }
            }
        }
        Ok(())
    }

    /// Dots with figures on a single line.
    fn mark_percentiles(
        &self,
        chart: &Chart<'_, '_>,
        series: &LatencySeries,
        end: (f64, f64),
    ) -> Result<(), PlotError> {
        let plane = chart.plotting_area();
        let x_range = chart.x_range();
        let label = |at: (f64, f64), text: String| -> Result<(), PlotError> {
            // On the side with more room.
            let to_the_left = at.0 > x_range.start + 0.72 * (x_range.end - x_range.start);
            let (shift, position) =
                if to_the_left { ((-9, -9), HPos::Right) } else { ((9, 9), HPos::Left) };
            let style = text_style(12, FAINT_INK, position, VPos::Center);
            plane.draw(&(EmptyElement::at(at) + Text::new(text, shift, style)))?;
            Ok(())
        };
        for fraction in [0.5, 0.9, 0.99, 0.999] {
            // A percentile is meaningful only with at least ten answers beyond it.
            let beyond = series.answers() as f64 * (1.0 - fraction);
            if let Some(latency_us) = series.percentile_us(fraction).filter(|_| beyond >= 10.0) {
                let at = (latency_us.log10(), nines(1.0 - fraction));
                plane.draw(&Circle::new(at, 4, self.colour(0).filled()))?;
                label(at, format!("p{} {}", percent_text(fraction), duration_text(latency_us)))?;
            }
        }
        label(
            end,
            format!("slowest of {}: {}", series.answers(), duration_text(10_f64.powf(end.0))),
        )
    }
}

/// The position of "this share is slower" on the scale of nines: 0.1 is at 1, 0.01 at 2.
fn nines(share_slower: f64) -> f64 {
    -share_slower.log10()
}

/// Merges neighbours that a reader could not distinguish, with the larger latency; separately they
/// would only enlarge the file.
fn merge_finer_than_a_pixel(buckets: &[(f64, u64)], range: &Range<f64>) -> Vec<(f64, u64)> {
    const PIXELS: f64 = 1200.0;
    let column = |latency_us: f64| {
        ((latency_us.log10() - range.start) / (range.end - range.start) * PIXELS) as i64
    };
    let mut merged: Vec<(f64, u64)> = Vec::new();
    for (latency_us, count) in buckets {
        match merged.last_mut().filter(|last| column(last.0) == column(*latency_us)) {
            Some(last) => *last = (*latency_us, last.1 + count),
            None => merged.push((*latency_us, *count)),
        }
    }
    merged
}

/// `(middle of the interval as a decimal logarithm of microseconds, percentage of answers in it)`
/// from the first interval with answers to the last, including empty ones.
fn shares_per_interval(series: &LatencySeries) -> Vec<(f64, f64)> {
    let interval = |latency_us: f64| (latency_us.log10() * INTERVALS_PER_DECADE).floor() as i64;
    let (Some(first), Some(last)) = (series.buckets.first(), series.buckets.last()) else {
        return Vec::new();
    };
    let first = interval(first.0);
    let mut shares: Vec<(f64, f64)> = (first..=interval(last.0))
        .map(|at| ((at as f64 + 0.5) / INTERVALS_PER_DECADE, 0.0))
        .collect();
    let answers = series.answers() as f64;
    for (latency_us, count) in &series.buckets {
        shares[(interval(*latency_us) - first) as usize].1 += *count as f64 / answers * 100.0;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(buckets: &[(f64, u64)]) -> LatencySeries {
        LatencySeries { label: "class 0".into(), buckets: buckets.to_vec() }
    }

    #[test]
    fn percentiles_are_ranks() {
        let series = series(&[(1.0, 500), (2.0, 499), (9.0, 1)]);
        assert_eq!(series.percentile_us(0.5), Some(1.0));
        assert_eq!(series.percentile_us(0.501), Some(2.0));
        assert_eq!(series.percentile_us(0.999), Some(2.0));
        assert_eq!(series.percentile_us(1.0), Some(9.0));
        assert_eq!(super::tests::series(&[]).percentile_us(0.5), None);
    }

    #[test]
    fn shares_add_up_and_keep_empty_intervals() {
        let shares = shares_per_interval(&series(&[(10.0, 3), (11.0, 1), (100.0, 4)]));
        assert_eq!(shares.len(), 21);
        assert!((shares.iter().map(|(_, share)| share).sum::<f64>() - 100.0).abs() < 1e-9);
        assert_eq!(shares.iter().filter(|(_, share)| *share == 0.0).count(), 19);
    }

    #[test]
    fn any_data_gives_a_document() {
        let with = |series: Vec<LatencySeries>| {
            LatencyPlot {
                title: "t <&>".into(),
                subtitle: "s".into(),
                colours: Colours::Ordered,
                series,
            }
            .to_svg()
            .unwrap()
        };
        let odd = [
            series(&[]),
            series(&[(0.001, 1)]),
            series(&[(1e9, 1_000_000)]),
            series(&[(5.0, 1), (5.1, 2)]),
        ];
        for one in &odd {
            assert!(with(vec![one.clone()]).trim_end().ends_with("</svg>"));
        }
        let all = with(odd.into_iter().cycle().take(64).collect());
        assert!(all.contains("and ") && all.contains(" more"), "a legend that is too long says so");
        assert!(all.contains("t &lt;&amp;&gt;"), "text is escaped");
        assert!(!all.contains("NaN") && !all.contains("inf"));
        assert!(with(Vec::new()).contains("</svg>"));
    }
}
