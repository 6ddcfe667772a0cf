//! The tests of COPS that run on COPS.
//!
//! ```text
//! usertests [FILTER]
//! ```
//!
//! Runs every test with FILTER in its name, each in a process of its own (this program again, with
//! the test as its argument), so that a test may damage its process. After each test, the kernel
//! must use no more resources than before: [`leak`]. Prints a plan `1..N`, then for each test `#
//! begin NAME` and `ok NAME` or `not ok NAME: why`. Exits with 0 if all tests passed, with 2 if no
//! name contains FILTER.
//!
//! A test passes at its first run or it fails. No test judges a time by the clock of a machine that
//! may do other work too:
//! - With one hart the machine runs under `-icount`: time is a count of instructions, and a bound
//!   on a time is a bound on work.
//! - With several harts, tests judge what happened, in which order and how often. [`TIME_LIMIT`]
//!   and [`harness::PATIENCE`] are limits for events that never happen.
#![no_std]
#![no_main]

extern crate alloc;

mod authority;
mod beside;
mod boundary;
mod bounded;
mod call_levels;
mod chance;
mod channels;
mod coroutines;
mod datagrams;
mod descriptors;
mod disk;
mod donation;
mod files;
mod forks;
mod futexes;
mod harness;
mod heap;
mod holdings;
mod hostile_arguments;
mod hostile_memory;
mod hostile_values;
mod inspection;
mod interrupts;
mod leak;
mod leftovers;
mod limits;
mod memory_ends;
mod models;
mod network;
mod network_load;
mod order;
mod pipes;
mod proc;
mod processes;
mod programs;
mod quotas;
mod raw;
mod readiness;
mod registers;
mod regressions;
mod rendezvous;
mod results;
mod scheduling;
mod served;
mod shared;
mod short_writes;
mod stacks;
mod standing;
mod temporary;
mod threads;
mod timers;
mod virtual_cpus;

use alloc::vec::Vec;

use cops::abi::syscall::signal;
use cops::call::Call;
use cops::process::{ExitCode, ExitStatus, Wait};
use cops::task::{self, Priority};
use cops::time::{Duration, timeout};
use cops::{Arguments, println};
use harness::{Failure, REPORTED, Test};
use holdings::Holdings;

/// A test that takes longer has hung. The longest takes a few seconds on an otherwise idle machine.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// A process that was killed and has not ended after this time never will.
const KILL_LIMIT: Duration = Duration::from_secs(60);

/// Tests of operations that only the first process may do. They run in the first process only.
const IN_THE_FIRST_PROCESS: [&str; 19] = [
    "disk::reads_what_the_host_wrote",
    "disk::positions_and_lengths",
    "disk::many_requests_in_flight",
    "disk::cancelled_requests_touch_nothing",
    "disk::urgent_requests_overtake",
    "disk::writes_are_on_the_host",
    "disk::only_for_the_first_process",
    "disk::places_are_read",
    "disk::places_that_cannot_be",
    "disk::places_of_a_file_that_becomes_shorter",
    "disk::places_of_a_file_that_has_become_shorter",
    "inspection::bad_requests",
    "inspection::exact_sequence",
    "inspection::a_call_from_end_to_end",
    "inspection::overwritten_records_are_counted",
    "inspection::records_lost_by_a_process_are_counted",
    "inspection::garbage_in_trace_pages",
    "inspection::off_means_off",
    "scheduling::share_for_the_less_urgent",
];
/// The number of the first process.
const FIRST_PROCESS: u32 = 1;

/// The exit code if no test was chosen.
const NOTHING_CHOSEN: ExitCode = ExitCode(2);
/// First argument of this program for a process that runs one test.
const ONE_TEST: &str = "--test";

fn all_tests() -> impl Iterator<Item = &'static Test> {
    [
        hostile_arguments::TESTS,
        hostile_values::TESTS,
        hostile_memory::TESTS,
        files::TESTS,
        descriptors::TESTS,
        temporary::TESTS,
        proc::TESTS,
        processes::TESTS,
        forks::TESTS,
        shared::TESTS,
        standing::TESTS,
        models::TESTS,
        programs::TESTS,
        futexes::TESTS,
        threads::TESTS,
        donation::TESTS,
        stacks::TESTS,
        authority::TESTS,
        quotas::TESTS,
        leftovers::TESTS,
        pipes::TESTS,
        short_writes::TESTS,
        readiness::TESTS,
        results::TESTS,
        limits::TESTS,
        memory_ends::TESTS,
        timers::TESTS,
        chance::TESTS,
        coroutines::TESTS,
        channels::TESTS,
        rendezvous::TESTS,
        virtual_cpus::TESTS,
        registers::TESTS,
        interrupts::TESTS,
        scheduling::TESTS,
        call_levels::TESTS,
        regressions::TESTS,
        boundary::TESTS,
        bounded::TESTS,
        order::TESTS,
        beside::TESTS,
        heap::TESTS,
        inspection::TESTS,
        datagrams::TESTS,
        network::TESTS,
        network_load::TESTS,
        if disk::exists() { disk::TESTS } else { &[] },
    ]
    .into_iter()
    .flatten()
    .chain(served::all())
}

