//! What does not enter the kernel: switches between coroutines, counted exactly. SPEC 2.3.

use cops::memory::statistics;
use cops::task::{self, Priority, yield_now};
use cops::time::{Duration, sleep};

use crate::harness::Outcome;
use crate::{check_equal, tests};

tests! { boundary:
    a_million_switches_make_no_system_call,
}

const SWITCHES: u32 = 1_000_000;
/// The call that reads the counter is itself counted: one call between the two readings.
const OF_THE_READING: u64 = 1;

/// Two coroutines that yield to each other.
async fn a_million_switches_make_no_system_call() -> Outcome {
    async fn yield_many_times() -> u32 {
        for _ in 0..SWITCHES / 2 {
            yield_now().await;
        }
        SWITCHES / 2
    }
    // The process that has started this test finishes its work on other harts meanwhile.
    sleep(Duration::from_millis(10)).await;
    let before = statistics()?;
    let other = task::spawn_join(yield_many_times(), Priority::DEFAULT);
    let mine = yield_many_times().await;
    let others = other.await?;
    let after = statistics()?;
    check_equal!(mine + others, SWITCHES, "switches");
    let calls = after.system_calls - before.system_calls - OF_THE_READING;
    check_equal!(calls, 0, "system calls in {SWITCHES} switches");
    let traps = after.traps_from_user - before.traps_from_user;
    cops::println!(
        "# {SWITCHES} switches: no system call, {traps} entries into the kernel, the clock's included"
    );
    Ok(())
}
