//! Faults that were found earlier, each with the program that exposed it.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::*};

use cops::abi::page::MAX_CPUS;
use cops::abi::syscall::{CLOCK_NANOSLEEP, COPS_PARK};
use cops::task::{self, Priority};
use cops::time::{Duration, Instant, sleep};
use futures_util::future::join_all;

use crate::harness::{Outcome, PATIENCE, soon, until};
use crate::interrupts::page;
use crate::raw::{self, Asked};
use crate::{check, check_equal, tests};

tests! { regressions:
    forged_overflow_does_not_keep_park_awake,
    virtual_cpus_numbered_once,
}

/// `park` asked the process's page whether results waited behind a full ring, so a process with a
/// forged flag never slept.
async fn forged_overflow_does_not_keep_park_awake() -> Outcome {
    // Earlier events may have left a pending wake.
    page().ring.overflowed.store(0, Relaxed);
    let time = [0u64, 60_000_000];
    let begin = Instant::now();
    // Its result, which has no receiver, ends the sleep.
    let asked = raw::ask(CLOCK_NANOSLEEP, [1, 0, time.as_ptr().addr(), 0]);
    check!(matches!(asked, Asked::InFlight(_)), "a sleep is over at once");
    page().ring.overflowed.store(1, Relaxed);
    let mut parks = 0;
    while begin.elapsed() < Duration::from_millis(55) && parks < 10_000 {
        raw::call(COPS_PARK, [])?;
        parks += 1;
    }
    page().ring.overflowed.store(0, Relaxed);
    check!(parks < 20, "park returned {parks} times within a sleep of 60 ms");
    sleep(Duration::from_millis(5)).await;
    Ok(())
}

/// Two virtual CPUs that requested more at the same time got the same numbers.
async fn virtual_cpus_numbered_once() -> Outcome {
    static READY: AtomicUsize = AtomicUsize::new(0);
    task::alloc_cpu(1)?;
    let racers = (0..2).map(|_| {
        task::spawn_join(
            async {
                // Both on their own virtual CPU, at the same moment.
                READY.fetch_add(1, SeqCst);
                let begin = Instant::now();
                while READY.load(SeqCst) < 2 && begin.elapsed() < PATIENCE {
                    core::hint::spin_loop();
                }
                let mut counts = Vec::new();
                for _ in 0..3 {
                    counts.push(task::alloc_cpu(1));
                }
                counts
            },
            Priority::DEFAULT,
        )
    });
    let counts: Vec<_> = racers.collect();
    let mut last = 0;
    for outcome in soon("two that race", join_all(counts)).await? {
        for count in outcome? {
            last = last.max(count?);
        }
    }
    check_equal!(last, MAX_CPUS, "virtual CPUs in the end");
    // A number that is assigned twice means a stack and a worker used by two virtual CPUs, which
    // ends the process. A number that is left out never has a phase.
    until("no number is left out", || {
        Ok(page().cpus.iter().all(|cpu| cpu.phase.load(Relaxed) != 0))
    })
    .await
}
