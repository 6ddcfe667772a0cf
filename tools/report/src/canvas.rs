//! Elements that all plots share: colours, title block, legend, axes. Only this file defines the
//! style; the others define their data.

use std::fmt;

use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// An error while drawing. Writing SVG to memory cannot fail by itself, so the cause is in the data
/// (a range that is empty or not finite) or in this crate.
#[derive(Debug)]
pub struct PlotError(String);

impl fmt::Display for PlotError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "plot: {}", self.0)
    }
}

impl std::error::Error for PlotError {}

impl<E: std::error::Error + Send + Sync> From<DrawingAreaErrorKind<E>> for PlotError {
    fn from(error: DrawingAreaErrorKind<E>) -> Self {
        Self(error.to_string())
    }
}

/// How series are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colours {
    /// Unrelated series, such as models: hues that colour-blind readers can distinguish (Okabe and
    /// Ito's, without the yellow, which is hard to see on white).
    Distinct,
    /// Ordered series, such as priority classes: dark for the first, bright for the last.
    Ordered,
}

impl Colours {
    pub(crate) fn pick(self, at: usize, of: usize) -> RGBColor {
        const DISTINCT: [RGBColor; 7] = [
            RGBColor(0, 114, 178),
            RGBColor(213, 94, 0),
            RGBColor(0, 158, 115),
            RGBColor(204, 121, 167),
            RGBColor(86, 180, 233),
            RGBColor(230, 159, 0),
            RGBColor(60, 60, 60),
        ];
        // Stops from dark blue through green to orange, of decreasing darkness.
        const ORDERED: [RGBColor; 5] = [
            RGBColor(48, 18, 110),
            RGBColor(36, 88, 158),
            RGBColor(22, 144, 140),
            RGBColor(110, 183, 76),
            RGBColor(240, 165, 30),
        ];
        match self {
            _ if of <= 1 => DISTINCT[0],
            Self::Distinct => DISTINCT[at % DISTINCT.len()],
            Self::Ordered => {
                let position = at as f64 / (of - 1) as f64 * (ORDERED.len() - 1) as f64;
                let stop = (position as usize).min(ORDERED.len() - 2);
                mix(ORDERED[stop], ORDERED[stop + 1], position - stop as f64)
            }
        }
    }
}

/// A mixture of two colours, with `share` of the second.
pub(crate) fn mix(from: RGBColor, to: RGBColor, share: f64) -> RGBColor {
    let channel = |from: u8, to: u8| {
        (f64::from(from) + (f64::from(to) - f64::from(from)) * share).round() as u8
    };
    RGBColor(channel(from.0, to.0), channel(from.1, to.1), channel(from.2, to.2))
}

pub(crate) const INK: RGBColor = RGBColor(34, 34, 34);
pub(crate) const FAINT_INK: RGBColor = RGBColor(105, 105, 105);
pub(crate) const GRID: RGBColor = RGBColor(226, 226, 226);
const FAMILY: &str = "sans-serif";

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

pub(crate) fn text_style<'a>(
    pixels: i32,
    colour: RGBColor,
    horizontal: HPos,
    vertical: VPos,
) -> TextStyle<'a> {
    (FAMILY, pixels).into_font().color(&colour).pos(Pos::new(horizontal, vertical))
}

/// A white page with title and subtitle in the upper left corner. Returns the area below.
pub(crate) fn page<'a>(
    svg: &'a mut String,
    size: (u32, u32),
    title: &str,
    subtitle: &str,
) -> Result<Area<'a>, PlotError> {
    let root = SVGBackend::with_string(svg, size).into_drawing_area();
    root.fill(&WHITE)?;
    root.draw_text(title, &text_style(21, INK, HPos::Left, VPos::Top), (24, 16))?;
    root.draw_text(subtitle, &text_style(13, FAINT_INK, HPos::Left, VPos::Top), (24, 46))?;
    Ok(root.split_vertically(74).1)
}

/// A line of a legend: colour, then cells, of which all but the first are aligned right.
pub(crate) struct LegendLine {
    pub(crate) colour: RGBColor,
    pub(crate) cells: Vec<String>,
}

