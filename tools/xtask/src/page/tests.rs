//! The page from data that are made up.

use serde_json::{Value, json};

use super::data::{File, Material, Row, file};
use super::standings::{MODELS, OF_MODELS, Standing, standings};
use super::*;

fn of(name: &str, rows: Value) -> File {
    let config = json!({
        "command": format!("bench {name}"), "commit": "abc", "qemu": "9", "icount": true,
    });
    file(name, &json!({ "config": config, "rows": rows })).unwrap()
}

/// The papers' series as they are checked in.
fn papers() -> Vec<Row> {
    let text = include_str!("../../../../docs/papers/series.json");
    let value: Value = serde_json::from_str(text).unwrap();
    let rows = value["rows"].as_array().unwrap();
    rows.iter().map(|row| Row(row.as_object().unwrap().clone())).collect()
}

/// What the section about the pipe says of Linux's tasks, of the data that it shows.
#[test]
fn the_chapters_sentences_about_tokio_hold_of_the_data() {
    let data: Value =
        serde_json::from_str(include_str!("../../../../docs/results/pipe.json")).unwrap();
    let rows = data["rows"].as_array().unwrap();
    let of = |system: &str, model: &str, like: &Value| {
        let is = |row: &&Value| {
            row["system"] == system
                && row["model"] == model
                && ["mode", "n", "bytes"].iter().all(|name| row[*name] == like[*name])
        };
        rows.iter().find(is).and_then(|row| row["instructions"].as_f64()).unwrap()
    };
    let mut few = Vec::new();
    for row in rows.iter().filter(|row| row["system"] == "linux" && row["model"] == "task") {
        let times = of("linux", "task", row) / of("cops", "coroutine", row);
        let n = row["n"].as_u64().unwrap();
        if row["mode"] == "steady" && row["bytes"] == 4096 && n <= 10 {
            assert!(times < 1.0, "{times} times: {row}");
            few.push(n);
        } else {
            assert!(times > 1.0, "{times} times: {row}");
        }
    }
    assert_eq!(few, [1, 2, 10]);
}

/// What README.md and the chapter on models say of the goals that are missed, of the data. Ranges
/// there are the extremes, and the figures in between the rows that have them.
#[test]
fn the_sentences_about_missed_goals_hold_of_the_data() {
    fn rows(text: &str) -> Vec<Row> {
        let value: Value = serde_json::from_str(text).unwrap();
        let rows = value["rows"].as_array().unwrap();
        rows.iter().map(|row| Row(row.as_object().unwrap().clone())).collect()
    }
    // A lower mean with 1 to 16 connections, and no lower one with more.
    let models = rows(include_str!("../../../../docs/results/models.json"));
    let never_sleeps: fn(&&Row) -> bool =
        |row| row.is("model", "ktuc") || row.is("model", "ktut-retry");
    let lower_of = |rows: &[Row], is_opponent: fn(&&Row) -> bool| {
        let lower = rows.iter().filter(|row| row.is("model", "kcuc")).filter(|ours| {
            let alike = ["matrix", "connections"];
            let others = rows.iter().filter(is_opponent);
            let others = others
                .filter(|row| alike.iter().all(|name| row.shown(name) == ours.shown(name)))
                .filter_map(|row| row.number("latency_us.mean"));
            others.fold(f64::INFINITY, f64::min) < ours.number("latency_us.mean").unwrap()
        });
        lower.map(|row| row.shown("connections")).collect::<Vec<_>>()
    };
    let lower = |rows: &[Row]| lower_of(rows, never_sleeps);
    assert_eq!(lower(&models), ["1", "2", "4", "8", "16"]);
    // With the host's processors awake: none, and no other model is better beyond a tie.
    let awake = rows(include_str!("../../../../docs/results/models-awake.json"));
    assert_eq!(lower(&awake), [""; 0]);
    let all: Vec<&Row> = awake.iter().collect();
    let compared = standings(&all, &MODELS, &OF_MODELS[..2]);
    let of = |standing| -> Vec<Vec<f64>> {
        let alike = compared.iter().map(|compared| {
            let pairs = compared.pairs.iter().filter(|pair| pair.standing == standing);
            pairs.map(|pair| pair.connections).collect()
        });
        alike.collect()
    };
    // The mean, and p99.
    assert_eq!(of(Standing::Better), [vec![64.0, 256.0, 1024.0], vec![1024.0]]);
    assert_eq!(of(Standing::Worse), [vec![0.0; 0], vec![]]);
    for papers in [
        include_str!("../../../../docs/results/models-figure-5.json"),
        include_str!("../../../../docs/results/models-papers.json"),
        include_str!("../../../../docs/results/models-papers-poll.json"),
    ] {
        let rows = rows(papers);
        let counts = rows.iter().filter(|row| row.is("model", "kcuc")).count();
        assert!(lower(&rows).len() * 2 > counts, "{:?} of {counts}", lower(&rows));
    }
    // Processors of the host that are kept awake: the means at which a model that never sleeps is
    // lower, of 16, and that at which any other is.
    let awake = rows(include_str!("../../../../docs/results/models-papers-awake.json"));
    assert_eq!(lower(&awake), ["8", "1"]);
    let counts = awake.iter().filter(|row| row.is("model", "kcuc")).count();
    let beaten = lower_of(&awake, |row| !row.is("model", "kcuc")).len();
    assert_eq!((counts - beaten, counts), (13, 16));
    // The extremes of p99 under overload beside p99 without load, and how many are above the goal.
    let overload = |text: &str| {
        let rows = rows(text);
        let p99 = |row: &Row| row.number("latency_us.p99").unwrap();
        let setting = |row: &Row| {
            ["vcpus", "connections", "classes"].map(|name| row.number(name).unwrap() as u32)
        };
        let of = |load: &'static str| {
            rows.iter().filter(move |row| row.is("class", "0") && row.is("load", load))
        };
        let mut ratios: Vec<(f64, [u32; 3])> = of("overload")
            .map(|row| {
                let unloaded = of("unloaded").find(|other| setting(other) == setting(row));
                (p99(row) / p99(unloaded.unwrap()), setting(row))
            })
            .collect();
        ratios.sort_by(|one, other| one.0.total_cmp(&other.0));
        let missed = ratios.iter().filter(|(ratio, _)| *ratio > 1.5).count();
        (ratios[0].1, ratios[ratios.len() - 1].1, missed, ratios.len())
    };
    let wall = overload(include_str!("../../../../docs/results/priority-classes.json"));
    assert_eq!(wall, ([2, 128, 8], [3, 64, 4], 16, 16));
    let slow = overload(include_str!("../../../../docs/results/priority-classes-slow.json"));
    assert_eq!(slow, ([1, 64, 8], [4, 128, 8], 3, 16));
    let counted = overload(include_str!("../../../../docs/results/priority-classes-icount.json"));
    assert_eq!(counted, ([1, 64, 4], [4, 128, 8], 1, 12));
    let readme = include_str!("../../../../README.md");
    for words in [
        "with 1 to 16 connections",
        "vcpus=3,connections=64,classes=4",
        "one of twelve",
        "three of sixteen",
    ] {
        assert!(readme.contains(words), "README.md does not say {words:?}");
    }
}

