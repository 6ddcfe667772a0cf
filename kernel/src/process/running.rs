//! What the virtual CPUs of a process do: begin, run, park, wait for a call and end. Each
//! transition has its effect on the run queue and on the levels that the process publishes.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use cops_abi::{CoroutineId, Errno, layout};
use cops_fallible::try_arc;
use cops_lock::MutexGuard;

use super::cpu::{CpuEvent, CpuState, RUN_QUEUE, VirtualCpu};
use super::cpus::Cpus;
use super::ending::halt;
use super::loader::Start;
use super::signals::CpuSignals;
use super::{PersonalityKind, Process, Thread, WaitStatus};
use crate::arch::{self, UserContext};
use crate::counters::COUNTERS;
use crate::mm::Rights;
use crate::sched::Asked;
use crate::trace::{self, Event};

/// Top of the stack of virtual CPU `index`.
fn stack_top(index: usize) -> usize {
    layout::STACK_TOP - index * layout::STACK_STRIDE
}

impl Process {
    /// Adds a virtual CPU that starts at `entry` on the stack for its number, with that number as
    /// its argument.
    ///
    /// # Errors
    /// `EAGAIN` at the limit, `ESRCH` if the process is ending, `ENOMEM`.
    pub fn add_cpu(self: &Arc<Self>, entry: usize) -> Result<usize, Errno> {
        let mut cpus = self.cpus.lock();
        let index = cpus.reserve()?;
        let top = stack_top(index);
        let context = UserContext::new(entry, top, index);
        let thread = Thread::first(self.id);
        let signals = CpuSignals::default();
        let cpu = try_arc(VirtualCpu::new(self.clone(), index, context, thread, signals)?)?;
        // Last, because it would not be undone.
        self.space.map_anonymous(top - layout::STACK_BYTES..top, Rights::READ_WRITE)?;
        cpus.push(cpu.clone())?;
        self.count_cpus(&cpus);
        drop(cpus);
        self.queue(cpu);
        Ok(index)
    }

    /// The registers with which a program begins: the stack pointer points to its arguments, and so
    /// does the argument of a native program; that of a Linux program is 0. A program of the
    /// tutorial gets the number of arguments and the address of the pointers to them.
    pub(super) fn first_context(&self, start: &Start) -> UserContext {
        let (entry, stack_pointer) = (start.entry, start.stack_pointer);
        match self.personality.kind() {
            PersonalityKind::Native => UserContext::new(entry, stack_pointer, stack_pointer),
            PersonalityKind::Linux => UserContext::new(entry, stack_pointer, 0),
            PersonalityKind::Tutorial => {
                let mut context = UserContext::new(entry, stack_pointer, 0);
                context.set_results(start.argument_count, stack_pointer + size_of::<usize>());
                context
            }
        }
    }

    /// Adds the first virtual CPU, with these registers, as this thread, and with these signals. It
    /// looks for those that have been sent to the process before.
    ///
    /// # Errors
    /// `ESRCH` if the process is ending, `EAGAIN`, `ENOMEM`.
    pub(super) fn add_first_cpu(
        self: &Arc<Self>,
        context: UserContext,
        thread: Thread,
        signals: CpuSignals,
    ) -> Result<(), Errno> {
        signals.demand_attention();
        let mut cpus = self.cpus.lock();
        let index = cpus.reserve()?;
        let cpu = try_arc(VirtualCpu::new(self.clone(), index, context, thread, signals)?)?;
        cpus.push(cpu.clone())?;
        self.count_cpus(&cpus);
        drop(cpus);
        self.queue(cpu);
        Ok(())
    }

    /// Puts a virtual CPU that has just become `Runnable` into the run queue.
    pub(crate) fn queue(&self, cpu: Arc<VirtualCpu>) {
        self.publish_queued(&cpu);
        RUN_QUEUE.enqueue(cpu);
    }

