//! The virtual CPUs of a process: which there are, what each does, and whether the process is
//! ending. [`Process::cpus`](super::Process) has them behind its lock.
//!
//! The first [`MAX_CPUS`] numbers are those of *workers*, which have a record in the process's page
//! and keep their number for ever; the first thread of a Linux program has number 0 too. All other
//! numbers are those of threads; a number is free again when its thread has ended. Nothing here
//! visits all threads (decision 27).

use alloc::sync::Arc;

use cops_abi::page::{MAX_CPUS, ProcessPage};
use cops_abi::{Errno, Priority};
use cops_algorithms::cpu_state::{Census, Order, Reasons};
use cops_algorithms::held::{HeldLists, Link, Links};
use cops_algorithms::levels::LevelCounts;
use cops_algorithms::slots::{self, NoSlot, Slots};
use cops_algorithms::stops::Stops;
use cops_fallible::{List, Map};

use super::cpu::{CpuEvent, CpuState, CpuStatus, VirtualCpu};
use super::{ProcessId, Thread, WaitStatus, reaper};
use crate::arch;
use crate::mm::SharedFrame;

/// How many threads that were stopped inside the executor are known by number.
pub(super) const IN_EXECUTOR_MAX: usize = 8;

type Entry = (Arc<VirtualCpu>, CpuStatus);

/// The thread of `cpu`, if others may look for it by its id alone.
fn of_linux(cpu: &VirtualCpu) -> Option<&Thread> {
    cpu.as_thread().filter(|_| cpu.process.personality.is_linux())
}

fn leave(cpu: &VirtualCpu, process: ProcessId) {
    if let Some(thread) = of_linux(cpu) {
        thread.leave(process);
    }
}

/// All virtual CPUs of a process.
struct Entries {
    workers: List<Entry>,
    /// Slot `n` is virtual CPU `MAX_CPUS + n`.
    threads: Slots<Entry>,
}

// The links of those that are held name them by 16 bits.
const _: () = assert!(MAX_CPUS + slots::CAPACITY <= 1 << 16);

impl Entries {
    fn get(&self, index: usize) -> Option<&Entry> {
        match index.checked_sub(MAX_CPUS) {
            None => self.workers.get(index),
            Some(slot) => self.threads.get(slot),
        }
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut Entry> {
        match index.checked_sub(MAX_CPUS) {
            None => self.workers.get_mut(index),
            Some(slot) => self.threads.get_mut(slot),
        }
    }
}

impl Links for Entries {
    fn link(&self, number: u16) -> Link {
        self.get(number.into()).map(|(_, status)| status.held).unwrap_or_default()
    }

    fn set_link(&mut self, number: u16, link: Link) {
        if let Some((_, status)) = self.get_mut(number.into()) {
            status.held = link;
        }
    }
}

/// The virtual CPUs of a process, with their shared status.
pub(crate) struct Cpus {
    process: ProcessId,
    all: Entries,
    /// The number of each thread in `threads`, by its id.
    numbers: Map<u32, usize>,
    census: Census,
    /// The numbers of threads that were stopped inside the executor and have not run since; 0 where
    /// there is none. Few at a time: those instructions are a small part of what a thread executes.
    in_executor: [usize; IN_EXECUTOR_MAX],
    /// The levels of the threads with numbers of their own that are active.
    thread_levels: LevelCounts,
    /// The process's page, which has a record for each worker.
    page: SharedFrame<ProcessPage>,
    /// How the process ended or is going to.
    ending: Option<WaitStatus>,
    /// Why the process is stopped, if it is.
    stopped: Stops,
    /// Those that are held.
    held: HeldLists,
    /// The virtual CPU that replaces the program; all others end.
    replacer: Option<usize>,
    /// The virtual CPU that copies the memory; all others are held.
    copier: Option<usize>,
    /// Whether something else than to run may become of a virtual CPU: [`Self::order`] looks.
    has_orders: bool,
    /// The code with which the first thread of a Linux program has ended.
    pub first_code: Option<u8>,
    /// Memory for the reaper, until it has been notified.
    reaper_place: Option<reaper::Place>,
}

impl Cpus {
    /// None, of a process that is not ending. `page`: another reference to its page.
    pub fn new(
        process: ProcessId,
        page: SharedFrame<ProcessPage>,
        reaper_place: reaper::Place,
    ) -> Self {
        Self {
            process,
            all: Entries { workers: List::new(), threads: Slots::new() },
            numbers: Map::new(),
            census: Census::new(),
            in_executor: [0; IN_EXECUTOR_MAX],
            thread_levels: LevelCounts::new(),
            page,
            ending: None,
            stopped: Stops::NONE,
            held: HeldLists::new(),
            replacer: None,
            copier: None,
            has_orders: false,
            first_code: None,
            reaper_place: Some(reaper_place),
        }
    }

