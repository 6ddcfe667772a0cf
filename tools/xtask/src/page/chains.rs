//! Experiments A and B of paper 002: a ring of tasks, and a chain of tasks and pipes.

use super::data::{File, Material, Row};
use super::html::table;
use super::plot::{Axis, Plot, Scale, Series, short};
use super::section::{Section, colour, judged, plots, points};

/// The numbers of tasks in the table: the paper's key points, and below them.
const SHOWN: [u32; 9] = [1, 2, 10, 200, 400, 800, 1000, 2000, 4000];

pub fn ring(material: &Material) -> Section {
    let mut section = Section {
        id: "ring",
        title: "Ring: tasks that increment a counter in turn (002, Figures 4 and 5)",
        what: "<p><em>N</em> tasks wait for a counter: task <em>i</em> waits until it is <em>i</em> \
               and adds 1, under a lock. The main task adds 1 when all tasks exist. In the literal \
               mode, each task acts once, and everything counts from the start of the process's \
               <code>main</code> to its end: mostly the creation of tasks. In the steady mode the \
               counter goes round, creation does not count, and each turn is a switch. \
               <code>thread</code> sleeps until it is woken; <code>thread-yield</code> does what the \
               paper's threads do: it yields until it is its turn.</p>"
            .to_owned(),
        expected: vec![
            "The paper: coroutines take 26% of the threads' time at 4,000, but more than threads \
             below 800 (its table says 1,000)."
                .to_owned(),
            "COPS: fewer instructions and less time than threads at every number, also 1, 2 and 10."
                .to_owned(),
        ],
        remarks: vec![
            "The paper's coroutines lose below 800 because of what is needed to run coroutines at \
             all. Here each process has an executor, the first coroutine costs no more than the \
             thousandth, and a thread costs a stack, a guard page and a record of the kernel."
                .to_owned(),
            "The paper measures milliseconds of an emulator of 2022; the absolute values do not \
             compare."
                .to_owned(),
        ],
        ..Section::default()
    };
    chain(&mut section, material, "thread-yield", &[None]);
    section
}

pub fn pipe(material: &Material) -> Section {
    let mut section = Section {
        id: "pipe",
        title: "Pipe: messages through a chain of tasks (002, Figures 7 to 12)",
        what: "<p><em>N</em> tasks and <em>N</em> + 1 pipes: task <em>i</em> reads pipe <em>i</em> \
               to its end, writes what it has read to pipe <em>i</em> + 1 and closes that. In the \
               steady mode messages follow each other and pipes stay open. \
               <code>thread-retry</code> does what the paper's kernel does: its read finds nothing, \
               yields and tries again.</p>"
            .to_owned(),
        expected: vec![
            "The paper: coroutines take 32% to 44% of the threads' time at 4,000, but more than \
             threads at 200."
                .to_owned(),
            "COPS: fewer instructions and less time than threads at every number, also 1, 2 and 10."
                .to_owned(),
        ],
        remarks: vec![
            "A coroutine's read that waits is a kernel coroutine with pinned pages and a result in \
             the wake ring; a thread's read blocks the thread. Both need some thousand instructions \
             for a hop, so the steady ratio is nearer to 1 than that of the ring."
                .to_owned(),
            "Coroutines lend their buffers to the kernel (<code>ReadOwned</code>). With a borrowed \
             buffer, each message is copied once more, and with 4,096 bytes that costs what the \
             coroutine saves."
                .to_owned(),
        ],
        ..Section::default()
    };
    chain(&mut section, material, "thread-retry", &[Some(1), Some(256), Some(4096)]);
    section
}

/// Our rows of one mode, model and length of messages.
struct Ours<'m> {
    file: &'m File,
    bytes: Option<u32>,
}

impl<'m> Ours<'m> {
    fn rows(&self, system: &str, mode: &str, model: &str) -> Vec<&'m Row> {
        let bytes = self.bytes.unwrap_or(0).to_string();
        let is_it = |row: &&Row| {
            row.is("system", system)
                && row.is("mode", mode)
                && row.is("model", model)
                && row.is("bytes", &bytes)
        };
        self.file.rows.iter().filter(is_it).collect()
    }

    /// Milliseconds, of the machine that counts if the file is counted.
    fn points(&self, system: &str, mode: &str, model: &str) -> Vec<(f64, f64)> {
        points(self.rows(system, mode, model), |row| row.number("n"), |row| row.number("ms"))
    }
}

