//! Runs stages side by side, each in one of a few lanes, and prints the result of each when it
//! ends.
//!
//! Most stages wait for one machine with one hart, so a lane leaves a CPU of the host idle that
//! another lane uses. A stage depends on none before it; what they share is made once (`Shared`).

use std::io::IsTerminal;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::stages::Stage;
use super::{Case, Context, Shared};
use crate::cli::Test;
use crate::error::{Failure, Outcome};
use crate::terminal::stdout_palette;

/// Without `--lanes`, there are not more than this.
const LANES_MAX: usize = 4;

/// What a stage found.
pub struct StageResult {
    pub cases: Vec<Case>,
    notes: Vec<String>,
    time: Duration,
}

impl StageResult {
    pub fn failed(&self) -> impl Iterator<Item = &Case> {
        self.cases.iter().filter(|case| case.failure.is_some())
    }
}

/// Runs the stages in their order, as many at a time as there are lanes. `ended` gets each result,
/// in the order in which the stages end.
pub fn run(
    shared: &Shared<'_>,
    stages: &[&'static Stage],
    mut ended: impl FnMut(&'static Stage, StageResult),
) {
    let next = AtomicUsize::new(0);
    let output = Mutex::new(());
    let (sender, results) = channel();
    std::thread::scope(|scope| {
        for _ in 0..lanes(shared.options).min(stages.len()) {
            let sender = sender.clone();
            let (next, output) = (&next, &output);
            scope.spawn(move || {
                while let Some(&stage) = stages.get(next.fetch_add(1, Ordering::Relaxed)) {
                    print_begin(output, stage);
                    let result = run_one(shared, stage);
                    print_result(output, stage, &result);
                    // The receiver waits until all senders are gone.
                    let _ = sender.send((stage, result));
                }
            });
        }
        drop(sender);
        for (stage, result) in results {
            ended(stage, result);
        }
    });
}

/// Number of lanes: as chosen, otherwise one for each CPU of the host, up to a limit.
fn lanes(options: &Test) -> usize {
    let default =
        || std::thread::available_parallelism().map_or(1, NonZeroUsize::get).min(LANES_MAX);
    options.lanes.map_or_else(default, usize::from)
}

fn run_one(shared: &Shared<'_>, stage: &Stage) -> StageResult {
    let started = Instant::now();
    let context = Context::new(shared);
    let cases = (stage.run)(&context)
        .and_then(|cases| chosen_cases(shared.options, stage, cases))
        .unwrap_or_else(|failure| vec![Case::failed("(stage)", failure.to_string())]);
    let notes = context.notes.into_inner().unwrap();
    StageResult { cases, notes, time: started.elapsed() }
}

/// If a stage is chosen by name with a filter that selects none of its tests, that is an error.
fn chosen_cases(options: &Test, stage: &Stage, cases: Vec<Case>) -> Outcome<Vec<Case>> {
    match options.filter() {
        Some(filter) if cases.is_empty() && !options.only.is_empty() => {
            Err(Failure::new(format!("no test of this stage has {filter:?} in its name"))
                .advise(format!("./cops test --only {} runs all of them", stage.name)))
        }
        _ => Ok(cases),
    }
}

fn print_begin(output: &Mutex<()>, stage: &Stage) {
    let palette = stdout_palette();
    let _output = output.lock().unwrap();
    wipe();
    println!("{}{}{} ({})", palette.bold, stage.name, palette.reset, stage.about);
}

fn print_result(output: &Mutex<()>, stage: &Stage, result: &StageResult) {
    let palette = stdout_palette();
    let failed = result.failed().count();
    let _output = output.lock().unwrap();
    wipe();
    for case in result.failed() {
        println!("  {}FAILED {}/{}{}", palette.red, stage.name, case.name, palette.reset);
        for line in case.failure.as_deref().unwrap_or_default().lines() {
            println!("    {line}");
        }
    }
    for note in &result.notes {
        println!("  {}: {note}", stage.name);
    }
    println!(
        "  {}: {} passed, {failed} failed, {:.1} s",
        stage.name,
        result.cases.len() - failed,
        result.time.as_secs_f64()
    );
}

/// Erases the line in which a stage shows its progress.
fn wipe() {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K");
    }
}
