//! How urgent processes are: what they show in their pages, capped, and the system bitmap made of it (decision 10).
//!
//! Whatever a process writes into its page, it gets no further than its ceiling: every level that comes from a page, or
//! from a call's argument, leaves this module capped.
//! May touch: process pages (reads), the system page (writes), the kernel's workers (reads).

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};

use cops_abi::Priority;
use cops_abi::page::{MAX_CPUS, NO_LEVEL};

use super::cpu::VirtualCpu;
use super::process::Process;
use super::{executor, system_page};
use crate::arch;

const LEVELS: usize = Priority::COUNT as usize;

/// The most urgent level that a process can have.
#[derive(Debug)]
pub struct Ceiling(AtomicU8);

impl Ceiling {
    pub const fn new(level: u8) -> Self {
        Self(AtomicU8::new(level))
    }

    /// The level.
    pub fn level(&self) -> u8 {
        self.0.load(Relaxed)
    }

    /// `level`, or the ceiling if that is less urgent.
    pub fn cap(&self, level: u8) -> u8 {
        level.max(self.level()).min(LEVELS as u8 - 1)
    }

    /// `levels`, with those above the ceiling counted as the ceiling.
    pub fn cap_all(&self, levels: u64) -> u64 {
        cap_all(levels, self.level())
    }
}

fn cap_all(levels: u64, ceiling: u8) -> u64 {
    let at = 1u64 << (ceiling & 63);
    let above = at - 1;
    if levels & above == 0 { levels } else { levels & !above | at }
}

/// What is counted of one process in the system bitmap.
#[derive(Debug, Default)]
pub struct Shown(AtomicU64);

/// For each level, how many processes show it.
static COUNTS: [AtomicU32; LEVELS] = [const { AtomicU32::new(0) }; LEVELS];

impl Shown {
    /// Counts `levels` instead of what was counted before; costs what has changed.
    ///
    /// Two harts may do this at once for the same process: each takes the difference to what it replaced, so every change is
    /// counted once.
    fn replace(&self, levels: u64) {
        if self.0.load(Relaxed) == levels {
            return;
        }
        let before = self.0.swap(levels, AcqRel);
        let page = system_page();
        for_each_level(levels & !before, |level| {
            if COUNTS[level].fetch_add(1, SeqCst) == 0 {
                page.bitmap.fetch_or(1 << level, SeqCst);
            }
        });
        for_each_level(before & !levels, |level| {
            if COUNTS[level].fetch_sub(1, SeqCst) == 1 {
                page.bitmap.fetch_and(!(1 << level), SeqCst);
                // Somebody may have come in between, seen the count at 0 and set the bit before it was cleared here.
                if COUNTS[level].load(SeqCst) != 0 {
                    page.bitmap.fetch_or(1 << level, SeqCst);
                }
            }
        });
    }
}

impl Drop for Shown {
    /// The process is gone; a result may have come for it after it was taken apart.
    fn drop(&mut self) {
        self.replace(0);
    }
}

fn for_each_level(mut levels: u64, mut each: impl FnMut(usize)) {
    while levels != 0 {
        each(levels.trailing_zeros() as usize);
        levels &= levels - 1;
    }
}

impl Process {
    /// Sets the ceiling; whether that is allowed was the caller's question.
    pub fn set_ceiling(&self, level: u8) {
        self.ceiling.0.store(level.min(LEVELS as u8 - 1), Relaxed);
        self.show_ceiling();
    }

    /// Only ever makes the process less urgent.
    pub fn lower_ceiling_to(&self, level: u8) {
        self.ceiling.0.fetch_max(level.min(LEVELS as u8 - 1), Relaxed);
        self.show_ceiling();
    }

    /// So that the process can compare itself with others as the kernel does.
    pub(super) fn show_ceiling(&self) {
        self.page.ceiling.store(self.ceiling.level().into(), Relaxed);
    }

