//! The flame graph of a profile: an SVG file that needs nothing else.
//!
//! A box is a call path; its width is the share of the instructions that were executed on it and on
//! the paths that continue it, and its callees are above it. A pointer that rests on a box shows
//! its name and number. Paths with the same frames are one box, so left and right mean nothing.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::images::{FIRMWARE, KERNEL, VDSO};
use super::paths::Profile;

const WIDTH: f64 = 1600.0;
const ROW: f64 = 17.0;
/// Boxes that would be narrower are left out.
const NARROWEST: f64 = 0.4;
/// Width of a letter, and the narrowest box with text.
const LETTER: f64 = 6.6;
const NARROWEST_TEXT: f64 = 24.0;
/// Height of the lines above the boxes.
const HEAD: f64 = 52.0;

/// A frame, and those that it calls.
#[derive(Default)]
struct Frame<'a> {
    instructions: i64,
    callees: BTreeMap<&'a str, Frame<'a>>,
}

impl Frame<'_> {
    fn depth(&self) -> usize {
        self.callees.values().map(|callee| 1 + callee.depth()).max().unwrap_or(0)
    }
}

/// The graph, with a title and a line about its origin.
pub fn draw(profile: &Profile, title: &str, origin: &str) -> String {
    let mut root = Frame::default();
    // The difference of two counts may be negative for paths that only the first one had.
    for (path, &instructions) in profile.paths.iter().filter(|&(_, &count)| count > 0) {
        let mut frame = &mut root;
        frame.instructions += instructions;
        for name in path {
            frame = frame.callees.entry(name).or_default();
            frame.instructions += instructions;
        }
    }
    let height = HEAD + ROW * (root.depth() + 1) as f64 + 8.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n\
         <style>text{{font:11px monospace;pointer-events:none}}rect{{stroke:#fff;stroke-width:.5}}</style>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#fff\"/>\n\
         <text x=\"8\" y=\"18\">{}</text>\n<text x=\"8\" y=\"34\">{}</text>\n",
        escaped(title),
        escaped(origin)
    );
    let unit = profile.requests.map_or(1.0, |requests| requests.max(1) as f64);
    let what = if profile.requests.is_some() { "instructions per request" } else { "instructions" };
    let mut canvas = Canvas { svg: &mut svg, all: root.instructions.max(1), unit, what, height };
    canvas.draw("all", &root, 0.0, 0);
    svg.push_str("</svg>\n");
    svg
}

struct Canvas<'a> {
    svg: &'a mut String,
    all: i64,
    unit: f64,
    what: &'a str,
    height: f64,
}

impl Canvas<'_> {
    fn draw(&mut self, name: &str, frame: &Frame<'_>, left: f64, level: usize) {
        let share = frame.instructions as f64 / self.all as f64;
        let width = share * WIDTH;
        if width < NARROWEST {
            return;
        }
        let top = self.height - ROW * (level + 1) as f64 - 4.0;
        let each = frame.instructions as f64 / self.unit;
        // Writing to a string cannot fail.
        let _ = writeln!(
            self.svg,
            "<g><title>{}: {each:.0} {}, {:.2}%</title><rect x=\"{left:.2}\" y=\"{top:.1}\" width=\"{width:.2}\" \
             height=\"{}\" fill=\"{}\"/>{}</g>",
            escaped(name),
            self.what,
            100.0 * share,
            ROW - 1.0,
            colour(name),
            label(name, left, top, width),
        );
        let mut at = left;
        for (callee, frame) in &frame.callees {
            self.draw(callee, frame, at, level + 1);
            at += frame.instructions as f64 / self.all as f64 * WIDTH;
        }
    }
}

/// The text of a box, if it has room for some.
fn label(name: &str, left: f64, top: f64, width: f64) -> String {
    if width < NARROWEST_TEXT {
        return String::new();
    }
    let letters = (width / LETTER) as usize;
    let name = name.split_once(':').map_or(name, |(_, function)| function);
    // The end of a name says more than its beginning.
    let cut = name.chars().count().saturating_sub(letters);
    let text: String = name.chars().skip(cut).collect();
    format!("<text x=\"{:.2}\" y=\"{:.1}\">{}</text>", left + 2.0, top + 12.0, escaped(&text))
}

/// A colour for each side, a little different for each function.
fn colour(name: &str) -> String {
    let side = name.split_once(':').map_or("", |(side, _)| side);
    let hue = match side {
        "" => 0,
        KERNEL => 28,
        VDSO => 280,
        FIRMWARE => 0,
        _ => 130,
    };
    let mix = name.bytes().fold(7_u32, |mix, byte| mix.wrapping_mul(31).wrapping_add(byte.into()));
    let saturation = if side.is_empty() { 0 } else { 75 };
    format!("hsl({hue},{saturation}%,{}%)", 68 + mix % 14)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_as_wide_as_their_share() {
        let profile =
            Profile::parse("kernel:a 50\nkernel:a;vdso:<b & c> 25\nls:main 25\n").unwrap();
        let svg = draw(&profile, "t & u", "o");
        let width = |name: &str| {
            let found =
                svg.lines().find(|line| line.contains(&format!("<title>{name}: "))).unwrap();
            let rest = &found[found.find(" width=\"").unwrap() + 8..];
            rest[..rest.find('"').unwrap()].parse::<f64>().unwrap()
        };
        assert_eq!(width("all"), WIDTH);
        assert_eq!(width("kernel:a"), WIDTH * 0.75);
        assert_eq!(width("vdso:&lt;b &amp; c&gt;"), WIDTH * 0.25);
        assert_eq!(width("ls:main"), WIDTH * 0.25);
        assert!(svg.contains("t &amp; u") && svg.ends_with("</svg>\n"));
    }
}
