//! Priorities: Figures 6 and 7 of paper 000, and their relatives in 001, 003 and 004.

use super::data::{File, Material, Row};
use super::html::table;
use super::plot::{Axis, Plot, Scale, Series, short};
use super::section::{Section, judged, lines, plots};

/// The part of an urgent class's unloaded p99 that its p99 under overload may be.
const GOAL: f64 = 1.5;
/// The part of its p99 with one virtual CPU that its p99 with four may be, noise included.
const GOAL_OF_CPUS: f64 = 1.05;

pub fn section(material: &Material) -> Section {
    let mut section = Section {
        id: "priority",
        title: "Priorities of connections (000, Figures 6 and 7; 001, 003, 004)",
        what: "<p>Connections in classes, each with a priority of its own, of which 0 is the most \
               urgent, on 1 to 4 virtual CPUs, with more requests than can be served. The control \
               group is the same with a scheduler that serves in the order of arrival \
               (<code>--scheduler</code>).</p>"
            .to_owned(),
        expected: vec![
            "The papers: more urgent classes get more answers, with less latency; from 3 to 4 \
             virtual CPUs the most urgent class loses."
                .to_owned(),
            "COPS: classes are ordered in throughput and latency; the most urgent class's p99 under \
             twofold overload is at most 1.5 times its unloaded p99, and no worse with 4 virtual \
             CPUs than with 1."
                .to_owned(),
        ],
        remarks: vec![
            "Figure 7 of paper 000 is said to show four classes of 64 connections; its data are the \
             four most urgent of the eight classes of Figure 6, each sample ten times."
                .to_owned(),
            "Figures 9 and 10 of paper 004 are fitted curves: only their peaks are known.".to_owned(),
        ],
        ..Section::default()
    };
    let replies = |row: &Row| row.number("replies");
    let mean = |row: &Row| Some(row.number("latency_mean_us")? / 1e3);
    for (seed, figure, title) in [
        ("000", "6", "Paper 000, Figure 6, 64 connections"),
        ("001,003", "connect_with_prio", "Papers 001 and 003, 128 connections"),
        ("004", "7,8", "Paper 004, 8 connections"),
    ] {
        let rows = material.paper(seed, figure);
        section.body += &plots(&[
            graph(format!("{title}: answers"), &rows, &replies, "answers", Scale::Linear).dashed(),
            graph(format!("{title}: mean latency"), &rows, &mean, "ms", Scale::Log(10)).dashed(),
        ]);
    }
    section.body += &figure_7(material);
    let files: Vec<&File> = material.files_of("priority-classes").collect();
    section.expects(
        material,
        &[
            "priority-classes",
            "priority-classes-slow",
            "priority-classes-icount",
            "priority-classes-fifo-icount",
        ],
    );
    for file in files {
        ours(&mut section, file);
        section.uses(file);
    }
    section
}