#[cops::main]
async fn main(arguments: Arguments) -> ExitCode {
    let arguments: Vec<&str> = arguments.skip(1).collect();
    match arguments.as_slice() {
        [] => run_all("").await,
        [ONE_TEST, name] => {
            harness::run_here(all_tests().find(|test| test.name == *name), name).await
        }
        [processes::HELPER, inspection::TRACED, rest @ ..] => inspection::traced(rest).await,
        [processes::HELPER, donation::SEMAPHORE] => donation::share_a_semaphore().await,
        [processes::HELPER, donation::MUTEX] => donation::share_a_mutex().await,
        [processes::HELPER, donation::CHANGED] => donation::change_what_is_polled().await,
        [processes::HELPER, donation::ONCE] => donation::donate_once().await,
        [processes::HELPER, call_levels::WAIT_IN_CALLS] => call_levels::wait_in_calls().await,
        [processes::HELPER, rest @ ..] => match processes::help(rest) {
            scheduling::RUN_ON => core::future::pending().await,
            code => code,
        },
        [limits::HELPER, what] => limits::help(what).await,
        [order::HELPER, yielding, port] => order::help(yielding, port).await,
        [disk::HELPER, name] => disk::help(name),
        [served::HELPER, rest @ ..] => served::help(rest).await,
        [hostile_memory::MISBEHAVE, case] => hostile_memory::misbehave(case),
        [filter] => run_all(filter).await,
        _ => {
            println!("usage: usertests [FILTER]");
            ExitCode(2)
        }
    }
}

async fn run_all(filter: &str) -> ExitCode {
    let is_first = cops::process::id() == FIRST_PROCESS;
    let chosen: Vec<&Test> = all_tests()
        .filter(|test| {
            let needs_first =
                IN_THE_FIRST_PROCESS.contains(&test.name) || test.name.starts_with(served::GROUP);
            test.name.contains(filter) && (is_first || !needs_first)
        })
        .collect();
    if chosen.is_empty() {
        let mut groups: Vec<&str> =
            all_tests().map(|test| test.name.split("::").next().unwrap_or_default()).collect();
        groups.dedup();
        println!("usertests: no test has {filter:?} in its name; there are {}", groups.join(" "));
        return NOTHING_CHOSEN;
    }
    println!("1..{}", chosen.len());
    let mut code = ExitCode::SUCCESS;
    // Once before the first measurement, because what this process and the kernel allocate on first
    // use is not a leak.
    let _ = run_apart(&[processes::HELPER, "exit", "0"]).await;
    for test in chosen {
        // If a test does not end, the last line on the console names it.
        println!("# begin {}", test.name);
        let verdict = if IN_THE_FIRST_PROCESS.contains(&test.name) {
            run_here(test).await
        } else {
            run_apart(&[ONE_TEST, test.name]).await
        };
        match verdict {
            Verdict::Passed => println!("ok {}", test.name),
            Verdict::Reported => code = ExitCode::FAILURE,
            Verdict::Failed(why) => {
                println!("not ok {}: {why}", test.name);
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

/// The verdict on a test.
enum Verdict {
    Passed,
    /// The test has printed its own failure.
    Reported,
    Failed(Failure),
}

/// Runs a test in this process, in a coroutine of its own. This process's own memory may grow with
/// it, so what is left is not checked.
async fn run_here(test: &'static Test) -> Verdict {
    let running = task::spawn_join(harness::run_here(Some(test), test.name), Priority::DEFAULT);
    match timeout(TIME_LIMIT, running).await {
        Ok(Ok(ExitCode::SUCCESS)) => Verdict::Passed,
        Ok(Ok(_)) => Verdict::Reported,
        Ok(Err(_)) => Verdict::Failed(Failure("its coroutine was cancelled".into())),
        Err(_) => {
            Verdict::Failed(Failure(alloc::format!("not over after {} s", TIME_LIMIT.as_secs())))
        }
    }
}

/// Runs this program as another process, and checks what is left after it has ended.
async fn run_apart(arguments: &[&str]) -> Verdict {
    let before = match Holdings::now() {
        Ok(before) => before,
        Err(why) => return Verdict::Failed(why.into()),
    };
    let status = match end_of(arguments).await {
        Ok(status) => status,
        Err(why) => return Verdict::Failed(why),
    };
    match status.code() {
        Some(REPORTED) => Verdict::Reported,
        Some(0) => {
            leak::wait_until_free(&before).await.map_or_else(Verdict::Failed, |()| Verdict::Passed)
        }
        _ => Verdict::Failed(Failure(alloc::format!("{status}"))),
    }
}

async fn end_of(arguments: &[&str]) -> Result<ExitStatus, Failure> {
    let serves = arguments.iter().any(|word| word.starts_with(served::GROUP));
    let child = if serves { served::start(arguments)? } else { harness::start(arguments)?.id() };
    let status = end_of_child(child).await;
    if serves {
        served::tidy();
    }
    status
}

async fn end_of_child(child: u32) -> Result<ExitStatus, Failure> {
    let wait = || Call::new(Wait::new(Some(child)));
    match timeout(TIME_LIMIT, wait()).await {
        Ok(status) => Ok(status?.1),
        Err(_) => {
            cops::process::kill(child, signal::SIGKILL)?;
            let ended = timeout(KILL_LIMIT, wait()).await.is_ok();
            let what_then = if ended { "" } else { ", and then it was killed and does not end" };
            Err(Failure(alloc::format!("not over after {} s{what_then}", TIME_LIMIT.as_secs())))
        }
    }
}
