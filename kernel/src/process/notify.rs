//! Delivery of results to a process: which of its virtual CPUs is notified, and how (decisions 3
//! and 11).

use core::sync::atomic::{Ordering::*, fence};

use alloc::sync::Arc;
use cops_abi::Priority;
use cops_abi::interrupt::{CpuRecord, cause, status};
use cops_abi::page::MAX_CPUS;
use cops_abi::ring::Completion;

use super::cpu::{CpuEvent, CpuState, CpuStatus, RUN_QUEUE, VirtualCpu};
use super::{Cpus, Process};
use crate::arch::{self, UserContext};
use crate::counters::COUNTERS;
use crate::sched::Standing;
use crate::trace::{self, Event};

/// Value of `Process::interrupt_level` when results have waited long enough: a poll of any urgency
/// is interrupted.
const OVERDUE: Priority = Priority::MOST_URGENT;

/// What the worker of an active virtual CPU is doing, according to its page.
enum Attention {
    /// It will check the ring before its next poll.
    AboutToLook,
    /// It polls a coroutine of this level, or has checked the ring and is about to.
    Polls(Priority),
}

/// The action for a result, once no lock is held.
enum Action {
    Nothing,
    Queue(Arc<VirtualCpu>),
    Raise,
    RaisePaused(Arc<VirtualCpu>),
    Interrupt { hart: usize },
}

impl Process {
    /// Delivers the result of a call to the process: in the ring if it has room, otherwise it stays
    /// in `cell`.
    ///
    /// Then ensures that a worker checks the ring as soon as `level`, the priority of the waiting
    /// coroutine, requires. Returns whether the cell is free.
    pub fn complete(&self, completion: Completion, level: Priority, cell: u32) -> bool {
        let level = self.ceiling.cap(level);
        let (delivered, occupancy) = self.ring.put(&self.page.ring, completion, cell);
        // After the push: a hart that finds the ring empty and clears these bits checks the ring
        // once more.
        self.woken.fetch_or(level.bit(), SeqCst);
        self.show_result(level);
        self.notify(occupancy as usize, level);
        delivered
    }

    /// Levels of the results in the ring.
    pub(crate) fn woken_levels(&self) -> u64 {
        let levels = self.woken.load(SeqCst);
        if levels == 0 || self.ring.shows_results(&self.page.ring) {
            return levels;
        }
        self.woken.fetch_and(!levels, SeqCst);
        // A result may have arrived in between, for which one of these bits was set.
        if self.ring.shows_results(&self.page.ring) {
            self.woken.fetch_or(levels, SeqCst);
            return levels;
        }
        0
    }

    fn notify(&self, occupancy: usize, level: Priority) {
        let mut cpus = self.cpus.lock();
        let action = self.decide(&mut cpus, occupancy, level);
        drop(cpus);
        match action {
            Action::Nothing => {}
            Action::Queue(cpu) => self.queue_unparked(cpu),
            Action::Raise => self.requeue_less_urgent(),
            Action::RaisePaused(cpu) => RUN_QUEUE.raise_paused(&cpu, level),
            Action::Interrupt { hart } => {
                COUNTERS.user_interrupts_sent.add(1);
                trace::emit(move || Event::UserInterruptSent {
                    process: self.id,
                    level: level.level(),
                    hart: hart as u64,
                });
                arch::send_interrupt_to(hart);
            }
        }
    }

