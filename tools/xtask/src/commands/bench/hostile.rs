//! The effect of hostile programs on a normal one: the latencies of `/bin/victim`, alone and beside
//! each kind of `/bin/hostile`, at the same ceiling and at a less urgent one; and whether the
//! kernel continues and all resources are free afterwards.
//!
//! There are two clocks. Counted instructions are exactly repeatable and independent of the host:
//! the goal (p99 at most twice that of the victim alone) is judged with them, on one hart. By the
//! wall clock, four busy harts share the host's cores; so the victim is also compared with itself
//! beside a program that computes on all harts at the least urgent level: `busy`.

use std::time::Duration;

use serde_json::{Map, Value};

use super::Rows;
use super::shares;
use super::table::Table;
use super::words::{self, Line};
use crate::cli::{Bench, Machine};
use crate::commands::Prepared;
use crate::error::{Failure, Outcome};
use crate::qemu::console::Ending;

/// The victim's ceiling, and the priority of its coroutines: the default, so that it starts with
/// it.
const LEVEL: u8 = 32;
/// The ceiling of a less urgent hostile program.
const LOWER: u8 = 48;
/// The goal: the victim's p99 beside a program of the same level, divided by that of the victim
/// alone.
const GOAL: f64 = 2.0;
/// Time limit of one boot with all kinds.
const LIMIT: Duration = Duration::from_secs(1800);

/// A way of running all measurements.
struct Setting {
    clock: &'static str,
    harts: u32,
}

/// Measures and prints. Returns the rows, and the report in Markdown.
pub fn measure(prepared: &Prepared, options: &Bench) -> Outcome<(Rows, String)> {
    let counted = Setting { clock: "instructions", harts: 1 };
    let settings = if options.icount {
        vec![counted]
    } else {
        vec![counted, Setting { clock: "wall", harts: 1 }, Setting { clock: "wall", harts: 4 }]
    };
    let mut rows = Rows::new();
    let mut report = String::from(
        "# An honest program beside programs that mean harm\n\nLatencies of `/bin/victim` (a timer, then a byte there and back through two pipes), from the moment the timer \
         was to ring, in microseconds. `ratio`: its p99, by that of the victim alone; `to busy`: by its p99 beside a program that computes on all harts at \
         the least urgent level, which on four harts is what the emulator's host makes of it. `back`: every frame, process, kernel coroutine and call was freed afterwards. \
         The second table of each machine: the share of the CPU that a program that computes on all harts has beside one and beside three hostile peers, \
         by what it has alone; its goal is nine tenths of 1/(n+1).\n",
    );
    for setting in settings {
        let of_setting = run(prepared, options, &setting)?;
        let table = table(&of_setting);
        let title = format!("{} harts, clock: {}", setting.harts, setting.clock);
        println!("\n{title}\n{}", table.plain());
        let judged = judge(&of_setting);
        println!("{judged}");
        report += &format!("\n## {title}\n\n{}\n{judged}\n", table.markdown());
        rows.extend(of_setting);
        let mut machine = options.machine.clone();
        machine.smp = setting.harts;
        let work = if options.quick { "work-ms=200" } else { "work-ms=400" };
        let of_shares = shares::run(prepared, &machine, setting.clock != "wall", &[work])?;
        let table = shares::table(&of_shares);
        println!("\n{title}: share of the CPU\n{}", table.plain());
        let judged = shares::judge(&of_shares);
        println!("{judged}");
        report += &format!("\n## {title}: share of the CPU\n\n{}\n{judged}\n", table.markdown());
        rows.extend(of_shares);
    }
    Ok((rows, report))
}

/// The victim's p99 beside each of these kinds at `ceiling`, relative to that beside `busy`, on one
/// hart by counted instructions.
pub fn latencies_beside(
    prepared: &Prepared,
    machine: &Machine,
    kinds: &str,
    ceiling: u8,
    samples: u32,
) -> Outcome<Vec<(String, Option<f64>)>> {
    let counted = Setting { clock: "instructions", harts: 1 };
    let words =
        [format!("samples={samples}"), format!("ceilings={ceiling}"), format!("kinds={kinds}")];
    let rows = boot(prepared, machine, &counted, &words)?;
    Ok(rows
        .iter()
        .filter(|row| row["relation"] != "")
        .map(|row| {
            let ratio = row.get("ratio_to_busy").and_then(Value::as_f64);
            (row["kind"].as_str().unwrap_or_default().to_owned(), ratio)
        })
        .collect())
}

