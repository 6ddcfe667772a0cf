//! Whether a test has left anything behind in the kernel.

use cops::memory::{self, Statistics};
use cops::time::{Duration, Instant, sleep};

use crate::check;
use crate::harness::Failure;

/// How long after a process is gone its last frames, connections and coroutines may take to follow: closing
/// connections wait for their peers.
const GRACE_STEPS: u32 = 250;
const GRACE_STEP: Duration = Duration::from_millis(20);

/// What the kernel holds that must not grow by running a test.
pub struct Holdings(cops::io::Result<Statistics>);

impl Holdings {
    pub fn now() -> Self {
        Self(quiet_statistics())
    }
}

/// The counters a moment after the last call of this process: what completed that call, on another hart, is given
/// the time to end.
fn quiet_statistics() -> cops::io::Result<Statistics> {
    const MOMENT: Duration = Duration::from_millis(2);
    let begin = Instant::now();
    while begin.elapsed() < MOMENT {
        core::hint::spin_loop();
    }
    memory::statistics()
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

/// Waits until the kernel holds no more than `before`.
///
/// # Errors
/// What it still holds after a while.
pub async fn settle(before: &Holdings) -> Result<(), Failure> {
    let before = before.0?;
    let mut steps = 0;
    loop {
        let excess = excess(&before, &quiet_statistics()?);
        if excess.iter().all(|&(_, amount)| amount == 0) {
            return Ok(());
        }
        check!(steps < GRACE_STEPS, "left behind: {excess:?}");
        sleep(GRACE_STEP).await;
        steps += 1;
    }
}
