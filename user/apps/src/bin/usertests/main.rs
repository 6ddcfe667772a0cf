//! The tests of COPS that run on COPS.
//!
//! ```text
//! usertests [FILTER]
//! ```
//!
//! Runs every test whose name contains FILTER, each in a process of its own (this program again, told which test it
//! is), so that a test may leave its process in ruins. After each, what the kernel holds must be what it held before:
//! [`leak`]. Prints a plan `1..N`, then `ok NAME` or `not ok NAME: why`; exits with 0 if all passed.
#![no_std]
#![no_main]

extern crate alloc;

mod channels;
mod coroutines;
mod files;
mod harness;
mod heap;
mod hostile_arguments;
mod hostile_memory;
mod leak;
mod limits;
mod network;
mod network_load;
mod pipes;
mod processes;
mod raw;
mod registers;
mod results;
mod timers;
mod virtual_cpus;

use alloc::vec::Vec;

use cops::process::{self, Child, ExitCode};
use cops::time::{Duration, timeout};
use cops::{Arguments, println};
use harness::{REPORTED, Test};
use leak::Holdings;

/// A test that takes longer has hung.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// First argument of this program when it is to be one test.
const ONE_TEST: &str = "--test";

fn all_tests() -> impl Iterator<Item = &'static Test> {
    [
        hostile_arguments::TESTS,
        hostile_memory::TESTS,
        files::TESTS,
        processes::TESTS,
        pipes::TESTS,
        results::TESTS,
        limits::TESTS,
        timers::TESTS,
        coroutines::TESTS,
        channels::TESTS,
        virtual_cpus::TESTS,
        registers::TESTS,
        heap::TESTS,
        network::TESTS,
        network_load::TESTS,
    ]
    .into_iter()
    .flatten()
}

#[cops::main]
async fn main(arguments: Arguments) -> ExitCode {
    let arguments: Vec<&str> = arguments.skip(1).collect();
    match arguments.as_slice() {
        [] => run_all("").await,
        [ONE_TEST, name] => harness::run_here(all_tests().find(|test| test.name == *name), name).await,
        [processes::HELPER, rest @ ..] => processes::help(rest),
        [hostile_memory::MISBEHAVE, case] => hostile_memory::misbehave(case),
        [filter] => run_all(filter).await,
        _ => {
            println!("usage: usertests [FILTER]");
            ExitCode(2)
        }
    }
}

async fn run_all(filter: &str) -> ExitCode {
    let chosen: Vec<&Test> = all_tests().filter(|test| test.name.contains(filter)).collect();
    println!("1..{}", chosen.len());
    let mut code = ExitCode::SUCCESS;
    for test in chosen {
        let before = Holdings::now();
        match process::spawn(harness::PROGRAM, &[ONE_TEST, test.name]) {
            Ok(child) => {
                let passed = judge(test, child).await && leak::check(test.name, &before).await;
                if !passed {
                    code = ExitCode::FAILURE;
                }
            }
            Err(error) => {
                println!("not ok {}: cannot be started: {error}", test.name);
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// Waits for the process of a test. Prints if it has failed, unless it did so itself.
async fn judge(test: &Test, mut child: Child) -> bool {
    let Ok(ended) = timeout(TIME_LIMIT, child.wait()).await else {
        println!("not ok {}: not over after {} s", test.name, TIME_LIMIT.as_secs());
        let _ = child.kill();
        let _ = child.wait().await;
        return false;
    };
    match ended {
        Ok(status) if status.success() => true,
        Ok(status) if status.code() == Some(REPORTED) => false,
        Ok(status) => {
            println!("not ok {}: {status}", test.name);
            false
        }
        Err(error) => {
            println!("not ok {}: cannot be waited for: {error}", test.name);
            false
        }
    }
}
