//! The urgency of a process: what it publishes in its page and in its ring, limited by its ceiling.
//!
//! Whatever a process writes into its page, it cannot become more urgent than its ceiling: every
//! level from a page or from a call's argument leaves this module capped, or as [`Asked`].

use core::sync::atomic::{Ordering::*, fence};

use cops_abi::Priority;
use cops_abi::inspect::cause;
use cops_abi::page::MAX_CPUS;

use super::{Process, Thread, VirtualCpu};
use crate::sched::Asked;

/// Virtual CPUs that one portion of [`Process::raise_some`] examines.
const PORTION_CPUS: usize = 4;

impl Process {
    /// Sets the ceiling of a descendant of `ancestor`; the caller has checked that this is allowed.
    ///
    /// The ceilings of `ancestor` and of all its descendants may be lowered at the same time, and
    /// this process may already have been visited for that. Therefore the two are compared
    /// afterwards. Here this ceiling is stored and then the ancestor's is read; there the
    /// ancestor's is stored and then this one is changed. With the fences, at least one sees the
    /// other's store.
    pub fn set_ceiling_below(&self, ancestor: &Process, priority: Priority) {
        self.ceiling.set(priority);
        fence(SeqCst);
        self.lower_ceiling_to(ancestor.ceiling.priority());
    }

    /// Lowers the ceiling to `priority` unless it is already less urgent.
    pub fn lower_ceiling_to(&self, priority: Priority) {
        self.ceiling.lower_to(priority);
        fence(SeqCst);
        self.publish_ceiling();
    }

    /// The ceiling is more urgent than before: moves some of the virtual CPUs forward that wait for
    /// a hart, from number `from` on. Nothing in the run queue becomes more urgent by itself.
    /// Returns the number to continue with; `None` if there are no more.
    pub(super) fn raise_some(&self, from: usize) -> Option<usize> {
        let mut next = from;
        for _ in 0..PORTION_CPUS {
            let cpus = self.cpus.lock();
            let Some((cpu, state)) = cpus.at_or_after(next) else {
                drop(cpus);
                self.publish();
                return None;
            };
            let cpu = cpu.clone();
            drop(cpus);
            next = cpu.index + 1;
            if cpu.as_thread().is_none() && self.shown_by(&cpu, self.waiting_levels()).is_none() {
                // It keeps the level that it had, which was capped, perhaps before it has ever run.
                cpu.entity.set_priority(cpu.priority().more_urgent_of(Priority::DEFAULT));
            }
            self.urgency_changed(&cpu, state);
        }
        Some(next)
    }

    /// Publishes the ceiling, so that the process can compare itself with others as the kernel
    /// does.
    fn publish_ceiling(&self) {
        self.page.ceiling.store(self.ceiling.priority().level().into(), Relaxed);
    }

    /// The priority of the coroutine that `cpu` claims to run, or of a thread: inherited by its
    /// calls, as far as the ceiling allows.
    #[inline]
    pub fn asked_by(&self, cpu: &VirtualCpu) -> Asked {
        let current = match cpu.as_thread() {
            None => self.page.workers[cpu.index % MAX_CPUS].current_priority(),
            Some(thread) => Some(thread.priority()),
        };
        current.unwrap_or(Priority::DEFAULT).into()
    }