fn graph<'r>(
    title: String,
    rows: &[&'r Row],
    value: &dyn Fn(&'r Row) -> Option<f64>,
    unit: &str,
    scale: Scale,
) -> Plot {
    let class = |row: &Row| row.number("class");
    let x = (&class as &dyn Fn(&'r Row) -> Option<f64>, Axis::new("class", Scale::Whole));
    let mut plot = lines(title, rows, "vcpus", x, (value, Axis::new(unit, scale)));
    let numbers = values(rows, "vcpus");
    for (series, number) in plot.series.iter_mut().zip(&numbers) {
        series.name = cpus(number);
    }
    // A logarithmic axis does not show what has no latency.
    if scale != Scale::Linear {
        let missing = numbers.iter().map(|number| {
            let rows = rows.iter().filter(|row| row.is("vcpus", number));
            let missing = rows.filter(|row| value(row).is_none_or(|value| value <= 0.0));
            (cpus(number), missing.map(|row| row.shown("class")).collect())
        });
        plot.notes = unanswered(&missing.collect::<Vec<_>>());
    }
    plot
}

/// The different values of a column, in the order of the rows.
fn values(rows: &[&Row], column: &str) -> Vec<String> {
    let mut values: Vec<String> = Vec::new();
    for row in rows {
        let value = row.shown(column);
        if !values.contains(&value) {
            values.push(value);
        }
    }
    values
}

/// Sentences about the classes that got no answer, each with its setting: one if all settings have
/// the same classes.
fn unanswered(missing: &[(String, Vec<String>)]) -> Vec<String> {
    let sentence = |setting: &str, classes: &[String]| {
        let word = if classes.len() == 1 { "class" } else { "classes" };
        (!classes.is_empty())
            .then(|| format!("No answers{setting}: {word} {}.", classes.join(", ")))
    };
    if missing.windows(2).all(|pair| pair[0].1 == pair[1].1) {
        return missing
            .first()
            .and_then(|(_, classes)| sentence("", classes))
            .into_iter()
            .collect();
    }
    let each = missing.iter();
    each.filter_map(|(name, classes)| sentence(&format!(" with {name}"), classes)).collect()
}

/// The distributions, of which the page has the quantiles.
fn figure_7(material: &Material) -> String {
    let rows = material.paper("000", "7").into_iter().map(|row| {
        let millis =
            |path: &str| row.number(path).map_or_else(String::new, |value| short(value / 1e3));
        let mut cells = vec![row.shown("class"), row.shown("vcpus")];
        cells.extend(
            ["mean", "p50", "p90", "p99", "max"].map(|name| millis(&format!("latency_us.{name}"))),
        );
        cells
    });
    let heading = ["000, Figure 7: class", "vcpus", "mean ms", "p50", "p90", "p99", "max"];
    table(&heading, &rows.collect::<Vec<_>>())
}

/// The loads that are shown and judged, and what they are. The others are what these refer to.
const LOADS: [(&str, &str); 2] =
    [("overload", "twice the capacity"), ("papers", "the papers' client")];

/// What a group of rows has in common: everything but the class and the number of virtual CPUs.
const SETTING: [&str; 5] = ["model", "connections", "classes", "matrix", "load"];

/// The rows of classes, in groups with the same setting, with its description.
fn settings(rows: &[Row]) -> Vec<(String, Vec<&Row>)> {
    let mut groups: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows.iter().filter(|row| row.number("class").is_some()) {
        let load = row.text("load");
        let Some((_, load)) = LOADS.iter().find(|(name, _)| load.is_empty() || *name == load)
        else {
            continue;
        };
        let words = SETTING.iter().filter_map(|name| {
            let value = row.shown(name);
            Some(match (*name, value.as_str()) {
                (_, "") => return None,
                ("load", _) => (*load).to_owned(),
                ("matrix", side) => format!("{side} x {side}"),
                ("connections" | "classes", number) => format!("{number} {name}"),
                (_, model) => model.to_uppercase(),
            })
        });
        let name = words.collect::<Vec<_>>().join(", ");
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, group)) => group.push(row),
            None => groups.push((name, vec![row])),
        }
    }
    groups
}

fn ours(section: &mut Section, file: &File) {
    let clock = match (file.is_counted(), file.has_slow_harts()) {
        (true, _) => "counted",
        (false, true) => "wall clock, slow harts",
        (false, false) => "wall clock",
    };
    let clock = match file.scheduler() {
        "" => clock.to_owned(),
        scheduler => format!("{clock}, scheduler {scheduler}"),
    };
    for (name, rows) in settings(&file.rows) {
        let millis = |path: &'static str| move |row: &Row| Some(row.number(path)? / 1e3);
        let title = format!("COPS, {name}, {clock}");
        let mut drawn = vec![
            graph(
                format!("{title}: answers"),
                &rows,
                &|row| row.number("received"),
                "answers",
                Scale::Linear,
            ),
            graph(
                format!("{title}: mean latency"),
                &rows,
                &millis("latency_us.mean"),
                "ms",
                Scale::Log(10),
            ),
            graph(
                format!("{title}: latency, p99"),
                &rows,
                &millis("latency_us.p99"),
                "ms",
                Scale::Log(10),
            ),
        ];
        for vcpus in numbers_of_cpus(&rows) {
            let of_it: Vec<&Row> =
                rows.iter().copied().filter(|row| row.is("vcpus", &vcpus)).collect();
            drawn.extend(distribution(&format!("{title}, {}", cpus(&vcpus)), &of_it));
        }
        section.body += &plots(&drawn);
        // The control group is not to be ordered.
        if file.scheduler().is_empty() {
            judge(section, &format!("{name}, {clock}"), &file.rows, &rows);
        }
    }
}

