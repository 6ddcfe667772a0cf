//! Getting rid of programs that do not want to go, and looking at what they have left behind.

use cops::abi::syscall::signal;
use cops::memory::{Statistics, statistics};
use cops::process::kill;
use cops::time::{Duration, Instant, sleep};

/// So many process numbers in a row that nobody has: then there are none above either.
const GAP: u32 = 20_000;
/// How long they may go on starting others while they are being ended.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long what they held may take to come back.
const GRACE: Duration = Duration::from_secs(5);

/// Ends every process whose number is `first` or larger, those included that are started meanwhile.
pub async fn end_all_from(first: u32) {
    let begin = Instant::now();
    let mut last = first;
    while begin.elapsed() < PATIENCE {
        // Without a pause: on one hart nobody can start another meanwhile.
        let mut ended = 0;
        let mut pid = first;
        while pid < last.saturating_add(GAP) {
            if kill(pid, signal::SIGKILL).is_ok() {
                ended += 1;
                last = last.max(pid);
            }
            pid += 1;
        }
        if ended == 0 {
            return;
        }
        sleep(Duration::from_millis(2)).await;
    }
}

/// What is enough for a call's completion to end on another hart, if that is not kept from it.
pub const MOMENT: Duration = Duration::from_millis(2);

/// What the kernel holds that must come back.
#[derive(Clone, Copy, Debug)]
pub struct Holdings {
    frames: u64,
    processes: u64,
    coroutines: u64,
    calls: u64,
}

impl Holdings {
    /// Some time after the last call of this process, so that what completed it, perhaps on another hart, has ended too.
    pub fn after(time: Duration) -> Self {
        let begin = Instant::now();
        while begin.elapsed() < time {
            core::hint::spin_loop();
        }
        statistics().map_or(Self { frames: 0, processes: 0, coroutines: 0, calls: 0 }, |now| Self::of(&now))
    }

    fn of(now: &Statistics) -> Self {
        Self {
            // The kernel's heap keeps what it once took.
            frames: now.frames_total - now.frames_free - now.heap_reserved_bytes.div_ceil(4096),
            processes: now.processes,
            coroutines: now.kernel_coroutines,
            calls: now.calls_in_flight,
        }
    }

    /// What there is more of than in `before`, in this order: frames, processes, coroutines, calls.
    fn excess(&self, before: &Self) -> [u64; 4] {
        [
            self.frames.saturating_sub(before.frames),
            self.processes.saturating_sub(before.processes),
            self.coroutines.saturating_sub(before.coroutines),
            self.calls.saturating_sub(before.calls),
        ]
    }
}

/// Waits until the kernel holds no more than `before`; what it still holds when patience ends.
pub async fn settle(before: &Holdings) -> [u64; 4] {
    let begin = Instant::now();
    let mut moment = MOMENT;
    loop {
        let excess = Holdings::after(moment).excess(before);
        // On a host that is short of processors, the other hart may stand still meanwhile.
        moment = (moment * 2).min(GRACE / 50);
        if excess == [0; 4] || begin.elapsed() > GRACE {
            return excess;
        }
        sleep(Duration::from_millis(20)).await;
    }
}
