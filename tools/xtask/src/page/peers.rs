//! Linux beside COPS: the matrix service on both, on the same machine with the same client.

use super::data::{File, Material, Row};
use super::html::table;
use super::open_loop;
use super::plot::{Axis, Plot, Scale, Series, short};
use super::section::{Section, counted, judged, plots, points};

/// The aim, by the side of the matrices: times the throughput of the best server of Linux, with the
/// numbers of connections that saturate it.
const GOALS: [(&str, f64); 2] = [("1", 3.0), ("15", 1.8)];
const SATURATING: f64 = 64.0;
/// The same of machines with several harts, and the part of that server's p99.
const GOAL_OF_SEVERAL: f64 = 1.5;
const P99_OF_SEVERAL: f64 = 0.25;

pub fn section(material: &Material) -> Section {
    let mut section = Section {
        id: "peers",
        title: "Linux beside COPS: the matrix service",
        what: "<p>The same service on Debian's Linux, by six servers: <code>threads</code> (three per \
               connection, as in the papers), <code>thread</code> (one), <code>epoll</code>, \
               <code>io-uring</code>, <code>tokio</code> (three tasks per connection) and \
               <code>tokio-one</code>. Both systems have the same emulator, harts, memory, tap device \
               and client, which checks each answer. In a closed loop each connection sends its next \
               request when it has the answer. In an open loop it sends one in each period, whether \
               or not earlier ones have been answered; latency counts from the time when the request \
               was due, and throughput is of answers within the measured time. The rows are medians \
               of the runs, in which the servers take turns.</p>"
            .to_owned(),
        expected: vec![
            "COPS has more throughput than the best server of Linux at saturation, and a lower median \
             at every number of connections. The aim is 3 times the throughput with 1 x 1 matrices, \
             and 1.8 times with 15 x 15, of which the product is a larger part; and a lower p99. With \
             several harts it is 1.5 times the throughput, and a quarter of the p99."
                .to_owned(),
            "Open loop: median and p99 of COPS are below the lowest of any server of Linux at every \
             number of connections below the overload, and COPS answers more than each of them in \
             the overload, which is the largest number of connections that offer more than one of \
             the servers answers."
                .to_owned(),
        ],
        remarks: vec![
            "Each server is the only program on its machine, and Linux runs nothing else. A kernel \
             for many purposes does more for each packet: filters, accounting, routes."
                .to_owned(),
            "The server with a thread per connection answers a few connections again and again while \
             the others wait: its median is low and its p99 is high."
                .to_owned(),
            "In an overload the latencies are those of the requests that were answered by the end of \
             the drain; those that were not are counted beside them."
                .to_owned(),
        ],
        ..Section::default()
    };
    let files: Vec<&File> = material.files_of("peers").collect();
    section.expects(material, &["peers", "peers-15", "peers-open", "peers-open-4"]);
    for file in files {
        let harts =
            file.several_harts().map_or_else(String::new, |harts| format!(", {harts} harts"));
        for ((matrix, kind), rows) in groups(&file.rows) {
            draw(&mut section, &format!("{matrix} x {matrix}, {kind} loop{harts}"), &rows);
            if kind == "open" {
                let setting = format!("{matrix} x {matrix}, open loop{harts}");
                open_loop::judge(&mut section, &setting, &rows);
            } else {
                let pairs = pairs(&rows);
                section.body += &ratios(&pairs);
                section.body += &all(&rows);
                judge(&mut section, &matrix, &harts, &pairs);
            }
        }
        section.uses(file);
    }
    section
}

/// The rows by matrix and loop, the smallest matrix first.
fn groups(rows: &[Row]) -> Vec<((String, String), Vec<&Row>)> {
    let setting = |row: &Row| (row.shown("matrix"), row.shown("loop"));
    let mut settings: Vec<(String, String)> = rows.iter().map(setting).collect();
    settings.sort_by_key(|(matrix, kind)| (matrix.parse::<u32>().unwrap_or(0), kind.clone()));
    settings.dedup();
    let of =
        |wanted: &(String, String)| rows.iter().filter(|row| setting(row) == *wanted).collect();
    settings.into_iter().map(|wanted| (wanted.clone(), of(&wanted))).collect()
}

/// The plots of a setting.
fn draw(section: &mut Section, setting: &str, rows: &[&Row]) {
    let graph = |what: &str, unit: &str, scale: Scale, value: &dyn Fn(&Row) -> Option<f64>| Plot {
        title: format!("{setting}: {what}"),
        x: counted("connections"),
        y: Axis::new(unit, scale),
        series: servers(rows, value),
        notes: Vec::new(),
    };
    let millis = |path: &'static str| move |row: &Row| Some(row.number(path)? / 1e3);
    section.body += &plots(&[
        graph("answers a second", "answers a second", Scale::Linear, &|row| {
            row.number("throughput_rps")
        }),
        graph("median latency", "ms", Scale::Log(10), &millis("latency_us.p50")),
        graph("latency, p99", "ms", Scale::Log(10), &millis("latency_us.p99")),
    ]);
}

pub fn name(row: &Row) -> String {
    let model = row.text("model");
    if row.is("system", "cops") { format!("COPS, {model}") } else { model.to_owned() }
}

fn servers(rows: &[&Row], value: &dyn Fn(&Row) -> Option<f64>) -> Vec<Series> {
    let mut names: Vec<String> = rows.iter().map(|row| name(row)).collect();
    names.sort();
    names.dedup();
    let series = names.into_iter().enumerate().map(|(index, server)| {
        let of_it = rows.iter().copied().filter(|row| name(row) == server);
        let points = points(of_it, |row| row.number("connections"), value);
        Series { name: server, colour: index % 8, is_dashed: false, points }
    });
    series.collect()
}

