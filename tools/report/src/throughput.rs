//! The throughput plot: answers per second over time, so that stalls and drifts show which
//! a mean hides.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};
use serde::{Deserialize, Serialize};

use crate::canvas::{
    Axis, Colours, FAINT_INK, INK, LegendLine, PlotError, base_line, legend, legend_width, page, panel,
    text_style,
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
    /// How the series relate.
    pub colours: Colours,
    /// Length of an interval, in seconds, above zero.
    pub interval_seconds: f64,
    /// The measuring window in seconds from time zero; outside it the plot is shaded.
    pub window_seconds: (f64, f64),
    /// Requests per second that were offered to each series, if that was fixed (open loop).
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
            let width = below_title.dim_in_pixel().0;
            let (plot, side) = below_title.split_horizontally(width - legend_width(1));
            let (x, y) = self.axes();
            let chart = panel(&plot, &x, &y, true)?;
            let plane = chart.plotting_area();
            let shade = FAINT_INK.mix(0.13).filled();
            for (name, from, to) in
                [("warm-up", 0.0, self.window_seconds.0), ("drain", self.window_seconds.1, x.range.end)]
            {
                if to > from {
                    plane.draw(&Rectangle::new([(from, 0.0), (to, y.range.end)], shade))?;
                }
                // Named only where the name fits.
                if to - from > 0.1 * x.range.end {
                    let style = text_style(12, FAINT_INK, HPos::Left, VPos::Top);
                    plane.draw(&(EmptyElement::at((from, y.range.end)) + Text::new(name, (6, 6), style)))?;
                }
            }
            if let Some(offered_rps) = self.offered_rps {
                let line = [(self.window_seconds.0, offered_rps), (self.window_seconds.1, offered_rps)];
                chart.plotting_area().draw(&plotters::element::DashedPathElement::new(line, 6, 4, INK.stroke_width(1)))?;
                let text = format!("offered {}", three_digits(offered_rps));
                let style = text_style(12, INK, HPos::Right, VPos::Bottom);
                plane.draw(&(EmptyElement::at(line[1]) + Text::new(text, (-4, -4), style)))?;
            }
            for (at, series) in self.series.iter().enumerate() {
                let colour = self.colours.pick(at, self.series.len());
                let steps: Vec<(f64, f64)> = self.steps(series);
                if self.series.len() == 1 {
                    let mut area = steps.clone();
                    area.extend([(steps.last().map_or(0.0, |last| last.0), 0.0), (0.0, 0.0)]);
                    plane.draw(&Polygon::new(area, colour.mix(0.18)))?;
                }
                plane.draw(&PathElement::new(steps, colour.stroke_width(2)))?;
            }
            base_line(&chart, &x, &y)?;

            let lines: Vec<_> = (0..self.series.len())
                .map(|at| LegendLine {
                    colour: self.colours.pick(at, self.series.len()),
                    cells: vec![self.series[at].label.clone(), three_digits(self.mean_rps(&self.series[at]))],
                })
                .collect();
            legend(&side, &["", "mean, 1/s"], &lines)?;
            below_title.present()?;
        }
        Ok(svg)
    }

    fn axes(&self) -> (Axis, Axis) {
        let intervals = self.series.iter().map(|series| series.answers.len()).max().unwrap_or(0);
        let x_end = (intervals as f64 * self.interval_seconds).max(self.window_seconds.1);
        let most = self.series.iter().flat_map(|series| &series.answers).max().copied().unwrap_or(0);
        let y_end = (most as f64 / self.interval_seconds).max(self.offered_rps.unwrap_or(0.0));
        (
            Axis::linear("time since the first request, s", x_end),
            Axis::linear("answers per second", y_end * 1.15),
        )
    }

    fn steps(&self, series: &ThroughputSeries) -> Vec<(f64, f64)> {
        let step = |(at, answers): (usize, &u64)| {
            let rate = *answers as f64 / self.interval_seconds;
            [(at as f64 * self.interval_seconds, rate), ((at + 1) as f64 * self.interval_seconds, rate)]
        };
        series.answers.iter().enumerate().flat_map(step).collect()
    }

    /// Mean over the intervals that lie wholly in the window.
    fn mean_rps(&self, series: &ThroughputSeries) -> f64 {
        let tolerance = self.interval_seconds * 1e-6;
        let in_window = |at: &usize| {
            *at as f64 * self.interval_seconds >= self.window_seconds.0 - tolerance
                && (*at + 1) as f64 * self.interval_seconds <= self.window_seconds.1 + tolerance
        };
        let last = (self.window_seconds.1 / self.interval_seconds) as usize + 1;
        let inside: Vec<u64> =
            (0..last).filter(in_window).map(|at| series.answers.get(at).copied().unwrap_or(0)).collect();
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