fn run(prepared: &Prepared, options: &Bench, setting: &Setting) -> Outcome<Rows> {
    let samples = match (options.quick, setting.clock) {
        (true, _) => 100,
        (false, "wall") => 1000,
        (false, _) => 300,
    };
    boot(
        prepared,
        &options.machine,
        setting,
        &[format!("samples={samples}"), format!("ceilings={LEVEL},{LOWER}")],
    )
}

/// One boot with `words` as further options of `/bin/victim beside`.
fn boot(
    prepared: &Prepared,
    machine: &Machine,
    setting: &Setting,
    words: &[String],
) -> Outcome<Rows> {
    let argv = ["/bin/victim".to_owned(), "beside".to_owned(), format!("level={LEVEL}")]
        .into_iter()
        .chain(words.iter().cloned())
        .collect::<Vec<_>>();
    let mut machine = machine.clone();
    machine.smp = setting.harts;
    let mut boot = prepared.boot(&machine, &argv, &[])?;
    if setting.clock != "wall" {
        boot.make_repeatable();
    }
    let said = words::listen(&prepared.qemu, &boot, LIMIT)?;
    let rows = rows(&said.lines, setting)?;
    match said.ending {
        // 1: some run failed, which its row shows.
        Ending::Status(0 | 1) if said.lines.iter().any(|line| line.tag == "end") => Ok(rows),
        other => {
            print!("{}", table(&rows).plain());
            Err(Failure::new(format!(
                "after {} runs the kernel or the judge had ended: {other:?}\n{}",
                rows.len(),
                said.complaints
            )))
        }
    }
}

/// A row for each `run`, with the `probe` that was printed before it, if it finished.
fn rows(lines: &[Line], setting: &Setting) -> Outcome<Rows> {
    let mut rows = Rows::new();
    let mut probe: Option<&Line> = None;
    for line in lines {
        match line.tag.as_str() {
            "probe" => probe = Some(line),
            "run" => {
                let row = row(line, probe.take(), setting)?;
                // The run was repeated because something was missing: the last run counts.
                rows.retain(|other| {
                    (&other["kind"], &other["ceiling"]) != (&row["kind"], &row["ceiling"])
                });
                rows.push(row);
            }
            _ => {}
        }
    }
    let p99 = |kind: &str| {
        rows.iter().find(|row| row["kind"] == kind).and_then(|row| row.get("p99_us")?.as_f64())
    };
    let (alone, busy) = (p99("alone"), p99("busy"));
    for row in &mut rows {
        let Some(p99) = row.get("p99_us").and_then(Value::as_f64) else { continue };
        for (name, base) in [("ratio", alone), ("ratio_to_busy", busy)] {
            if let Some(base) = base.filter(|&base| base > 0.0) {
                row.insert(name.into(), (p99 / base).into());
            }
        }
    }
    Ok(rows)
}

fn row(run: &Line, probe: Option<&Line>, setting: &Setting) -> Outcome<Map<String, Value>> {
    let mut row = Map::new();
    let ceiling = run.number("ceiling")?;
    let relation = match run.text("kind") {
        "alone" | "busy" => "",
        _ if ceiling == run.number("victim_ceiling")? => "same",
        _ => "lower",
    };
    row.insert("clock".into(), setting.clock.into());
    row.insert("harts".into(), setting.harts.into());
    row.insert("kind".into(), run.text("kind").into());
    row.insert("relation".into(), relation.into());
    row.insert("ceiling".into(), ceiling.into());
    row.insert("victim_ceiling".into(), run.number("victim_ceiling")?.into());
    let given_back = ["frames_left", "processes_left", "coroutines_left", "calls_left"]
        .iter()
        .map(|name| run.number(name))
        .sum::<Outcome<u64>>()?
        == 0;
    row.insert("given_back".into(), given_back.into());
    row.insert("finished".into(), (run.number("finished")? == 1).into());
    row.insert("hostile_alive".into(), (run.number("hostile_alive")? == 1).into());
    if let Some(probe) = probe {
        row.insert("samples".into(), probe.number("samples")?.into());
        for name in ["p50", "p99", "p999", "max"] {
            let microseconds =
                |part: &str| Ok(probe.number(&format!("{part}_{name}_ns"))? as f64 / 1000.0);
            row.insert(format!("{name}_us"), microseconds("done")?.into());
            row.insert(format!("woken_{name}_us"), microseconds("woken")?.into());
        }
    }
    Ok(row)
}