/// Splits off room on the right for a legend of this many series with this many figures each. A
/// single series needs no legend, because the plot itself has room for its figures.
pub(crate) fn split_for_legend<'a>(
    area: &Area<'a>,
    series: usize,
    figures: u32,
) -> (Area<'a>, Option<Area<'a>>) {
    if series <= 1 {
        return (area.clone(), None);
    }
    let (plots, side) = area.split_horizontally(area.dim_in_pixel().0 - 130 - 74 * figures);
    (plots, Some(side))
}

/// Draws a legend below `titles` into `area`. If lines do not fit, a last line states their number.
pub(crate) fn legend(
    area: &Area<'_>,
    titles: &[&str],
    lines: &[LegendLine],
) -> Result<(), PlotError> {
    const LINE_PIXELS: i32 = 19;
    let cell_right = |at: usize| 130 + 74 * at as i32 - 8;
    let row = |y: i32, cells: &[&str], colour: RGBColor| -> Result<(), PlotError> {
        for (at, cell) in cells.iter().enumerate() {
            let (x, position) =
                if at == 0 { (34, HPos::Left) } else { (cell_right(at), HPos::Right) };
            area.draw_text(cell, &text_style(12, colour, position, VPos::Center), (x, y))?;
        }
        Ok(())
    };
    row(10, titles, FAINT_INK)?;
    let (_, height) = area.dim_in_pixel();
    let room = (height as i32 / LINE_PIXELS - 2).max(1) as usize;
    let shown = if lines.len() > room { room - 1 } else { lines.len() };
    for (at, line) in lines.iter().take(shown).enumerate() {
        let y = 10 + LINE_PIXELS * (at as i32 + 1);
        area.draw(&Rectangle::new([(14, y - 2), (28, y + 2)], line.colour.filled()))?;
        row(y, &line.cells.iter().map(String::as_str).collect::<Vec<_>>(), INK)?;
    }
    if shown < lines.len() {
        let text = format!("and {} more", lines.len() - shown);
        row(10 + LINE_PIXELS * (shown as i32 + 1), &[&text], FAINT_INK)?;
    }
    Ok(())
}

/// An axis in plot units: its range, and the positions and texts of its marks. For a scale that is
/// not linear (logarithms, nines) the caller transforms data and marks.
pub(crate) struct Axis {
    pub(crate) title: &'static str,
    pub(crate) range: std::ops::Range<f64>,
    pub(crate) marks: Vec<(f64, String)>,
}

impl Axis {
    /// From zero to `end`, with about `steps` round marks.
    pub(crate) fn linear(title: &'static str, end: f64, steps: f64) -> Self {
        let end = if end.is_finite() && end > 0.0 { end } else { 1.0 };
        let rough = end / steps;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .map(|factor| factor * power)
            .into_iter()
            .find(|step| *step >= rough);
        let step = step.unwrap_or(rough);
        let marks = (0..=(end / step + 1e-9) as usize)
            .map(|at| (at as f64 * step, crate::units::three_digits(at as f64 * step)))
            .collect();
        Self { title, range: 0.0..end, marks }
    }

    /// Durations in microseconds on a logarithmic scale; plot units are decimal logarithms.
    pub(crate) fn logarithmic_duration(title: &'static str, from_us: f64, to_us: f64) -> Self {
        let decades = (to_us / from_us).log10();
        // 1, 2, 5 if there is room for the labels, otherwise only the decades.
        let factors: &[f64] = if decades <= 3.2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        let range = from_us.log10()..to_us.log10();
        let marks = (-3..10)
            .flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)))
            .filter(|us| (from_us * 0.999..=to_us * 1.001).contains(us))
            .map(|us| (us.log10(), crate::units::duration_text(us)))
            .collect();
        Self { title, range, marks }
    }
}

pub(crate) type Chart<'a, 'b> =
    ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// Pixels between the left edge of a panel and its plotting area.
const LEFT: i32 = 76;
/// Pixels below the plotting area when the x axis is labelled.
const BOTTOM: i32 = 46;

