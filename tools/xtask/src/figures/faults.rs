//! Faults of the data files themselves: what must not be checked in, since a reader would take the
//! figures for something else.

use serde_json::Value;

use super::Data;
use super::sources::{find, is_fit_for_linux};
use crate::commands::bench::WORST;

/// The data that have results of Linux and no times.
const RESULTS_ONLY: &str = "libc-test";

/// The columns that SPEC 5.6 wants in every row of an experiment, by the name of the bench. Those
/// that depend on the clock are not among them.
const COLUMNS: [(&str, &[&str]); 7] = [
    ("ring", &["model", "n", "ms"]),
    ("pipe", &["model", "n", "bytes", "ms"]),
    ("models", &["model", "connections", "matrix", "vcpus", "sent", "received", "errors"]),
    ("priority-classes", &["model", "connections", "matrix", "vcpus", "sent", "received"]),
    (
        "memory",
        &["model", "max_connections", "kernel_bytes_per_connection", "user_bytes_per_connection"],
    ),
    ("switch", &["op", "instructions", "ns"]),
    ("scale", &["connections", "bytes_per_connection"]),
];

/// The columns that a data file of an experiment, or one of its variants, lacks in some row. A row
/// marked `failed` says that a model cannot hold so many connections, and has no figures.
fn missing_columns(name: &str, value: &Value) -> Vec<&'static str> {
    let is_of = |bench: &str| {
        name.strip_prefix(bench).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    let Some((_, columns)) = COLUMNS.iter().find(|(bench, _)| is_of(bench)) else {
        return Vec::new();
    };
    let rows = value.get("rows").and_then(Value::as_array);
    let has = |column: &str| {
        rows.is_some_and(|rows| {
            !rows.is_empty()
                && rows.iter().all(|row| {
                    row.get("failed").is_some_and(|failed| failed == true)
                        || row.get(column).is_some_and(|value| !value.is_null())
                })
        })
    };
    columns.iter().copied().filter(|column| !has(column)).collect()
}

/// Data with times of Linux by an emulator that slows it down.
fn unfit_emulator(name: &str, value: &Value) -> Option<String> {
    let config = value.get("config");
    let of = |key: &str| config.and_then(|config| config.get(key));
    let is_of_linux = |row: &Value| row.get("system").is_some_and(|system| system == "linux");
    let has_linux =
        of("linux").is_some_and(|linux| !linux.is_null()) || rows(value).any(is_of_linux);
    let is_counted = of("icount").is_some_and(|icount| icount == true);
    let qemu = of("qemu").and_then(Value::as_str).unwrap_or("unknown");
    if !has_linux || is_counted || name == RESULTS_ONLY || is_fit_for_linux(qemu) {
        return None;
    }
    Some(format!(
        "times of Linux need QEMU 10 or newer, but these are of {qemu}, which slows Linux down"
    ))
}

/// How many answers an open loop below saturation may have, as parts of what it offers. More are
/// of before the measured time.
const ANSWERS_OF_OFFERED: f64 = 1.03;

/// The rows of an open loop below saturation in which more was answered than was offered.
fn more_than_offered(value: &Value) -> Vec<String> {
    let too_many = rows(value).filter_map(|row| {
        let load = row.get("load")?.as_str()?.parse::<f64>().ok().filter(|load| *load < 1.0)?;
        let offered = row.get("offered_rps")?.as_f64()?;
        let answered = row.get("throughput_rps")?.as_f64()?;
        (answered > ANSWERS_OF_OFFERED * offered).then(|| {
            format!(
                "at a load of {load}, {answered:.0} answers a second of {offered:.0} that were \
                 offered: they include a backlog of the warm-up"
            )
        })
    });
    too_many.collect()
}

/// The pairs of models in the papers' memory, one of which retries where the other one blocks, with
/// connections that differ by a buffer or more: one of them was measured before it was idle.
fn connections_in_use(value: &Value) -> Vec<String> {
    let number = |row: &Value, name: &str| row.get(name).and_then(Value::as_f64);
    let differing = rows(value).filter_map(|row| {
        let buffer = number(row, "buffer_bytes")?;
        let model = row.get("model")?.as_str()?;
        let retries = format!("{model}-retry");
        let is_other = |row: &&Value| row.get("model").is_some_and(|other| *other == *retries);
        let other = rows(value).find(is_other)?;
        let bytes = |row| number(row, "kernel_bytes_per_connection");
        let (ours, theirs) = (bytes(row)?, bytes(other)?);
        ((ours - theirs).abs() >= buffer).then(|| {
            format!(
                "a connection of {model} has {ours} bytes of the kernel's heap and one of \
                 {retries} {theirs}: they were not idle"
            )
        })
    });
    differing.collect()
}

/// The rows with fewer errors than one of the runs of which they are made.
fn hidden_errors(value: &Value) -> Vec<String> {
    let number = |row: &Value, name: &str| row.get(name).and_then(Value::as_f64).unwrap_or(0.0);
    let hiding = rows(value).flat_map(|row| {
        let samples = row.get("samples").and_then(Value::as_array).into_iter().flatten();
        let worst = move |name: &str| {
            samples.clone().map(|sample| number(sample, name)).fold(0.0_f64, f64::max)
        };
        WORST.iter().filter_map(move |name| {
            let (said, most) = (number(row, name), worst(name));
            (said < most).then(|| {
                let [model, connections] = ["model", "connections"].map(|name| &row[name]);
                format!(
                    "{model} with {connections} connections: {name} {said}, but {most} in one run"
                )
            })
        })
    });
    hiding.collect()
}

