//! A fuzzer of system calls.
//!
//! ```text
//! fuzz calls=N [seed=S] [first=ROUND] [linux=PROGRAM]
//! ```
//!
//! [`supervisor`] starts children in rounds, kills some of them during their run, and checks after
//! each round that the kernel uses no more resources than before. A child ([`child`]) makes system
//! calls on up to four virtual CPUs, with all known and some unknown numbers and with nearly valid
//! ([`arguments`]) or arbitrary arguments, while it overwrites the pages that it shares with the
//! kernel. All choices of a child follow from the seed, which is printed; on one hart under
//! `-icount` the whole run does. `first=ROUND` begins with a later round, to repeat one that
//! failed. With `linux=PROGRAM` ([`linux`]), a Linux program makes the calls of each round, and
//! starts children for that.
//!
//! Children do not connect to addresses outside of the machine. They do send signals to process 1
//! and to the supervisor, which the kernel must reject.
#![no_std]
#![no_main]

extern crate alloc;

mod arguments;
mod child;
#[path = "../hostile/garbage.rs"]
mod garbage;
#[path = "../usertests/holdings.rs"]
mod holdings;
mod kernel;
mod linux;
mod memory;
#[path = "../hostile/pages.rs"]
mod pages;
mod signatures;
mod supervisor;

use alloc::vec::Vec;

use cops::process::ExitCode;
use cops::{Arguments, println};

/// This program.
pub const PROGRAM: &str = "/bin/fuzz";
/// First argument of this program for a process that makes calls. Then follow seed, number of
/// calls, virtual CPUs, [`child::Habits`].
pub const CHILD: &str = "--child";
/// First argument of this program for a process that ends by itself after so many microseconds;
/// children start such processes.
pub const NAP: &str = "--nap";

#[cops::main]
async fn main(arguments: Arguments) -> ExitCode {
    // Children may pass arbitrary arguments to the processes that they start.
    let mut arguments = arguments;
    let mut words: Vec<&str> = Vec::new();
    while let Some(bytes) = arguments.next_bytes() {
        words.push(core::str::from_utf8(bytes).unwrap_or(NAP));
    }
    match words.get(1..).unwrap_or_default() {
        [CHILD, rest @ ..] => child::run(rest),
        [NAP, microseconds, ..] => {
            kernel::sleep_microseconds(microseconds.parse().unwrap_or(0));
            ExitCode::SUCCESS
        }
        // A process that a child has started with invalid arguments.
        [first, ..] if !first.contains('=') => ExitCode(3),
        [] => ExitCode(3),
        options => match supervisor::Options::parse(options) {
            Some(options) => supervisor::run(options).await,
            None => {
                println!("usage: fuzz calls=N [seed=S] [first=ROUND] [linux=PROGRAM]");
                ExitCode(2)
            }
        },
    }
}
