//! The models of the matrix service: Figure 5 of paper 000, and its relatives in 001, 003 and 004.

use super::data::{File, Material, Row};
use super::html::table;
use super::plot::{Axis, Plot, Scale, short};
use super::section::{Section, counted, judged, lines, plots};
use super::standings::{INSTRUCTIONS, MODELS, OF_MODELS, standings, standings_table};

/// What a group of rows has in common: everything but the model and the number of connections.
const SETTING: [&str; 10] = [
    "matrix",
    "loop",
    "period_ms",
    "pause_ms",
    "vcpus",
    "harts",
    "idle",
    "host",
    "scheduler",
    "clock_shift",
];

/// A setting in words.
fn in_words(row: &Row) -> String {
    let words = SETTING.iter().filter_map(|name| {
        let value = row.number(name).map_or_else(|| row.shown(name), |number| number.to_string());
        Some(match (*name, value.as_str()) {
            (_, "") => return None,
            ("matrix", side) => format!("{side} x {side}"),
            ("loop", "pause") => "the papers' client".to_owned(),
            ("loop", kind) => format!("{kind} loop"),
            ("period_ms", period) => format!("period {period} ms"),
            ("pause_ms", pause) => format!("pause {pause} ms"),
            ("vcpus", "1") => "1 virtual CPU".to_owned(),
            ("vcpus", number) => format!("{number} virtual CPUs"),
            ("harts", "1") => "1 hart".to_owned(),
            ("harts", number) => format!("{number} harts"),
            ("idle", _) => "idle harts wait awake".to_owned(),
            ("host", _) => "processors of the host kept awake".to_owned(),
            ("clock_shift", shift) => format!("an instruction takes 2^{shift} ns"),
            (name, value) => format!("{name} {value}"),
        })
    });
    words.collect::<Vec<_>>().join(", ")
}

pub fn section(material: &Material) -> Section {
    let mut section = Section {
        id: "models",
        title: "Models of the matrix service (000, Figure 5; 001, 003, 004)",
        what: "<p>A server multiplies matrices: for each connection one component receives, one \
               multiplies, one sends. The models are made of coroutines (C) or threads (T) in the \
               kernel (K) and in the program (U). <code>ktut</code> sleeps and is woken; \
               <code>ktut-retry</code> and <code>kcut-retry</code> poll and yield, as the papers' \
               threads do. The papers' client pauses after each answer, so a slow server gets fewer \
               requests.</p>"
            .to_owned(),
        expected: vec![
            "Paper 000: KCUC has 1.05 to 3.93 times the throughput of KCUT from 2 to 64 \
             connections; its mean latency is below that of KCUT from 2 connections, KCUT's below \
             KTUT's at 32; KTUC is better up to 64. At one connection its KCUC takes ten times as \
             long as polling."
                .to_owned(),
            "COPS: KCUC is no slower than any other model at every number of connections; at \
             saturation at least four times <code>ktut-retry</code>, and 1.5 times \
             <code>ktut</code>, with 1 x 1 matrices from 256 connections on and the client outside. \
             With the client in the machine it needs the fewest instructions."
                .to_owned(),
        ],
        remarks: vec![
            "The papers' peak, 98 requests a second on four harts of 100 MHz, is 4 million cycles a \
             request. A request takes COPS some ten thousand instructions beside the product, so \
             that the papers' numbers of connections do not saturate it."
                .to_owned(),
            "In counted runs the client is a program in the machine, and its instructions are part of \
             every request: ratios of throughput are smaller than with a client outside, and are not \
             judged."
                .to_owned(),
            "<code>ktut-retry</code> and <code>ktuc</code> never sleep, so with few connections no hart \
             has to be woken for their requests, and a processor of the host stays awake. Where \
             idle harts wait awake, no model saves the wake of a hart; where the processors of the \
             host are kept awake, none saves theirs."
                .to_owned(),
            "Messages here are binary; the papers' server parses and prints decimal text.".to_owned(),
            "The papers' latency is the mean, their \"jitter\" the standard deviation; 004 is read \
             off its plots."
                .to_owned(),
        ],
        ..Section::default()
    };
    let replies = |row: &Row| row.number("replies");
    let mean = |row: &Row| Some(row.number("latency_mean_us")? / 1e3);
    for (seed, figure, matrices, title) in [
        ("000", "5", &["15"][..], "Paper 000, Figure 5"),
        ("001,003", "compare_thread_coroutine", &["1", "20"], "Papers 001 and 003"),
        ("004", "5,6", &["8", "12"], "Paper 004"),
    ] {
        let rows = material.paper(seed, figure);
        for matrix in matrices {
            let of_it: Vec<&Row> =
                rows.iter().copied().filter(|row| row.is("matrix", matrix)).collect();
            let name = format!("{title}, {matrix} x {matrix}");
            section.body += &plots(&[
                graph(format!("{name}: answers in 5 s"), &of_it, &replies, "answers", 2).dashed(),
                graph(format!("{name}: mean latency"), &of_it, &mean, "ms", 10).dashed(),
            ]);
        }
    }
    let files: Vec<&File> = material.files_of("models").collect();
    section.expects(
        material,
        &[
            "models",
            "models-poll",
            "models-awake",
            "models-closed",
            "models-figure-5",
            "models-papers",
            "models-papers-poll",
            "models-papers-awake",
            "models-icount",
            "closed-models-icount",
        ],
    );
    if let Some(file) = material.file("closed-models-icount") {
        outside(&mut section, file);
    }
    for file in files {
        for (name, rows) in groups(&file.rows) {
            ours(&mut section, file, &name, &rows);
        }
        section.uses(file);
    }
    section
}