    fn decide(&self, cpus: &mut Cpus, occupancy: usize, level: Priority) -> Action {
        let pending = &self.page.posted.pending;
        if pending.load(Relaxed) & cause::RESULTS == 0 {
            pending.fetch_or(cause::RESULTS, Relaxed);
            COUNTERS.user_interrupts_posted.add(1);
        }
        // Partner of the fence in the library's scheduling point: either the library sees the
        // result, or this hart sees that it has checked.
        fence(SeqCst);
        let is_active = |status: &CpuStatus| {
            matches!(status.state(), CpuState::Running { .. } | CpuState::Runnable)
        };
        let active = cpus.list.iter().filter(|(_, status)| is_active(status));
        let (mut count, mut queued_less_urgent) = (0, false);
        // The least urgent poll, and where it is.
        let mut in_the_way: Option<(Priority, CpuState)> = None;
        let mut somebody_looks = false;
        let mut paused = None;
        for (cpu, status) in active {
            count += 1;
            if matches!(status.state(), CpuState::Running { .. })
                && matches!(cpu.entity.standing(), Standing::Paused { level: at } if level.is_more_urgent_than(at))
            {
                paused = Some(cpu.index);
            }
            queued_less_urgent |=
                status.state() == CpuState::Runnable && level.is_more_urgent_than(cpu.level());
            match self.attention(cpu.index) {
                Attention::AboutToLook => somebody_looks = true,
                Attention::Polls(polled)
                    if in_the_way.is_none_or(|(other, _)| other.is_more_urgent_than(polled)) =>
                {
                    in_the_way = Some((polled, status.state()));
                }
                Attention::Polls(_) => {}
            }
        }
        let more_urgent_than_all = !somebody_looks
            && in_the_way.is_some_and(|(polled, _)| level.is_more_urgent_than(polled));
        if (count == 0 || occupancy > count || more_urgent_than_all)
            && let Some(cpu) = self.take_parked(cpus)
        {
            // It can begin at once.
            return Action::Queue(cpu);
        }
        let paused = paused.map(|index| Action::RaisePaused(cpus.list[index].0.clone()));
        let wanted = self.interrupt_level.load(Relaxed);
        if more_urgent_than_all && wanted.is_none_or(|wanted| level.is_more_urgent_than(wanted)) {
            self.interrupt_level.store(Some(level), SeqCst);
            match in_the_way {
                _ if paused.is_some() => {}
                Some((_, CpuState::Running { hart })) if hart != arch::hart_index() => {
                    return Action::Interrupt { hart };
                }
                // On this hart, or on none: the interrupt is delivered when user mode is entered.
                _ => {}
            }
        } else if count > 0 {
            COUNTERS.user_interrupts_suppressed.add(1);
            trace::emit(move || Event::UserInterruptSuppressed {
                process: self.id,
                level: level.level(),
            });
        }
        paused.unwrap_or(if queued_less_urgent { Action::Raise } else { Action::Nothing })
    }

    /// Makes a parked virtual CPU runnable; the caller puts it into the run queue.
    fn take_parked(&self, cpus: &mut Cpus) -> Option<Arc<VirtualCpu>> {
        let index = cpus.list.iter().position(|(_, status)| status.state() == CpuState::Parked)?;
        let state = self.apply(cpus, index, CpuEvent::Unpark);
        (state == Some(CpuState::Runnable)).then(|| cpus.list[index].0.clone())
    }

    /// Queues a virtual CPU that [`take_parked`](Self::take_parked) has made runnable.
    fn queue_unparked(&self, cpu: Arc<VirtualCpu>) {
        COUNTERS.unparks.add(1);
        let woken = &cpu;
        trace::emit(move || woken.event(|process, cpu| Event::Unpark { process, cpu }));
        self.queue(cpu);
    }

    fn attention(&self, index: usize) -> Attention {
        const IN_RUN: u32 = 1;
        let worker = &self.page.workers[index % MAX_CPUS];
        if let Some(polled) = worker.current_priority() {
            return Attention::Polls(self.ceiling.cap(polled));
        }
        let has_looked =
            self.page.cpus[index % MAX_CPUS].looked.load(Relaxed) == worker.polls.load(Relaxed);
        if worker.phase.load(Relaxed) == IN_RUN && has_looked {
            // It is about to poll the most urgent of its ready coroutines.
            let next = Priority::most_urgent_in(worker.waiting()).unwrap_or(Priority::LEAST_URGENT);
            return Attention::Polls(self.ceiling.cap(next));
        }
        Attention::AboutToLook
    }

