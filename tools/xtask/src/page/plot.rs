//! Plots as SVG inside of a page: lines with markers, on linear or logarithmic axes. Colours are
//! classes of the page's style sheet, so that a plot is as light or dark as the page. The drawing
//! is small and is stretched to its place, which keeps its text legible on a phone.

use std::fmt::Write as _;

use super::html::escape;

const WIDTH: f64 = 440.0;
const HEIGHT: f64 = 290.0;
/// The area of the axes.
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 10.0;
const BOTTOM: f64 = 40.0;

/// How values are placed along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// From 0.
    Linear,
    /// From 0, with marks at whole numbers only: for what is numbered.
    Whole,
    /// Logarithmic, with marks at powers of this number.
    Log(u32),
}

/// An axis.
#[derive(Debug, Clone)]
pub struct Axis {
    pub label: String,
    pub scale: Scale,
}

impl Axis {
    pub fn new(label: impl Into<String>, scale: Scale) -> Self {
        Self { label: label.into(), scale }
    }
}

/// A line.
#[derive(Debug, Clone)]
pub struct Series {
    pub name: String,
    /// Its colour: the number of a class of the style sheet.
    pub colour: usize,
    /// For what others measured.
    pub is_dashed: bool,
    pub points: Vec<(f64, f64)>,
}

/// A plot with its title and legend.
#[derive(Debug, Clone)]
pub struct Plot {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    /// Those of the first colour, which are ours, are drawn above the others.
    pub series: Vec<Series>,
    /// What the reader would look for in the drawing and not find.
    pub notes: Vec<String>,
}

/// The values that an axis shows, and where it has marks.
struct Range {
    low: f64,
    high: f64,
    marks: Vec<f64>,
    is_logarithmic: bool,
}

impl Range {
    /// The range of an axis for these values; `None` if there are none that it can show.
    fn of(values: impl Iterator<Item = f64>, scale: Scale) -> Option<Self> {
        let is_logarithmic = matches!(scale, Scale::Log(_));
        let is_shown = |value: &f64| value.is_finite() && (!is_logarithmic || *value > 0.0);
        let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
        for value in values.filter(is_shown) {
            (low, high) = (low.min(value), high.max(value));
        }
        if low > high {
            return None;
        }
        match scale {
            Scale::Linear | Scale::Whole => {
                let high = if high > 0.0 { high } else { 1.0 };
                let step = nice_step(high);
                let step = if scale == Scale::Whole { step.max(1.0) } else { step };
                let count = (high / step).ceil();
                let marks = (0..=count as u32).map(|index| f64::from(index) * step).collect();
                Some(Self { low: 0.0, high: count * step, marks, is_logarithmic: false })
            }
            Scale::Log(base) => {
                let base = f64::from(base);
                let power = |value: f64| value.ln() / base.ln();
                let first = (power(low) + 1e-9).floor() as i32;
                let last = ((power(high) - 1e-9).ceil() as i32).max(first + 1);
                let every = ((last - first) as usize).div_ceil(8).max(1);
                let marks = (first..=last).step_by(every).map(|exponent| base.powi(exponent));
                Some(Self {
                    low: base.powi(first),
                    high: base.powi(last),
                    marks: marks.collect(),
                    is_logarithmic: true,
                })
            }
        }
    }