    /// Number of workers, whatever they do.
    pub fn worker_count(&self) -> usize {
        self.all.workers.len()
    }

    /// Number of threads with numbers of their own.
    pub fn thread_count(&self) -> usize {
        self.all.threads.len()
    }

    /// How many virtual CPUs do what.
    pub fn census(&self) -> &Census {
        &self.census
    }

    /// The levels of the threads that are active; not capped.
    pub fn thread_levels(&self) -> u64 {
        let first = self.workers().next().filter(|(_, state)| state.is_active());
        let first = first.and_then(|(cpu, _)| cpu.as_thread());
        first.map_or(0, |thread| thread.priority().bit()) | self.thread_levels.levels()
    }

    /// How the process ended or is going to.
    pub fn ending(&self) -> Option<WaitStatus> {
        self.ending
    }

    /// Virtual CPU `index` and its state.
    pub fn get(&self, index: usize) -> Option<(&Arc<VirtualCpu>, CpuState)> {
        self.all.get(index).map(|(cpu, status)| (cpu, status.state()))
    }

    /// The virtual CPU with the lowest number from `index` on.
    pub fn at_or_after(&self, index: usize) -> Option<(&Arc<VirtualCpu>, CpuState)> {
        let entry = match self.all.workers.get(index) {
            Some(entry) => entry,
            None => self.all.threads.at_or_after(index.saturating_sub(MAX_CPUS))?.1,
        };
        Some((&entry.0, entry.1.state()))
    }

    /// All workers, with their states.
    pub fn workers(&self) -> impl Iterator<Item = (&Arc<VirtualCpu>, CpuState)> {
        self.all.workers.iter().map(|(cpu, status)| (cpu, status.state()))
    }

    /// Whether another worker than `index` has a hart or waits for one.
    pub fn is_another_active(&self, index: usize) -> bool {
        self.workers().any(|(cpu, state)| cpu.index != index && state.is_active())
    }

    /// Thread `index` was stopped inside the executor. Returns false if too many were.
    pub fn enter_executor(&mut self, index: usize) -> bool {
        let place = self.in_executor.iter_mut().find(|place| **place == 0);
        place.map(|place| *place = index).is_some()
    }

    /// Thread `index` gets a hart, or ends.
    pub fn leave_executor(&mut self, index: usize) {
        if let Some(place) = self.in_executor.iter_mut().find(|place| **place == index) {
            *place = 0;
        }
    }

    /// All that may hold a lock of the executor, with their states: the workers, and the threads
    /// that were stopped inside it.
    pub fn in_executor(&self) -> impl Iterator<Item = (&Arc<VirtualCpu>, CpuState)> {
        let threads = self.in_executor.iter().filter(|index| **index != 0);
        self.workers().chain(threads.filter_map(|index| self.get(*index)))
    }

    /// The thread with this id.
    pub fn thread(&self, id: u32) -> Option<&Arc<VirtualCpu>> {
        let is_it = |cpu: &VirtualCpu| cpu.as_thread().is_some_and(|thread| thread.id == id);
        if let Some((cpu, state)) = self.workers().next()
            && is_it(cpu)
            && state != CpuState::Ended
        {
            return Some(cpu);
        }
        let number = self.numbers.get(&id)?;
        self.all.get(*number).map(|(cpu, _)| cpu)
    }

    /// The status of virtual CPU `index`.
    pub fn status(&mut self, index: usize) -> Option<&mut CpuStatus> {
        self.all.get_mut(index).map(|(_, status)| status)
    }

    /// Whether no virtual CPU is added any more: the process is ending, or all but one are.
    fn is_closed(&self) -> bool {
        self.ending.is_some() || self.replacer.is_some()
    }

    /// The number of the next worker, with memory for [`push`](Self::push).
    ///
    /// # Errors
    /// `EAGAIN` at the limit, `ESRCH` if the process is ending, `ENOMEM`.
    pub fn reserve(&mut self) -> Result<usize, Errno> {
        if self.all.workers.len() >= MAX_CPUS {
            return Err(Errno::EAGAIN);
        }
        if self.is_closed() {
            return Err(Errno::ESRCH);
        }
        self.all.workers.try_reserve(1)?;
        Ok(self.all.workers.len())
    }

