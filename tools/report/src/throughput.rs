//! The throughput plot: answers per second over time, which shows stalls and drifts that a mean
//! hides.

use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use serde::{Deserialize, Serialize};

use crate::canvas::{
    Axis, Chart, Colours, FAINT_INK, INK, LegendLine, PlotError, base_line, legend, mix, page,
    panel, split_for_legend, text_style,
};
use crate::units::three_digits;

/// One line of answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThroughputSeries {
    /// Name in the legend.
    pub label: String,
    /// Answers in successive intervals from time zero on.
    pub answers: Vec<u64>,
}

/// Answers per second over time, with the measuring window marked.
#[derive(Clone, Debug)]
pub struct ThroughputPlot {
    /// What was measured.
    pub title: String,
    /// The configuration.
    pub subtitle: String,
    /// How the series are related. [`Colours::Ordered`] ones are parts of a whole and are drawn as
    /// layers on top of each other; distinct ones are drawn as lines.
    pub colours: Colours,
    /// Length of an interval, in seconds, above zero.
    pub interval_seconds: f64,
    /// The measuring window in seconds from time zero; outside of it the plot is shaded.
    pub window_seconds: (f64, f64),
    /// Total requests per second offered, if that was fixed (open loop).
    pub offered_rps: Option<f64>,
    /// One line each.
    pub series: Vec<ThroughputSeries>,
}

impl ThroughputPlot {
    /// The plot as an SVG document.
    ///
    /// # Errors
    ///
    /// See [`PlotError`].
    pub fn to_svg(&self) -> Result<String, PlotError> {
        let mut svg = String::new();
        {
            let below_title = page(&mut svg, (960, 420), &self.title, &self.subtitle)?;
            let (plot, side) = split_for_legend(&below_title, self.series.len(), 1);
            let curves: Vec<_> = (0..self.series.len()).map(|at| self.curve(at)).collect();
            let (x, y) = self.axes(&curves);
            let chart = panel(&plot, &x, &y, true)?;
            self.shade_outside_window(&chart)?;
            // The first is in front: of parts, it is the lowest.
            for (at, curve) in curves.iter().enumerate().rev() {
                self.draw_curve(&chart, self.colours.pick(at, self.series.len()), curve)?;
            }
            if let Some(offered_rps) = self.offered_rps {
                let line =
                    [(self.window_seconds.0, offered_rps), (self.window_seconds.1, offered_rps)];
                chart.plotting_area().draw(&DashedPathElement::new(
                    line,
                    7,
                    4,
                    INK.stroke_width(1),
                ))?;
            }
            base_line(&chart, &x, &y)?;
            self.write_totals(&chart)?;

            if let Some(side) = side {
                let line = |(at, series): (usize, &ThroughputSeries)| LegendLine {
                    colour: self.colours.pick(at, self.series.len()),
                    cells: vec![series.label.clone(), three_digits(self.mean_rps(series))],
                };
                let lines: Vec<_> = self.series.iter().enumerate().map(line).collect();
                legend(&side, &["", "mean, 1/s"], &lines)?;
            }
            below_title.present()?;
        }
        Ok(svg)
    }

    /// Answers per second by interval for series `at`; parts are stacked on those before them.
    fn curve(&self, at: usize) -> Vec<f64> {
        let first = if self.colours == Colours::Ordered { 0 } else { at };
        let layers = &self.series[first..=at];
        let intervals = layers.iter().map(|series| series.answers.len()).max().unwrap_or(0);
        let answers =
            |interval| layers.iter().filter_map(|series| series.answers.get(interval)).sum::<u64>();
        (0..intervals).map(|interval| answers(interval) as f64 / self.interval_seconds).collect()
    }

    fn axes(&self, curves: &[Vec<f64>]) -> (Axis, Axis) {
        let intervals = curves.iter().map(Vec::len).max().unwrap_or(0);
        let x_end = (intervals as f64 * self.interval_seconds).max(self.window_seconds.1);
        let most = curves.iter().flatten().copied().fold(self.offered_rps.unwrap_or(0.0), f64::max);
        (
            Axis::linear("time since the first request, s", x_end, 8.0),
            Axis::linear("answers per second", most * 1.12, 5.0),
        )
    }

