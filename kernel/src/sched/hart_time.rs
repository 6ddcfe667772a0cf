//! How the harts spend their time: asleep, or with which virtual CPU.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};

use crate::arch;
use crate::counters::INSTRUCTIONS_ASLEEP;

/// How a hart spends its time.
#[repr(align(64))]
struct HartTime {
    /// The total of completed sleeps.
    asleep_ticks: AtomicU64,
    /// Start of the current sleep; 0 if the hart is awake.
    asleep_since_ticks: AtomicU64,
    process_ticks: AtomicU64,
    /// The process << 32 | virtual CPU that it runs; 0 if none.
    running: AtomicU64,
    /// When it began to run that.
    running_since_ticks: AtomicU64,
}

static HARTS: [HartTime; arch::MAX_HARTS] = [const {
    HartTime {
        asleep_ticks: AtomicU64::new(0),
        asleep_since_ticks: AtomicU64::new(0),
        process_ticks: AtomicU64::new(0),
        running: AtomicU64::new(0),
        running_since_ticks: AtomicU64::new(0),
    }
}; arch::MAX_HARTS];

/// Adds to a word that only this hart writes.
fn add(word: &AtomicU64, ticks: u64) {
    word.store(word.load(Relaxed).wrapping_add(ticks), Relaxed);
}

/// The harts that are awake.
static AWAKE: AtomicUsize = AtomicUsize::new(0);
/// The counter of instructions when a hart last fell asleep.
static LAST_ASLEEP: AtomicU64 = AtomicU64::new(0);

/// This hart begins to run coroutines.
pub fn begin() {
    AWAKE.fetch_add(1, Relaxed);
}

/// This hart is about to sleep.
pub fn begin_sleep() {
    HARTS[arch::hart_index()].asleep_since_ticks.store(arch::now_ticks(), Relaxed);
    LAST_ASLEEP.store(arch::instructions_retired(), Relaxed);
    AWAKE.fetch_sub(1, Relaxed);
}

/// This hart is awake again.
pub fn end_sleep() {
    // An emulator that counts instructions has one counter for all harts, and may advance it while
    // all of them sleep. It runs them in turn on one thread, so the relaxed order is enough.
    if AWAKE.fetch_add(1, Relaxed) == 0 {
        let since = LAST_ASLEEP.load(Relaxed);
        INSTRUCTIONS_ASLEEP.add(arch::instructions_retired().saturating_sub(since));
    }
    let hart = &HARTS[arch::hart_index()];
    let since = hart.asleep_since_ticks.swap(0, Relaxed);
    add(&hart.asleep_ticks, arch::now_ticks().saturating_sub(since));
}

/// A period in which a hart runs a virtual CPU.
#[must_use]
pub struct Running {
    begin_ticks: u64,
}

impl Running {
    /// Begins the period of virtual CPU `cpu` of `process` now, on this hart.
    pub fn begin(process: u32, cpu: usize) -> Self {
        let hart = &HARTS[arch::hart_index()];
        hart.running.store(u64::from(process) << 32 | cpu as u64, Relaxed);
        let begin_ticks = arch::now_ticks();
        hart.running_since_ticks.store(begin_ticks, Relaxed);
        Self { begin_ticks }
    }

    /// Ends the period now, on the same hart. Returns its ticks, and adds them to `run_ticks`, the
    /// total of the virtual CPU, which only the hart that runs it writes.
    pub fn end(self, run_ticks: &AtomicU64) -> u64 {
        let ticks = arch::now_ticks().saturating_sub(self.begin_ticks);
        let hart = &HARTS[arch::hart_index()];
        hart.running.store(0, Relaxed);
        add(&hart.process_ticks, ticks);
        add(run_ticks, ticks);
        ticks
    }
}

/// Ticks of the present period of the virtual CPU that this hart runs, which makes the call.
pub fn present_ticks() -> u64 {
    let since = HARTS[arch::hart_index()].running_since_ticks.load(Relaxed);
    arch::now_ticks().saturating_sub(since)
}

/// How a hart has spent its time until now.
pub struct Spent {
    /// Ticks of all sleeps.
    pub asleep_ticks: u64,
    /// Ticks of all virtual CPUs.
    pub process_ticks: u64,
    /// The process that it runs; 0 if none.
    pub process: u32,
    /// The virtual CPU of that process.
    pub cpu: u32,
}

/// How the hart with this number has spent its time until `now_ticks`.
pub fn of(hart: usize, now_ticks: u64) -> Option<Spent> {
    let time = HARTS.get(hart)?;
    let running = time.running.load(Relaxed);
    let mut asleep_ticks = time.asleep_ticks.load(Relaxed);
    // If the sleep ends between the two loads, this one result has too short a sleep.
    if let since @ 1.. = time.asleep_since_ticks.load(Relaxed) {
        asleep_ticks += now_ticks.saturating_sub(since);
    }
    let process_ticks = time.process_ticks.load(Relaxed);
    Some(Spent {
        asleep_ticks,
        process_ticks,
        process: (running >> 32) as u32,
        cpu: running as u32,
    })
}
