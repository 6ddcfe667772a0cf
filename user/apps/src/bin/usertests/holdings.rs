//! What the kernel holds, and whether it has come back. Included by several programs.
//!
//! On several harts a look may come too early: the kernel coroutine that completed this process's last call, a sleep, say,
//! is still being ended by another hart. On a host with fewer processors than harts that hart may stand still for as long as
//! this one is busy, and regularly does, because the one that was woken displaces the one that woke it. A look after
//! every sleep therefore shows the same coroutine too many each time. So each look is repeated, without a call that waits,
//! for much longer than a host lets a thread wait; only then does the next sleep let the other coroutines of this hart run.

use cops::inspect;
use cops::memory::statistics;
use cops::time::{Duration, Instant, sleep};

/// How long one look is repeated, where there is another hart. Longer than a host with twenty other busy threads keeps one of them waiting.
const LOOK: Duration = Duration::from_millis(150);
/// Between two looks, for what runs on this hart.
const PAUSE: Duration = Duration::from_millis(5);
/// How long what was held may take to come back: closing connections wait for their peers. A limit for what never does.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the kernel holds that must come back.
#[derive(Clone, Copy, Debug)]
pub struct Holdings {
    /// Without the frames of the kernel's heap, which keeps what it once took, and the pages of this process, whose
    /// stack and heap may grow while it waits for others to end.
    frames: u64,
    processes: u64,
    coroutines: u64,
    connections: u64,
    calls: u64,
}

/// Names and amounts of what there is too much of.
pub type Excess = [(&'static str, u64); 5];

impl Holdings {
    /// What is held now, by whatever is not just about to give it back.
    ///
    /// # Errors
    /// None that a kernel of this version has.
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
        let own = inspect::processes()?.iter().find(|one| one.process == me).map_or(0, |one| one.pages);
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

    /// What there is more of than in `before`.
    fn excess(&self, before: &Self) -> Excess {
        [
            ("frames", self.frames.saturating_sub(before.frames)),
            ("processes", self.processes.saturating_sub(before.processes)),
            ("kernel coroutines", self.coroutines.saturating_sub(before.coroutines)),
            ("connections", self.connections.saturating_sub(before.connections)),
            ("calls in flight", self.calls.saturating_sub(before.calls)),
        ]
    }

    /// Waits until the kernel holds no more than this. What it still holds when patience ends.
    ///
    /// # Errors
    /// None that a kernel of this version has.
    pub async fn settle(&self) -> cops::io::Result<Excess> {
        let begin = Instant::now();
        let has_others = inspect::harts()?.len() > 1;
        loop {
            let look = Instant::now();
            let excess = loop {
                let excess = Self::look()?.excess(self);
                // Only what another hart is about to end goes away without this one's doing.
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
