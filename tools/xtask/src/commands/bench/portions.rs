//! The longest portion of each kind (SPEC 3.13a): what the kernel executes between two points at
//! which something more urgent can take the hart, counted while `/bin/usertests` with its hostile
//! scenarios runs on one hart.

use std::time::{Duration, Instant};

use serde_json::Map;

use super::Rows;
use super::table::Table;
use crate::cli::Bench;
use crate::commands::Prepared;
use crate::error::{Failure, Outcome};
use crate::qemu::console::{Ending, Transcript, follow};
use crate::qemu::machine::Machine;
use crate::qemu::portions::{self, LIMIT, Portion};

/// Time limit of the boot; not a criterion.
const TIME_LIMIT: Duration = Duration::from_secs(1800);
/// Number of rows in the printed table; the data contain all.
const SHOWN: usize = 40;

/// Measures and prints. Returns the rows, and the report in Markdown.
pub fn measure(prepared: &Prepared, options: &Bench) -> Outcome<(Rows, String)> {
    let mut boot = prepared.boot(&options.machine, &["/bin/usertests".to_owned()], &[])?;
    portions::measure(&mut boot);
    let machine = Machine::start(&prepared.qemu, &boot)?;
    let mut transcript = Transcript::default();
    let ending = follow(machine, Some(Instant::now() + TIME_LIMIT), &mut transcript);
    let kernel = String::from_utf8_lossy(&transcript.kernel).into_owned();
    let measured = portions::parse(&kernel);
    if !matches!(ending, Ending::Status(0 | 1)) || measured.is_empty() {
        return Err(Failure::new(format!("no portions measured: {ending:?}\n{kernel}")));
    }
    let table = table(&measured);
    println!("{}", table.plain());
    let too_long = measured.iter().filter(|portion| portion.is_too_long()).count();
    let judged =
        format!("Longer than {LIMIT} instructions: {too_long} of {} kinds.", measured.len());
    println!("{judged}");
    let report = format!(
        "# The longest portion, by kind\n\nInstructions that the kernel executes between two points at which something more urgent can take the hart (SPEC 3.13a), counted on one hart \
         under `-icount` while `/bin/usertests` runs. Stretches with interrupts off, and with the run queue's lock held, are measured \
         separately. Interrupt handlers count for themselves and not for what they interrupt.\n\n{}\n{judged}\n",
        table.markdown()
    );
    Ok((measured.iter().map(row).collect(), report))
}

fn row(portion: &Portion) -> Map<String, serde_json::Value> {
    let mut row = Map::new();
    row.insert("kind".into(), portion.kind.clone().into());
    row.insert("what".into(), portion.what.clone().into());
    row.insert("longest_instructions".into(), portion.longest.into());
    row.insert("count".into(), portion.count.into());
    row.insert("about".into(), portion.about.clone().into());
    row
}

fn table(measured: &[Portion]) -> Table {
    let mut table = Table::new(2, &["kind", "what", "longest", "count"]);
    for portion in measured.iter().take(SHOWN) {
        table.add([
            portion.kind.clone(),
            portion.what.to_lowercase(),
            portion.longest.to_string(),
            portion.count.to_string(),
        ]);
    }
    table
}