    fn shade_outside_window(&self, chart: &Chart<'_, '_>) -> Result<(), PlotError> {
        let (end, top) = (chart.x_range().end, chart.y_range().end);
        let plane = chart.plotting_area();
        for (name, from, to) in
            [("warm-up", 0.0, self.window_seconds.0), ("drain", self.window_seconds.1, end)]
        {
            if to > from {
                plane.draw(&Rectangle::new(
                    [(from, 0.0), (to, top)],
                    FAINT_INK.mix(0.13).filled(),
                ))?;
            }
            // Named only if the name fits.
            if to - from > 0.08 * end {
                let style = text_style(12, FAINT_INK, HPos::Left, VPos::Top);
                plane.draw(&(EmptyElement::at((from, top)) + Text::new(name, (6, 6), style)))?;
            }
        }
        Ok(())
    }

    /// A line of steps; filled if it is the only one or a part of the whole.
    fn draw_curve(
        &self,
        chart: &Chart<'_, '_>,
        colour: RGBColor,
        rates: &[f64],
    ) -> Result<(), PlotError> {
        let step = |(at, rate): (usize, &f64)| {
            [
                (at as f64 * self.interval_seconds, *rate),
                ((at + 1) as f64 * self.interval_seconds, *rate),
            ]
        };
        let steps: Vec<(f64, f64)> = rates.iter().enumerate().flat_map(step).collect();
        let Some(end) = steps.last() else { return Ok(()) };
        let plane = chart.plotting_area();
        if self.series.len() == 1 || self.colours == Colours::Ordered {
            let mut area = steps.clone();
            area.extend([(end.0, 0.0), (0.0, 0.0)]);
            // Layers hide those behind them; otherwise their colours would mix.
            plane.draw(&Polygon::new(
                area,
                mix(WHITE, colour, if self.series.len() == 1 { 0.2 } else { 0.75 }),
            ))?;
        }
        Ok(plane.draw(&PathElement::new(
            steps,
            colour.stroke_width(if self.series.len() == 1 { 2 } else { 1 }),
        ))?)
    }

    /// The figures of the whole, in the upper right corner.
    fn write_totals(&self, chart: &Chart<'_, '_>) -> Result<(), PlotError> {
        if self.series.len() > 1 && self.colours == Colours::Distinct {
            return Ok(());
        }
        let mean_rps: f64 = self.series.iter().map(|series| self.mean_rps(series)).sum();
        let offered = self
            .offered_rps
            .map_or(String::new(), |rps| format!(" (dashed: {} offered)", three_digits(rps)));
        let text = format!("mean {} per second{offered}", three_digits(mean_rps));
        let corner = (chart.x_range().end, chart.y_range().end);
        let style = text_style(12, INK, HPos::Right, VPos::Top);
        Ok(chart
            .plotting_area()
            .draw(&(EmptyElement::at(corner) + Text::new(text, (-6, 6), style)))?)
    }

    /// Mean over the intervals that are completely within the window.
    fn mean_rps(&self, series: &ThroughputSeries) -> f64 {
        let tolerance = self.interval_seconds * 1e-6;
        let in_window = |at: &usize| {
            *at as f64 * self.interval_seconds >= self.window_seconds.0 - tolerance
                && (*at + 1) as f64 * self.interval_seconds <= self.window_seconds.1 + tolerance
        };
        let last = (self.window_seconds.1 / self.interval_seconds) as usize + 1;
        let inside: Vec<u64> = (0..last)
            .filter(in_window)
            .map(|at| series.answers.get(at).copied().unwrap_or(0))
            .collect();
        if inside.is_empty() {
            return 0.0;
        }
        inside.iter().sum::<u64>() as f64 / (inside.len() as f64 * self.interval_seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(series: Vec<ThroughputSeries>) -> ThroughputPlot {
        ThroughputPlot {
            title: "title".into(),
            subtitle: "subtitle".into(),
            colours: Colours::Ordered,
            interval_seconds: 0.1,
            window_seconds: (0.2, 0.5),
            offered_rps: Some(100.0),
            series,
        }
    }

    #[test]
    fn the_mean_is_of_the_window_and_counts_silence() {
        let series = ThroughputSeries { label: "all".into(), answers: vec![99, 99, 10, 20] };
        let mean = plot(Vec::new()).mean_rps(&series);
        assert!((mean - 100.0).abs() < 1e-9, "10 + 20 + 0 answers in 0.3 s, but {mean}");
    }

    #[test]
    fn any_data_gives_a_document() {
        for answers in [vec![], vec![0], vec![5; 2000]] {
            let one = ThroughputSeries { label: "all".into(), answers };
            for series in [vec![], vec![one.clone()], vec![one; 40]] {
                let svg = plot(series).to_svg().unwrap();
                assert!(svg.trim_end().ends_with("</svg>") && !svg.contains("NaN"));
            }
        }
    }
}
