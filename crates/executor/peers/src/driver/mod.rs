//! Starts the children: counts first, then times, with the contenders in turn, so that a machine
//! that is busy for a while is busy for all.

pub mod binaries;
pub mod process;

use std::collections::BTreeMap;
use std::process::Command;

use crate::child;
use crate::contender::Contender;
use crate::limits;
use crate::operation::Operation;
use crate::rows::{Row, TABLES, Table};
use crate::sample::Sample;
use crate::valgrind;
use binaries::Binaries;
use process::Failure;

/// What to do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Keys of rows (or the start of some); empty: all.
    pub only: Vec<String>,
    /// Keys of contenders; empty: all.
    pub contenders: Vec<Contender>,
    /// Count instructions, bytes and polls.
    pub counts: bool,
    /// Measure time.
    pub times: bool,
    /// Runs of each timed measurement.
    pub runs: u32,
    /// A tenth of the operations.
    pub is_quick: bool,
}

/// What is known of one contender in one row.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    /// Of one operation.
    pub instructions: Option<f64>,
    /// Of one operation, in each run.
    pub nanoseconds: Vec<f64>,
    /// Processor time of one operation, of all threads together, in each run.
    pub cpu_nanoseconds: Vec<f64>,
    /// Sorted.
    pub counts: Vec<u64>,
    /// Of one coroutine, its future included.
    pub bytes: Option<f64>,
}

impl Cell {
    /// The fastest run.
    pub fn fastest(&self) -> Option<f64> {
        self.nanoseconds.iter().copied().min_by(f64::total_cmp)
    }
}

/// By the keys of row and contender.
pub type Results = BTreeMap<(&'static str, &'static str), Cell>;

/// What came of it.
#[derive(Debug, Default)]
pub struct Outcome {
    /// All figures.
    pub results: Results,
    /// What did not work, in words.
    pub failures: Vec<String>,
    /// Valgrind's, if instructions were counted.
    pub valgrind: Option<String>,
    /// What the times are of, if they are not of this run.
    pub times_of_commit: Option<String>,
}

impl Plan {
    fn rows(&self) -> impl Iterator<Item = &'static Row> {
        let is_asked =
            |row: &&Row| self.only.is_empty() || self.only.iter().any(|only| row.is_meant_by(only));
        TABLES.iter().flat_map(|table| table.rows).filter(is_asked)
    }

    fn contenders(&self, operation: Operation) -> Vec<Contender> {
        let asked = |contender: &Contender| {
            self.contenders.is_empty() || self.contenders.contains(contender)
        };
        Contender::ALL
            .into_iter()
            .filter(|contender| asked(contender) && contender.takes(operation))
            .collect()
    }

    /// Whether anything is left out.
    pub fn is_partial(&self) -> bool {
        let asked_for_part = !self.only.is_empty() || !self.contenders.is_empty();
        asked_for_part || self.is_quick || !self.counts || !self.times
    }

    fn scaled(&self, operations: u64) -> u64 {
        if self.is_quick { operations / 10 } else { operations }
    }

    /// Rounds of a timed run, or of one that counts polls.
    fn rounds(&self, contender: Contender, operation: Operation) -> u64 {
        let operations = match operation {
            Operation::Urgent { .. } => return self.scaled(500),
            Operation::Bytes => return 1,
            Operation::Ping { .. } => 10_000,
            Operation::Wake { .. } => 1_000,
            // Long enough for the workers to share out the work.
            Operation::Contended { .. } => 2_000_000,
            // A few milliseconds: of many short runs some are not interrupted, of long ones none.
            _ => 250_000,
        };
        (self.scaled(operations) / operation.per_round() / contender.slowness(operation)).max(4)
    }
}

/// Does it.
pub fn execute(plan: &Plan) -> Outcome {
    let mut outcome = Outcome::default();
    let binaries = Binaries::build(plan.rows().flat_map(|row| {
        plan.contenders(row.operation).into_iter().map(|contender| contender.binary(row.operation))
    }));
    if plan.counts {
        outcome.valgrind = valgrind::version();
        if outcome.valgrind.is_none() {
            eprintln!("{}", valgrind::ADVICE);
        }
        for row in plan.rows() {
            count(plan, row, &binaries, &mut outcome);
        }
    }
    if plan.times {
        for table in TABLES {
            time(plan, table, &binaries, &mut outcome);
        }
    }
    outcome
}

fn child(
    binaries: &Binaries,
    row: &Row,
    contender: Contender,
    rounds: u64,
) -> Result<Command, Failure> {
    let mut command = Command::new(binaries.path(contender.binary(row.operation))?);
    command.args([child::FLAG, row.key, contender.key(), &rounds.to_string()]);
    Ok(command)
}