    /// `cpu`, taken out of the run queue, is about to run on this hart. `Err` if the process is
    /// ending or stopped instead; [`Self::report_stop`] follows then.
    ///
    /// The value is the result of the synchronous call that it waited for, if any.
    pub fn start_running(&self, cpu: &VirtualCpu) -> Result<Option<isize>, ()> {
        let mut cpus = self.cpus.lock();
        match cpus.apply(cpu.index, CpuEvent::Dispatch { hart: arch::hart_index() }) {
            Some(CpuState::Running { .. }) => {
                if cpu.as_thread().is_some_and(Thread::is_in_executor) {
                    cpus.leave_executor(cpu.index);
                }
                let result = cpus.status(cpu.index).and_then(|status| status.result.take());
                if cpus.has_held() {
                    drop(cpus);
                    self.release_more();
                }
                Ok(result)
            }
            _ => {
                drop(cpus);
                self.raise_copier();
                Err(())
            }
        }
    }

    /// `cpu` stops running because others are to run; it stays runnable.
    pub fn stop_running(&self, cpu: &Arc<VirtualCpu>) {
        let mut cpus = self.cpus.lock();
        let state = cpus.apply(cpu.index, CpuEvent::Preempt);
        if matches!(state, Some(CpuState::Runnable | CpuState::Held))
            && let Some(thread) = cpu.as_thread().filter(|thread| thread.is_in_executor())
            && !cpus.enter_executor(cpu.index)
        {
            thread.set_crowded();
        }
        drop(cpus);
        if state != Some(CpuState::Runnable) {
            self.raise_copier();
            if self.is_stopped() {
                self.publish();
                self.report_stop();
            }
            return;
        }
        self.publish_queued(cpu);
        RUN_QUEUE.requeue(cpu.clone());
    }

    /// `cpu` ends with `code` by its own call; the last one ends the process, with the code of the
    /// first thread if it is a Linux program.
    pub fn end_cpu(self: &Arc<Self>, cpu: &VirtualCpu, code: u8) {
        self.raise_queued(cpu);
        let mut cpus = self.cpus.lock();
        let _ = cpus.apply(cpu.index, CpuEvent::Exit);
        if cpu.index == 0 && !self.personality.is_native() {
            cpus.first_code = Some(code);
        }
        let removed = cpus.remove_thread(cpu.index);
        if cpus.all_ended() {
            let code = cpus.first_code.unwrap_or(code);
            cpus.begin_ending(WaitStatus::exited(code));
            self.halt(halt::ENDING);
            cpus.reap_if_ended();
        }
        drop(cpus);
        // Without the lock.
        drop(removed);
        self.pass_on(cpu, cpu.signals.taken());
        self.report_stop();
    }

    /// Parks `cpu`, which is running, unless it was woken, a result has arrived or its process is
    /// ending. Returns whether it is parked now.
    ///
    /// If it `leaves`, results are for another worker that is active, and without one it goes on.
    pub fn park(&self, cpu: &VirtualCpu, leaves: bool) -> bool {
        let mut cpus = self.cpus.lock();
        // Under the lock that `complete` takes after its push: either the entry is visible here or
        // `complete` sees the virtual CPU parked.
        let has_results = self.ring.has_results(&self.page.ring);
        let is_woken =
            cpus.status(cpu.index).is_some_and(|status| core::mem::take(&mut status.wake_pending));
        let is_needed = if leaves { !cpus.is_another_active(cpu.index) } else { has_results };
        if is_woken || is_needed {
            return false;
        }
        if cpus.apply(cpu.index, CpuEvent::Park).is_none() {
            return false;
        }
        COUNTERS.parks.add(1);
        trace::emit(move || Event::Park { process: self.id, cpu: cpu.trace_number() });
        drop(cpus);
        self.publish();
        self.raise_queued(cpu);
        self.report_stop();
        true
    }

    /// Wakes virtual CPU `index`, or makes its next `park` return immediately.
    ///
    /// # Errors
    /// `EINVAL` if there is none with this number.
    pub fn unpark(&self, index: usize) -> Result<(), Errno> {
        let mut cpus = self.cpus.lock();
        let (cpu, state) = cpus.get(index).ok_or(Errno::EINVAL)?;
        let cpu = cpu.clone();
        if state != CpuState::Parked {
            if let Some(status) = cpus.status(index) {
                status.wake_pending = true;
            }
            return Ok(());
        }
        if cpus.apply(index, CpuEvent::Unpark) != Some(CpuState::Runnable) {
            return Ok(());
        }
        drop(cpus);
        trace::emit(move || Event::Unpark { process: self.id, cpu: index.min(15) as u8 });
        self.queue(cpu);
        Ok(())
    }

