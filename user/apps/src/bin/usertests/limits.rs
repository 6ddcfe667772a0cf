//! The limit on calls in flight: an error for a raw system call, a wait for a call through the
//! library.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops::abi::Errno;
use cops::abi::syscall::{CALLS_IN_FLIGHT_MAX, CLOCK_NANOSLEEP};
use cops::memory::statistics;
use cops::task::{self, Priority};
use cops::time::{Duration, Instant, sleep, sleep_until, timeout};

use crate::harness::{Failure, Outcome};
use crate::raw::{self, Asked};
use crate::{check, check_equal, tests};

tests! { limits:
    one_call_too_many,
    library_waits_for_its_turn,
    waiting_for_a_turn_can_be_given_up,
    waiting_for_a_turn_takes_no_time,
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
    let urgent = || task::spawn_join(sleep(Duration::from_millis(1)), Priority::saturating(3));
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
