//! What people and programs read: Markdown tables, and JSON with every run.

pub(crate) mod machine;
mod tables;

use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::driver::{Outcome, Plan};
use machine::Machine;

/// Both forms of one outcome.
pub struct Report {
    /// Markdown.
    pub text: String,
    config: Value,
    rows: Vec<Value>,
}

impl Report {
    /// Writes up an outcome.
    pub fn new(plan: &Plan, outcome: &Outcome) -> Report {
        let machine = Machine::look();
        let text = format!(
            "{}{}",
            tables::head(plan, outcome, &machine),
            tables::tables(&outcome.results)
        );
        let rows = outcome.results.iter().map(|((row, contender), cell)| {
            json!({
                "row": row,
                "contender": contender,
                "instructions": cell.instructions,
                "ns": cell.fastest(),
                "ns_of_runs": cell.nanoseconds,
                "cpu_ns_of_runs": cell.cpu_nanoseconds,
                "polls_before_urgent": cell.counts,
                "bytes": cell.bytes,
            })
        });
        let rows: Vec<Value> = rows.collect();
        let config = json!({
            "command": machine.command,
            "commit": machine.commit,
            "times_of_commit": outcome.times_of_commit,
            "cpu": machine.cpu,
            "processors": machine.processors,
            "rustc": machine.rustc,
            "profile": machine.profile,
            "valgrind": outcome.valgrind,
            "peers": machine.peers,
            "runs": plan.runs,
            "quick": plan.is_quick,
            "failures": outcome.failures.len(),
        });
        Report { text, config, rows }
    }

    /// Writes `executor.md` and `executor.json` into a folder, which is made.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        std::fs::create_dir_all(folder)?;
        std::fs::write(folder.join("executor.md"), &self.text)?;
        self.write_data(&folder.join("executor.json"))
    }

    /// Writes the data into a file, as `{"bench", "config", "rows"}`.
    pub fn write_data(&self, file: &Path) -> io::Result<()> {
        // A row is a line, so that two runs can be compared line by line.
        let rows: Vec<String> = self.rows.iter().map(|row| format!("  {row}")).collect();
        let (config, rows) = (&self.config, rows.join(",\n"));
        let text = format!(
            "{{\n\"bench\": \"executor\",\n\"config\": {config:#},\n\"rows\": [\n{rows}\n]\n}}\n"
        );
        std::fs::write(file, text)
    }
}
