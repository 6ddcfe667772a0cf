//! The current activities of harts, processes, virtual CPUs and coroutines, as records for `ps` and
//! `top`.
//!
//! Each record is made under the locks that protect its contents, one lock at a time, and none is
//! held when the next record is made.

pub mod portions;
mod proc;
pub mod report;
mod statistics;

pub use proc::PROC;
pub use statistics::statistics;

use core::sync::atomic::Ordering::*;

use cops_abi::Priority;
use cops_abi::inspect::{
    self, CoroutineRecord, CpuRecord, HartRecord, ProcessRecord, cause, state,
};
use cops_abi::page::{NO_LEVEL, level_number};
use cops_executor::WorkerState;
use cops_executor::core::{Executor, Inspected, Inspection, Phase};

use crate::mm::UserRange;
use crate::process::children::{self, Entry};
use crate::process::{CpuState, Process, ProcessId, RUN_QUEUE};
use crate::sched::{executor, hart_time, workers};
use crate::{arch, trace};

/// The number of the executor in every process.
const EXECUTOR_NUMBER: u8 = 0;

/// The record of the hart with this number.
pub fn hart(number: u64) -> Option<HartRecord> {
    let index = usize::try_from(number).ok()?;
    let worker = workers().get(index)?;
    let now_ticks = arch::now_ticks();
    let time = hart_time::of(index, now_ticks)?;
    Some(HartRecord {
        hart: index as u32,
        current_priority: level_number(worker.current_priority()),
        current_coroutine: worker.current_id.load(Relaxed),
        process: time.process,
        cpu: time.cpu,
        ready: worker.ready.load(Relaxed),
        posted: worker.posted.load(Relaxed),
        polls: worker.polls.load(Relaxed),
        steals: worker.steals.load(Relaxed),
        asleep_ticks: time.asleep_ticks,
        process_ticks: time.process_ticks,
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
            level: NO_LEVEL,
            ceiling: NO_LEVEL,
            ..none
        });
    };
    let (mut state, mut level, mut polls) = (state::ENDED, NO_LEVEL, 0u64);
    for cpu in workers_of(&process) {
        state = more_active(state, cpu.state);
        level = cpu.level.min(level);
        polls = polls.wrapping_add(cpu.polls);
    }
    let cpus = process.cpus.lock();
    let threads = cpus.thread_count();
    if threads > 0 {
        let census = cpus.census();
        let of_all = match (census.harts().next(), census.active(), census.alive()) {
            (Some(_), ..) => state::RUNNING,
            (None, 1.., _) => state::READY,
            (None, 0, 1..) => state::BLOCKED,
            (None, 0, 0) => state::ENDED,
        };
        state = more_active(state, of_all);
        let levels = process.ceiling.cap_all(cpus.thread_levels());
        level = level.min(level_number(Priority::most_urgent_in(levels)));
    }
    drop(cpus);
    if process.is_stopped() && state != state::ENDED {
        state = state::STOPPED;
    }
    Some(ProcessRecord {
        process: id,
        parent,
        state,
        cpus: (process.cpu_count() + threads) as u32,
        level,
        ceiling: process.ceiling.priority().level().into(),
        pages: process.space.page_count() as u64,
        run_ticks: process.account.used_ticks(),
        polls,
        calls_in_flight: process.calls_in_flight.count() as u64,
        name: inspect::name(&process.name()),
    })
}

