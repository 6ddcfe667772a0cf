//! The urgency of processes: what they publish in their pages, limited by their ceilings, and the
//! system bitmap made from it (decision 10).
//!
//! Whatever a process writes into its page, it cannot become more urgent than its ceiling: every
//! level from a page or from a call's argument leaves this module capped.
//! May touch: process pages (reads), the system page (writes), the kernel's workers (reads).

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::*};

use cops_abi::Priority;
use cops_abi::page::{MAX_CPUS, NO_LEVEL};

use super::executor;
use super::system_page::system_page;
use crate::arch;
use crate::process::{Process, VirtualCpu};

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

    /// `levels`, with those more urgent than the ceiling counted as the ceiling.
    pub fn cap_all(&self, levels: u64) -> u64 {
        cap_all(levels, self.level())
    }
}

fn cap_all(levels: u64, ceiling: u8) -> u64 {
    let at = 1u64 << (ceiling & 63);
    let above = at - 1;
    if levels & above == 0 { levels } else { levels & !above | at }
}

/// The levels that are counted for one process in the system bitmap.
#[derive(Debug, Default)]
pub struct Shown(AtomicU64);

/// For each level, how many processes show it.
static COUNTS: [AtomicU32; LEVELS] = [const { AtomicU32::new(0) }; LEVELS];

impl Shown {
    /// Counts `levels` instead of the previous ones; the cost depends only on the difference.
    ///
    /// Two harts may do this at the same time for the same process: each uses the difference to the
    /// value that it replaced, so every change is counted once.
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
                // Another hart may have come in between, seen the count at 0, and set the bit
                // before it was cleared here.
                if COUNTS[level].load(SeqCst) != 0 {
                    page.bitmap.fetch_or(1 << level, SeqCst);
                }
            }
        });
    }
}

impl Drop for Shown {
    /// The process is freed. A result may have arrived for it after its virtual CPUs were dropped.
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
    /// Sets the ceiling; the caller has checked that this is allowed.
    pub fn set_ceiling(&self, level: u8) {
        self.ceiling.0.store(level.min(LEVELS as u8 - 1), Relaxed);
        self.show_ceiling();
    }

    /// Lowers the ceiling to `level` unless it is already less urgent.
    pub fn lower_ceiling_to(&self, level: u8) {
        self.ceiling.0.fetch_max(level.min(LEVELS as u8 - 1), Relaxed);
        self.show_ceiling();
    }

    /// Publishes the ceiling, so that the process can compare itself with others as the kernel
    /// does.
    pub(crate) fn show_ceiling(&self) {
        self.page.ceiling.store(self.ceiling.level().into(), Relaxed);
    }

    /// The capped priority of the coroutine that virtual CPU `index` claims to run: inherited by
    /// its calls.
    pub fn current_level(&self, index: usize) -> u8 {
        let worker = &self.page.workers[index % MAX_CPUS];
        self.ceiling.cap(worker.current_priority().unwrap_or(Priority::DEFAULT).level())
    }

    /// Levels at which coroutines of this process wait for a worker or for their results in the
    /// ring; capped.
    pub(crate) fn waiting_levels(&self) -> u64 {
        let mut levels = self.woken_levels();
        for worker in self.page.workers.iter().take(self.cpu_count()) {
            levels |= worker.waiting();
        }
        self.ceiling.cap_all(levels)
    }

    /// The urgency of virtual CPU `index`: the most urgent of what it runs and what it could run. A
    /// hint that affects only the order.
    pub fn urgency(&self, index: usize) -> u8 {
        self.most_urgent_for(index, self.waiting_levels())
    }

    fn most_urgent_for(&self, index: usize, waiting: u64) -> u8 {
        let current = self.page.workers[index % MAX_CPUS].current_priority();
        let level = waiting.trailing_zeros().min(current.map_or(NO_LEVEL, |p| u32::from(p.level())));
        // A process that shows nothing is looking for work, or does not maintain its page.
        self.ceiling.cap(if level < NO_LEVEL { level as u8 } else { Priority::DEFAULT.level() })
    }

    /// Updates the urgency of the process for one of its running virtual CPUs, and returns it.
    ///
    /// Called at every kernel entry of the process. The system bitmap is updated if the most urgent
    /// level has changed; [`show`](Self::show) updates the rest of it with each slice.
    pub fn refresh_level(&self, cpu: &VirtualCpu) -> u8 {
        let waiting = self.waiting_levels();
        let level = self.most_urgent_for(cpu.index, waiting);
        cpu.level.store(level, Relaxed);
        let before = self.shown.0.load(Relaxed).trailing_zeros();
        let now = waiting.trailing_zeros().min(level.into());
        if before != now {
            self.shown.replace(waiting | 1 << level);
            if now < before && self.cpu_count() > 1 {
                // Its virtual CPUs that wait for a hart could run what has become ready.
                self.requeue_less_urgent();
            }
        }
        level
    }

    /// A result of `level` has arrived.
    pub(crate) fn show_result(&self, level: u8) {
        if self.shown.0.load(Relaxed) & 1 << level == 0 {
            self.show();
        }
    }

    /// Counts what the process shows now in the system bitmap: everything that waits, and
    /// everything that its workers poll.
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
    pub(crate) fn show_nothing(&self) {
        self.shown.replace(0);
    }
}

/// Levels at which the kernel's own coroutines wait; also published in the system page.
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
