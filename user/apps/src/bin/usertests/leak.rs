//! Whether a test has left anything behind in the kernel.

use cops::io::Result;
use cops::memory::{self, Statistics};
use cops::println;
use cops::time::{Duration, sleep};

/// How long after a process is gone its last frames, connections and coroutines may take to follow: closing
/// connections wait for their peers.
const GRACE_STEPS: u32 = 250;
const GRACE_STEP: Duration = Duration::from_millis(20);

/// What the kernel holds that must not grow by running a test.
pub struct Holdings(Result<Statistics>);

impl Holdings {
    pub fn now() -> Self {
        Self(memory::statistics())
    }
}

/// Names and amounts of what there is more of than `before`. The frames of the kernel's heap are counted as heap: it
/// keeps what it once took.
fn excess(before: &Statistics, after: &Statistics) -> [(&'static str, u64); 5] {
    let taken = |s: &Statistics| s.frames_total - s.frames_free - s.heap_reserved_bytes.div_ceil(4096);
    [
        ("frames", taken(after).saturating_sub(taken(before))),
        ("processes", after.processes.saturating_sub(before.processes)),
        ("kernel coroutines", after.kernel_coroutines.saturating_sub(before.kernel_coroutines)),
        ("connections", after.connections.saturating_sub(before.connections)),
        ("calls in flight", after.calls_in_flight.saturating_sub(before.calls_in_flight)),
    ]
}

/// Prints the verdict on a test that has passed so far.
pub async fn check(name: &str, before: &Holdings) -> bool {
    let Ok(before) = &before.0 else {
        println!("not ok {name}: no statistics before it");
        return false;
    };
    for _ in 0..GRACE_STEPS {
        if let Ok(after) = memory::statistics()
            && excess(before, &after).iter().all(|&(_, amount)| amount == 0)
        {
            println!("ok {name}");
            return true;
        }
        sleep(GRACE_STEP).await;
    }
    match memory::statistics() {
        Ok(after) => {
            println!("not ok {name}: left behind: {:?}", excess(before, &after));
        }
        Err(error) => println!("not ok {name}: no statistics after it: {error}"),
    }
    false
}