    /// Where a value is, from 0 to 1.
    fn place(&self, value: f64) -> f64 {
        if self.is_logarithmic {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }
}

/// The distance of marks: 1, 2 or 5 times a power of ten, for four to eight of them.
fn nice_step(high: f64) -> f64 {
    let power = 10_f64.powf((high / 5.0).log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| high / (factor * power) <= 7.0);
    factor.unwrap_or(10.0) * power
}

/// A number at a mark or in a table: short, with three digits.
pub fn short(value: f64) -> String {
    let size = value.abs();
    let (scaled, unit) = match size {
        _ if size >= 1e9 => (value / 1e9, "G"),
        _ if size >= 1e6 => (value / 1e6, "M"),
        _ if size >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let size = scaled.abs();
    let digits = match size {
        _ if size >= 100.0 || size == 0.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    };
    text + unit
}

impl Plot {
    /// The same with dashed lines: a plot of the papers' values.
    pub fn dashed(mut self) -> Self {
        for series in &mut self.series {
            series.is_dashed = true;
        }
        self
    }

    /// The plot as an element of a page; a sentence if there is nothing to show.
    pub fn html(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x = Range::of(points().map(|point| point.0), self.x.scale);
        let y = Range::of(points().map(|point| point.1), self.y.scale);
        let title = escape(&self.title);
        let (Some(x), Some(y)) = (x, y) else {
            return format!("<figure><figcaption>{title}: no data.</figcaption></figure>\n");
        };
        let mut svg = format!(
            "<figure><figcaption>{title}</figcaption>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             role=\"img\" aria-label=\"{title}\">\n"
        );
        self.draw_axes(&mut svg, &x, &y);
        let (ours, others): (Vec<&Series>, Vec<&Series>) =
            self.series.iter().partition(|series| series.colour == 0);
        for series in others.into_iter().chain(ours) {
            draw_series(&mut svg, series, &x, &y);
        }
        svg += "</svg>\n";
        svg += &self.legend(&self.hidden(&x, &y));
        svg += "</figure>\n";
        svg
    }

    fn draw_axes(&self, svg: &mut String, x: &Range, y: &Range) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for &mark in &x.marks {
            let at = across(x, mark);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{at:.1} {TOP}V{bottom}\"/><text class=\"x\" \
                 x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
                bottom + 15.0,
                short(mark)
            );
        }
        for &mark in &y.marks {
            let at = up(y, mark);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{LEFT} {at:.1}H{right}\"/><text class=\"y\" \
                 x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 5.0,
                at + 4.0,
                short(mark)
            );
        }
        let (middle_x, middle_y) = (f64::midpoint(LEFT, right), f64::midpoint(TOP, bottom));
        let _ = writeln!(
            svg,
            "<path class=\"axis\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\n\
             <text class=\"label\" x=\"{middle_x:.1}\" y=\"{:.1}\">{}</text>\n\
             <text class=\"label\" transform=\"translate(13 {middle_y:.1}) rotate(-90)\">{}</text>",
            HEIGHT - 6.0,
            escape(&self.x.label),
            escape(&self.y.label)
        );
    }

    /// A sentence that names the lines below that of the first colour, if there are some.
    fn hidden(&self, x: &Range, y: &Range) -> Option<String> {
        // A line and its markers are about as thick.
        const SAME: f64 = 3.0;
        let mut ours = self.series.iter().filter(|series| series.colour == 0);
        let (front, None) = (ours.next()?, ours.next()) else { return None };
        let at = |series: &Series| {
            let points = series.points.iter().filter(|point| is_shown(point, x, y));
            points.map(|point| (across(x, point.0), up(y, point.1))).collect::<Vec<_>>()
        };
        let front_at = at(front);
        let is_below = |series: &&Series| {
            let points = at(series);
            points.len() > 1
                && points.iter().all(|(across, up)| {
                    let is_same =
                        |other: &(f64, f64)| (across - other.0).hypot(up - other.1) < SAME;
                    front_at.iter().any(is_same)
                })
        };
        let below = self.series.iter().filter(|series| series.colour != 0).filter(is_below);
        let names: Vec<&str> = below.map(|series| series.name.as_str()).collect();
        let (last, first) = names.split_last()?;
        let names = if first.is_empty() {
            (*last).into()
        } else {
            format!("{} and {last}", first.join(", "))
        };
        let (lines, verb) =
            if first.is_empty() { ("line", "coincides") } else { ("lines", "coincide") };
        Some(format!("The {lines} of {names} {verb} with that of {}.", front.name))
    }

    fn legend(&self, hidden: &Option<String>) -> String {
        let mut html = "<p class=\"legend\">".to_owned();
        for series in self.series.iter().filter(|series| !series.points.is_empty()) {
            let dashed = if series.is_dashed { " dashed" } else { "" };
            let _ = write!(
                html,
                "<span><svg viewBox=\"0 0 26 10\"><path class=\"line c{}{dashed}\" \
                 d=\"M1 5H25\"/></svg>{}</span> ",
                series.colour,
                escape(&series.name)
            );
        }
        for note in hidden.iter().chain(&self.notes) {
            html += &escape(note);
            html.push(' ');
        }
        html + "</p>\n"
    }
}

fn across(range: &Range, value: f64) -> f64 {
    LEFT + range.place(value) * (WIDTH - LEFT - RIGHT)
}

fn up(range: &Range, value: f64) -> f64 {
    HEIGHT - BOTTOM - range.place(value) * (HEIGHT - TOP - BOTTOM)
}

fn is_shown(point: &(f64, f64), x: &Range, y: &Range) -> bool {
    let is_shown =
        |value: f64, range: &Range| value.is_finite() && (!range.is_logarithmic || value > 0.0);
    is_shown(point.0, x) && is_shown(point.1, y)
}

