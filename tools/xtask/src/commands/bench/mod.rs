//! `./cops bench NAME`: one measurement each, in the form of SPEC 5.6: a table, and `{"bench",
//! "config", "rows"}`.

mod awake;
pub mod closed;
mod connections;
mod costs;
mod cpio;
mod crowd;
mod disk;
mod executor;
mod files;
pub mod hostile;
mod idle_memory;
mod libc_test;
mod linux;
mod matrix;
mod models;
mod overload;
pub mod papers;
mod peers;
mod portions;
mod priority;
pub mod shares;
pub mod switch;
mod table;
pub mod tap;
mod unused;
mod verdict;
pub mod wakeups;
mod way;
mod words;

use std::path::Path;

use serde_json::{Map, Value, json};

use super::Prepared;
use crate::cli::{Bench, Machine, Measurement};
use crate::error::Outcome;
use crate::qemu::namespace::Namespace;
use crate::service;
use crate::terminal::Progress;
use crate::workspace::{Workspace, write_whole};

pub use matrix::rounds::WORST;

/// The result of a measurement: rows of named values.
type Rows = Vec<Map<String, Value>>;

/// Whether the clients use a tap device, where the data say so.
fn is_over_tap(options: &Bench) -> bool {
    options.tap || options.name == Measurement::Overload && !options.icount
}

/// Whether instructions are counted.
fn counts(options: &Bench) -> bool {
    use Measurement::{Costs, Portions, Switch};
    options.icount || matches!(options.name, Costs | Portions | Switch)
}

/// The machine that is booted. Where that is not the one of the options, they are not given:
/// `unused` refuses them.
fn machine(options: &Bench) -> Machine {
    let mut machine = options.machine.clone();
    let is_of_the_paper = matches!(options.name, Measurement::Pipe | Measurement::Ring);
    // Instructions are counted on one hart unless several are asked for, and the papers' machines
    // have one.
    let counts_on_one = counts(options) && !options.given.contains(&"smp");
    if counts_on_one || is_of_the_paper || options.papers_machine.is_some() {
        machine.smp = 1;
    }
    if is_of_the_paper {
        machine.mem = papers::MEMORY.to_owned();
    }
    machine
}

/// What the configuration does not say of the machine, because each row has one of its own.
fn of_each_row(name: Measurement) -> &'static [&'static str] {
    match name {
        Measurement::Hostile | Measurement::Wakeups => &["smp"],
        Measurement::Memory => &["mem"],
        _ => &[],
    }
}

