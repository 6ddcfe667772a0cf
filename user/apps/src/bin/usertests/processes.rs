//! Starting processes, their arguments, how they end.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use cops::abi::Errno;
use cops::abi::syscall::{ARGUMENT_BYTES_MAX, ARGUMENTS_MAX, CLOCK_NANOSLEEP, COPS_UNPARK, signal};
use cops::io::pipe;
use cops::process::{self, Child, ExitCode};
use cops::time::{Duration, Instant, sleep, timeout};
use cops::{task, wait};
use futures_util::future::join_all;

use crate::harness::{Failure, Outcome, errno, run, soon, start};
use crate::{
    authority, bounded, check, check_equal, donation, files, forks, interrupts, leftovers,
    programs, quotas, raw, registers, scheduling, tests, threads,
};

tests! { processes:
    exit_codes,
    panic_and_abort,
    signals,
    wait_for_any,
    wait_by_macro,
    wait_is_cancel_safe,
    wait_twice,
    many_at_once,
    arguments_arrive,
    arguments_at_the_limits,
    killed_with_calls_in_flight,
    killed_while_it_computes,
    killed_while_it_enters_calls,
    orphans,
    out_of_memory_is_its_own_end,
}

/// First argument of this program for a process of one of these tests.
pub const HELPER: &str = "--helper";