fn draw_series(svg: &mut String, series: &Series, x: &Range, y: &Range) {
    let points = series.points.iter().filter(|point| is_shown(point, x, y));
    let points: Vec<(f64, f64)> =
        points.map(|point| (across(x, point.0), up(y, point.1))).collect();
    let words = points
        .iter()
        .enumerate()
        .map(|(index, (x, y))| format!("{}{x:.1} {y:.1}", if index == 0 { 'M' } else { 'L' }));
    let dashed = if series.is_dashed { " dashed" } else { "" };
    let path: String = words.collect();
    let _ = writeln!(svg, "<path class=\"line c{}{dashed}\" d=\"{path}\"/>", series.colour);
    // Many points are a curve, few are values that were measured.
    if points.len() <= 40 {
        for (x, y) in points {
            let _ = write!(
                svg,
                "<circle class=\"c{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.4\"/>",
                series.colour
            );
        }
        svg.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(scale: Scale, points: &[(f64, f64)]) -> String {
        let series =
            Series { name: "a < b".into(), colour: 1, is_dashed: false, points: points.to_vec() };
        of(scale, vec![series]).html()
    }

    fn of(scale: Scale, series: Vec<Series>) -> Plot {
        let axis = |label: &str| Axis::new(label, scale);
        Plot { title: "T".into(), x: axis("x"), y: axis("y"), series, notes: Vec::new() }
    }

    #[test]
    fn ours_is_drawn_last_and_what_it_hides_is_named() {
        let series = |name: &str, colour: usize, points: &[(f64, f64)]| Series {
            name: name.into(),
            colour,
            is_dashed: false,
            points: points.to_vec(),
        };
        let lines = vec![
            series("kcuc", 0, &[(1.0, 10.0), (2.0, 20.0), (4.0, 40.0)]),
            series("ktut", 1, &[(1.0, 10.1), (2.0, 19.9), (4.0, 39.8)]),
            series("kcut", 3, &[(1.0, 10.1), (2.0, 19.9), (4.0, 20.0)]),
            series("ktuc", 4, &[(1.0, 10.0), (4.0, 40.0)]),
        ];
        let html = of(Scale::Log(2), lines.clone()).html();
        let place = |class: &str| html.find(&format!("<path class=\"line {class}\"")).unwrap();
        assert!(place("c0") > place("c4") && place("c4") > place("c1"), "{html}");
        let text = "The lines of ktut and ktuc coincide with that of kcuc.";
        assert!(html.contains(text), "{html}");
        let html = of(Scale::Log(2), lines[..2].to_vec()).html();
        assert!(html.contains("The line of ktut coincides with that of kcuc."), "{html}");
        let html = of(Scale::Log(2), vec![lines[0].clone(), lines[2].clone()]).html();
        assert!(!html.contains("coincide"), "{html}");
    }

    #[test]
    fn what_is_numbered_has_whole_marks() {
        let marks = Range::of([0.0, 3.0].into_iter(), Scale::Whole).unwrap().marks;
        assert_eq!(marks, [0.0, 1.0, 2.0, 3.0]);
    }

    #[test]
    fn points_are_placed_between_the_axes() {
        let svg = plot(Scale::Linear, &[(0.0, 0.0), (100.0, 7.0)]);
        assert!(svg.contains("d=\"M58.0 250.0L426.0 "), "{svg}");
        assert!(svg.contains("a &lt; b") && !svg.contains("a < b"));
        let svg = plot(Scale::Log(10), &[(1.0, 1.0), (10.0, 100.0)]);
        assert!(svg.contains("d=\"M58.0 250.0L426.0 10.0\""), "{svg}");
    }

    #[test]
    fn what_an_axis_cannot_show_is_left_out() {
        let svg = plot(Scale::Log(2), &[(0.0, 1.0), (1.0, 1.0), (2.0, f64::NAN), (4.0, 2.0)]);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(plot(Scale::Log(2), &[(0.0, 1.0)]).contains("no data"));
        assert!(plot(Scale::Linear, &[]).contains("no data"));
    }

    #[test]
    fn marks_are_round_numbers() {
        let marks = |high| Range::of([high].into_iter(), Scale::Linear).unwrap().marks;
        assert_eq!(marks(4000.0), [0.0, 1000.0, 2000.0, 3000.0, 4000.0]);
        assert_eq!(marks(7.0).len(), 8);
        assert_eq!(marks(0.0), [0.0, 0.2, 0.4, 0.6000000000000001, 0.8, 1.0]);
        let powers = Range::of([3.0, 2000.0].into_iter(), Scale::Log(2)).unwrap().marks;
        assert_eq!((powers[0], powers.len()), (2.0, 6));
    }

    #[test]
    fn numbers_are_short() {
        let texts = [0.0, 0.1234, 5.0, 12.34, 1234.0, 12_345.0, 2.5e6, 3e9].map(short);
        assert_eq!(texts, ["0", "0.123", "5", "12.3", "1234", "12.3k", "2.5M", "3G"]);
    }
}