fn table(rows: &Rows) -> Table {
    let mut table = Table::new(
        2,
        &[
            "beside", "ceiling", "p50 us", "p99 us", "max us", "ratio", "to busy", "finished",
            "back",
        ],
    );
    for row in rows {
        let number = |name: &str| {
            row.get(name).and_then(Value::as_f64).map_or("-".into(), |value| format!("{value:.1}"))
        };
        let yes = |name: &str| if row[name] == true { "yes" } else { "NO" }.to_owned();
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        table.add([
            text("kind"),
            text("relation"),
            number("p50_us"),
            number("p99_us"),
            number("max_us"),
            number("ratio"),
            number("ratio_to_busy"),
            yes("finished"),
            yes("given_back"),
        ]);
    }
    table
}

/// The goal, and the kinds that miss it.
fn judge(rows: &Rows) -> String {
    let misses = |name: &str| {
        let missing = rows
            .iter()
            .filter(|row| row["relation"] != "" || row["kind"] == "busy")
            .filter(|row| row.get(name).and_then(Value::as_f64).is_none_or(|ratio| ratio > GOAL));
        missing
            .map(|row| {
                format!(
                    "{} {}",
                    row["kind"].as_str().unwrap_or_default(),
                    row["relation"].as_str().unwrap_or_default()
                )
                .trim_end()
                .to_owned()
            })
            .collect::<Vec<_>>()
    };
    let left = rows.iter().filter(|row| row["given_back"] != true).count();
    let shown = |missing: Vec<String>| {
        if missing.is_empty() {
            "none".to_owned()
        } else {
            format!("{} ({})", missing.len(), missing.join(", "))
        }
    };
    format!(
        "p99 more than {GOAL} times that alone: {}; more than {GOAL} times that beside `busy`: {}; something not freed: {left} of {} runs.",
        shown(misses("ratio")),
        shown(misses("ratio_to_busy")),
        rows.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines() -> Vec<Line> {
        let run = "victim_ceiling=20 finished=1 hostile_alive=1 frames_left=0 processes_left=0 coroutines_left=0 calls_left";
        let probe = |p99: u32| {
            let part = |name: &str| {
                format!(
                    "{name}_p50_ns=1000 {name}_p99_ns={p99} {name}_p999_ns=9000 {name}_max_ns=9000"
                )
            };
            format!("probe: samples=10 {} {}", part("woken"), part("done"))
        };
        [
            probe(2000),
            format!("run: kind=alone ceiling=20 {run}=0"),
            probe(3000),
            format!("run: kind=busy ceiling=63 {run}=0"),
            probe(6000),
            format!("run: kind=spin ceiling=20 {run}=0"),
            // Did not finish, so it has no probe.
            format!("run: kind=spin ceiling=40 {run}=3"),
        ]
        .iter()
        .map(|line| Line::parse(line).unwrap())
        .collect()
    }

    #[test]
    fn rows_compare_with_the_victim_alone() {
        let rows = rows(&lines(), &Setting { clock: "wall", harts: 4 }).unwrap();
        assert_eq!(rows.len(), 4);
        assert_eq!(
            (&rows[2]["relation"], &rows[2]["ratio"]),
            (&Value::from("same"), &Value::from(3.0))
        );
        assert_eq!(rows[2]["ratio_to_busy"], 2.0);
        assert_eq!((&rows[3]["relation"], rows[3].get("ratio")), (&Value::from("lower"), None));
        assert_eq!(
            (&rows[3]["given_back"], &rows[2]["given_back"]),
            (&Value::from(false), &Value::from(true))
        );
        let judged = judge(&rows);
        assert!(judged.contains("alone: 2 (spin same, spin lower)"), "{judged}");
        assert!(
            judged.contains("`busy`: 1 (spin lower)") && judged.contains("1 of 4 runs"),
            "{judged}"
        );
    }
}