    /// The same, capped.
    pub fn current_priority(&self, cpu: &VirtualCpu) -> Priority {
        self.ceiling.allowed(self.asked_by(cpu))
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

    /// The urgency of `cpu`: the most urgent of what it runs and what it could run, or the level of
    /// a thread. A hint that affects only the order.
    pub fn urgency(&self, cpu: &VirtualCpu) -> Priority {
        self.most_urgent_for(cpu, cpu.as_thread(), || self.waiting_levels())
    }

    /// Whether the worker of `cpu` was stopped within a poll that is less urgent than `priority`.
    pub(super) fn polls_less_urgent(&self, cpu: &VirtualCpu, priority: Priority) -> bool {
        let polled = match cpu.as_thread() {
            None => self.page.workers[cpu.index % MAX_CPUS].current_priority(),
            Some(_) => None,
        };
        polled.is_some_and(|polled| priority.is_more_urgent_than(self.ceiling.cap(polled)))
    }

    /// The least urgent level of its workers that have a hart or wait for one. Such a worker may
    /// have nothing ready, and needs the hart to find that out and to look at its results.
    pub fn least_urgent_active(&self) -> Option<Priority> {
        let cpus = self.cpus.lock();
        let active = cpus.workers().filter(|(_, state)| state.is_active());
        let levels = active.map(|(cpu, _)| self.urgency(cpu));
        levels.reduce(|one, other| if one.is_more_urgent_than(other) { other } else { one })
    }

    /// The level of what the worker of `cpu` polls, or is about to poll.
    ///
    /// An interrupt can come after it has taken a coroutine from its queue and before the poll; a
    /// call in between two polls, which is to let others run, cannot.
    fn taken_by(&self, cpu: &VirtualCpu) -> Option<Priority> {
        let worker = &self.page.workers[cpu.index % MAX_CPUS];
        if cpu.entered_by.load(Relaxed) == cause::CALL as u8 {
            worker.current_priority()
        } else {
            worker.taken_priority()
        }
    }

    fn most_urgent_for(
        &self,
        cpu: &VirtualCpu,
        as_thread: Option<&Thread>,
        waiting: impl FnOnce() -> u64,
    ) -> Priority {
        let priority = match as_thread {
            Some(thread) => thread.urgency(waiting),
            // A worker that publishes nothing has nothing, or its program does not maintain the
            // page. It keeps its level: it may be about to look for something, for instance at what
            // another process has written.
            None => self.shown_by(cpu, waiting()).unwrap_or_else(|| cpu.entity.priority()),
        };
        self.ceiling.cap(cpu.donated.or_more_urgent(priority))
    }

    /// The most urgent of `waiting` and of what the worker of `cpu` polls or is about to poll.
    #[inline]
    fn shown_by(&self, cpu: &VirtualCpu, waiting: u64) -> Option<Priority> {
        Priority::most_urgent_in(waiting | self.taken_by(cpu).map_or(0, Priority::bit))
    }

    /// `cpu` has been paused for coroutines of the kernel, and others can see that. Returns the
    /// most urgent level of the results that the process has not taken, and of what `cpu` polls.
    pub(super) fn begin_pause(&self, cpu: &VirtualCpu) -> Option<Priority> {
        self.pauses.begin();
        let woken = self.woken.load(SeqCst);
        // What a virtual CPU that is alone polls has become more urgent only by itself.
        let level = if self.has_others() && cpu.as_thread().is_none() {
            self.shown_by(cpu, woken)
        } else {
            Priority::most_urgent_in(woken)
        };
        level.map(|level| self.ceiling.cap(level))
    }

    /// Updates the urgency of the process for one of its running virtual CPUs. Returns it, and the
    /// levels at which something of the process waits. Its workers that wait for a hart could run
    /// what has become ready: they become as urgent. So do those that poll something which has
    /// become more urgent.
    ///
    /// Called at every kernel entry of the process. The system bitmap is updated if the most urgent
    /// level has changed; [`publish`](Self::publish) updates the rest of it with each slice.
    pub fn refresh_priority(&self, cpu: &VirtualCpu) -> (Priority, u64) {
        // Only native programs have coroutines.
        let is_native = self.personality.is_native();
        let waiting = if is_native { self.waiting_levels() } else { 0 };
        let priority = self.most_urgent_for(cpu, cpu.as_thread_if(is_native), || waiting);
        cpu.entity.set_priority(priority);
        let published = waiting | priority.bit();
        let before = Priority::most_urgent_in(self.published.levels());
        let now = Priority::most_urgent_in(published).unwrap_or(priority);
        if before != Some(now) {
            self.published.replace(published);
        }
        // Of a program for Linux nothing is polled.
        if self.has_others() && (waiting != 0 || is_native && self.account.lines().any()) {
            self.raise_others(cpu, waiting);
        }
        (priority, waiting)
    }

    /// `cpu` is about to be queued: sets its level, and publishes what the process shows. Both
    /// follow from one look at its page.
    pub(super) fn publish_queued(&self, cpu: &VirtualCpu) {
        let waiting = self.waiting_levels();
        cpu.entity.set_priority(self.most_urgent_for(cpu, cpu.as_thread(), || waiting));
        self.publish_with(waiting);
    }

    /// Counts what the process publishes in the system bitmap: everything that waits, everything
    /// that its workers poll, and the threads that want a hart or have one; nothing while it is
    /// stopped.
    pub fn publish(&self) {
        self.publish_with(self.waiting_levels());
    }

    /// As [`Self::publish`], with the levels at which something waits.
    #[inline]
    fn publish_with(&self, waiting: u64) {
        if self.is_stopped() {
            self.published.replace(0);
            return;
        }
        let mut levels = waiting;
        if self.has_threads.load(Relaxed) || !self.personality.is_native() {
            levels |= self.ceiling.cap_all(self.cpus.lock().thread_levels());
        }
        for worker in self.page.workers.iter().take(self.cpu_count()) {
            if let Some(polled) = worker.current_priority() {
                levels |= self.ceiling.cap(polled).bit();
            }
        }
        self.published.replace(levels);
    }
}