    /// `cpu`, which is running, is about to wait for a synchronous call. If the process is ending,
    /// `cpu` ends instead, and the reaper cancels the call. Returns whether it waits.
    pub fn begin_waiting(&self, cpu: &VirtualCpu) -> bool {
        trace::emit(move || Event::WaitBegin { process: self.id, cpu: cpu.trace_number() });
        self.raise_queued(cpu);
        self.cpus.lock().apply(cpu.index, CpuEvent::Wait) == Some(CpuState::Waiting)
    }

    /// As [`Self::begin_waiting`], for a call that `coroutine` completes, and for which this
    /// priority was `asked`. That of a thread follows the level of the thread from now on.
    pub fn begin_waiting_for(&self, cpu: &VirtualCpu, coroutine: CoroutineId, asked: Asked) {
        cpu.completed_by.store(coroutine.raw(), Relaxed);
        // Under a lock that a change of the level takes, too. So either the change finds the
        // coroutine, or the level is another one now.
        let waits = self.begin_waiting(cpu);
        if waits && cpu.as_thread().is_some() && self.asked_by(cpu) != asked {
            self.renew_call_of(cpu);
        }
    }

    /// Makes the call in which virtual CPU `index` waits as urgent as its thread. Returns false if
    /// that is no thread.
    pub fn renew_call_of_thread(&self, index: usize) -> bool {
        let cpu = self.cpus.lock().get(index).map(|(cpu, _)| cpu.clone());
        let Some(cpu) = cpu.filter(|cpu| cpu.as_thread().is_some()) else { return false };
        self.renew_call_of(&cpu);
        true
    }

    /// Makes the call in which `cpu`, a thread, waits as urgent as the thread.
    pub(super) fn renew_call_of(&self, cpu: &VirtualCpu) {
        let Some(coroutine) = CoroutineId::from_raw(cpu.completed_by.load(Relaxed)) else { return };
        // Another hart may do the same, for a later change of the level.
        let mut known = None;
        loop {
            let priority = self.current_priority(cpu);
            if known.replace(priority) == Some(priority) {
                break;
            }
            cops_executor::set_priority(coroutine, priority);
        }
        // It tells what the call waits for.
        cops_executor::wake_up(coroutine);
    }

    /// The synchronous call of virtual CPU `index` has completed.
    pub fn end_waiting(&self, index: usize, result: isize) {
        let cpus = self.cpus.lock();
        let Some(cpu) = cpus.get(index).map(|(cpu, _)| cpu.clone()) else { return };
        self.make_runnable(cpus, cpu, Some(result));
    }

    /// What virtual CPU `index` waits for has happened, and it repeats its call.
    #[cold]
    pub fn end_waiting_to_repeat(&self, index: usize) {
        let cpus = self.cpus.lock();
        let Some(cpu) = cpus.get(index).map(|(cpu, _)| cpu.clone()) else { return };
        self.make_runnable(cpus, cpu, None);
    }

    /// The wait of `cpu` has ended with this result; without one, it was cut short for a signal.
    /// Returns false if `cpu` ends, or has ended.
    pub(super) fn end_wait_of(&self, cpu: &VirtualCpu, result: Option<isize>) -> bool {
        let cpus = self.cpus.lock();
        // It may have ended, and its number belong to a thread of another program.
        let found = cpus.get(cpu.index).filter(|(found, _)| core::ptr::eq(&***found, cpu));
        let Some(found) = found.map(|(found, _)| found.clone()) else { return false };
        self.make_runnable(cpus, found, result)
    }

    /// Returns false if `cpu` ends instead.
    fn make_runnable(
        &self,
        mut cpus: MutexGuard<'_, Cpus>,
        cpu: Arc<VirtualCpu>,
        result: Option<isize>,
    ) -> bool {
        let index = cpu.index;
        let state = cpus.apply(index, CpuEvent::Complete);
        if !matches!(state, Some(CpuState::Runnable | CpuState::Held)) {
            return false;
        }
        if let Some(status) = cpus.status(index) {
            status.result = result;
        }
        drop(cpus);
        if state == Some(CpuState::Held) {
            self.raise_copier();
            return true;
        }
        trace::emit(move || Event::WaitEnd { process: self.id, cpu: index.min(15) as u8 });
        self.queue(cpu);
        true
    }
}
