//! A fuzzer of system calls.
//!
//! ```text
//! fuzz calls=N [seed=S] [first=ROUND]
//! ```
//!
//! [`supervisor`] starts children in rounds, kills some of them in the middle, and checks after each round that the
//! kernel holds no more than before. A child ([`child`]) makes system calls on up to four virtual CPUs: every
//! number there is and numbers there are not, with arguments that are nearly right ([`arguments`]) or arbitrary, while it
//! writes garbage into the pages that it shares with the kernel. Every choice of a child follows from the seed, which
//! is printed; on one hart under `-icount` the whole run does. `first=ROUND` begins with a later round, to
//! repeat the one that failed.
//!
//! Children leave one thing out: connections to addresses outside the machine, which belong to others. Signals to process 1 and
//! to the supervisor are among the calls: the kernel refuses them.
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
/// First argument of this program when it is to make calls: seed, number of calls, virtual CPUs, [`child::Habits`].
pub const CHILD: &str = "--child";
/// First argument of this program when it is to end by itself, after so many microseconds: what children start.
pub const NAP: &str = "--nap";

#[cops::main]
async fn main(arguments: Arguments) -> ExitCode {
    // Children pass anything as arguments of what they start.
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
        // What a child has started with arguments that are none of ours.
        [first, ..] if !first.contains('=') => ExitCode(3),
        [] => ExitCode(3),
        options => match supervisor::Options::parse(options) {
            Some(options) => supervisor::run(&options).await,
            None => {
                println!("usage: fuzz calls=N [seed=S] [first=ROUND]");
                ExitCode(2)
            }
        },
    }
}