fn paper(material: &Material, figure: &str, bytes: Option<u32>, model: &str) -> Vec<(f64, f64)> {
    let bytes = bytes.map_or_else(String::new, |bytes| bytes.to_string());
    let rows = material.paper("002", figure);
    let rows = rows.into_iter().filter(|row| row.is("bytes", &bytes) && row.is("model", model));
    points(rows, |row| row.number("n"), |row| row.number("ms"))
}

/// The ratio of two curves where both have a point.
fn ratio(above: &[(f64, f64)], below: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let at = |x: f64| below.iter().find(|point| (point.0 - x).abs() < 0.5).map(|point| point.1);
    above.iter().filter_map(|&(x, y)| Some((x, y / at(x)?))).collect()
}

fn line(name: &str, model: &str, is_dashed: bool, points: Vec<(f64, f64)>) -> Series {
    Series { name: name.to_owned(), colour: colour(model), is_dashed, points }
}

fn chain(section: &mut Section, material: &Material, literal: &str, lengths: &[Option<u32>]) {
    let name = section.id;
    let files: Vec<&File> = material.files_of(name).collect();
    let wall = format!("{name}-wall");
    section.expects(material, &[name, wall.as_str()]);
    for &bytes in lengths {
        let suffix = match bytes {
            None => String::new(),
            Some(1) => ", 1 byte".to_owned(),
            Some(bytes) => format!(", {bytes} bytes"),
        };
        let theirs = ["thread", "coroutine"].map(|model| paper(material, name, bytes, model));
        let tasks = || Axis::new("tasks", Scale::Linear);
        let mut drawn = vec![Plot {
            title: format!("Paper 002{suffix}"),
            x: tasks(),
            y: Axis::new("ms", Scale::Linear),
            series: vec![
                line("threads", "thread", true, theirs[0].clone()),
                line("coroutines", "coroutine", true, theirs[1].clone()),
            ],
            notes: Vec::new(),
        }];
        let mut ratios = vec![line("paper 002", "other", true, ratio(&theirs[1], &theirs[0]))];
        for file in &files {
            let ours = Ours { file, bytes };
            draw(&mut drawn, &mut ratios, &ours, literal, &suffix);
            judge(section, &ours, &suffix);
            opponents(section, &ours, literal, &suffix);
        }
        drawn.push(Plot {
            title: format!("Coroutines, as a part of what threads take{suffix}"),
            x: Axis::new("tasks", Scale::Log(10)),
            y: Axis::new("ratio", Scale::Log(10)),
            series: ratios,
            notes: Vec::new(),
        });
        section.body += &plots(&drawn);
        if let Some(file) = files.first() {
            section.body += &key_points(&theirs, &Ours { file, bytes }, literal);
        }
    }
    for file in files {
        section.uses(file);
    }
}

fn draw(
    drawn: &mut Vec<Plot>,
    ratios: &mut Vec<Series>,
    ours: &Ours<'_>,
    literal: &str,
    suffix: &str,
) {
    let clock = if ours.file.is_counted() { "counted" } else { "wall clock" };
    let unit = if ours.file.is_counted() { "ms (millions of instructions)" } else { "ms" };
    let of = |mode: &str, model: &str| ours.points("cops", mode, model);
    let mut series = vec![
        line("threads", "thread", false, of("literal", "thread")),
        line("coroutines", "coroutine", false, of("literal", "coroutine")),
        line(literal, literal, false, of("literal", literal)),
        line("Linux threads", "linux", false, ours.points("linux", "literal", "thread")),
        line("Linux, tokio", "task", false, ours.points("linux", "literal", "task")),
    ];
    series.retain(|series| !series.points.is_empty());
    drawn.push(Plot {
        title: format!("COPS, as in the paper{suffix}, {clock}"),
        x: Axis::new("tasks", Scale::Linear),
        // On a linear one, coroutines and tokio's tasks are both the zero beside threads.
        y: Axis::new(unit, Scale::Log(10)),
        series,
        notes: Vec::new(),
    });
    let per_turn = |system: &str, model: &str| {
        points(
            ours.rows(system, "steady", model),
            |row| row.number("n"),
            |row| {
                let turns = (row.number("n")? + 1.0) * row.number("rounds")?;
                Some(row.number("ms")? * 1e6 / turns)
            },
        )
    };
    let mut series = vec![
        line("threads", "thread", false, per_turn("cops", "thread")),
        line("coroutines", "coroutine", false, per_turn("cops", "coroutine")),
        line("Linux threads", "linux", false, per_turn("linux", "thread")),
        line("Linux, tokio", "task", false, per_turn("linux", "task")),
    ];
    series.retain(|series| !series.points.is_empty());
    let unit = if ours.file.is_counted() { "instructions" } else { "ns" };
    drawn.push(Plot {
        title: format!("COPS, steady: one turn{suffix}, {clock}"),
        x: Axis::new("tasks", Scale::Log(10)),
        y: Axis::new(unit, Scale::Linear),
        series,
        notes: Vec::new(),
    });
    for mode in ["literal", "steady"] {
        let points = ratio(&of(mode, "coroutine"), &of(mode, "thread"));
        let mut series = line(&format!("COPS, {mode}, {clock}"), "coroutine", false, points);
        series.colour = ratios.len() - 1;
        ratios.push(series);
    }
}

