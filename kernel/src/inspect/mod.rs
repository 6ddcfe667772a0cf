//! The current activities of harts, processes, virtual CPUs and coroutines, as records for `ps` and
//! `top`.
//!
//! Each record is made under the locks that protect its contents, one lock at a time, and none is
//! held when the next record is made.
//! May touch: processes, the kernel's executor; a process's memory only in [`user_coroutine`].

pub mod report;
mod statistics;

pub use statistics::statistics;

use core::sync::atomic::{AtomicU64, Ordering::*};

use cops_abi::inspect::{self, CoroutineRecord, CpuRecord, HartRecord, ProcessRecord, state};
use cops_abi::page::MAX_CPUS;
use cops_executor::core::{Executor, Inspection, Phase};

use crate::mm::UserRange;
use crate::process::children::{self, Entry};
use crate::process::{CpuState, Process, ProcessId, VirtualCpu};
use crate::sched::{RUN_QUEUE, executor, workers};
use crate::{arch, trace};

/// The number of the executor in every process.
const EXECUTOR_NUMBER: u8 = 0;

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
}

static HARTS: [HartTime; arch::MAX_HARTS] = [const {
    HartTime {
        asleep_ticks: AtomicU64::new(0),
        asleep_since_ticks: AtomicU64::new(0),
        process_ticks: AtomicU64::new(0),
        running: AtomicU64::new(0),
    }
}; arch::MAX_HARTS];

/// Adds to a word that only this hart writes.
fn add(word: &AtomicU64, ticks: u64) {
    word.store(word.load(Relaxed).wrapping_add(ticks), Relaxed);
}

/// This hart is about to sleep.
pub fn begin_sleep() {
    HARTS[arch::hart_index()].asleep_since_ticks.store(arch::now_ticks(), Relaxed);
}

/// This hart is awake again.
pub fn end_sleep() {
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
    /// Begins the period now, on this hart.
    pub fn begin(cpu: &VirtualCpu) -> Self {
        let running = u64::from(cpu.process.id) << 32 | cpu.index as u64;
        HARTS[arch::hart_index()].running.store(running, Relaxed);
        Self { begin_ticks: arch::now_ticks() }
    }

    /// Ends the period now, on the same hart. Returns its ticks.
    pub fn end(self, cpu: &VirtualCpu) -> u64 {
        let ticks = arch::now_ticks().saturating_sub(self.begin_ticks);
        let hart = &HARTS[arch::hart_index()];
        hart.running.store(0, Relaxed);
        add(&hart.process_ticks, ticks);
        // Written only by the hart that holds the registers' lock.
        add(&cpu.run_ticks, ticks);
        ticks
    }
}

/// The record of the hart with this number.
pub fn hart(number: u64) -> Option<HartRecord> {
    let index = usize::try_from(number).ok()?;
    let worker = workers().get(index)?;
    let time = HARTS.get(index)?;
    let running = time.running.load(Relaxed);
    let now_ticks = arch::now_ticks();
    let mut asleep_ticks = time.asleep_ticks.load(Relaxed);
    // If the sleep ends between the two loads, this one record shows too short a sleep.
    if let since @ 1.. = time.asleep_since_ticks.load(Relaxed) {
        asleep_ticks += now_ticks.saturating_sub(since);
    }
    Some(HartRecord {
        hart: index as u32,
        current_priority: worker.current_priority().map_or(64, |priority| u32::from(priority.level())),
        current_coroutine: worker.current_id.load(Relaxed),
        process: (running >> 32) as u32,
        cpu: running as u32,
        ready: worker.ready.load(Relaxed),
        posted: worker.posted.load(Relaxed),
        polls: worker.polls.load(Relaxed),
        steals: worker.steals.load(Relaxed),
        asleep_ticks,
        process_ticks: time.process_ticks.load(Relaxed),
        now_ticks,
        run_queue: RUN_QUEUE.levels(),
        reserved: 0,
    })
}

/// The process with the lowest number from `id` on.
pub fn process_at_or_after(id: ProcessId) -> Option<ProcessRecord> {
    let Entry { id, parent, process } = children::at_or_after(id)?;
    let Some(process) = process else {
        let none = ProcessRecord::default();
        return Some(ProcessRecord {
            process: id,
            parent,
            state: state::ENDED,
            level: 64,
            ceiling: 64,
            ..none
        });
    };
    let (mut state, mut level, mut polls) = (state::ENDED, 64, 0u64);
    for cpu in cpus(&process) {
        state = more_active(state, cpu.state);
        level = cpu.level.min(level);
        polls = polls.wrapping_add(cpu.polls);
    }
    Some(ProcessRecord {
        process: id,
        parent,
        state,
        cpus: process.cpu_count() as u32,
        level,
        ceiling: process.ceiling.level().into(),
        pages: process.space.page_count() as u64,
        run_ticks: process.used_ticks.load(Relaxed),
        polls,
        calls_in_flight: process.calls_in_flight.count() as u64,
        name: inspect::name(process.name),
    })
}