    /// The number of the next thread, with memory for [`push`](Self::push).
    ///
    /// # Errors
    /// `EAGAIN` at the limit, `ESRCH` if the process is ending, `ENOMEM`.
    pub fn reserve_thread(&mut self) -> Result<usize, Errno> {
        if self.is_closed() {
            return Err(Errno::ESRCH);
        }
        match self.all.threads.reserve() {
            Ok(slot) => Ok(MAX_CPUS + slot),
            Err(NoSlot::Full) => Err(Errno::EAGAIN),
            Err(NoSlot::OutOfMemory) => Err(Errno::ENOMEM),
        }
    }

    /// Adds a virtual CPU with the number that was reserved last, which is runnable.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn push(&mut self, cpu: Arc<VirtualCpu>) -> Result<(), Errno> {
        let status = CpuStatus::runnable(self.page.cpus.get(cpu.index));
        if cpu.index < MAX_CPUS {
            self.all.workers.try_push((cpu, status))?;
        } else {
            let number = cpu.index;
            let (level, id) =
                cpu.as_thread().map_or((Priority::DEFAULT, 0), |own| (own.priority(), own.id));
            self.numbers.try_insert(id, number)?;
            let entered = of_linux(&cpu).map_or(Ok(()), |thread| thread.enter(self.process));
            if entered.is_err() || self.all.threads.put((cpu.clone(), status)).is_err() {
                self.numbers.remove(&id);
                leave(&cpu, self.process);
                return Err(Errno::ENOMEM);
            }
            self.thread_levels.add(level);
        }
        self.census.change(None, CpuState::Runnable);
        Ok(())
    }

    /// The one that [`pop`](Self::pop) removes.
    pub fn last(&self) -> Option<&Arc<VirtualCpu>> {
        let thread = self.all.threads.last().map(|(cpu, _)| cpu);
        thread.or_else(|| self.all.workers.last().map(|(cpu, _)| cpu))
    }

    /// Removes one, to be dropped without the lock. Called by the reaper.
    pub fn pop(&mut self) -> Option<Entry> {
        let Some(entry) = self.all.threads.pop() else { return self.all.workers.pop() };
        if let Some(thread) = entry.0.as_thread() {
            // One by one: the whole map, freed at once, would be a long portion.
            self.numbers.remove(&thread.id);
            leave(&entry.0, self.process);
        }
        Some(entry)
    }

    /// Removes thread `index`, which has ended, to be dropped without the lock.
    pub fn remove_thread(&mut self, index: usize) -> Option<Entry> {
        self.leave_executor(index);
        let removed = self.all.threads.take(index.checked_sub(MAX_CPUS)?)?;
        if let Some(thread) = removed.0.as_thread() {
            self.numbers.remove(&thread.id);
            leave(&removed.0, self.process);
        }
        Some(removed)
    }

    /// Applies `event` to virtual CPU `index`. Returns its new state, `None` if the event is not
    /// allowed.
    ///
    /// If then no virtual CPU of an ending process is active, the reaper is notified.
    ///
    /// Workers of a process that is to run are apart: each caller's event is known where it is
    /// compiled, and few instructions are left.
    #[must_use]
    #[inline(always)]
    pub fn apply(&mut self, index: usize, event: CpuEvent) -> Option<CpuState> {
        if index >= MAX_CPUS || !matches!(self.order(index), Order::Run) {
            return self.apply_by_order(index, event);
        }
        let (_, status) = self.all.workers.get_mut(index)?;
        let before = status.state();
        let after = status.apply(event, Order::Run, self.page.cpus.get(index))?;
        self.census.change(Some(before), after);
        Some(after)
    }

    /// As [`Self::apply`], for all virtual CPUs and all that can become of them.
    #[inline(never)]
    fn apply_by_order(&mut self, index: usize, event: CpuEvent) -> Option<CpuState> {
        let order = self.order(index);
        let (cpu, status) = self.all.get_mut(index)?;
        let before = status.state();
        let after = status.apply(event, order, self.page.cpus.get(index))?;
        self.census.change(Some(before), after);
        if index >= MAX_CPUS
            && let Some(thread) = cpu.as_thread()
        {
            match (before.is_active(), after.is_active()) {
                (true, false) => self.thread_levels.remove(thread.priority()),
                (false, true) => self.thread_levels.add(thread.priority()),
                _ => {}
            }
        }
        if after == CpuState::Held {
            self.hold(index);
        }
        if self.ending.is_some() {
            self.reap_if_ended();
        }
        Some(after)
    }

