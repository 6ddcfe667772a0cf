//! The limit on calls in flight: an error for a raw system call, a wait for a call through the
//! library.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops::abi::Errno;
use cops::abi::syscall::{CALLS_IN_FLIGHT_MAX, CLOCK_NANOSLEEP};
use cops::io::{Read, pipe};
use cops::memory::statistics;
use cops::process::{self, ExitCode, Resource};
use cops::task::{self, Priority};
use cops::time::{Duration, Instant, sleep, sleep_until, timeout};

use crate::harness::{Failure, Outcome, Tied, soon, start, start_tied};
use crate::raw::{self, Asked};
use crate::{check, check_equal, tests};

tests! { limits:
    one_call_too_many,
    library_waits_for_its_turn,
    waiting_for_a_turn_can_be_given_up,
    waiting_for_a_turn_takes_no_time,
    virtual_cpus_sleep_when_all_calls_are_used_up,
    room_that_others_make_is_used,
    room_is_used_for_a_call_of_a_runner_that_has_left,
    waiting_for_room_of_others_takes_no_time,
}

/// The first argument of the process that [`help`] is for.
pub const HELPER: &str = "--limits-helper";

/// The children of this module's tests: they end with 0.
pub async fn help(what: &str) -> ExitCode {
    let done = match what {
        "wait-for-room" => wait_for_room().await,
        "without-room" => without_room().await,
        _ => return ExitCode(2),
    };
    done.map_or(ExitCode(1), |()| ExitCode(0))
}

const FOREVER: [usize; 2] = [1_000_000, 0];

/// Starts sleeps until the kernel takes no more.
fn fill_up() -> Result<Vec<raw::Handle>, Failure> {
    let mut handles = Vec::with_capacity(CALLS_IN_FLIGHT_MAX);
    loop {
        match raw::ask(CLOCK_NANOSLEEP, [1, 0, FOREVER.as_ptr().addr()]) {
            Asked::InFlight(handle) => handles.push(handle),
            Asked::Done(Err(Errno::EAGAIN)) => return Ok(handles),
            Asked::Done(other) => {
                return Err(Failure(alloc::format!("a sleep for ever: {other:?}")));
            }
        }
        check!(handles.len() <= CALLS_IN_FLIGHT_MAX, "more calls in flight than the contract says");
    }
}

async fn one_call_too_many() -> Outcome {
    let mut handles = fill_up()?;
    check_equal!(handles.len(), CALLS_IN_FLIGHT_MAX, "calls in flight");
    check!(statistics()?.calls_in_flight >= CALLS_IN_FLIGHT_MAX as u64, "the kernel counts fewer");
    // A cancelled call makes room for another one.
    for handle in handles.drain(..1) {
        check!(handle.cancel()?, "a sleep for ever had completed");
    }
    let Asked::InFlight(handle) = raw::ask(CLOCK_NANOSLEEP, [1, 0, FOREVER.as_ptr().addr()]) else {
        return Err(Failure("no room after one was cancelled".into()));
    };
    handles.push(handle);
    for handle in handles {
        check!(handle.cancel()?, "a sleep for ever had completed");
    }
    Ok(())
}

/// More coroutines sleep than calls can be in flight; all of them get their turn.
async fn library_waits_for_its_turn() -> Outcome {
    const MORE: usize = CALLS_IN_FLIGHT_MAX + 3000;
    let done = Arc::new(AtomicUsize::new(0));
    let deadline = Instant::now() + Duration::from_millis(2500);
    for _ in 0..MORE {
        let done = done.clone();
        task::spawn(
            async move {
                sleep_until(deadline).await;
                done.fetch_add(1, Relaxed);
            },
            Priority::DEFAULT,
        );
    }
    let everything = async {
        while done.load(Relaxed) < MORE {
            sleep(Duration::from_millis(20)).await;
        }
    };
    let ended = timeout(Duration::from_secs(25), everything).await;
    check!(ended.is_ok(), "{} of {MORE} sleeps ended", done.load(Relaxed));
    Ok(())
}

/// A coroutine that stops waiting for a turn does not take the turn from another one.
async fn waiting_for_a_turn_can_be_given_up() -> Outcome {
    let handles = fill_up()?;
    let first = task::spawn_join(sleep(Duration::from_millis(300)), Priority::DEFAULT);
    let second = task::spawn_join(sleep(Duration::from_millis(300)), Priority::DEFAULT);
    task::yield_now().await;
    first.abort();
    task::yield_now().await;
    for handle in handles {
        handle.cancel()?;
    }
    // None of the library's own calls is in flight that could end and grant a turn, so the library
    // must keep trying.
    check!(first.await.is_err(), "the aborted sleep ended by itself");
    check!(timeout(Duration::from_secs(5), second).await.is_ok(), "the other sleep never ended");
    Ok(())
}