    /// Moves virtual CPUs in the run queue to the place for the process's current urgency.
    pub(crate) fn requeue_less_urgent(&self) {
        let mut found: [Option<Arc<VirtualCpu>>; MAX_CPUS] = [const { None }; MAX_CPUS];
        let cpus = self.cpus.lock();
        let queued = cpus.list.iter().filter(|(_, status)| status.state() == CpuState::Runnable);
        for (place, (cpu, _)) in found.iter_mut().zip(queued) {
            *place = Some(cpu.clone());
        }
        drop(cpus);
        for cpu in found.iter().flatten() {
            RUN_QUEUE.raise(cpu, self.urgency(cpu.index));
        }
    }

    /// A slice of this process is over. Results in the ring do not wait longer than necessary.
    /// Coroutines that wait for a worker may do so although another one is parked, because the
    /// first coroutine that becomes ready in a poll unparks no other virtual CPU; here that poll
    /// has turned out to be long.
    pub(crate) fn hurry(&self) {
        let has_results = self.ring.shows_results(&self.page.ring);
        if !has_results && self.waiting_levels() == 0 {
            return;
        }
        let parked = self.take_parked(&mut self.cpus.lock());
        match parked {
            Some(cpu) => self.queue_unparked(cpu),
            None if has_results => self.interrupt_level.store(Some(OVERDUE), SeqCst),
            None => {}
        }
    }

    /// `cpu` is about to enter user mode: if it is to be interrupted, makes it continue in its
    /// handler.
    #[inline]
    pub(crate) fn deliver_interrupt(&self, cpu: &VirtualCpu, context: &mut UserContext) {
        if self.interrupt_level.load(SeqCst).is_some() {
            self.interrupt(cpu.index, context);
        }
    }

    #[cold]
    fn interrupt(&self, index: usize, context: &mut UserContext) {
        if !self.ring.shows_results(&self.page.ring) {
            // Its executor has reached the ring by itself.
            self.interrupt_level.store(None, SeqCst);
            return;
        }
        let Some(wanted) = self.interrupt_level.load(SeqCst) else { return };
        match self.attention(index) {
            Attention::Polls(polled) if wanted.is_more_urgent_than(polled) || wanted == OVERDUE => {
            }
            _ => return,
        }
        let (Some(record), handler) = (self.record(index), self.page.posted.handler.load(Relaxed))
        else {
            return;
        };
        let state = record.status.load(Relaxed);
        if handler == 0 || state & status::ENABLE == 0 {
            return;
        }
        self.interrupt_level.store(None, SeqCst);
        COUNTERS.user_interrupts_taken.add(1);
        trace::emit(move || Event::UserInterruptTaken { process: self.id, cpu: index as u8 });
        record.status.store(state & !status::ENABLE | status::PREVIOUS_ENABLE, Relaxed);
        context.begin_user_interrupt(record, handler as usize, cause::RESULTS);
    }

    /// `uret`: the interrupt handler of virtual CPU `index` has finished.
    pub fn return_from_interrupt(&self, index: usize, context: &mut UserContext) {
        let Some(record) = self.record(index) else { return };
        let state = record.status.load(Relaxed);
        let enable = if state & status::PREVIOUS_ENABLE != 0 { status::ENABLE } else { 0 };
        record.status.store(state & !(status::ENABLE | status::PREVIOUS_ENABLE) | enable, Relaxed);
        context.end_user_interrupt(record);
    }

    fn record(&self, index: usize) -> Option<&CpuRecord> {
        self.page.cpus.get(index)
    }

    /// Moves waiting results into the ring as far as it has room. Returns how many still wait.
    pub fn refill_ring(&self) -> usize {
        let (moved, waiting) = self.ring.refill(&self.page.ring);
        self.calls_in_flight.end(moved);
        waiting
    }
}
