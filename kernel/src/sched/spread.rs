//! When a hart wakes a sleeping one for work that waits (decision 66).
//!
//! The executors of kernel and programs notify no worker of what waits on another one
//! (`rely_on_offers`). Instead each hart looks before it enters user mode, and after some portions
//! of the kernel, whether something waits while a hart sleeps. It then wakes one
//!
//! - if user mode is not left within [`STAY_MICROSECONDS`], twice in a row: then the clock
//!   interrupts;
//! - if something less urgent than the work of this hart has waited for [`PATIENCE_MICROSECONDS`];
//! - if anything has waited for that long. If such wakes do not make the machine faster, the next
//!   ones wait longer, up to about a second.
//!
//! What is queued on a sleeping hart, or is more urgent than all that runs, wakes a hart at once,
//! and so does a virtual CPU in the run queue at the next look. The rules are
//! `cops_algorithms::spread`.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cops_algorithms::gathering::{Gathering, Look, Trial};
use cops_algorithms::spread::{Bounds, Decision, Owed, Patience, Waiting};
use cops_lock::Mutex;

use super::timer;
use crate::arch;
use crate::counters::COUNTERS;

/// As long as a slice: so long a virtual CPU may wait that shares a hart with another one.
const PATIENCE_MICROSECONDS: u64 = 1000 * timer::SLICE_MILLISECONDS;

/// A stay in user mode is long, and ends the patience, after this time.
const STAY_MICROSECONDS: u64 = 1000;

/// The wakes that the harts owe. Each is used by its hart only, so the lock is never waited for.
static OWED: [Mutex<Owed>; arch::MAX_HARTS] = [const { Mutex::new(Owed::new()) }; arch::MAX_HARTS];

/// The patience with what has its turn; `None` before the first look.
static PATIENCE: Mutex<Option<Patience>> = Mutex::new(None);

/// For how long calls are counted to find out whether fewer harts would do as much: two slices.
const WINDOW_MICROSECONDS: u64 = 2 * PATIENCE_MICROSECONDS;

/// The trials with fewer harts; `None` before the first look.
static GATHERING: Mutex<Option<Gathering>> = Mutex::new(None);

/// What it is, for the looks: 0 before the first one.
static PATIENCE_TICKS: AtomicU64 = AtomicU64::new(0);

/// When the last wake is to be judged.
static JUDGE_AT_TICKS: AtomicU64 = AtomicU64::new(u64::MAX);

fn bounds() -> Bounds {
    let less_urgent_ticks = timer::ticks_from_microseconds(PATIENCE_MICROSECONDS);
    Bounds {
        patience_ticks: PATIENCE_TICKS.load(Relaxed).max(less_urgent_ticks),
        stay_ticks: timer::ticks_from_microseconds(STAY_MICROSECONDS),
        less_urgent_ticks,
    }
}

/// This hart enters user mode while another one sleeps: as [`look`]. Sees to it that a long stay is
/// interrupted.
pub fn before_user_mode(waiting: Waiting) -> bool {
    timer::interrupt_by(arch::now_ticks() + timer::ticks_from_microseconds(STAY_MICROSECONDS));
    look(waiting)
}

/// This hart goes on to something else than what waits, while another hart sleeps. Returns whether
/// it wakes one for that now.
///
/// Not in interrupt handlers.
pub fn look(waiting: Waiting) -> bool {
    let (now_ticks, calls) = (arch::now_ticks(), COUNTERS.system_calls.get());
    if JUDGE_AT_TICKS.load(Relaxed) <= now_ticks {
        with_patience(|patience| patience.judge(now_ticks, calls));
    }
    let decision = OWED[arch::hart_index()].lock().look(now_ticks, calls, waiting, bounds());
    if let Decision::WakeForPeers { since_ticks, since_calls } = decision {
        with_patience(|patience| patience.wake(now_ticks, calls, since_ticks, since_calls));
    }
    decision != Decision::Nothing
}

/// A virtual CPU shows so much when its slice ends: what it does about the harts that are awake
/// (decision 70). Nothing while another hart looks.
pub fn gather(look: &Look) -> Trial {
    let Some(mut gathering) = GATHERING.try_lock() else { return Trial::Nothing };
    let first = || Gathering::new(timer::ticks_from_microseconds(WINDOW_MICROSECONDS));
    gathering.get_or_insert_with(first).look(look)
}

/// Changes the patience, unless another hart does.
#[cold]
#[inline(never)]
fn with_patience(change: impl FnOnce(&mut Patience)) {
    let Some(mut patience) = PATIENCE.try_lock() else { return };
    let first = || Patience::new(timer::ticks_from_microseconds(PATIENCE_MICROSECONDS));
    let patience = patience.get_or_insert_with(first);
    change(patience);
    PATIENCE_TICKS.store(patience.ticks(), Relaxed);
    JUDGE_AT_TICKS.store(patience.judge_at_ticks(), Relaxed);
}

/// User mode was interrupted on this hart.
#[inline]
pub fn note_interrupt() {
    if arch::hart_count() == 1 {
        return;
    }
    OWED[arch::hart_index()].lock().interrupt(arch::now_ticks(), bounds());
}

/// This hart is to sleep.
#[inline]
pub fn forget() {
    // A single hart never looks.
    if arch::hart_count() == 1 {
        return;
    }
    OWED[arch::hart_index()].lock().forget();
}
