//! A section of the page: one experiment.

use std::fmt::Write as _;

use super::data::{File, Material, Row};
use super::html::{escape, list};
use super::plot::{Axis, Plot, Scale, Series};

/// An experiment: what is done, expected and found.
#[derive(Debug, Default)]
pub struct Section {
    /// Also the name of its data.
    pub id: &'static str,
    pub title: &'static str,
    /// What is done, in HTML.
    pub what: String,
    /// What the papers and the specification claim.
    pub expected: Vec<String>,
    /// What was found.
    pub found: Vec<String>,
    /// What is to be explained, and what differs from the papers.
    pub remarks: Vec<String>,
    /// Plots and tables.
    pub body: String,
    /// Where the data come from.
    pub origins: Vec<String>,
    /// Data that do not exist, and the command that makes them.
    pub missing: Vec<(String, String)>,
}

impl Section {
    /// The section as HTML.
    pub fn html(&self) -> String {
        let mut html = format!(
            "<section id=\"{}\">\n<h2>{}</h2>\n{}\n",
            self.id,
            escape(self.title),
            self.what
        );
        if !self.expected.is_empty() {
            let _ = write!(html, "<h3>Expected</h3>\n{}", list(&self.expected));
        }
        html += &found(&self.found);
        for (name, command) in &self.missing {
            let _ = writeln!(
                html,
                "<p class=\"missing\">Not measured yet: <code>docs/results/{name}.json</code>. \
                 Make it with <code>./cops {}</code>.</p>",
                escape(command)
            );
        }
        html += &self.body;
        if !self.remarks.is_empty() {
            let _ = write!(
                html,
                "<h3>Differences, and what is to be explained</h3>\n{}",
                list(&self.remarks)
            );
        }
        for origin in &self.origins {
            let _ = writeln!(html, "<p class=\"origin\">{origin}</p>");
        }
        html + "</section>\n"
    }

    /// Names the data of this experiment that do not exist.
    pub fn expects(&mut self, material: &Material, names: &[&str]) {
        for name in names.iter().filter(|name| material.file(name).is_none()) {
            self.missing.push(((*name).to_owned(), format!("report measure {name}")));
        }
    }

    /// Names the origin of a file.
    pub fn uses(&mut self, file: &File) {
        self.origins.push(file.origin());
    }
}

const MET: &str = "<span class=\"met\">Met.</span> ";
const UNMET: &str = "<span class=\"unmet\">Not met.</span> ";

/// A statement that a claim is met, or is not.
pub fn judged(is_met: bool, text: &str) -> String {
    format!("{}{text}", if is_met { MET } else { UNMET })
}

/// What was found: how many claims are met, then those that are not, then what is no claim. Those
/// that are met are folded: they say what was expected.
fn found(sentences: &[String]) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let of = |begin: &str| {
        let these = sentences.iter().filter(|sentence| sentence.starts_with(begin));
        these.cloned().collect::<Vec<_>>()
    };
    let (met, unmet) = (of(MET), of(UNMET));
    let others = sentences
        .iter()
        .filter(|sentence| ![MET, UNMET].iter().any(|begin| sentence.starts_with(begin)));
    let others: Vec<String> = others.cloned().collect();
    let mut html = "<h3>Found</h3>\n".to_owned();
    if met.len() + unmet.len() > 0 {
        // Red is for what there is.
        let class = if unmet.is_empty() { "met" } else { "unmet" };
        let _ = writeln!(
            html,
            "<p><span class=\"met\">{} met</span>, <span class=\"{class}\">{} not met</span>.</p>",
            met.len(),
            unmet.len()
        );
    }
    html += &list(&unmet);
    html += &list(&others);
    if !met.is_empty() {
        let _ = write!(
            html,
            "<details><summary>{} met</summary>\n{}</details>\n",
            met.len(),
            list(&met)
        );
    }
    html
}

/// Plots beside each other, as many as fit.
pub fn plots(plots: &[Plot]) -> String {
    let plots: String = plots.iter().map(Plot::html).collect();
    format!("<div class=\"plots\">\n{plots}</div>\n")
}

/// The colour of a model, the same in every plot.
pub fn colour(model: &str) -> usize {
    match model {
        "coroutine" | "kcuc" => 0,
        "thread" | "ktut" => 1,
        "thread-yield" | "thread-retry" | "ktut-retry" => 2,
        "kcut" => 3,
        "ktuc" => 4,
        "task" => 6,
        "kcut-retry" => 7,
        _ => 5,
    }
}

/// The points of rows: those that have both values, in the order of the first.
pub fn points<'r>(
    rows: impl IntoIterator<Item = &'r Row>,
    x: impl Fn(&Row) -> Option<f64>,
    y: impl Fn(&Row) -> Option<f64>,
) -> Vec<(f64, f64)> {
    let mut points: Vec<(f64, f64)> =
        rows.into_iter().filter_map(|row| Some((x(row)?, y(row)?))).collect();
    points.sort_by(|one, other| one.0.total_cmp(&other.0));
    points
}

/// A plot with a line for each value of a column.
pub fn lines<'r>(
    title: impl Into<String>,
    rows: &[&'r Row],
    column: &str,
    (x, x_axis): (&dyn Fn(&'r Row) -> Option<f64>, Axis),
    (y, y_axis): (&dyn Fn(&'r Row) -> Option<f64>, Axis),
) -> Plot {
    let mut names: Vec<String> = Vec::new();
    for row in rows {
        let name = row.shown(column);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let series = names.iter().enumerate().map(|(index, name)| {
        let of_it = rows.iter().copied().filter(|row| row.is(column, name));
        let points = of_it.filter_map(|row| Some((x(row)?, y(row)?))).collect::<Vec<_>>();
        let mut points = points;
        points.sort_by(|one, other| one.0.total_cmp(&other.0));
        let is_model = column == "model";
        Series {
            name: if is_model { name.clone() } else { format!("{column} {name}") },
            colour: if is_model { colour(name) } else { index % 8 },
            is_dashed: false,
            points,
        }
    });
    let series = series.collect();
    Plot { title: title.into(), x: x_axis, y: y_axis, series, notes: Vec::new() }
}

/// An axis of a number of things, by its powers of two.
pub fn counted(label: &str) -> Axis {
    Axis::new(label, Scale::Log(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_met_is_counted_and_folded() {
        let sentences = [judged(true, "A"), judged(false, "B"), "C".to_owned(), judged(true, "D")];
        let html = found(&sentences);
        let (open, folded) = html.split_once("<details><summary>2 met</summary>").unwrap();
        assert!(open.contains(">2 met</span>, <span class=\"unmet\">1 not met</span>."), "{open}");
        assert!(open.contains("Not met.</span> B") && open.contains("<li>C</li>"), "{open}");
        assert!(folded.contains("Met.</span> A") && folded.contains("Met.</span> D"), "{folded}");
        assert!(!found(&["C".to_owned()]).contains("met"));
        assert_eq!(found(&[]), "");
    }
}