    /// What is to become of virtual CPU `index`.
    #[inline]
    fn order(&self, index: usize) -> Order {
        if !self.has_orders {
            return Order::Run;
        }
        let reasons = Reasons {
            is_ending: self.ending.is_some(),
            is_stopped: self.stopped.is_stopped(),
            replacer: self.replacer,
            copier: self.copier,
        };
        reasons.order(index)
    }

    /// Called after each change of what [`Self::order`] depends on.
    fn orders_changed(&mut self) {
        self.has_orders = self.ending.is_some()
            || self.replacer.is_some()
            || self.copier.is_some()
            || self.stopped.is_stopped();
    }

    /// Whether virtual CPU `index`, which has a hart, must leave it.
    pub fn must_leave(&self, index: usize) -> bool {
        !matches!(self.order(index), Order::Run)
    }

    /// Virtual CPU `index` has become held.
    fn hold(&mut self, index: usize) {
        self.lend_to_copier(index);
        let priority = self.held_priority(index);
        self.held.insert(&mut self.all, index as u16, priority);
    }

    /// How urgently virtual CPU `index`, which is held, is to be released. Others may wait for one
    /// that was stopped inside the executor; a worker may have anything ready.
    fn held_priority(&self, index: usize) -> Priority {
        let thread = self.get(index).and_then(|(cpu, _)| cpu.as_thread());
        let thread = thread.filter(|thread| !thread.is_in_executor());
        thread.map_or(Priority::MOST_URGENT, Thread::priority)
    }

    /// Whether some are held.
    pub fn has_held(&self) -> bool {
        !self.held.is_empty()
    }

    /// Releases the most urgent of those that are held, and of these the one that has been held for
    /// longest, unless the process is stopped. While one copies the memory, no other is released.
    /// One that replaces the program comes first: the others only end, and none of them would
    /// release it when it gets a hart. Returns it if it is runnable; the caller puts it into the
    /// run queue.
    pub fn release_one(&mut self) -> Option<Arc<VirtualCpu>> {
        let is_held = |index: &usize| matches!(self.get(*index), Some((_, CpuState::Held)));
        let first = [self.replacer, self.copier].into_iter().flatten().find(is_held);
        let index = match first {
            Some(index) => index,
            None => usize::from(self.held.first()?),
        };
        // A state other than held is that of a process that is ending.
        let after = self.apply(index, CpuEvent::Release)?;
        self.held.remove(&mut self.all, index as u16);
        let cpu = self.get(index).map(|(cpu, _)| cpu.clone());
        cpu.filter(|_| after == CpuState::Runnable)
    }

    /// The process is stopped by `signal`, which came when it had been told to go on `continued`
    /// times. Returns false if it is stopped already, or ending.
    pub fn begin_stop(&mut self, signal: u8, continued: u64) -> bool {
        let begins = self.ending.is_none() && self.stopped.begin(signal, continued);
        self.orders_changed();
        begins
    }

    /// The process has been told to go on, for the `continued`th time. Returns false if it was not
    /// stopped, or by a signal that came later.
    pub fn end_stop(&mut self, continued: u64) -> bool {
        let ends = self.stopped.end(continued);
        self.orders_changed();
        ends
    }

    /// If the process is stopped and none has a hart any more: the signal, once.
    pub fn take_stop_report(&mut self) -> Option<u8> {
        self.stopped.take_report(self.census.harts().next().is_none())
    }

    /// Changes the level of `cpu`, a thread of this process.
    pub fn set_thread_priority(&mut self, cpu: &VirtualCpu, priority: Priority) {
        let Some(thread) = cpu.as_thread() else { return };
        let index = cpu.index;
        let Some((_, state)) = self.get(index) else { return };
        let before = thread.set_priority(priority);
        if state.is_active() && index >= MAX_CPUS {
            self.thread_levels.remove(before);
            self.thread_levels.add(priority);
        }
        if state == CpuState::Held {
            let priority = self.held_priority(index);
            self.held.set_priority(&mut self.all, index as u16, priority);
            self.lend_to_copier(index);
        }
    }

    /// Makes a parked worker runnable; the caller puts it into the run queue.
    pub fn unpark_one(&mut self) -> Option<Arc<VirtualCpu>> {
        let index = self.workers().position(|(_, state)| state == CpuState::Parked)?;
        let state = self.apply(index, CpuEvent::Unpark);
        (state == Some(CpuState::Runnable)).then(|| self.all.workers[index].0.clone())
    }