/// A number of virtual CPUs in words.
fn cpus(number: &str) -> String {
    let plural = if number == "1" { "" } else { "s" };
    format!("{number} virtual CPU{plural}")
}

fn numbers_of_cpus(rows: &[&Row]) -> Vec<String> {
    let mut cpus: Vec<String> = rows.iter().map(|row| row.shown("vcpus")).collect();
    cpus.sort();
    cpus.dedup();
    cpus
}

/// What part of the answers of each class had at most a latency; `None` without distributions.
fn distribution(title: &str, rows: &[&Row]) -> Option<Plot> {
    let series = rows.iter().enumerate().filter_map(|(index, row)| {
        let points = row.points("distribution_us");
        let (&last, _) = points.split_last()?;
        // A point for each two hundredth, so that the page stays small.
        let mut kept: Vec<(f64, f64)> = Vec::new();
        for &point in &points {
            let is_new = kept.last().is_none_or(|(_, part)| point.1 - part >= 0.005);
            if is_new || point == last {
                kept.push(point);
            }
        }
        let points = kept.into_iter().map(|(latency, part)| (latency / 1e3, part)).collect();
        let name = format!("class {}", row.shown("class"));
        Some(Series { name, colour: index % 8, is_dashed: false, points })
    });
    let series: Vec<Series> = series.collect();
    let missing = rows.iter().filter(|row| row.points("distribution_us").is_empty());
    let missing = missing.map(|row| row.shown("class")).collect();
    let notes = unanswered(&[(String::new(), missing)]);
    (!series.is_empty()).then(|| Plot {
        title: format!("{title}: distribution of latencies"),
        x: Axis::new("ms", Scale::Log(10)),
        y: Axis::new("part of the answers", Scale::Linear),
        series,
        notes,
    })
}

/// The p99 of the most urgent class under the load of `row`, and without load. Both are medians if
/// the load was measured in several runs, and the words say how far these are apart.
fn of_most_urgent(all: &[Row], rows: &[&Row], vcpus: &str) -> Option<(f64, f64, String)> {
    // The goal is for twice the capacity.
    let is_it =
        |row: &&&Row| row.is("vcpus", vcpus) && row.is("class", "0") && row.is("load", "overload");
    let first = rows.iter().find(is_it)?;
    let same = ["vcpus", "connections", "classes", "class", "matrix"];
    let unloaded = all.iter().find(|row| {
        row.is("load", "unloaded") && same.iter().all(|name| row.shown(name) == first.shown(name))
    });
    let p99 = |row: &Row| row.number("latency_us.p99");
    let (loaded, unloaded) = (p99(first)?, p99(unloaded?)?);
    let spread = first.spread("latency_us.p99").map_or_else(String::new, |(low, high)| {
        format!(
            " (the median of {} runs, of {:.2} to {:.2})",
            first.shown("runs"),
            low / unloaded,
            high / unloaded
        )
    });
    Some((loaded, unloaded, spread))
}

