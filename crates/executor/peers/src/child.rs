//! The other side of the pipe: a process that measures one thing once. A process each, so that
//! no measurement inherits the heap, caches or threads of another.

use std::process::ExitCode;

use crate::contender::Contender;
use crate::operation;
use crate::rows::Row;

/// What a parent gives a child before row, contender and rounds.
pub const FLAG: &str = "--measure";

/// If the arguments are a parent's, measures, prints the sample and ends the process.
pub fn run_if_asked(live: fn() -> u64) -> Option<ExitCode> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [flag, row, contender, rounds] = &arguments[..] else { return None };
    if flag != FLAG {
        return None;
    }
    let (Some(row), Some(contender), Ok(rounds)) =
        (Row::from_key(row), Contender::from_key(contender), rounds.parse())
    else {
        eprintln!("not a measurement: {arguments:?}");
        return Some(ExitCode::from(2));
    };
    println!("{}", operation::measure(contender, row.operation, rounds, live).to_json());
    // Threads of runtimes that never end go with the process.
    std::process::exit(0);
}