/// Two calls that the kernel has rejected do not try again and again as long as there is no room:
/// what is less urgent runs.
async fn waiting_for_a_turn_takes_no_time() -> Outcome {
    const MOMENT: Duration = Duration::from_millis(50);
    // A call of the library in flight, the end of which grants a turn. The others are not the
    // library's: nothing else ends meanwhile.
    let in_flight = task::spawn_join(sleep(Duration::from_secs(1)), Priority::DEFAULT);
    task::yield_now().await;
    let handles = fill_up()?;
    // Longer than the moment: an attempt after the deadline needs no room.
    let urgent = || task::spawn_join(sleep(4 * MOMENT), Priority::saturating(3));
    let queued = [urgent(), urgent()];
    let before = statistics()?.system_calls;
    let begin = Instant::now();
    while begin.elapsed() < MOMENT {
        task::yield_now().await;
    }
    let (late, calls) = (begin.elapsed() - MOMENT, statistics()?.system_calls - before);
    for handle in handles {
        handle.cancel()?;
    }
    check!(calls < 500, "{calls} system calls while two calls waited, and {late:?} too late");
    check!(timeout(Duration::from_secs(5), in_flight).await.is_ok(), "the first sleep never ended");
    for sleep in queued {
        check!(timeout(Duration::from_secs(5), sleep).await.is_ok(), "a queued sleep never ended");
    }
    Ok(())
}

/// A lock's waiter sleeps so that the holder can run: no limit of calls refuses that.
async fn virtual_cpus_sleep_when_all_calls_are_used_up() -> Outcome {
    const MOMENT: Duration = Duration::from_millis(20);
    let handles = fill_up()?;
    let begin = Instant::now();
    let slept = cops::sleep!(MOMENT);
    let after = begin.elapsed();
    for handle in handles {
        handle.cancel()?;
    }
    slept?;
    check!(after >= MOMENT, "slept for {after:?}");
    Ok(())
}

/// Calls of [`wait_for_room`], which has no room for another one.
const HELD: u64 = 40;

/// Has as many calls in flight as it may, none of which ends, and one more that waits until its
/// parent raises the limit.
async fn wait_for_room() -> Outcome {
    process::set_quota(0, Resource::Calls, HELD)?;
    for _ in 0..HELD {
        let (mut reader, writer) = pipe()?;
        let read = async move {
            let _ = reader.read(&mut [0]).await;
            drop(writer);
        };
        task::spawn(read, Priority::DEFAULT);
    }
    task::yield_now().await;
    // An attempt after the deadline needs no room.
    sleep(Duration::from_millis(1)).await;
    sleep(Duration::from_secs(1000)).await;
    Ok(())
}

async fn room_that_others_make_is_used() -> Outcome {
    uses_room(start_tied(&[HELPER, "wait-for-room"])?).await
}

async fn room_is_used_for_a_call_of_a_runner_that_has_left() -> Outcome {
    uses_room(Tied(process::spawn("/bin/runner", &["queued"])?)).await
}

/// The child makes one call more as soon as it may, and has [`HELD`] in flight till then.
async fn uses_room(child: Tied) -> Outcome {
    let used = || process::quota(child.id(), Resource::Calls).map(|quota| quota.used);
    let begin = Instant::now();
    while used()? < HELD {
        check!(begin.elapsed() < Duration::from_secs(10), "the child does not use its calls");
        sleep(Duration::from_millis(5)).await;
    }
    sleep(Duration::from_millis(50)).await;
    check_equal!(used()?, HELD, "calls of the child");
    process::set_quota(child.id(), Resource::Calls, u64::MAX)?;
    let begin = Instant::now();
    while used()? <= HELD {
        check!(begin.elapsed() < Duration::from_secs(10), "the child does not use the room");
        sleep(Duration::from_millis(5)).await;
    }
    child.end().await
}

/// Two urgent calls wait for a turn, and the library has none that could end.
async fn without_room() -> Outcome {
    const MOMENT: Duration = Duration::from_millis(50);
    process::set_quota(0, Resource::Calls, HELD)?;
    let handles = fill_up()?;
    let urgent = || task::spawn(sleep(Duration::from_secs(1000)), Priority::saturating(3));
    urgent();
    urgent();
    task::yield_now().await;
    let before = statistics()?.system_calls;
    let begin = Instant::now();
    while begin.elapsed() < MOMENT {
        task::yield_now().await;
    }
    let calls = statistics()?.system_calls - before;
    check!(calls < 1000, "{calls} system calls while two calls waited");
    check!(!handles.is_empty(), "no call was in flight");
    Ok(())
}

async fn waiting_for_room_of_others_takes_no_time() -> Outcome {
    let mut child = start(&[HELPER, "without-room"])?;
    let status = soon("the end of a child without room for calls", child.wait()).await??;
    check_equal!(status.code(), Some(0), "the child's status");
    Ok(())
}
