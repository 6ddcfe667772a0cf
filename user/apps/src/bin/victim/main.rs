//! A normal program with a latency probe, which measures the effect of `/bin/hostile`.
//!
//! ```text
//! victim probe [NAME=VALUE]...     measures its own latencies and prints them
//! victim beside [NAME=VALUE]...    runs the probe alone and beside hostile programs
//! victim work [NAME=VALUE]...      computes for some time and prints how much it has done
//! victim shares [NAME=VALUE]...    runs the work alone and beside hostile programs
//! ```
//!
//! Each latency counts from the time for which the timer was *set*, so that a probe that is kept
//! from running cannot miss what it should have measured. `beside` prints a line of words per run,
//! for tools to read. It ends with 0 if the probe finished within its bound each time and all
//! resources were free afterwards.
#![no_std]
#![no_main]

extern crate alloc;

mod beside;
#[path = "../usertests/holdings.rs"]
mod holdings;
mod options;
mod probe;
mod shares;
mod sweep;
mod work;

use alloc::vec::Vec;

use cops::process::ExitCode;
use cops::{Arguments, println};
use options::Options;

#[cops::main]
async fn main(arguments: Arguments) -> ExitCode {
    let arguments: Vec<&str> = arguments.skip(1).collect();
    let parsed = arguments.split_first().map(|(mode, rest)| (*mode, Options::parse(rest)));
    match parsed {
        Some(("probe", Ok(options))) => probe::run(&options).await,
        Some(("beside", Ok(options))) => beside::run(&options).await,
        Some(("work", Ok(options))) => work::run(&options).await,
        Some(("shares", Ok(options))) => shares::run(&options).await,
        Some((_, Err(wrong))) => {
            println!("victim: {wrong:?} is no option");
            ExitCode(2)
        }
        _ => {
            println!(
                "usage: victim probe|beside|work|shares [samples=N] [mean-us=N] [level=N] [bound-ms=N] [kinds=A,B..]"
            );
            ExitCode(2)
        }
    }
}