/// The rows of a data file.
fn rows(value: &Value) -> impl Iterator<Item = &Value> {
    value.get("rows").and_then(Value::as_array).into_iter().flatten()
}

/// The faults of the data files themselves: a file that no command makes, one that does not name
/// its command, one of an experiment that lacks a column, or one with figures that are not what
/// they are taken for.
pub fn judge(data: &Data) -> Vec<String> {
    let mut wrong = Vec::new();
    for name in data.names() {
        if find(name).is_none() {
            wrong.push(format!(
                "docs/results/{name}.json: no command makes it (tools/xtask/src/figures/sources.rs)"
            ));
        }
        for column in data.get(name).map_or(Vec::new(), |value| missing_columns(name, value)) {
            wrong.push(format!("docs/results/{name}.json: a row has no column {column}"));
        }
        if let Some(value) = data.get(name) {
            let faults = unfit_emulator(name, value).into_iter().chain(more_than_offered(value));
            let faults = faults.chain(connections_in_use(value)).chain(hidden_errors(value));
            wrong.extend(faults.map(|fault| format!("docs/results/{name}.json: {fault}")));
        }
        for key in ["command", "commit"] {
            let says = data.get(name).and_then(|value| value.get("config")?.get(key)?.as_str());
            if says.is_none_or(str::is_empty) {
                wrong.push(format!("docs/results/{name}.json: its config has no {key}"));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn times_of_linux_by_an_old_emulator_are_a_fault() {
        const OLD: &str = "7.2.22 (Debian 1:7.2+dfsg-7)";
        let of = |qemu: &str, icount: bool, linux: Value, system: &str| {
            let config = json!({ "qemu": qemu, "icount": icount, "linux": linux });
            json!({ "config": config, "rows": [{ "system": "cops" }, { "system": system }] })
        };
        let fault = |name: &str, value: &Value| unfit_emulator(name, value).unwrap_or_default();
        for wrong in [
            of(OLD, false, "6.12".into(), "cops"),
            of(OLD, false, Value::Null, "linux"),
            of("9.2.0", false, "6.12".into(), "linux"),
        ] {
            assert!(fault("files", &wrong).contains("QEMU 10 or newer"), "{wrong}");
        }
        assert!(fault("files", &of(OLD, false, "6.12".into(), "cops")).contains("7.2.22"));
        for right in [
            of("10.0.2 (Debian)", false, "6.12".into(), "linux"),
            of(OLD, true, "6.12".into(), "linux"),
            of(OLD, false, Value::Null, "cops"),
        ] {
            assert_eq!(fault("files", &right), "", "{right}");
        }
        // Which tests pass is no time.
        assert_eq!(fault("libc-test", &of(OLD, false, "6.12".into(), "linux")), "");
    }

    #[test]
    fn more_answers_than_are_offered_below_saturation_are_a_fault() {
        let row = |load: &str, offered: f64, answered: f64| json!({ "load": load, "offered_rps": offered, "throughput_rps": answered });
        let faults = |row: Value| more_than_offered(&json!({ "rows": [row] }));
        let wrong = faults(row("0.75", 100.0, 104.0));
        assert!(wrong.len() == 1 && wrong[0].contains("104 answers"), "{wrong:?}");
        assert_eq!(faults(row("0.75", 100.0, 103.0)), [""; 0]);
        // Past saturation the answers have waited, and a server that is behind answers more.
        assert_eq!(faults(row("1.25", 100.0, 120.0)), [""; 0]);
        assert_eq!(faults(row("overload", 100.0, 120.0)), [""; 0]);
    }

    #[test]
    fn connections_that_were_not_idle_are_a_fault() {
        let faults = |blocks: u32, retries: u32| {
            let row = |model: &str, bytes: u32| {
                json!({
                    "model": model, "buffer_bytes": 2048, "kernel_bytes_per_connection": bytes,
                })
            };
            connections_in_use(&json!({ "rows": [
                row("kcuc", 1_600), row("ktut", blocks), row("ktut-retry", retries),
            ]}))
        };
        let wrong = faults(11_060, 6_528);
        assert!(wrong.len() == 1 && wrong[0].contains("ktut-retry 6528"), "{wrong:?}");
        assert_eq!(faults(6_600, 6_528), [""; 0]);
        assert_eq!(faults(6_528, 8_000), [""; 0]);
    }

    #[test]
    fn errors_of_one_run_that_a_row_hides_are_a_fault() {
        let faults = |missing: u32| {
            let samples = json!([{ "missing": 0 }, { "missing": 12, "errors": 2 }]);
            let row = json!({ "model": "epoll", "connections": 64, "missing": missing,
                "errors": 2, "samples": samples });
            hidden_errors(&json!({ "rows": [row] }))
        };
        assert_eq!(faults(0), ["\"epoll\" with 64 connections: missing 0, but 12 in one run"]);
        assert_eq!(faults(12), [""; 0]);
    }

    #[test]
    fn each_row_of_an_experiment_has_its_columns() {
        let good = json!({"rows": [{"model": "thread", "n": 1, "ms": 2.0}]});
        assert_eq!(missing_columns("ring", &good), [""; 0]);
        assert_eq!(missing_columns("ring-wall", &good), [""; 0]);
        assert_eq!(missing_columns("pipe", &good), ["bytes"]);
        assert_eq!(missing_columns("files", &good), [""; 0]);
        let bad = json!({"rows": [{"model": "thread", "n": 1, "ms": 2.0}, {"model": "x", "n": 2, "ms": null}]});
        assert_eq!(missing_columns("ring", &bad), ["ms"]);
        assert_eq!(missing_columns("scale", &json!({"rows": []})).len(), 2);
    }
}