impl Process {
    /// The record of the virtual CPU with the lowest number from `index` on. What a worker polls
    /// and has ready is as the process claims.
    pub fn cpu_record(&self, index: usize) -> Option<CpuRecord> {
        let cpus = self.cpus.lock();
        let (cpu, state) = cpus.at_or_after(index)?;
        let index = cpu.index;
        let nothing = WorkerState::new();
        let worker = self.page.workers.get(index).unwrap_or(&nothing);
        let current_coroutine = worker.current_id.load(Relaxed);
        let (state, hart) = match state {
            CpuState::Running { hart } => (state::RUNNING, hart),
            CpuState::Runnable if current_coroutine != 0 => (state::SUSPENDED, 0),
            CpuState::Runnable => (state::READY, 0),
            CpuState::Parked => (state::PARKED, 0),
            CpuState::Waiting => (state::BLOCKED, 0),
            CpuState::Held => (state::STOPPED, 0),
            CpuState::Ended => (state::ENDED, 0),
        };
        let cause = match state {
            state::SUSPENDED | state::BLOCKED => cpu.entered_by.load(Relaxed).into(),
            _ => cause::NONE,
        };
        Some(CpuRecord {
            process: self.id,
            cpu: index as u32,
            state,
            hart: hart as u32,
            level: cpu.priority().level().into(),
            current_priority: level_number(worker.current_priority()),
            current_coroutine,
            ready: worker.ready.load(Relaxed),
            posted: worker.posted.load(Relaxed),
            polls: worker.polls.load(Relaxed),
            run_ticks: cpu.run_ticks.load(Relaxed),
            cause,
            reserved: 0,
        })
    }

    /// The coroutine that virtual CPU `index` claims to run, for trace events; 0 if none.
    pub fn current_coroutine(&self, index: usize) -> u64 {
        self.page.workers.get(index).map_or(0, |worker| worker.current_id.load(Relaxed))
    }
}

fn workers_of(process: &Process) -> impl Iterator<Item = CpuRecord> {
    (0..process.cpu_count()).filter_map(|index| process.cpu_record(index))
}

/// The state of a process with virtual CPUs in these two states.
fn more_active(one: u32, other: u32) -> u32 {
    const ORDER: [u32; 7] = [
        state::RUNNING,
        state::SUSPENDED,
        state::READY,
        state::BLOCKED,
        state::PARKED,
        state::STOPPED,
        state::ENDED,
    ];
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

impl Found {
    fn from(slot: Inspected, record: impl FnOnce(Inspection) -> CoroutineRecord) -> Self {
        match slot {
            Inspected::End => Self::End,
            Inspected::Empty => Self::Empty,
            Inspected::Coroutine(found) => Self::Coroutine(record(found)),
        }
    }
}

/// The kernel's coroutine in slot `slot`, from 1 on.
pub fn kernel_coroutine(slot: u32) -> Found {
    Found::from(executor().inspect_slot(slot), |found| CoroutineRecord {
        name: trace::name_of(found.id.raw()),
        ..record(&found)
    })
}

fn record(found: &Inspection) -> CoroutineRecord {
    let state = match found.phase {
        Phase::Running => state::RUNNING,
        Phase::Ready => state::READY,
        Phase::Blocked => state::BLOCKED,
    };
    let (coroutine, priority) = (found.id.raw(), found.priority.level().into());
    let (worker, kind) = (found.worker & 63, found.kind as u32);
    CoroutineRecord { coroutine, state, priority, worker, kind, ..CoroutineRecord::default() }
}

/// The coroutine in slot `slot` of `process`, from 1 on. It is read from the process's executor
/// word by word through its page table, and no word is trusted. The addresses are the process's
/// own; an invalid one ends the list.
pub fn user_coroutine(process: &Process, slot: u32) -> Found {
    let read = |address: u64| {
        let mut bytes = [0; 8];
        let word = UserRange::new(address as usize, bytes.len())?;
        process.space.copy_in(word, &mut bytes).ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    let executor = process.page.executor.load(Relaxed);
    Found::from(Executor::inspect_remote(executor, EXECUTOR_NUMBER, slot, read), |found| {
        let polls_it = |cpu: &_| process.current_coroutine(*cpu) == found.id.raw();
        let polled_by = (0..process.cpu_count()).find(polls_it);
        let (state, cause) = match polled_by.and_then(|cpu| process.cpu_record(cpu)) {
            Some(cpu) if cpu.state == state::RUNNING => (state::RUNNING, cause::NONE),
            Some(cpu) => (state::SUSPENDED, cpu.cause),
            None => (record(&found).state, cause::NONE),
        };
        CoroutineRecord { process: process.id, state, cause, ..record(&found) }
    })
}
