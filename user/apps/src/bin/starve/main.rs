//! Makes each allocation of the kernel fail, one at a time.
//!
//! ```text
//! starve [FILTER]
//! ```
//!
//! For each scenario with FILTER in its name, and n = 1, 2, 3, ...: a process performs the
//! scenario, and the kernel's n-th allocation since the scenario's begin fails. The kernel must
//! continue, whatever happens to the process, and when the process has ended, all its resources
//! must be free again. A scenario ends with the first n that it does not reach. Needs the boot
//! argument `fail-allocation=on`. Prints a plan, then `ok NAME: N allocations failed` or `not ok
//! NAME: why`; exits with 0 if all scenarios succeed.
#![no_std]
#![no_main]

extern crate alloc;

mod alarms;
mod scenarios;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use cops::abi::errno::{CallResult, decode};
use cops::abi::statistics::Statistics;
use cops::abi::syscall::{self as number, clone_flags, signal};
use cops::memory;
use cops::process::{self, ExitCode};
use cops::time::{Duration, sleep, timeout};
use cops::{Arguments, println};

use scenarios::SCENARIOS;

/// First argument of the process that performs a scenario.
const ONE: &str = "--one";
/// Exit codes of such a process: its allocation has failed; there was no such allocation.
const FAILED: u8 = 0;
const NOT_REACHED: u8 = 1;
/// Something has failed that needs no memory.
const BROKEN: u8 = 4;
/// An upper bound on the allocations of a scenario.
const ALLOCATIONS_MAX: u64 = 5_000;
/// A process that takes longer waits for something that the failure has prevented. It is killed,
/// which is not an error.
const LIMIT: Duration = Duration::from_secs(20);
/// Interval and maximum number of checks whether all resources are free again.
const GRACE_STEP: Duration = Duration::from_millis(5);
const GRACE_STEPS: u32 = 6_000;

/// Makes a synchronous call without the library.
#[allow(unsafe_code)]
pub fn call<const COUNT: usize>(number: usize, arguments: [usize; COUNT]) -> CallResult {
    let mut all = [0; 6];
    all[..COUNT].copy_from_slice(&arguments);
    // SAFETY: a scenario passes only memory of its own, which lives until the call returns.
    decode(unsafe { cops::private::system_call(number, all, 0, 0) }.0)
}

/// Starts a thread that ends at once.
#[allow(unsafe_code)]
fn start_and_end_a_thread() {
    // SAFETY: the new thread begins after the first call with the registers of this one, and makes
    // the second call, which ends it. It uses no stack, and this thread skips the second call.
    unsafe {
        core::arch::asm!(
            "ecall",
            "bnez a0, 1f",
            "li   a7, {exit}",
            "ecall",
            "1:",
            exit = const number::EXIT,
            inlateout("a0") clone_flags::THREAD_SHARES => _,
            in("a1") 0,
            in("a2") 0,
            in("a3") 0,
            in("a4") 0,
            in("a6") 0,
            inlateout("a7") number::CLONE => _,
            in("t0") 0,
        );
    }
}

/// Ends the scenario: something has failed that needs no memory.
fn end_as_broken() {
    let _ = call(number::EXIT_GROUP, [BROKEN.into()]);
}

/// Makes the `count`-th allocation from now fail. Returns what the previous call had left to count.
fn fail_allocation(count: u64) -> CallResult {
    call(number::COPS_FAIL_ALLOCATION, [count as usize])
}

#[cops::main]
async fn main(arguments: Arguments) -> ExitCode {
    let arguments: Vec<&str> = arguments.skip(1).collect();
    match arguments.as_slice() {
        [ONE, name, count] => one(name, count.parse().unwrap_or(1)).await,
        [] => all("").await,
        [filter] => all(filter).await,
        _ => ExitCode(2),
    }
}

/// Performs a scenario once, with a failing allocation.
async fn one(name: &str, count: u64) -> ExitCode {
    let Some(scenario) = SCENARIOS.iter().find(|scenario| scenario.name == name) else {
        return ExitCode(2);
    };
    if fail_allocation(count).is_err() {
        return ExitCode(3);
    }
    (scenario.run)().await;
    ExitCode(if fail_allocation(0) == Ok(0) { FAILED } else { NOT_REACHED })
}