pub fn run(workspace: &Workspace, options: &Bench) -> Outcome<u8> {
    unused::refuse(options)?;
    models::refuse_nothing(options)?;
    // On this host, without booting a machine.
    if options.name == Measurement::Executor {
        return executor::run(workspace, options);
    }
    let mut options = options.clone();
    let counts = counts(&options);
    options.machine = machine(&options);
    if is_over_tap(&options) || options.name == Measurement::Peers {
        Namespace::check_host()?;
    }
    let prepared = Prepared::new(workspace, Progress::Lines)?
        .with_scheduler(workspace, options.scheduler.as_deref())?;
    let mut report = None;
    let mut linux = None;
    let mut configuration = Map::new();
    if is_over_tap(&options) {
        configuration.insert("network".to_owned(), "tap".into());
    }
    let document = |name: &str, rows: &[Map<String, Value>]| {
        let mut document = Map::new();
        document.insert("bench".into(), name.into());
        let mut configuration = json!({
            "quick": options.quick, "icount": counts, "papers_machine": options.papers_machine,
        });
        if options.slow_harts {
            configuration["slow_harts"] = true.into();
        }
        document.insert("config".into(), configuration);
        document.insert("rows".into(), rows.into());
        let mut more = service::provenance(workspace, &prepared, &options.machine);
        for column in of_each_row(options.name) {
            more.remove(*column);
        }
        service::with_configuration(document, more)
    };
    // What has been measured when the run is interrupted is not lost.
    let keep = |name: &str, rows: &[Map<String, Value>]| {
        let file = workspace.results_folder().join(format!("{name}.json"));
        service::write_document(&document(name, rows), &file)
    };
    let (name, rows) = match options.name {
        Measurement::Closed => {
            let save = |rows: &[_]| keep("closed", rows);
            ("closed", closed::measure(workspace, &prepared, &options, &save)?)
        }
        Measurement::Costs => {
            let measured = costs::measure(workspace, &prepared, &options)?;
            (report, linux) = (measured.report, measured.linux);
            ("costs", measured.rows)
        }
        Measurement::Disk => ("disk", disk::measure(&prepared, &options)?),
        Measurement::Files => {
            let measured = files::measure(workspace, &prepared, &options)?;
            (report, linux) = (measured.report, measured.linux);
            ("files", measured.rows)
        }
        Measurement::LibcTest => {
            let measured = libc_test::measure(workspace, &prepared, &options)?;
            (report, linux) = (measured.report, measured.linux);
            ("libc-test", measured.rows)
        }
        Measurement::IdleMemory if options.tap => {
            let rows = crowd::measure(workspace, &prepared, &options)?;
            ("idle-connections", rows)
        }
        Measurement::IdleMemory => ("idle-memory", idle_memory::measure(&prepared, &options)?),
        Measurement::Executor => unreachable!("done above"),
        Measurement::Hostile => {
            let (rows, text) = hostile::measure(&prepared, &options)?;
            report = Some(text);
            ("hostile", rows)
        }
        Measurement::Pipe | Measurement::Ring => {
            let experiment =
                if options.name == Measurement::Ring { papers::RING } else { papers::PIPE };
            let measured = papers::measure(workspace, &prepared, &options, &experiment)?;
            linux = measured.linux;
            (experiment.name, measured.rows)
        }
        Measurement::Overload => {
            let save = |rows: &[_]| keep("overload", rows);
            ("overload", overload::measure(workspace, &prepared, &options, &save)?)
        }
        Measurement::Peers => {
            let save = |rows: &[_], more: &Map<String, Value>| {
                let document = service::with_configuration(document("peers", rows), more.clone());
                let file = workspace.results_folder().join("peers.json");
                let files = [Some(&file), options.json.as_ref()];
                files
                    .into_iter()
                    .flatten()
                    .try_for_each(|file| service::write_document(&document, file))
            };
            let measured = peers::measure(workspace, &prepared, &options, &save)?;
            configuration = measured.configuration;
            ("peers", measured.rows)
        }
        Measurement::Portions => {
            let (rows, text) = portions::measure(&prepared, &options)?;
            report = Some(text);
            ("portions", rows)
        }
        Measurement::Memory => {
            let save = |rows: &[_]| keep("memory", rows);
            ("memory", connections::memory(&prepared, &options, &save)?)
        }
        Measurement::Scale => {
            let save = |rows: &[_]| keep("scale", rows);
            ("scale", connections::scale(workspace, &prepared, &options, &save)?)
        }
        Measurement::Switch => {
            let measured = switch::measure(workspace, &prepared, &options)?;
            linux = measured.linux;
            ("switch", measured.rows)
        }
        Measurement::Models => {
            let save = |rows: &[_]| keep("models", rows);
            ("models", models::measure(workspace, &prepared, &options, &save)?)
        }
        Measurement::Priority => {
            let save = |rows: &[_]| keep("priority", rows);
            ("priority", priority::measure(workspace, &prepared, &options, &save)?)
        }
        Measurement::Wakeups => {
            let (rows, text) = wakeups::measure(&prepared, &options)?;
            report = Some(text);
            ("wakeups", rows)
        }
    };
    let mut document = service::with_configuration(document(name, &rows), configuration);
    if let (Some(version), Some(Value::Object(configuration))) = (linux, document.get_mut("config"))
    {
        configuration.insert("linux".into(), version.into());
    }
    let file = workspace.results_folder().join(format!("{name}.json"));
    service::write_document(&document, &file)?;
    println!("data: {}", workspace.shown(&file));
    if let Some(file) = &options.json {
        service::write_document(&document, file)?;
    }
    if let Some(report) = report {
        let data = options.json.as_ref().unwrap_or(&file);
        publish(&data.with_extension("md"), &document, &report)?;
    }
    Ok(verdict::status(&rows))
}

/// Writes a report beside its data.
fn publish(file: &Path, document: &Map<String, Value>, report: &str) -> Outcome<()> {
    let of = |key: &str| document["config"][key].as_str().unwrap_or_default().to_owned();
    let made = format!(
        "\nMade by `./cops {}` at commit {}, QEMU {}.\n",
        of("command"),
        of("commit"),
        of("qemu")
    );
    write_whole(file, format!("{report}{made}").as_bytes())?;
    println!("report: {}", file.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    fn options(words: &[&str]) -> Bench {
        match Cli::parse_words([&["cops", "bench"], words].concat()).unwrap().command {
            Command::Bench(options) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_machine_is_that_of_the_options_or_of_the_measurement() {
        for (words, harts, memory) in [
            (&["closed"][..], 4, "512M"),
            (&["closed", "--smp", "2", "--mem", "256M"], 2, "256M"),
            (&["closed", "--icount"], 1, "512M"),
            (&["switch"], 1, "512M"),
            (&["ring"], 1, "1G"),
            (&["models", "--papers-machine"], 1, "512M"),
        ] {
            let machine = machine(&options(words));
            assert_eq!((machine.smp, machine.mem.as_str()), (harts, memory), "{words:?}");
        }
    }

    #[test]
    fn the_data_say_whether_they_were_measured_over_a_tap_device() {
        for (words, is_over) in [
            (&["scale", "--icount"][..], false),
            (&["scale", "--icount", "--tap"], true),
            (&["overload"], true),
            (&["overload", "--icount"], false),
        ] {
            assert_eq!(is_over_tap(&options(words)), is_over, "{words:?}");
        }
    }
}