fn chain_rows(bytes: &[u32]) -> Value {
    let mut rows = Vec::new();
    for bytes in bytes {
        for n in [1, 200, 4000] {
            for (mode, model, factor) in [
                ("literal", "coroutine", 1),
                ("literal", "thread", 20),
                ("steady", "coroutine", 2),
                ("steady", "thread", if n == 200 { 1 } else { 30 }),
            ] {
                rows.push(json!({
                    "system": "cops", "mode": mode, "model": model, "n": n, "bytes": bytes,
                    "rounds": 10, "ms": f64::from(n * factor) / 1e3,
                    "instructions": n * factor * 1000,
                }));
            }
        }
    }
    rows.into()
}

fn model_rows() -> Value {
    let row = |model: &str, connections: u32, mean: f64, throughput: f64| {
        json!({
            "model": model, "connections": connections, "matrix": 15, "loop": "closed",
            "vcpus": 1, "sent": 10, "received": 10, "errors": 0,
            "throughput_rps": throughput,
            "latency_us": {"mean": mean, "p50": mean, "p99": mean * 2.0, "deviation": 1.0},
        })
    };
    json!([
        row("kcuc", 1, 100.0, 10.0),
        row("ktut", 1, 90.0, 10.0),
        row("kcuc", 64, 200.0, 600.0),
        row("ktut", 64, 900.0, 300.0),
        row("kcuc", 256, 200.0, 600.0),
        row("ktut-retry", 256, 5000.0, 100.0),
    ])
}

fn class_rows() -> Value {
    let row = |load: &str, class: u32, mean: f64| {
        json!({
            "model": "kcuc", "class": class, "connections": 64, "matrix": 15, "vcpus": 1,
            "received": 100 - class, "load": load, "classes": 3,
            "latency_us": {"mean": mean, "p99": mean * 1.2},
            "distribution_us": [[mean / 2.0, 30], [mean, 60], [mean * 1.2, 10]],
        })
    };
    let mut loaded = row("overload", 0, 100.0);
    loaded["runs"] = json!(5);
    loaded["spread"] = json!({"latency_us.p99": [108.0, 135.0]});
    json!([row("unloaded", 0, 90.0), loaded, row("overload", 1, 300.0), row("overload", 2, 200.0),])
}