fn judge(section: &mut Section, ours: &Ours<'_>, suffix: &str) {
    let clock = if ours.file.is_counted() { "in instructions" } else { "by the wall clock" };
    for mode in ["literal", "steady"] {
        let ratios =
            ratio(&ours.points("cops", mode, "coroutine"), &ours.points("cops", mode, "thread"));
        let won = ratios.iter().filter(|(_, ratio)| *ratio < 1.0).count();
        let of = |tasks: f64| ratios.iter().find(|(at, _)| (at - tasks).abs() < 0.5);
        let last = ratios.last();
        let (Some((_, one)), Some((most, last))) = (of(1.0).or(ratios.first()), last) else {
            continue;
        };
        section.found.push(judged(
            won == ratios.len(),
            &format!(
                "Coroutines take less than threads at {won} of {} numbers of tasks {clock} \
                 ({mode}{suffix}): {:.0}% at the smallest, {:.0}% at {most:.0}.",
                ratios.len(),
                one * 100.0,
                last * 100.0
            ),
        ));
    }
}

/// How much of the distance to the paper's threads is due to sleeping instead of yielding, and how
/// much to coroutines.
fn opponents(section: &mut Section, ours: &Ours<'_>, literal: &str, suffix: &str) {
    let of = |model: &str| ours.points("cops", "literal", model);
    let last = |points: Vec<(f64, f64)>| points.last().copied();
    let (Some((tasks, yielding)), Some((_, thread)), Some((_, coroutine))) =
        (last(of(literal)), last(of("thread")), last(of("coroutine")))
    else {
        return;
    };
    section.found.push(format!(
        "With {tasks:.0} tasks{suffix}, the paper's threads (<code>{literal}</code>) take {:.0} times \
         what coroutines take: threads that sleep are {:.1} times better than those, and coroutines \
         {:.1} times better than threads that sleep.",
        yielding / coroutine,
        yielding / thread,
        thread / coroutine
    ));
}

fn key_points(theirs: &[Vec<(f64, f64)>; 2], ours: &Ours<'_>, literal: &str) -> String {
    let at = |points: &[(f64, f64)], tasks: u32| {
        points.iter().find(|point| (point.0 - f64::from(tasks)).abs() < 0.5).map(|point| point.1)
    };
    let shown = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), short);
    let of = |mode: &str, model: &str| ours.points("cops", mode, model);
    let percent = |pair: Option<(f64, f64)>| {
        pair.map_or_else(|| "–".to_owned(), |(one, other)| format!("{:.0}%", one / other * 100.0))
    };
    let rows = SHOWN.iter().map(|&tasks| {
        let value = |mode: &str, model: &str| at(&of(mode, model), tasks);
        let (thread, coroutine) = (at(&theirs[0], tasks), at(&theirs[1], tasks));
        let (our_thread, ours_too) = (value("literal", "thread"), value("literal", "coroutine"));
        vec![
            tasks.to_string(),
            shown(thread),
            shown(coroutine),
            percent(coroutine.zip(thread)),
            shown(our_thread),
            shown(ours_too),
            percent(ours_too.zip(our_thread)),
            shown(value("literal", literal)),
            shown(at(&ours.points("linux", "literal", "thread"), tasks)),
            shown(at(&ours.points("linux", "literal", "task"), tasks)),
            percent(value("steady", "coroutine").zip(value("steady", "thread"))),
        ]
    });
    let rows: Vec<Vec<String>> =
        rows.filter(|row| row[1..].iter().any(|cell| cell != "–")).collect();
    table(
        &[
            "tasks",
            "002: threads, ms",
            "coroutines, ms",
            "part",
            "COPS: threads, ms",
            "coroutines, ms",
            "part",
            literal,
            "Linux threads",
            "Linux, tokio",
            "steady part",
        ],
        &rows,
    )
}
