//! The urgency of a process: what it publishes in its page and in its ring, limited by its ceiling.
//!
//! Whatever a process writes into its page, it cannot become more urgent than its ceiling: every
//! level from a page or from a call's argument leaves this module capped.

use core::sync::atomic::Ordering::*;

use cops_abi::Priority;
use cops_abi::page::{MAX_CPUS, NO_LEVEL};

use super::{Process, VirtualCpu};

impl Process {
    /// Sets the ceiling; the caller has checked that this is allowed.
    pub fn set_ceiling(&self, level: u8) {
        self.ceiling.set(level);
        self.show_ceiling();
    }

    /// Lowers the ceiling to `level` unless it is already less urgent.
    pub fn lower_ceiling_to(&self, level: u8) {
        self.ceiling.lower_to(level);
        self.show_ceiling();
    }

    /// Publishes the ceiling, so that the process can compare itself with others as the kernel
    /// does.
    fn show_ceiling(&self) {
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
    pub(super) fn waiting_levels(&self) -> u64 {
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
        cpu.entity.set_level(level);
        let before = self.shown.levels().trailing_zeros();
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
    pub(super) fn show_result(&self, level: u8) {
        if self.shown.levels() & 1 << level == 0 {
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
    pub(super) fn show_nothing(&self) {
        self.shown.replace(0);
    }
}
