//! A timer wakes one coroutine while another one computes on the only virtual CPU: the time that
//! the computing coroutine loses.
//!
//! If the sleeper is more urgent, a user-level interrupt makes it ready. Then the gap in the
//! computation is the whole path from the clock's interrupt through the posted interrupt and the
//! handler and back. If the sleeper is less urgent, the interrupt is suppressed, and the gap is
//! that of the clock's interrupt alone.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::future::poll_fn;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use core::task::Poll;

use cops::io;
use cops::memory::statistics;
use cops::task::{self, Priority};
use cops::time::{Duration, Instant, sleep_until};

use crate::counter::{instructions, ticks};
use crate::summary::Summary;

const ROUNDS: usize = 200;
/// How long the sleeper sleeps. Less than a time slice, so that most gaps are caused by the
/// sleeper.
const DELAY: Duration = Duration::from_millis(1);
/// An uninterrupted turn of the computing loop takes fewer instructions than this.
const UNDISTURBED: u64 = 100;

const COMPUTING: u32 = 30;

pub async fn run() -> io::Result<()> {
    for (operation, level) in [("user-interrupt", 10), ("wake-suppressed", 50)] {
        let before = statistics()?;
        let gaps =
            task::spawn_join(compute(Priority::saturating(level)), Priority::saturating(COMPUTING))
                .await;
        let after = statistics()?;
        let Ok(gaps) = gaps else { continue };
        Summary::of(gaps).print_cost(operation);
        cops::println!(
            "interrupts: op={operation} rounds={ROUNDS} posted={} sent={} suppressed={} taken={}",
            after.user_interrupts_posted - before.user_interrupts_posted,
            after.user_interrupts_sent - before.user_interrupts_sent,
            after.user_interrupts_suppressed - before.user_interrupts_suppressed,
            after.user_interrupts_taken - before.user_interrupts_taken,
        );
    }
    Ok(())
}

/// State shared by the two coroutines.
#[derive(Default)]
struct Shared {
    /// The sleeper is about to sleep.
    sleeps: AtomicBool,
    /// The time at which it must wake, in ticks.
    due_ticks: AtomicU64,
}

/// Computes. Returns the gap, in instructions, that each wake of a sleeper of this priority causes.
async fn compute(sleeper: Priority) -> Vec<u64> {
    let shared = Arc::new(Shared::default());
    let Some(me) = task::current() else { return Vec::new() };
    let others = shared.clone();
    let sleeping = task::spawn_join(
        async move {
            for _ in 0..ROUNDS {
                let begin = ticks();
                let due = Instant::now() + DELAY;
                others.due_ticks.store(begin + ticks_in_delay(), Relaxed);
                others.sleeps.store(true, Relaxed);
                task::wake_up(me);
                sleep_until(due).await;
            }
        },
        sleeper,
    );
    let mut gaps = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        poll_fn(
            |_| if shared.sleeps.swap(false, Relaxed) { Poll::Ready(()) } else { Poll::Pending },
        )
        .await;
        let due = shared.due_ticks.load(Relaxed);
        gaps.extend(largest_gap_around(due));
    }
    let _ = sleeping.await;
    gaps
}

fn ticks_in_delay() -> u64 {
    (DELAY.as_nanos() / 100) as u64
}

/// Computes until well after `due`. Returns the longest interruption that ended after `due`.
fn largest_gap_around(due: u64) -> Option<u64> {
    let end = due + ticks_in_delay() / 4;
    let mut largest = 0;
    let mut before = instructions();
    loop {
        let now_ticks = ticks();
        let now = instructions();
        let gap = now - before;
        before = now;
        if now_ticks >= due && gap > UNDISTURBED {
            largest = largest.max(gap);
        }
        if now_ticks > end {
            return Some(largest).filter(|&gap| gap > 0);
        }
    }
}