fn peer_rows() -> Value {
    let row = |system: &str, model: &str, connections: u32, throughput: f64| {
        json!({
            "system": system, "model": model, "connections": connections, "matrix": 1,
            "loop": "closed", "runs": 5, "errors": 0, "throughput_rps": throughput,
            "latency_us": {"mean": 1.0, "p50": 1e6 / throughput, "p99": 5.0},
            "spread": {"throughput_rps": [throughput - 1.0, throughput + 2.0]},
        })
    };
    json!([
        row("cops", "kcuc", 1, 70.0),
        row("linux", "epoll", 1, 80.0),
        row("cops", "kcuc", 64, 1000.0),
        row("linux", "epoll", 64, 200.0),
        row("linux", "io-uring", 64, 250.0),
    ])
}

fn full() -> Material {
    let files = vec![
        of("ring", chain_rows(&[0])),
        of("pipe", chain_rows(&[1, 256, 4096])),
        of("models", model_rows()),
        of("priority-classes", class_rows()),
        of("memory", json!([{"model": "kcuc", "max_connections": 4100}])),
        of(
            "switch",
            json!([
                {"op": "coroutine-wake-switch", "what": "a", "instructions": 400, "allowed": 410},
                {"op": "thread-wake-switch", "what": "b", "instructions": 4000, "allowed": 4100},
                {"op": "process-pipe-switch", "what": "c", "instructions": 8000, "allowed": 8100},
            ]),
        ),
        of(
            "scale",
            json!([
                {"model": "kcuc", "connections": 10, "bytes_per_connection": 9000, "instructions_per_request": 8000},
                {"model": "kcuc", "connections": 10000, "bytes_per_connection": 8900, "instructions_per_request": 8100},
            ]),
        ),
        of("peers", peer_rows()),
    ];
    Material { papers: papers(), files }
}

#[test]
fn every_experiment_has_its_section_plots_and_origin() {
    let page = make_of(&full());
    let missing = [
        "ring-wall",
        "pipe-wall",
        "models-poll",
        "models-awake",
        "models-closed",
        "models-figure-5",
        "models-papers",
        "models-papers-poll",
        "models-papers-awake",
        "models-icount",
        "closed-models-icount",
        "priority-classes-slow",
        "priority-classes-icount",
        "priority-classes-fifo-icount",
        "idle-memory",
        "costs",
        "peers-15",
        "peers-open",
        "peers-open-4",
    ];
    assert_eq!(page.missing, missing);
    for id in ["ring", "pipe", "models", "priority", "memory", "switch", "scale", "peers", "data"] {
        assert!(page.html.contains(&format!("<section id=\"{id}\">")), "{id}");
    }
    for name in ["ring", "pipe", "models", "priority-classes", "memory", "switch", "scale", "peers"]
    {
        let origin = format!("<code>./cops bench {name}</code>, commit abc, QEMU 9");
        assert!(page.html.contains(&origin), "{name}");
        assert!(page.csv.iter().any(|(file, _)| *file == format!("{name}.csv")), "{name}");
    }
    let plots = page.html.matches("<figure>").count();
    assert!(plots >= 30, "{plots}");
    assert!(!page.html.contains("no data"), "each plot of complete data shows something");
}

#[test]
fn elements_are_closed() {
    let html = make_of(&full()).html;
    for element in [
        "section",
        "figure",
        "figcaption",
        "svg",
        "table",
        "tr",
        "td",
        "div",
        "p",
        "ul",
        "li",
        "text",
        "span",
        "details",
        "summary",
    ] {
        let open = html.matches(&format!("<{element}>")).count()
            + html.matches(&format!("<{element} ")).count();
        let closed = html.matches(&format!("</{element}>")).count();
        assert_eq!(open, closed, "{element}");
    }
}

