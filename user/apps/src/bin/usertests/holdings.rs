//! The kernel's use of resources, and whether they have been freed. Included by several programs.
//!
//! With several harts, a check may come too early: another hart may still be ending the kernel
//! coroutine that completed this process's last call, for instance a sleep. If the host has fewer
//! processors than the machine has harts, that hart may not run as long as this one is busy. This
//! happens regularly, because the woken hart displaces the one that has woken it; so a check after
//! each sleep would always count the same coroutine. Therefore each check is repeated, without a
//! call that waits, for much longer than a host keeps a thread waiting. Only then does the next
//! sleep let the other coroutines of this hart run.

use cops::inspect;
use cops::memory::statistics;
use cops::time::{Duration, Instant, sleep};

/// How long one check is repeated if there is another hart. Longer than a host with twenty busy
/// threads keeps one of them waiting.
const LOOK: Duration = Duration::from_millis(150);
/// Pause between two checks, for what runs on this hart.
const PAUSE: Duration = Duration::from_millis(5);
/// How long it may take until resources are free again, because connections wait for their peers
/// when they close.
const PATIENCE: Duration = Duration::from_secs(60);

/// Amounts of resources that must be free again after a test.
#[derive(Clone, Copy, Debug)]
pub struct Holdings {
    /// Without the frames of the kernel's heap, which it keeps, and the pages of this process: its
    /// stack and heap may grow while it waits for others to end.
    frames: u64,
    processes: u64,
    coroutines: u64,
    connections: u64,
    calls: u64,
}

/// Names and amounts of resources that are not free again.
pub type Excess = [(&'static str, u64); 5];

impl Holdings {
    /// The amounts in use now, not counting what is about to be freed.
    ///
    /// # Errors
    /// A kernel of this version returns none.
    pub fn now() -> cops::io::Result<Self> {
        const UNCHANGED: Duration = Duration::from_millis(2);
        let mut least = Self::look()?;
        let begin = Instant::now();
        while begin.elapsed() < UNCHANGED {
            let now = Self::look()?;
            if now.coroutines < least.coroutines {
                least = now;
            }
        }
        Ok(least)
    }

    fn look() -> cops::io::Result<Self> {
        let me = cops::process::id();
        let own =
            inspect::processes()?.iter().find(|one| one.process == me).map_or(0, |one| one.pages);
        let now = statistics()?;
        let taken = now.frames_total - now.frames_free - now.heap_reserved_bytes.div_ceil(4096);
        Ok(Self {
            frames: taken.saturating_sub(own),
            processes: now.processes,
            coroutines: now.kernel_coroutines,
            connections: now.connections,
            calls: now.calls_in_flight,
        })
    }

    /// How much more is in use than in `before`.
    fn excess(&self, before: &Self) -> Excess {
        [
            ("frames", self.frames.saturating_sub(before.frames)),
            ("processes", self.processes.saturating_sub(before.processes)),
            ("kernel coroutines", self.coroutines.saturating_sub(before.coroutines)),
            ("connections", self.connections.saturating_sub(before.connections)),
            ("calls in flight", self.calls.saturating_sub(before.calls)),
        ]
    }

    /// Waits until the kernel uses no more than this. Returns what it still uses after
    /// [`PATIENCE`].
    ///
    /// # Errors
    /// A kernel of this version returns none.
    pub async fn wait_until_free(&self) -> cops::io::Result<Excess> {
        let begin = Instant::now();
        let has_others = inspect::harts()?.len() > 1;
        loop {
            let look = Instant::now();
            let excess = loop {
                let excess = Self::look()?.excess(self);
                // Only what another hart is about to free disappears without this hart doing
                // anything.
                let may_be_ending = excess.iter().all(|&(name, amount)| match name {
                    "frames" | "kernel coroutines" => amount <= 8,
                    _ => amount == 0,
                });
                if excess.iter().all(|&(_, amount)| amount == 0)
                    || !(may_be_ending && has_others)
                    || look.elapsed() > LOOK
                {
                    break excess;
                }
            };
            if excess.iter().all(|&(_, amount)| amount == 0) || begin.elapsed() > PATIENCE {
                return Ok(excess);
            }
            sleep(PAUSE).await;
        }
    }
}