/// Groups of rows with the same setting, with its description.
pub fn groups(rows: &[Row]) -> Vec<(String, Vec<&Row>)> {
    let mut groups: Vec<(String, Vec<&Row>)> = Vec::new();
    for row in rows {
        let name = in_words(row);
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, group)) => group.push(row),
            None => groups.push((name, vec![row])),
        }
    }
    groups
}

fn graph<'r>(
    title: String,
    rows: &[&'r Row],
    value: &dyn Fn(&'r Row) -> Option<f64>,
    unit: &str,
    base: u32,
) -> Plot {
    let x = |row: &Row| row.number("connections");
    let axis = Axis::new(unit, Scale::Log(base));
    lines(title, rows, "model", (&x, counted("connections")), (value, axis))
}

fn ours(section: &mut Section, file: &File, name: &str, rows: &[&Row]) {
    let clock = if file.is_counted() { "counted" } else { "wall clock" };
    let title = format!("COPS, {name}, {clock}");
    let millis = |path: &'static str| move |row: &Row| Some(row.number(path)? / 1e3);
    let mut drawn = vec![
        graph(
            format!("{title}: answers a second"),
            rows,
            &|row| row.number("throughput_rps"),
            "answers a second",
            2,
        ),
        graph(format!("{title}: mean latency"), rows, &millis("latency_us.mean"), "ms", 10),
        graph(format!("{title}: latency, p99"), rows, &millis("latency_us.p99"), "ms", 10),
    ];
    let instructions = |row: &Row| row.number("instructions_per_request");
    if rows.iter().any(|row| instructions(row).is_some()) {
        let title = format!("{title}: instructions of a request");
        drawn.push(graph(title, rows, &instructions, "instructions", 2));
    }
    // A single number of connections is no curve.
    if rows.iter().any(|row| !row.is("connections", &rows[0].shown("connections"))) {
        section.body += &plots(&drawn);
    }
    section.body += &rows_table(rows);
    let standings = standings(rows, &MODELS, &OF_MODELS);
    section.body += &standings_table(&standings);
    for compared in &standings {
        section.found.extend(compared.found(&format!("{name}, {clock}")));
    }
    section.found.extend(fewest_instructions(&format!("{name}, {clock}"), rows));
    // Only a closed loop saturates. The goals are for the smallest matrices, of which the product
    // is no part of the work, and for a client outside of the machine.
    let is_saturating = rows.iter().all(|row| row.is("loop", "closed"));
    let has_goal = rows.iter().all(|row| row.is("matrix", "1")) && !file.is_counted();
    for (other, goal) in GOALS.into_iter().filter(|_| is_saturating) {
        let Some((connections, ratio)) = least_ahead(rows, other) else { continue };
        let text = format!(
            "{name}, {clock}: with {SATURATING:.0} connections and more, KCUC's throughput is at \
             least {ratio:.2} times that of {other} (at {connections:.0})"
        );
        section.found.push(if has_goal {
            judged(ratio >= goal, &format!("{text}; the goal is {goal}."))
        } else {
            format!("{text}.")
        });
    }
}

/// How many times the throughput of a model KCUC is to have at saturation.
const GOALS: [(&str, f64); 2] = [("ktut-retry", 4.0), ("ktut", 1.5)];
/// So many connections saturate the server.
const SATURATING: f64 = 256.0;

/// With the client outside of the machine: its instructions are not counted.
fn outside(section: &mut Section, file: &File) {
    let of = |model: &str| {
        let row = file.rows.iter().find(|row| row.is("model", model))?;
        row.number("instructions_per_request").filter(|count| *count > 0.0)
    };
    let Some(ours) = of("kcuc") else { return };
    section.body += "<p>Instructions of a request on the server's machine, with the client outside: \
                     closed loop, 1 x 1.</p>\n";
    let rows = file.rows.iter().filter_map(|row| {
        let count = row.number("instructions_per_request")?;
        let connections = row.shown("connections");
        let ratio = format!("{:.2}", count / ours);
        Some(vec![row.text("model").to_owned(), connections, short(count), ratio])
    });
    let heading = ["model", "connections", "instructions", "beside kcuc"];
    section.body += &table(&heading, &rows.collect::<Vec<_>>());
    for (other, goal) in GOALS {
        let Some(theirs) = of(other) else { continue };
        let ratio = theirs / ours;
        let text = format!(
            "closed loop, 1 x 1, client outside, counted: a request of {other} takes {ratio:.2} times \
             the instructions of one of KCUC; the goal is {goal}."
        );
        section.found.push(judged(ratio >= goal, &text));
    }
    section.uses(file);
}

/// The rows of a number of connections, by the numbers.
pub fn by_connections<'r>(rows: &[&'r Row]) -> Vec<(f64, Vec<&'r Row>)> {
    let mut numbers: Vec<f64> = rows.iter().filter_map(|row| row.number("connections")).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let of = |number: f64| {
        rows.iter().copied().filter(move |row| row.number("connections") == Some(number)).collect()
    };
    numbers.into_iter().map(|number| (number, of(number))).collect()
}