#[test]
fn claims_are_judged_by_the_data() {
    let html = make_of(&full()).html;
    let met = |text: &str| html.contains(&format!("<span class=\"met\">Met.</span> {text}"));
    let unmet =
        |text: &str| html.contains(&format!("<span class=\"unmet\">Not met.</span> {text}"));
    assert!(met(
        "Coroutines take less than threads at 3 of 3 numbers of tasks in instructions (literal): 5%"
    ));
    assert!(unmet(
        "Coroutines take less than threads at 2 of 3 numbers of tasks in instructions (steady)"
    ));
    assert!(met("KCUC holds 4100 connections."));
    assert!(html.contains(
        "KCUC's mean latency is better than the best of the other models at 2 of 3 numbers of \
         connections, a tie at 0, worse at 1 (at 1)."
    ));
    assert!(html.contains("KCUC's throughput is at least 6.00 times that of ktut-retry (at 256"));
    let setting = "KCUC, 64 connections, 3 classes, 15 x 15, twice the capacity, counted";
    assert!(unmet(&format!(
        "{setting}, 1 virtual CPU: mean latencies are not in the order of the classes (5% aside): \
         class 1 has 0.3 ms, class 2 0.2 ms."
    )));
    assert!(met(&format!(
        "{setting}, 1 virtual CPU: the most urgent class's p99 is 1.11 times its unloaded p99 (the \
         median of 5 runs, of 1.00 to 1.25)."
    )));
    assert!(html.contains("distribution of latencies"));
    assert!(met("1 x 1: with 64 connections and more, COPS has at least 4.00 times"));
    assert!(unmet("1 x 1: COPS has more throughput than the best server of Linux at 1 of 2"));
    assert!(unmet("1 x 1: its median latency is lower at 1 of 2 numbers"));
    assert!(html.contains("<td>io-uring</td><td>4.00</td><td>0.25</td>"));
    assert!(html.contains("<td>999 to 1002</td>"));
    assert!(met("A request takes 8000 instructions with 10 connections, and 8100 with 10000."));
}

#[test]
fn each_loop_is_a_setting_of_its_own_with_its_harts() {
    let of_loop = |kind: &str, period: Value| {
        let rows = peer_rows();
        let rows = rows.as_array().unwrap().iter().map(|row| {
            let mut row = row.clone();
            row["loop"] = kind.into();
            row["period_ms"] = period.clone();
            row
        });
        rows.collect::<Vec<Value>>()
    };
    let rows = [of_loop("open", 100.into()), of_loop("closed", Value::Null)].concat();
    let config = json!({ "command": "x", "commit": "abc", "qemu": "9", "smp": 4 });
    let file = file("peers-open-4", &json!({ "config": config, "rows": rows })).unwrap();
    let html = make_of(&Material { papers: papers(), files: vec![file] }).html;
    for title in ["1 x 1, open loop, 4 harts: latency, p99", "1 x 1, closed loop, 4 harts: latency"]
    {
        assert!(html.contains(title), "{title}");
    }
    assert!(
        html.contains("1 x 1, 4 harts: COPS has more throughput than the best server of Linux")
    );
    // The aims of several harts, not of one.
    let unmet = "<span class=\"unmet\">Not met.</span> 1 x 1, 4 harts: parts of the p99 of the best \
                 server of Linux: 1.00 with 64 connections; the aim is 0.25.";
    assert!(html.contains(unmet));
    let met =
        "4.00 times the throughput of the best server of Linux (least at 64); the aim is 1.5.";
    assert!(html.contains(met));
    // 64 connections offer 640 requests a second, of which io-uring answers 250.
    let text = "1 x 1, open loop, 4 harts: with 64 connections, which offer 640 requests a second, \
                COPS answers 1000, and the best of the servers of Linux 250 (io-uring): better.";
    assert!(html.contains(text));
    assert!(html.contains("1 x 1, open loop, 4 harts: COPS's median latency is better"));
}

#[test]
fn models_are_judged_by_instructions_where_those_are_counted() {
    let mut rows = model_rows();
    for row in rows.as_array_mut().unwrap() {
        row["matrix"] = json!(1);
        row["instructions_per_request"] = json!(if row["model"] == "kcuc" { 100 } else { 200 });
    }
    rows[3]["instructions_per_request"] = json!(99);
    let page = |counted: bool| {
        let config = json!({ "command": "x", "commit": "abc", "qemu": "9", "icount": counted });
        let document = json!({ "config": config, "rows": rows });
        let file = file("models-icount", &document).unwrap();
        make_of(&Material { papers: papers(), files: vec![file] }).html
    };
    let counted = page(true);
    assert!(counted.contains(
        "<span class=\"unmet\">Not met.</span> 1 x 1, closed loop, 1 virtual CPU, counted: KCUC \
         needs the fewest instructions for a request at 2 of 3 numbers of connections."
    ));
    // The client in the machine is part of the throughput.
    let text = "times that of ktut-retry (at 256)";
    assert!(counted.contains(&format!("{text}.")) && !counted.contains(&format!("{text}; ")));
    assert!(page(false).contains(&format!("{text}; the goal is 4.")));
}

#[test]
fn the_papers_values_are_shown() {
    let html = make_of(&full()).html;
    for value in ["2290", "616", "385", "186"] {
        assert!(html.contains(&format!("<td>{value}</td>")), "{value}");
    }
}

#[test]
fn missing_data_are_named() {
    let page = make_of(&Material { papers: papers(), files: Vec::new() });
    assert_eq!(page.missing.len(), 27);
    for name in page.missing {
        assert!(crate::figures::sources::find(&name).is_some(), "{name}");
        assert!(page.html.contains(&format!("docs/results/{name}.json")), "{name}");
    }
}