async fn all(filter: &str) -> ExitCode {
    if fail_allocation(0).is_err() {
        println!("1..1\nnot ok boot: needs the boot argument fail-allocation=on");
        return ExitCode::FAILURE;
    }
    if let Err(error) = alarms::install() {
        println!("1..1\nnot ok boot: the program for alarms: {error:?}");
        return ExitCode::FAILURE;
    }
    let chosen: Vec<_> =
        SCENARIOS.iter().filter(|scenario| scenario.name.contains(filter)).collect();
    println!("1..{}", chosen.len());
    let (mut code, mut total) = (ExitCode::SUCCESS, 0);
    for scenario in chosen {
        match starve(scenario.name).await {
            Ok(count) => {
                total += count;
                println!("ok {}: {count} allocations failed", scenario.name);
            }
            Err(why) => {
                println!("not ok {}: {why}", scenario.name);
                code = ExitCode::FAILURE;
            }
        }
    }
    println!("# {total} allocations failed");
    code
}

/// Performs a scenario repeatedly, until none of its allocations is left to fail. Returns how many
/// failed.
async fn starve(name: &str) -> Result<u64, String> {
    // What the kernel or this process allocates on first use and then keeps is not a leak.
    let mut before = statistics_when_free(None).await?;
    for count in [ALLOCATIONS_MAX, 1, 1, 1] {
        run(name, count).await?;
        sleep(Duration::from_millis(20)).await;
        before = statistics_when_free(None).await?;
    }
    for count in 1..ALLOCATIONS_MAX {
        let reached = run(name, count).await?;
        statistics_when_free(Some(&before))
            .await
            .map_err(|why| format!("allocation {count}: {why}"))?;
        if !reached {
            return Ok(count - 1);
        }
    }
    Err(format!("more than {ALLOCATIONS_MAX} allocations"))
}

/// Returns whether there was an allocation with that number.
async fn run(name: &str, count: u64) -> Result<bool, String> {
    let number = format!("{count}");
    let mut child = process::spawn("/bin/starve", &[ONE, name, &number])
        .map_err(|error| format!("allocation {count}: no process for the scenario: {error:?}"))?;
    let ended = match timeout(LIMIT, child.wait()).await {
        Ok(ended) => ended,
        Err(_) => {
            let _ = process::kill(child.id(), signal::SIGKILL);
            child.wait().await
        }
    };
    let left = fail_allocation(0);
    let status = ended.map_err(|error| format!("allocation {count}: {error:?}"))?;
    match (status.code(), left) {
        (Some(NOT_REACHED), _) => Ok(false),
        (Some(2 | 3 | BROKEN), _) => Err(format!("allocation {count}: it ended with {status}")),
        // A process that did not complete either had a failed allocation or is faulty.
        (_, Ok(0)) => Ok(true),
        _ => Err(format!("it ended with {status} before allocation {count} failed")),
    }
}

/// What the kernel uses, once that is no more than `before`.
async fn statistics_when_free(before: Option<&Statistics>) -> Result<Statistics, String> {
    let mut steps = 0;
    loop {
        let now = memory::statistics().map_err(|error| format!("statistics: {error:?}"))?;
        let excess = before.map_or([0; 5], |before| excess(before, &now));
        if excess == [0; 5] {
            return Ok(now);
        }
        steps += 1;
        if steps > GRACE_STEPS {
            return Err(format!(
                "left behind: frames, processes, kernel coroutines, connections, calls: {excess:?}"
            ));
        }
        sleep(GRACE_STEP).await;
    }
}

fn excess(before: &Statistics, now: &Statistics) -> [u64; 5] {
    // The frames of the kernel's heap count as heap, which keeps a little of what it once
    // allocated.
    let taken =
        |s: &Statistics| s.frames_total - s.frames_free - s.heap_reserved_bytes.div_ceil(4096);
    [
        taken(now).saturating_sub(taken(before)),
        now.processes.saturating_sub(before.processes),
        now.kernel_coroutines.saturating_sub(before.kernel_coroutines),
        now.connections.saturating_sub(before.connections),
        now.calls_in_flight.saturating_sub(before.calls_in_flight),
    ]
}