/// The helpers.
pub fn help(arguments: &[&str]) -> ExitCode {
    match arguments {
        [bounded::BOUNDED, what] => bounded::help(what),
        ["exit", code] => ExitCode(code.parse().unwrap_or(99)),
        ["panic"] => panic!("as the test asks"),
        ["abort"] => process::abort(),
        ["sleep", milliseconds] => {
            let milliseconds = milliseconds.parse().unwrap_or(0);
            let slept = cops::sleep!(Duration::from_millis(milliseconds));
            ExitCode(u8::from(slept.is_err()))
        }
        ["compute"] => loop {
            core::hint::spin_loop();
        },
        ["enter-calls"] => enter_calls(),
        ["wait-in-many-ways"] => wait_in_many_ways(),
        ["leave-an-orphan"] => match start(&[HELPER, "sleep", "50"]) {
            Ok(_) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        ["use-all-memory"] => use_all_memory(),
        ["compute-with-floats"] => registers::compute_with_floats(),
        ["look-at-floats"] => ExitCode(registers::look_at_floats()),
        ["arguments", count, bytes, rest @ ..] => check_arguments(count, bytes, rest),
        ["garbage-handler"] => interrupts::interrupt_into_garbage(),
        other => authority::help(other)
            .or_else(|| quotas::help(other))
            .or_else(|| files::help(other))
            .or_else(|| scheduling::help(other))
            .or_else(|| leftovers::help(other))
            .or_else(|| forks::help(other))
            .or_else(|| programs::help(other))
            .or_else(|| threads::help(other))
            .or_else(|| donation::help(other))
            .unwrap_or(ExitCode(98)),
    }
}

/// Argument number `index` of those that [`check_arguments`] expects.
fn argument(index: usize, bytes: usize) -> String {
    core::iter::repeat_n(char::from(b'a' + (index % 26) as u8), bytes).collect()
}

fn check_arguments(count: &str, bytes: &str, rest: &[&str]) -> ExitCode {
    let (Ok(count), Ok(bytes)) = (count.parse::<usize>(), bytes.parse::<usize>()) else {
        return ExitCode(2);
    };
    let expected = (0..count).map(|index| argument(index, bytes));
    ExitCode(u8::from(!expected.eq(rest.iter().copied())))
}

/// Sleeps, reads and accepts forever, all at once.
fn wait_in_many_ways() -> ExitCode {
    for _ in 0..200 {
        task::spawn(sleep(Duration::from_secs(1000)), task::Priority::DEFAULT);
        task::spawn(
            async {
                let Ok((mut reader, _writer)) = pipe() else { return };
                let _ = cops::io::Read::read(&mut reader, &mut [0; 1000]).await;
            },
            task::Priority::DEFAULT,
        );
    }
    task::spawn(
        async {
            let Ok(listener) = cops::net::TcpListener::bind((cops::net::Ipv4Addr::LOCALHOST, 0))
            else {
                return;
            };
            let _ = listener.accept().await;
        },
        task::Priority::DEFAULT,
    );
    // The main coroutine's virtual CPU sleeps here; another virtual CPU makes the calls of the
    // others.
    if task::alloc_cpu(1).is_err() {
        return ExitCode::FAILURE;
    }
    let _ = cops::sleep!(Duration::from_secs(1000));
    ExitCode::SUCCESS
}

/// Makes calls that have to wait, one after the other: one virtual CPU sleeps, and another parks
/// and is unparked by the first.
fn enter_calls() -> ExitCode {
    // The second virtual CPU has nothing to poll, so its worker parks in the kernel again after
    // each wake.
    if task::alloc_cpu(1).is_err() {
        return ExitCode::FAILURE;
    }
    let soon = [0usize, 1_000];
    loop {
        let _ = raw::call(COPS_UNPARK, [1]);
        let _ = raw::call(CLOCK_NANOSLEEP, [1, 0, soon.as_ptr().addr(), 0]);
    }
}

fn use_all_memory() -> ExitCode {
    let mut all: Vec<Vec<u8>> = Vec::new();
    loop {
        let mut block = Vec::new();
        if block.try_reserve_exact(1 << 20).is_err() {
            return ExitCode(55);
        }
        block.resize(1 << 20, 1);
        all.push(block);
    }
}

async fn exit_codes() -> Outcome {
    for code in [0u8, 1, 7, 127, 128, 255] {
        let status = run(&[HELPER, "exit", &format!("{code}")]).await?;
        check_equal!((status.code(), status.signal()), (Some(code), None), "exit {code}");
    }
    Ok(())
}

async fn panic_and_abort() -> Outcome {
    for how in ["panic", "abort"] {
        let status = run(&[HELPER, how]).await?;
        check_equal!((status.signal(), status.shell_code()), (Some(signal::SIGABRT), 134), "{how}");
    }
    Ok(())
}

async fn signals() -> Outcome {
    for signal in [signal::SIGTERM, signal::SIGKILL, signal::SIGABRT, 1, 63] {
        let mut child = start(&[HELPER, "sleep", "100000"])?;
        process::kill(child.id(), signal)?;
        let status = soon("the end of a killed process", child.wait()).await??;
        check_equal!((status.code(), status.signal()), (None, Some(signal)), "signal {signal}");
        let error = process::kill(child.id(), signal).err().and_then(errno);
        check_equal!(error, Some(Errno::ESRCH), "killing it once more");
    }
    Ok(())
}

async fn wait_for_any() -> Outcome {
    let children: Vec<Child> = (0..4)
        .map(|code| start(&[HELPER, "exit", &format!("{code}")]))
        .collect::<Result<_, _>>()?;
    let mut expected: Vec<(u32, Option<u8>)> =
        children.iter().zip(0..).map(|(child, code)| (child.id(), Some(code))).collect();
    for _ in 0..4 {
        let name = task::current().ok_or(Failure("no coroutine".into()))?;
        let (pid, status) = soon("the end of any child", wait!(None, name)).await??;
        let place = expected.iter().position(|&entry| entry == (pid, status.code()));
        check!(place.is_some(), "{pid} with {status} is none of {expected:?}");
        expected.remove(place.unwrap_or(0));
    }
    check_equal!(wait!(None).err(), Some(Errno::ECHILD), "waiting for a fifth of four");
    Ok(())
}

async fn wait_by_macro() -> Outcome {
    let child = start(&[HELPER, "exit", "9"])?;
    let (pid, status) = wait!(Some(child.id()))?;
    check_equal!((pid, status.code()), (child.id(), Some(9)), "synchronous wait");
    Ok(())
}

/// A status that arrives while the wait for it is being cancelled is returned by the next wait.
async fn wait_is_cancel_safe() -> Outcome {
    for round in 0..20 {
        let mut child = start(&[HELPER, "exit", "3"])?;
        let begin = Instant::now();
        while timeout(Duration::from_micros(200 + 50 * round), child.wait()).await.is_err() {
            check!(begin.elapsed() < crate::harness::PATIENCE, "the child never ends");
            if round % 2 == 0 {
                // Let it end while no call waits for it.
                sleep(Duration::from_millis(30)).await;
                let status = child.wait().await?;
                check_equal!(status.code(), Some(3), "status after waiting in vain");
                break;
            }
        }
    }
    Ok(())
}

async fn wait_twice() -> Outcome {
    let mut child = start(&[HELPER, "exit", "0"])?;
    child.wait().await?;
    check_equal!(child.wait().await.err().and_then(errno), Some(Errno::ECHILD), "second wait");
    Ok(())
}

async fn many_at_once() -> Outcome {
    let mut children: Vec<Child> = (0..24)
        .map(|code| start(&[HELPER, "exit", &format!("{code}")]))
        .collect::<Result<_, _>>()?;
    let ends = join_all(children.iter_mut().map(Child::wait));
    for (code, status) in soon("the end of 24 processes", ends).await?.into_iter().enumerate() {
        check_equal!(status?.code(), Some(code as u8), "child {code}");
    }
    Ok(())
}

async fn pass(count: usize, bytes: usize) -> Outcome {
    let mut arguments = alloc::vec![
        HELPER.into(),
        String::from("arguments"),
        format!("{count}"),
        format!("{bytes}")
    ];
    arguments.extend((0..count).map(|index| argument(index, bytes)));
    let mut child = process::spawn(crate::harness::PROGRAM, &arguments)?;
    let status = soon("the end of a process", child.wait()).await??;
    check_equal!(status.code(), Some(0), "{count} arguments of {bytes} bytes arrive");
    Ok(())
}

async fn arguments_arrive() -> Outcome {
    for (count, bytes) in [(0, 0), (1, 0), (3, 0), (1, 1), (5, 7), (100, 13), (200, 64), (1, 8000)]
    {
        pass(count, bytes).await?;
    }
    Ok(())
}

/// The maximum number and length of arguments; five arguments precede those that are counted here.
async fn arguments_at_the_limits() -> Outcome {
    pass(ARGUMENTS_MAX - 5, 1).await?;
    let first_five = crate::harness::PROGRAM.len()
        + HELPER.len()
        + "arguments".len()
        + "1".len()
        + "16000".len()
        + 5;
    let longest = ARGUMENT_BYTES_MAX - first_five - 1;
    check_equal!(format!("{longest}").len(), 5, "digits of the longest argument's length");
    pass(1, longest).await
}

async fn killed_with_calls_in_flight() -> Outcome {
    let mut child = start(&[HELPER, "wait-in-many-ways"])?;
    sleep(Duration::from_millis(200)).await;
    child.kill()?;
    let status = soon("the end of a killed process", child.wait()).await??;
    check_equal!(status.signal(), Some(signal::SIGKILL), "how it ended");
    Ok(())
}

async fn killed_while_it_computes() -> Outcome {
    let mut child = start(&[HELPER, "compute"])?;
    sleep(Duration::from_millis(50)).await;
    child.kill()?;
    let status = soon("the end of a killed process", child.wait()).await??;
    check_equal!(status.signal(), Some(signal::SIGKILL), "how it ended");
    Ok(())
}

/// Processes that are killed just when they make calls that wait: all of them end.
///
/// Earlier, a virtual CPU that began to wait after its process had begun to end waited forever.
async fn killed_while_it_enters_calls() -> Outcome {
    const ROUNDS: u32 = 40;
    const CHILDREN: u32 = 5;
    for round in 0..ROUNDS {
        let mut children = Vec::new();
        for _ in 0..CHILDREN {
            children.push(start(&[HELPER, "enter-calls"])?);
        }
        // At a different moment of their lives in each round.
        sleep(Duration::from_micros(u64::from(2_000 + 100 * round))).await;
        for child in &mut children {
            child.kill()?;
        }
        for child in &mut children {
            let status = soon("the end of a process killed in a call", child.wait()).await??;
            check_equal!(status.signal(), Some(signal::SIGKILL), "how it ended");
        }
    }
    Ok(())
}

/// A process without a parent ends completely, without being waited for.
async fn orphans() -> Outcome {
    let status = run(&[HELPER, "leave-an-orphan"]).await?;
    check_equal!(status.code(), Some(0), "status of the parent");
    sleep(Duration::from_millis(150)).await;
    Ok(())
}

/// A process that takes all memory gets an error or is ended; no other process is affected.
async fn out_of_memory_is_its_own_end() -> Outcome {
    let status = soon(
        "the end of a process that takes all memory",
        start(&[HELPER, "use-all-memory"])?.wait(),
    )
    .await??;
    let ended = status.code() == Some(55) || status.signal().is_some();
    check!(ended, "it ended with {status}");
    let status = run(&[HELPER, "exit", "4"]).await?;
    check_equal!(status.code(), Some(4), "a process started after that");
    Ok(())
}