fn sample(
    binaries: &Binaries,
    row: &Row,
    contender: Contender,
    rounds: u64,
) -> Result<Sample, Failure> {
    let output = process::run(&mut child(binaries, row, contender, rounds)?)?;
    Sample::from_json(&output.stdout)
        .ok_or_else(|| Failure(format!("no sample: {}", output.stdout)))
}

/// Instructions of one operation.
fn instructions(binaries: &Binaries, row: &Row, contender: Contender) -> Result<f64, Failure> {
    /// Enough: they repeat.
    const OPERATIONS: u64 = 20_000;
    let per_round = row.operation.per_round();
    let rounds = (OPERATIONS / per_round / contender.slowness(row.operation)).max(2);
    let once = child(binaries, row, contender, rounds)?;
    let twice = child(binaries, row, contender, 2 * rounds)?;
    // Where threads meet, of the run with the fewest of five: in some, a thread parks once more, or
    // takes work from another. On a busy machine that may be all five, so what is above its limit
    // is counted again: a limit is for the way that the operation itself takes.
    let (runs, attempts) = if contender.is_counted_with_threads() { (5, 4) } else { (1, 1) };
    let (mut fewest, mut each) = ([u64::MAX; 2], f64::MAX);
    for _ in 0..attempts {
        for (fewest, child) in fewest.iter_mut().zip([&once, &twice]) {
            for _ in 0..runs {
                *fewest = valgrind::instructions(child)?.min(*fewest);
            }
        }
        each = (fewest[1] as f64 - fewest[0] as f64) / (rounds * per_round) as f64;
        if !limits::is_exceeded(row.key, contender, each) {
            break;
        }
    }
    Ok(each)
}

fn count(plan: &Plan, row: &'static Row, binaries: &Binaries, outcome: &mut Outcome) {
    let by_valgrind = row.operation.counts_instructions();
    if row.operation.is_timed() && !(by_valgrind && outcome.valgrind.is_some()) {
        return;
    }
    if row.operation.count_depends_on_load() && !plan.times {
        return;
    }
    eprint!("{}: counting", row.key);
    for contender in plan.contenders(row.operation) {
        if by_valgrind && contender == Contender::Threads {
            continue;
        }
        let cell = outcome.results.entry((row.key, contender.key())).or_default();
        let counted = if by_valgrind {
            instructions(binaries, row, contender).map(|each| {
                eprint!("  {} {each:.1}", contender.key());
                cell.instructions = Some(each);
            })
        } else {
            sample(binaries, row, contender, plan.rounds(contender, row.operation)).map(|sample| {
                if row.operation == Operation::Bytes {
                    let each = sample.bytes as f64 / sample.operations as f64;
                    eprint!("  {} {each:.1}", contender.key());
                    cell.bytes = Some(each);
                } else {
                    eprint!(
                        "  {} {}",
                        contender.key(),
                        sample.counts.last().copied().unwrap_or_default()
                    );
                    cell.counts = sample.counts;
                }
            })
        };
        note(&mut outcome.failures, row, contender, counted);
    }
    eprintln!();
}

/// Times the rows of a table in turn, and in each row the contenders, so that rows and contenders
/// can be compared run by run.
fn time(plan: &Plan, table: &'static Table, binaries: &Binaries, outcome: &mut Outcome) {
    let is_asked = |row: &&'static Row| plan.rows().any(|asked| asked.key == row.key);
    let rows = table.rows.iter().filter(is_asked).filter(|row| row.operation.is_timed());
    let mut pairs: Vec<(&'static Row, Contender)> = rows
        .flat_map(|row| plan.contenders(row.operation).into_iter().map(move |one| (row, one)))
        .collect();
    if pairs.is_empty() {
        return;
    }
    eprint!("{}: timing, {} runs of each ", table.title, plan.runs);
    for _ in 0..plan.runs {
        // What has failed once is not tried again.
        pairs.retain(|&(row, contender)| {
            let rounds = plan.rounds(contender, row.operation);
            let sampled = sample(binaries, row, contender, rounds).map(|sample| {
                let cell = outcome.results.entry((row.key, contender.key())).or_default();
                cell.nanoseconds.push(sample.nanoseconds_each());
                cell.cpu_nanoseconds.push(sample.cpu_nanoseconds_each());
            });
            note(&mut outcome.failures, row, contender, sampled)
        });
        eprint!(".");
    }
    eprintln!();
    for (row, contender) in pairs {
        if let Some(fastest) =
            outcome.results.get(&(row.key, contender.key())).and_then(Cell::fastest)
        {
            eprintln!("  {} {} {fastest:.1} ns", row.key, contender.key());
        }
    }
}

/// Notes a failure; whether there was none.
fn note(
    failures: &mut Vec<String>,
    row: &Row,
    contender: Contender,
    result: Result<(), Failure>,
) -> bool {
    if let Err(failure) = &result {
        let words = format!("{} of {}: {failure}", row.key, contender.key());
        eprintln!("\n{words}");
        failures.push(words);
    }
    result.is_ok()
}