impl Process {
    /// The record of virtual CPU `index`. What it polls and has ready is as the process claims.
    pub fn cpu_record(&self, index: usize) -> Option<CpuRecord> {
        let worker = self.page.workers.get(index)?;
        let current_coroutine = worker.current_id.load(Relaxed);
        let cpus = self.cpus.lock();
        let (cpu, status) = cpus.list.get(index)?;
        let (state, hart) = match status.state() {
            CpuState::Running { hart } => (state::RUNNING, hart),
            CpuState::Runnable if current_coroutine != 0 => (state::SUSPENDED, 0),
            CpuState::Runnable => (state::READY, 0),
            CpuState::Parked => (state::PARKED, 0),
            CpuState::Waiting => (state::BLOCKED, 0),
            CpuState::Ended => (state::ENDED, 0),
        };
        Some(CpuRecord {
            process: self.id,
            cpu: index as u32,
            state,
            hart: hart as u32,
            level: u32::from(cpu.level()),
            current_priority: worker.current_priority().map_or(64, |priority| u32::from(priority.level())),
            current_coroutine,
            ready: worker.ready.load(Relaxed),
            posted: worker.posted.load(Relaxed),
            polls: worker.polls.load(Relaxed),
            run_ticks: cpu.run_ticks.load(Relaxed),
        })
    }

    /// Whether it has trace pages.
    pub fn is_traced(&self) -> bool {
        self.trace_pages.is_some()
    }

    /// The coroutine that virtual CPU `index` claims to run, for trace events; 0 if none.
    pub fn current_coroutine(&self, index: usize) -> u64 {
        self.page.workers[index % MAX_CPUS].current_id.load(Relaxed)
    }

    /// Moves the trace events of virtual CPU `index`, which has just entered the kernel, to this
    /// hart's ring.
    pub fn collect_trace(&self, index: usize) {
        if let Some(pages) = &self.trace_pages {
            pages.collect(self.id, index);
        }
    }
}

fn cpus(process: &Process) -> impl Iterator<Item = CpuRecord> {
    (0..process.cpu_count()).filter_map(|index| process.cpu_record(index))
}

/// The state of a process with virtual CPUs in these two states.
fn more_active(one: u32, other: u32) -> u32 {
    const ORDER: [u32; 6] =
        [state::RUNNING, state::SUSPENDED, state::READY, state::BLOCKED, state::PARKED, state::ENDED];
    ORDER.into_iter().find(|&state| state == one || state == other).unwrap_or(state::ENDED)
}

/// The contents of a slot.
pub enum Found {
    /// There is no such slot, and none after it.
    End,
    /// The slot is empty.
    Empty,
    /// The slot has a coroutine.
    Coroutine(CoroutineRecord),
}

/// The kernel's coroutine in slot `slot`, from 1 on.
pub fn kernel_coroutine(slot: u32) -> Found {
    match executor().inspect(slot) {
        None => Found::End,
        Some(None) => Found::Empty,
        Some(Some(found)) => {
            Found::Coroutine(CoroutineRecord { name: trace::name_of(found.id), ..record(&found) })
        }
    }
}

fn record(found: &Inspection) -> CoroutineRecord {
    let state = match found.phase {
        phase if phase == Phase::Running as u32 => state::RUNNING,
        phase if phase == Phase::Ready as u32 => state::READY,
        _ => state::BLOCKED,
    };
    let (coroutine, priority, worker) = (found.id, found.priority & 63, found.worker & 63);
    CoroutineRecord { coroutine, state, priority, worker, ..CoroutineRecord::default() }
}

/// The coroutine in slot `slot` of `process`, from 1 on. It is read from the process's executor
/// word by word through its page table, and no word is trusted. The addresses are the process's
/// own; an invalid one ends the list.
pub fn user_coroutine(process: &Process, slot: u32) -> Found {
    let read = |address: u64| {
        let mut bytes = [0; 8];
        UserRange::new(address as usize, bytes.len()).copy_in(&process.space, &mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let executor = process.page.executor.load(Relaxed);
    match Executor::inspect_remote(executor, EXECUTOR_NUMBER, slot, read) {
        None => Found::End,
        Some(None) => Found::Empty,
        Some(Some(found)) => {
            let polled_by = (0..process.cpu_count()).find(|&cpu| process.current_coroutine(cpu) == found.id);
            let state = match polled_by.and_then(|cpu| process.cpu_record(cpu)) {
                Some(cpu) if cpu.state == state::RUNNING => state::RUNNING,
                Some(_) => state::SUSPENDED,
                None => record(&found).state,
            };
            Found::Coroutine(CoroutineRecord { process: process.id, state, ..record(&found) })
        }
    }
}
