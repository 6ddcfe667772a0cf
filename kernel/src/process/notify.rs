//! Delivery of results to a process: which of its virtual CPUs is notified, and how (decisions 3
//! and 11).

use core::sync::atomic::{Ordering::*, fence};

use alloc::sync::Arc;
use cops_abi::Priority;
use cops_abi::interrupt::{cause, status};
use cops_abi::page::MAX_CPUS;
use cops_abi::ring::Completion;
use cops_algorithms::spread::Waiting;
use cops_algorithms::upcalls::{self, AtEntry, Attention, OVERDUE};

use super::cpu::{CpuState, RUN_QUEUE, VirtualCpu};
use super::cpus::{Cpus, IN_EXECUTOR_MAX};
use super::{Process, resumable};
use crate::arch::{self, UserContext};
use crate::counters::COUNTERS;
use crate::sched::{self, Standing, spread};
use crate::trace::{self, Event};

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
    /// Then ensures that a worker checks the ring as soon as `priority`, that of the waiting
    /// coroutine, requires. Returns whether the cell is free.
    pub fn complete(&self, completion: Completion, priority: Priority, cell: u32) -> bool {
        let delivered = self.ring.put(&self.page.ring, completion, cell);
        self.announce(priority);
        delivered
    }

    /// Puts the result of a call into the ring, if it has room. Returns whether it had; then the
    /// caller calls [`Self::announce`] next.
    ///
    /// The caller may hold the lock of a cell with a call: what the ring's lock is held for are
    /// other cells.
    pub fn put_if_room(&self, completion: Completion) -> bool {
        self.ring.put_if_room(&self.page.ring, completion)
    }

    /// Whether [`Self::put_if_room`] would find room now, as far as can be seen without a lock.
    pub fn ring_seems_to_have_room(&self) -> bool {
        self.ring.seems_to_have_room(&self.page.ring)
    }

    /// One result or several for coroutines of this `priority` are in the ring since the last call.
    pub fn announce(&self, priority: Priority) {
        let priority = self.ceiling.cap(priority);
        // After the push: a hart that finds the ring empty and clears these bits checks the ring
        // once more.
        self.woken.fetch_or(priority.bit(), SeqCst);
        let is_published = self.published.levels() & priority.bit() != 0;
        let mut cpus = self.cpus.lock();
        let action = self.decide(&mut cpus, priority);
        drop(cpus);
        // What is queued publishes all levels anyway.
        if !is_published && !matches!(action, Action::Queue(_)) {
            self.publish();
        }
        match action {
            Action::Nothing => {}
            Action::Queue(cpu) => self.queue_unparked(cpu),
            Action::Raise => self.requeue_at_least(priority),
            Action::RaisePaused(cpu) => RUN_QUEUE.raise_paused(&cpu, priority),
            Action::Interrupt { hart } => {
                COUNTERS.user_interrupts_sent.add(1);
                trace::emit(move || Event::UserInterruptSent {
                    process: self.id,
                    level: priority.level(),
                    hart: hart as u64,
                });
                arch::send_interrupt_to(hart);
            }
        }
    }

    /// Levels of the results in the ring, and of those on their way from it to a worker's list.
    ///
    /// To be read before the workers' records, which show what has arrived there.
    pub(crate) fn woken_levels(&self) -> u64 {
        let levels = self.woken.load(SeqCst);
        if levels == 0 || self.ring.may_hide_results(&self.page.ring) {
            return levels;
        }
        self.woken.fetch_and(!levels, SeqCst);
        // A result may have arrived in between, for which one of these bits was set.
        if self.ring.may_hide_results(&self.page.ring) {
            self.woken.fetch_or(levels, SeqCst);
            return levels;
        }
        0
    }

    fn decide(&self, cpus: &mut Cpus, priority: Priority) -> Action {
        let pending = &self.page.posted.pending;
        if pending.load(Relaxed) & cause::RESULTS == 0 {
            pending.fetch_or(cause::RESULTS, Relaxed);
            COUNTERS.user_interrupts_posted.add(1);
        }
        // Partner of the fence in the library's scheduling point: either the library sees the
        // result, or this hart sees that it has checked.
        fence(SeqCst);
        let active = cpus.workers().filter(|(_, state)| state.is_active());
        let (mut count, mut queued_less_urgent) = (0, false);
        // The least urgent poll, and where it is.
        let mut in_the_way: Option<(Priority, CpuState)> = None;
        let mut one_looks = false;
        let mut paused = None;
        for (cpu, state) in active {
            count += 1;
            if matches!(state, CpuState::Running { .. })
                && matches!(cpu.entity.standing(), Standing::Paused { priority: at } if priority.is_more_urgent_than(at))
            {
                paused = Some(cpu.clone());
            }
            queued_less_urgent |=
                state == CpuState::Runnable && priority.is_more_urgent_than(cpu.priority());
            match self.attention(cpu.index) {
                Attention::AboutToLook => one_looks = true,
                Attention::Polls(polled)
                    if in_the_way.is_none_or(|(other, _)| other.is_more_urgent_than(polled)) =>
                {
                    in_the_way = Some((polled, state));
                }
                Attention::Polls(_) => {}
            }
        }
        let more_urgent_than_all = !one_looks
            && in_the_way.is_some_and(|(polled, _)| priority.is_more_urgent_than(polled));
        if (count == 0 || more_urgent_than_all)
            && let Some(cpu) = cpus.unpark_one()
        {
            // It can begin at once. Otherwise those that are active take the result in their turn,
            // or another one is unparked for it when it has waited (`spread`).
            return Action::Queue(cpu);
        }
        let paused = paused.map(Action::RaisePaused);
        let wanted = self.interrupt_priority.load(Relaxed);
        if more_urgent_than_all && upcalls::is_request(priority, wanted) {
            self.interrupt_priority.store(Some(priority), SeqCst);
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
                level: priority.level(),
            });
        }
        paused.unwrap_or(if queued_less_urgent { Action::Raise } else { Action::Nothing })
    }

    /// A virtual CPU enters user mode for something of this `priority`, while the levels `waiting`
    /// wait in the process and `kernel` in the kernel, and a hart sleeps: wakes that if it is time
    /// (decision 66).
    #[inline(never)]
    pub(super) fn spread(&self, priority: Priority, waiting: u64, kernel: u64) {
        if RUN_QUEUE.levels() != 0 {
            // It waits here unless a sleeping hart can take it now.
            sched::offer_all();
        }
        // Of the levels of a process only a parked virtual CPU makes something.
        let waiting = if self.cpu_count() > 1 { waiting } else { 0 };
        let as_urgent = priority.bit() | (priority.bit() - 1);
        let waits = match waiting | kernel {
            0 => Waiting::Nothing,
            all if all & !as_urgent != 0 => Waiting::LessUrgent,
            _ => Waiting::Peers,
        };
        if spread::before_user_mode(waits) {
            if waiting != 0 {
                self.unpark_another();
            }
            sched::offer_all();
        }
    }

    /// Unparks a virtual CPU for what waits. Returns whether one was parked.
    pub(super) fn unpark_another(&self) -> bool {
        let parked = self.cpus.lock().unpark_one();
        let is_parked = parked.is_some();
        if let Some(cpu) = parked {
            self.queue_unparked(cpu);
        }
        is_parked
    }

    /// Queues a virtual CPU that [`Cpus::unpark_one`] has made runnable.
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

    /// `cpu` is about to leave its hart, perhaps after it has made something ready that workers in
    /// the run queue are to poll, or that waits for them: they become as urgent.
    pub(super) fn raise_queued(&self, cpu: &VirtualCpu) {
        if self.personality.is_native() && self.has_others() {
            self.raise_others(cpu, self.waiting_levels());
        }
    }

    /// `cpu`, which is not the only one, has entered the kernel or is about to leave its hart, and
    /// the process shows these levels as `waiting`. What waits in the run queue and may hold a lock
    /// of the executor becomes as urgent as the most urgent of them: the workers, which could also
    /// poll it, and threads that were stopped inside the executor. Otherwise a virtual CPU of
    /// another process that is less urgent than this one, or workers of this one that wait for the
    /// lock, could keep the holder from its hart forever.
    ///
    /// `cpu` may also have made more urgent what another worker polls: by `set_priority`, or
    /// because it waits for a lock of that coroutine. A worker that waits for its hart within such
    /// a poll would otherwise have its old level.
    #[inline(never)]
    pub(super) fn raise_others(&self, cpu: &VirtualCpu, waiting: u64) {
        let lines = self.account.lines();
        // See `Lines::any_less_urgent_than` and `Pauses::any`.
        fence(SeqCst);
        let any_paused = self.pauses.any();
        if !any_paused && !lines.any() {
            return;
        }
        if let Some(priority) = Priority::most_urgent_in(waiting)
            && lines.any_less_urgent_than(priority)
        {
            self.requeue_at_least(priority);
        }
        let is_behind = |level| any_paused || lines.any_less_urgent_than(level);
        if self.polled_beside(cpu).is_some_and(is_behind) {
            self.raise_within_polls();
        }
    }

    /// The most urgent level of what workers other than that of `cpu` poll, or are about to poll.
    fn polled_beside(&self, cpu: &VirtualCpu) -> Option<Priority> {
        let workers = self.page.workers.iter().take(self.cpu_count()).enumerate();
        let others = workers.filter(|(index, _)| *index != cpu.index);
        let levels = others.filter_map(|(_, worker)| worker.taken_priority());
        levels.reduce(Priority::more_urgent_of).map(|level| self.ceiling.cap(level))
    }

    /// Workers that wait for a hart, or are paused for coroutines of the kernel, and poll something
    /// that is more urgent than their level: they become as urgent.
    #[inline(never)]
    fn raise_within_polls(&self) {
        let cpus = self.cpus.lock();
        let waiting = cpus.workers().filter(|(cpu, state)| match state {
            CpuState::Runnable => true,
            CpuState::Running { .. } => matches!(cpu.entity.standing(), Standing::Paused { .. }),
            _ => false,
        });
        let mut risen =
            waiting.filter(|(cpu, _)| self.urgency(cpu).is_more_urgent_than(cpu.priority()));
        // Nearly always: in a program of threads this is asked at each of their calls.
        let Some((cpu, state)) = risen.next() else { return };
        let mut found = [const { None }; MAX_CPUS];
        found[0] = Some((cpu.clone(), state));
        for (place, (cpu, state)) in found.iter_mut().skip(1).zip(risen) {
            *place = Some((cpu.clone(), state));
        }
        drop(cpus);
        for (cpu, state) in found.iter().flatten() {
            self.urgency_changed(cpu, *state);
        }
        self.publish();
    }

    /// False if the calling virtual CPU is the only one.
    #[inline]
    pub(super) fn has_others(&self) -> bool {
        self.has_others.load(Relaxed)
    }

    /// Moves those of them that are less urgent than `priority` to the place for that.
    #[inline(never)]
    fn requeue_at_least(&self, priority: Priority) {
        let mut found = [const { None }; MAX_CPUS + IN_EXECUTOR_MAX];
        let cpus = self.cpus.lock();
        let queued = cpus.in_executor().filter(|(cpu, state)| {
            *state == CpuState::Runnable && priority.is_more_urgent_than(cpu.priority())
        });
        for (place, (cpu, _)) in found.iter_mut().zip(queued) {
            *place = Some(cpu.clone());
        }
        drop(cpus);
        RUN_QUEUE.raise_all(&found, priority);
    }

    /// A slice of `cpu` is over. Results in the ring do not wait longer than necessary. Coroutines
    /// that wait for a worker may do so although another one is parked, because one that becomes
    /// ready in a poll unparks no other virtual CPU; here that poll may have turned out to be long.
    /// If the worker has made others since its last slice, each has its turn there.
    ///
    /// No poll is interrupted for results that another worker is about to find: what waits for them
    /// would come into the ready queue of this worker, perhaps behind a long poll.
    pub(crate) fn hurry(&self, cpu: &VirtualCpu) {
        let has_results = self.ring.may_have_results(&self.page.ring);
        if !has_results && self.waiting_levels() == 0 {
            return;
        }
        let is_within_poll = cpu.as_thread().is_some() || {
            let polls = self.page.workers[cpu.index % MAX_CPUS].polls.load(Relaxed);
            cpu.polls.swap(polls, Relaxed) == polls
        };
        cpu.is_within_poll.store(is_within_poll, Relaxed);
        let is_unparked = is_within_poll && self.unpark_another();
        if !is_unparked && has_results && !self.another_looks(cpu.index) {
            self.interrupt_priority.store(Some(OVERDUE), SeqCst);
        }
    }

    /// Whether a worker other than `index` runs or waits for a hart, and has begun a poll in its
    /// last slice. If its current one is long, its next slices show that.
    fn another_looks(&self, index: usize) -> bool {
        self.cpus.lock().workers().any(|(cpu, state)| {
            cpu.index != index && state.is_active() && !cpu.is_within_poll.load(Relaxed)
        })
    }

    /// `cpu` waits in a synchronous call from now on. What it would have taken up after its poll,
    /// results and ready coroutines, is left to a parked virtual CPU.
    ///
    /// A result that comes from now on finds that `cpu` is not active. One that came before is in
    /// the ring.
    #[inline(always)]
    pub(crate) fn leave_work_of(&self, cpu: &VirtualCpu) {
        if cpu.as_thread().is_some() || self.cpu_count() == 1 || self.waiting_levels() == 0 {
            return;
        }
        self.unpark_another();
    }

    /// `cpu` is about to enter user mode: if it is to be interrupted, makes it continue in its
    /// handler.
    #[inline]
    pub(crate) fn deliver_interrupt(&self, cpu: &VirtualCpu, context: &mut UserContext) {
        if self.interrupt_priority.load(SeqCst).is_some() && cpu.as_thread().is_none() {
            self.interrupt(cpu, context);
        }
    }

    #[cold]
    fn interrupt(&self, cpu: &VirtualCpu, context: &mut UserContext) {
        if self.is_being_replaced() || resumable::comes_first(cpu) {
            return;
        }
        let index = cpu.index;
        // With the lock under which requests are made: for a result that this look does not find,
        // one is made afterwards.
        let cpus = self.cpus.lock();
        let Some(wanted) = self.interrupt_priority.load(SeqCst) else { return };
        let has_results = self.ring.may_have_results(&self.page.ring);
        match upcalls::at_entry(wanted, has_results, self.attention(index)) {
            AtEntry::Keep => return,
            AtEntry::Withdraw => {
                self.interrupt_priority.store(None, SeqCst);
                return;
            }
            AtEntry::Deliver => {}
        }
        let Some(record) = self.page.cpus.get(index) else { return };
        let handler = self.page.posted.handler.load(Relaxed);
        let state = record.status.load(Relaxed);
        if handler == 0 || state & status::ENABLE == 0 {
            return;
        }
        self.interrupt_priority.store(None, SeqCst);
        drop(cpus);
        COUNTERS.user_interrupts_taken.add(1);
        trace::emit(move || Event::UserInterruptTaken { process: self.id, cpu: index as u8 });
        record.status.store(state & !status::ENABLE | status::PREVIOUS_ENABLE, Relaxed);
        context.begin_user_interrupt(record, handler as usize, cause::RESULTS);
    }

    /// `uret`: the interrupt handler of virtual CPU `index` has finished.
    pub fn return_from_interrupt(&self, index: usize, context: &mut UserContext) {
        let Some(record) = self.page.cpus.get(index) else { return };
        let state = record.status.load(Relaxed);
        let enable = if state & status::PREVIOUS_ENABLE != 0 { status::ENABLE } else { 0 };
        record.status.store(state & !(status::ENABLE | status::PREVIOUS_ENABLE) | enable, Relaxed);
        context.end_user_interrupt(record);
    }

    /// Moves some of the waiting results into the ring. Returns how many still wait.
    pub fn refill_ring(&self) -> usize {
        let (moved, waiting) = self.ring.refill(&self.page.ring);
        self.calls_in_flight.end(moved);
        waiting
    }
}