/// A panel with grid and labels. `labelled_x` is false for panels that share the axis of the
/// one below them.
pub(crate) fn panel<'a, 'b>(
    area: &'a Area<'b>,
    x: &Axis,
    y: &Axis,
    labelled_x: bool,
) -> Result<Chart<'a, 'b>, PlotError> {
    let bottom = if labelled_x { BOTTOM } else { 10 };
    let chart = ChartBuilder::on(area)
        .margin_left(LEFT)
        .margin_right(26)
        .margin_top(8)
        .margin_bottom(bottom)
        .build_cartesian_2d(x.range.clone(), y.range.clone())?;
    let plane = chart.plotting_area();
    for (at, _) in &x.marks {
        plane.draw(&PathElement::new([(*at, y.range.start), (*at, y.range.end)], GRID))?;
    }
    for (at, _) in &y.marks {
        plane.draw(&PathElement::new([(x.range.start, *at), (x.range.end, *at)], GRID))?;
    }
    // The axes' labels, in pixels, because plotters' own mesh would choose other marks.
    let origin = area.get_base_pixel();
    let pixel = |x: f64, y: f64| {
        let (x, y) = plane.map_coordinate(&(x, y));
        (x - origin.0, y - origin.1)
    };
    let below = pixel(x.range.start, y.range.start).1;
    for (at, text) in &y.marks {
        let y_pixel = pixel(x.range.start, *at).1;
        area.draw_text(text, &text_style(12, INK, HPos::Right, VPos::Center), (LEFT - 8, y_pixel))?;
    }
    let middle = pixel(x.range.start, (y.range.start + y.range.end) / 2.0).1;
    let upright =
        text_style(12, FAINT_INK, HPos::Center, VPos::Center).transform(FontTransform::Rotate270);
    area.draw_text(y.title, &upright, (14, middle))?;
    if labelled_x {
        for (at, text) in &x.marks {
            let x_pixel = pixel(*at, y.range.start).0;
            area.draw_text(
                text,
                &text_style(12, INK, HPos::Center, VPos::Top),
                (x_pixel, below + 7),
            )?;
        }
        let middle = pixel((x.range.start + x.range.end) / 2.0, y.range.start).0;
        area.draw_text(
            x.title,
            &text_style(12, FAINT_INK, HPos::Center, VPos::Top),
            (middle, below + 26),
        )?;
    }
    Ok(chart)
}

/// The base line, drawn last so that it is above the data.
pub(crate) fn base_line(chart: &Chart<'_, '_>, x: &Axis, y: &Axis) -> Result<(), PlotError> {
    let line = [(x.range.start, y.range.start), (x.range.end, y.range.start)];
    Ok(chart.plotting_area().draw(&PathElement::new(line, INK.stroke_width(1)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(axis: &Axis) -> Vec<&str> {
        axis.marks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn linear_axes_are_marked_at_round_steps() {
        assert_eq!(texts(&Axis::linear("", 7.0, 5.0)), ["0", "2", "4", "6"]);
        assert_eq!(texts(&Axis::linear("", 0.5, 5.0)), ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
        assert_eq!(
            texts(&Axis::linear("", 0.0, 5.0)).first(),
            Some(&"0"),
            "nothing happened: still an axis"
        );
    }

    #[test]
    fn duration_axes_are_marked_1_2_5() {
        let axis = Axis::logarithmic_duration("", 100.0, 2_000.0);
        assert_eq!(texts(&axis), ["100 µs", "200 µs", "500 µs", "1 ms", "2 ms"]);
        let wide = Axis::logarithmic_duration("", 10.0, 1e6);
        assert_eq!(texts(&wide), ["10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s"]);
    }

    #[test]
    fn ordered_colours_run_from_dark_to_bright() {
        let darkness = |RGBColor(r, g, b)| 3 * i32::from(r) + 6 * i32::from(g) + i32::from(b);
        let colours: Vec<i32> = (0..8).map(|at| darkness(Colours::Ordered.pick(at, 8))).collect();
        assert!(colours.is_sorted(), "{colours:?}");
    }
}