/// The row of COPS with the highest throughput and that of Linux, by the number of connections.
fn pairs<'r>(rows: &[&'r Row]) -> Vec<(f64, &'r Row, &'r Row)> {
    let mut numbers: Vec<f64> = rows.iter().filter_map(|row| row.number("connections")).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let best = |number: f64, system: &str| {
        let of_it = rows
            .iter()
            .copied()
            .filter(|row| row.is("system", system) && row.number("connections") == Some(number));
        let throughput = |row: &&Row| row.number("throughput_rps").unwrap_or(0.0);
        of_it.max_by(|one, other| throughput(one).total_cmp(&throughput(other)))
    };
    let pair = |number: f64| Some((number, best(number, "cops")?, best(number, "linux")?));
    numbers.into_iter().filter_map(pair).collect()
}

fn ratio(cops: &Row, linux: &Row, path: &str) -> Option<f64> {
    Some(cops.number(path)? / linux.number(path).filter(|value| *value > 0.0)?)
}

fn ratios(pairs: &[(f64, &Row, &Row)]) -> String {
    let rows = pairs.iter().map(|(number, cops, linux)| {
        let shown = |path: &str| {
            ratio(cops, linux, path).map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"))
        };
        vec![
            short(*number),
            name(cops),
            name(linux),
            shown("throughput_rps"),
            shown("latency_us.p50"),
            shown("latency_us.p99"),
        ]
    });
    table(
        &["connections", "COPS", "best of Linux", "throughput, ratio", "p50, ratio", "p99, ratio"],
        &rows.collect::<Vec<_>>(),
    )
}

fn all(rows: &[&Row]) -> String {
    let cells = rows.iter().map(|row| {
        let value = |path: &str| row.number(path).map_or_else(|| "–".to_owned(), short);
        let spread = row.spread("throughput_rps");
        vec![
            name(row),
            value("connections"),
            value("runs"),
            value("throughput_rps"),
            spread.map_or_else(|| "–".to_owned(), |(low, high)| format!("{low:.0} to {high:.0}")),
            value("latency_us.mean"),
            value("latency_us.p50"),
            value("latency_us.p99"),
            value("errors"),
        ]
    });
    table(
        &["server", "connections", "runs", "a second", "spread", "mean us", "p50", "p99", "errors"],
        &cells.collect::<Vec<_>>(),
    )
}

fn judge(section: &mut Section, matrix: &str, harts: &str, pairs: &[(f64, &Row, &Row)]) {
    let setting = format!("{matrix} x {matrix}{harts}");
    let times = pairs
        .iter()
        .filter_map(|(number, cops, linux)| Some((*number, ratio(cops, linux, "throughput_rps")?)));
    let times: Vec<(f64, f64)> = times.collect();
    let ahead = times.iter().filter(|(_, times)| *times > 1.0).count();
    if !times.is_empty() {
        section.found.push(judged(
            ahead == times.len(),
            &format!(
                "{setting}: COPS has more throughput than the best server of Linux at \
                 {ahead} of {} numbers of connections.",
                times.len()
            ),
        ));
    }
    let saturated = times.iter().filter(|(number, _)| *number >= SATURATING);
    let least = saturated.copied().min_by(|one, other| one.1.total_cmp(&other.1));
    if let Some((number, least)) = least {
        let text = format!(
            "{setting}: with {SATURATING:.0} connections and more, COPS has at least \
             {least:.2} times the throughput of the best server of Linux (least at {number:.0})"
        );
        let of_one = GOALS.iter().find(|(side, _)| *side == matrix).map(|(_, goal)| *goal);
        let goal = if harts.is_empty() { of_one } else { Some(GOAL_OF_SEVERAL) };
        section.found.push(match goal {
            Some(goal) => judged(least >= goal, &format!("{text}; the aim is {goal}.")),
            None => format!("{text}."),
        });
    }
    if !harts.is_empty() {
        section.found.extend(p99_of_several(&setting, pairs));
    }
    for (path, what) in [("latency_us.p50", "median"), ("latency_us.p99", "p99")] {
        let compared = pairs.iter().filter_map(|(_, cops, linux)| ratio(cops, linux, path));
        let compared: Vec<f64> = compared.collect();
        let won = compared.iter().filter(|ratio| **ratio < 1.0).count();
        if !compared.is_empty() {
            section.found.push(judged(
                won == compared.len(),
                &format!(
                    "{setting}: its {what} latency is lower at {won} of {} numbers of \
                     connections.",
                    compared.len()
                ),
            ));
        }
    }
}

/// What is found about the p99 with several harts, with the connections that saturate.
fn p99_of_several(setting: &str, pairs: &[(f64, &Row, &Row)]) -> Option<String> {
    let saturated = pairs.iter().filter(|(number, ..)| *number >= SATURATING);
    let parts: Vec<(f64, f64)> = saturated
        .filter_map(|(number, cops, linux)| Some((*number, ratio(cops, linux, "latency_us.p99")?)))
        .collect();
    if parts.is_empty() {
        return None;
    }
    let shown: Vec<String> = parts
        .iter()
        .map(|(number, part)| format!("{part:.2} with {number:.0} connections"))
        .collect();
    Some(judged(
        parts.iter().all(|(_, part)| *part <= P99_OF_SEVERAL),
        &format!(
            "{setting}: parts of the p99 of the best server of Linux: {}; the aim is \
             {P99_OF_SEVERAL}.",
            shown.join(", ")
        ),
    ))
}