pub fn of_model(rows: &[&Row], model: &str, path: &str) -> Option<f64> {
    rows.iter().find(|row| row.is("model", model))?.number(path)
}

/// The least part of KCUC's throughput that it is ahead of another model by, of the numbers of
/// connections that saturate, and that number.
fn least_ahead(rows: &[&Row], other: &str) -> Option<(f64, f64)> {
    let ratios = by_connections(rows).into_iter().filter_map(|(number, rows)| {
        let of = |model: &str| of_model(&rows, model, "throughput_rps");
        Some((number, of("kcuc")? / of(other).filter(|value| *value > 0.0)?))
    });
    let saturated = ratios.filter(|(number, _)| *number >= SATURATING);
    saturated.min_by(|one, two| one.1.total_cmp(&two.1))
}

/// What is found about the instructions of a request, where they were counted.
fn fewest_instructions(setting: &str, rows: &[&Row]) -> Option<String> {
    let compared = standings(rows, &MODELS, &[INSTRUCTIONS]);
    let pairs = &compared.first()?.pairs;
    // Counts repeat to the digit, so none of them is a tie.
    let fewest = pairs.iter().filter(|pair| pair.ours <= pair.best).count();
    Some(judged(
        fewest == pairs.len(),
        &format!(
            "{setting}: KCUC needs the fewest instructions for a request at {fewest} of {} numbers \
             of connections.",
            pairs.len()
        ),
    ))
}

fn rows_table(rows: &[&Row]) -> String {
    let cells = rows.iter().map(|row| {
        let shown = |number: Option<f64>| number.map_or_else(|| "–".to_owned(), short);
        let value = |path: &str| shown(row.number(path));
        // Zero: of no request that was due within the time of the measurement there was an answer.
        let has_latency = row.number("latency_us.mean").is_some_and(|mean| mean > 0.0);
        let latency = |path: &str| shown(row.number(path).filter(|_| has_latency));
        let deviation = row.number("latency_us.deviation").or(row.number("latency_us.jitter"));
        vec![
            row.text("model").to_owned(),
            value("connections"),
            value("received"),
            value("errors"),
            value("throughput_rps"),
            latency("latency_us.mean"),
            shown(deviation.filter(|_| has_latency)),
            latency("latency_us.p50"),
            latency("latency_us.p99"),
            latency("latency_us.p999"),
            value("instructions_per_request"),
        ]
    });
    table(
        &[
            "model",
            "connections",
            "answers",
            "errors",
            "a second",
            "mean us",
            "deviation us",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "instructions",
        ],
        &cells.collect::<Vec<_>>(),
    )
}
