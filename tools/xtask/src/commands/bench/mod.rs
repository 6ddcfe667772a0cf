//! `./cops bench NAME`: one measurement each, in the form of SPEC 5.6: a table, and `{"bench", "config", "rows"}`.

mod closed;
mod executor;
mod idle_memory;

use serde_json::{Map, Value, json};

use super::Prepared;
use crate::cli::{Bench, Measurement};
use crate::error::Outcome;
use crate::service;
use crate::terminal::Progress;
use crate::workspace::Workspace;

/// What a measurement gives: rows of named values.
type Rows = Vec<Map<String, Value>>;

pub fn run(workspace: &Workspace, options: &Bench) -> Outcome<u8> {
    // On this host, without a machine to boot.
    if options.name == Measurement::Executor {
        return executor::run(workspace, options);
    }
    // Counting is for one hart; the option excludes --smp, so this overrides its default only.
    let mut options = options.clone();
    if options.icount {
        options.machine.smp = 1;
    }
    let prepared = Prepared::new(workspace, Progress::Lines)?;
    let (name, rows) = match options.name {
        Measurement::Closed => ("closed", closed::measure(workspace, &prepared, &options)?),
        Measurement::IdleMemory => ("idle-memory", idle_memory::measure(&prepared, &options)?),
        Measurement::Executor => unreachable!("done above"),
    };
    let mut document = Map::new();
    document.insert("bench".into(), name.into());
    document.insert("config".into(), json!({ "quick": options.quick, "icount": options.icount }));
    document.insert("rows".into(), rows.into());
    let document =
        service::with_configuration(document, service::provenance(workspace, &prepared, &options.machine));
    let file = workspace.results_folder().join(format!("{name}.json"));
    service::write_document(&document, &file)?;
    println!("data: {}", file.display());
    if let Some(file) = &options.json {
        service::write_document(&document, file)?;
    }
    Ok(0)
}