    /// The process ends with `status`, unless it is ending already. Returns whether it was this
    /// status. [`kill`](Self::kill) follows.
    pub fn begin_ending(&mut self, status: WaitStatus) -> bool {
        let is_first = self.ending.is_none();
        self.ending.get_or_insert(status);
        self.orders_changed();
        is_first
    }

    /// Virtual CPU `index` begins to replace the program: all others end at their next transition,
    /// and none is added. [`Self::kick`] follows. Returns false if the process is ending, or
    /// another one replaces the program.
    pub fn begin_replacing(&mut self, index: usize) -> bool {
        let begins = !self.is_closed();
        if begins {
            self.replacer = Some(index);
            self.orders_changed();
        }
        begins
    }

    /// Virtual CPU `index` begins to copy the memory, or goes on to: all others are held from their
    /// next transition on. [`Self::kick`] follows. Returns false if it has to wait for another one
    /// that does the same, or ends.
    pub fn begin_copying(&mut self, index: usize) -> bool {
        let begins = !self.is_closed() && self.copier.is_none_or(|copier| copier == index);
        if begins {
            self.copier = Some(index);
            self.orders_changed();
        }
        begins
    }

    /// The memory has been copied; [`Self::release_one`] follows.
    pub fn end_copying(&mut self) {
        if let Some(thread) = self.copier().and_then(|(cpu, _)| cpu.as_thread()) {
            thread.end_loan();
        }
        self.copier = None;
        self.orders_changed();
    }

    /// The virtual CPU that copies the memory, and its state.
    pub fn copier(&self) -> Option<(&Arc<VirtualCpu>, CpuState)> {
        self.get(self.copier?)
    }

    /// If a virtual CPU copies the memory: virtual CPU `index`, which is held meanwhile, makes it
    /// as urgent as itself. [`Process::raise_copier`](super::Process::raise_copier) follows.
    pub fn lend_to_copier(&self, index: usize) {
        let copier = self.copier().and_then(|(cpu, _)| cpu.as_thread());
        let held = self.get(index).and_then(|(cpu, _)| cpu.as_thread());
        if let (Some(copier), Some(held)) = (copier, held) {
            copier.lend(held.priority());
        }
    }

    /// Whether virtual CPU `index` replaces the program.
    pub fn is_replacer(&self, index: usize) -> bool {
        self.replacer == Some(index)
    }

    /// The program has been replaced; the virtual CPU that did it is the only one alive. If
    /// `successor` is given, that becomes number 0, the caller puts it into the run queue, and the
    /// other one ends. Returns those that have ended, to be dropped without the lock.
    pub fn end_replacing(
        &mut self,
        successor: Option<Arc<VirtualCpu>>,
    ) -> [Option<Entry>; MAX_CPUS + 1] {
        let mut ended = [const { None }; MAX_CPUS + 1];
        let [removed, number_0, rest @ ..] = &mut ended;
        self.first_code = None;
        if let Some(cpu) = successor
            && let Some(replacer) = self.replacer
            && let Some(place) = self.all.workers.get_mut(0)
        {
            // First the one that begins: otherwise the reaper could take a process that is ending.
            let status = CpuStatus::runnable(self.page.cpus.first());
            *number_0 = Some(core::mem::replace(place, (cpu, status)));
            self.census.change(None, CpuState::Runnable);
            let _ = self.apply(replacer, CpuEvent::Exit);
            *removed = self.remove_thread(replacer);
        }
        for place in rest {
            if self.all.workers.len() > 1 {
                *place = self.all.workers.pop();
            }
        }
        self.in_executor = [0; IN_EXECUTOR_MAX];
        self.replacer = None;
        self.orders_changed();
        ended
    }

    /// Interrupts the harts that run some: the trap is sufficient, because a hart checks for the
    /// end before it enters user mode again. Those that wait for a hart end when they get one, and
    /// those that are asleep never wake.
    pub fn kill(&mut self) {
        self.kick();
        self.reap_if_ended();
    }

    /// Interrupts the other harts that run some.
    pub fn kick(&self) {
        for hart in self.census.harts().filter(|&hart| hart != arch::hart_index()) {
            arch::send_interrupt_to(hart);
        }
    }

    /// Whether all have ended.
    pub fn all_ended(&self) -> bool {
        self.census.alive() == 0
    }

    /// When no virtual CPU of an ending process can run any more, passes the process to the reaper.
    pub fn reap_if_ended(&mut self) {
        if self.ending.is_some()
            && self.census.active() == 0
            && let Some(place) = self.reaper_place.take()
        {
            reaper::take(self.process, place);
        }
    }
}