    /// The priority of the coroutine that virtual CPU `index` says it runs, capped: what a call inherits.
    pub fn current_level(&self, index: usize) -> u8 {
        let worker = &self.page.workers[index % MAX_CPUS];
        self.ceiling.cap(worker.current_priority().unwrap_or(Priority::DEFAULT).level())
    }

    /// Levels at which coroutines of this process wait for a worker, or for their results to be taken out of the ring; capped.
    fn waiting_levels(&self) -> u64 {
        let mut levels = self.woken_levels();
        for worker in self.page.workers.iter().take(self.cpu_count()) {
            levels |= worker.waiting();
        }
        self.ceiling.cap_all(levels)
    }

    /// How urgent virtual CPU `index` is: the most urgent of what it runs and what it could run. A hint that decides about order only.
    pub fn urgency(&self, index: usize) -> u8 {
        self.most_urgent_for(index, self.waiting_levels())
    }

    fn most_urgent_for(&self, index: usize, waiting: u64) -> u8 {
        let current = self.page.workers[index % MAX_CPUS].current_priority();
        let level = waiting.trailing_zeros().min(current.map_or(NO_LEVEL, |p| u32::from(p.level())));
        // Who shows nothing is looking for something, or keeps no books.
        self.ceiling.cap(if level < NO_LEVEL { level as u8 } else { Priority::DEFAULT.level() })
    }

    /// Looks afresh at how urgent the process is, for a virtual CPU of it that runs.
    ///
    /// Done at every kernel entry of the process. The system bitmap follows if the most urgent level has changed; the rest of it is
    /// brought up to date by [`show`](Self::show), with each slice.
    pub fn refresh_level(&self, cpu: &VirtualCpu) -> u8 {
        let waiting = self.waiting_levels();
        let level = self.most_urgent_for(cpu.index, waiting);
        cpu.level.store(level, Relaxed);
        let before = self.shown.0.load(Relaxed).trailing_zeros();
        let now = waiting.trailing_zeros().min(level.into());
        if before != now {
            self.shown.replace(waiting | 1 << level);
            if now < before && self.cpu_count() > 1 {
                // Virtual CPUs of it that wait for a hart could run what has become ready.
                self.requeue_less_urgent();
            }
        }
        level
    }

    /// A result of `level` has come.
    pub(super) fn show_result(&self, level: u8) {
        if self.shown.0.load(Relaxed) & 1 << level == 0 {
            self.show();
        }
    }

    /// Counts in the system bitmap what the process shows now: all that waits, and all that its workers poll.
    pub fn show(&self) {
        let mut levels = self.waiting_levels();
        for worker in self.page.workers.iter().take(self.cpu_count()) {
            if let Some(polled) = worker.current_priority() {
                levels |= 1 << self.ceiling.cap(polled.level());
            }
        }
        self.shown.replace(levels);
    }

    /// The process has ended.
    pub(super) fn show_nothing(&self) {
        self.shown.replace(0);
    }
}

/// Levels at which the kernel's own coroutines wait, also shown in the system page.
pub fn kernel_waiting() -> u64 {
    let levels = executor::workers().iter().fold(0, |levels, worker| levels | worker.waiting());
    let page = system_page();
    if page.kernel_bitmap.load(Relaxed) != levels {
        page.kernel_bitmap.store(levels, Relaxed);
    }
    levels
}

/// This hart is about to run `process` in user mode at `level`.
pub fn show_hart(level: u8, process: u32) {
    let Some(record) = system_page().hart.get(arch::hart_index()) else { return };
    if record.current_priority.load(Relaxed) != u32::from(level) {
        record.current_priority.store(level.into(), Relaxed);
    }
    if record.process.load(Relaxed) != process {
        record.process.store(process, Relaxed);
    }
}

/// This hart does not run user code any more.
pub fn show_hart_in_kernel() {
    let Some(record) = system_page().hart.get(arch::hart_index()) else { return };
    record.current_priority.store(NO_LEVEL, Relaxed);
    record.process.store(0, Relaxed);
}