/// Whether the mean latencies of classes are in the order of these; if not, which are not.
fn order(setting: &str, latencies: &[(String, f64)]) -> Option<String> {
    let ((_, first), (_, last)) = latencies.first().zip(latencies.last())?;
    let millis = |latency: &f64| short(latency / 1e3);
    let wrong = latencies.windows(2).filter_map(|pair| {
        let [(class, latency), (next, of_next)] = pair else { return None };
        (*latency > of_next * 1.05).then(|| {
            format!("class {class} has {} ms, class {next} {} ms", millis(latency), millis(of_next))
        })
    });
    let wrong: Vec<String> = wrong.collect();
    Some(if wrong.is_empty() {
        let text = format!(
            "{setting}: mean latencies are in the order of the classes (5% aside), from {} ms to {} \
             ms.",
            millis(first),
            millis(last)
        );
        judged(true, &text)
    } else {
        let text = format!(
            "{setting}: mean latencies are not in the order of the classes (5% aside): {}.",
            wrong.join("; ")
        );
        judged(false, &text)
    })
}

fn judge(section: &mut Section, name: &str, all: &[Row], rows: &[&Row]) {
    let mut ratios = Vec::new();
    for vcpus in numbers_of_cpus(rows) {
        let mut classes: Vec<&&Row> = rows.iter().filter(|row| row.is("vcpus", &vcpus)).collect();
        classes.sort_by(|one, two| {
            let class = |row: &Row| row.number("class").unwrap_or(0.0);
            class(one).total_cmp(&class(two))
        });
        // A class without answers has no latency.
        let answered = |row: &&&&Row| row.number("received").is_none_or(|received| received > 0.0);
        let latencies: Vec<(String, f64)> = classes
            .iter()
            .filter(answered)
            .filter_map(|row| Some((row.shown("class"), row.number("latency_us.mean")?)))
            .collect();
        section.found.extend(order(&format!("{name}, {}", cpus(&vcpus)), &latencies));
        if let Some((loaded, unloaded, spread)) = of_most_urgent(all, rows, &vcpus) {
            ratios.push((vcpus, loaded / unloaded, loaded, spread));
        }
    }
    for (vcpus, ratio, _, spread) in &ratios {
        section.found.push(judged(
            *ratio <= GOAL,
            &format!(
                "{name}, {}: the most urgent class's p99 is {ratio:.2} times its unloaded \
                 p99{spread}.",
                cpus(vcpus)
            ),
        ));
    }
    if let [(first, _, one, _), .., (last, _, most, _)] = ratios.as_slice() {
        let ratio = most / one;
        section.found.push(judged(
            ratio <= GOAL_OF_CPUS,
            &format!(
                "{name}: with {} its p99 under overload is {ratio:.2} times that with {}.",
                cpus(last),
                cpus(first)
            ),
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The plot of latencies of rows: class, virtual CPUs, latency.
    fn plot(rows: &[(u32, u32, f64)]) -> Plot {
        let rows: Vec<Row> = rows
            .iter()
            .map(|(class, vcpus, ms)| {
                let row = json!({ "class": class, "vcpus": vcpus, "ms": ms });
                Row(row.as_object().expect("an object").clone())
            })
            .collect();
        let rows: Vec<&Row> = rows.iter().collect();
        graph("T".into(), &rows, &|row| row.number("ms"), "ms", Scale::Log(10))
    }

    #[test]
    fn a_class_without_answers_is_named_and_lines_are_called_as_in_headings() {
        let plot = plot(&[(0, 1, 1.0), (1, 1, 0.0), (0, 2, 1.0), (1, 2, 2.0)]);
        let names: Vec<&str> = plot.series.iter().map(|series| series.name.as_str()).collect();
        assert_eq!(names, ["1 virtual CPU", "2 virtual CPUs"]);
        assert_eq!(plot.notes, ["No answers with 1 virtual CPU: class 1."]);
        assert!(plot.html().contains("No answers with 1 virtual CPU: class 1."));
    }

    #[test]
    fn classes_that_never_have_answers_are_named_once() {
        let rows = [(0, 1, 1.0), (1, 1, 0.0), (2, 1, 0.0), (0, 2, 1.0), (1, 2, 0.0), (2, 2, 0.0)];
        assert_eq!(plot(&rows).notes, ["No answers: classes 1, 2."]);
        assert_eq!(plot(&rows[..1]).notes, [""; 0]);
    }
}
