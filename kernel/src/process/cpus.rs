//! The virtual CPUs of a process: which there are, what each does, and whether the process is
//! ending. [`Process::cpus`](super::Process) has them behind its lock.

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::page::{MAX_CPUS, ProcessPage};
use cops_fallible::List;

use super::cpu::{CpuEvent, CpuState, CpuStatus, VirtualCpu};
use super::{ProcessId, WaitStatus, reaper};
use crate::arch;
use crate::mm::SharedFrame;

/// The virtual CPUs of a process, with their shared status.
pub(crate) struct Cpus {
    process: ProcessId,
    list: List<(Arc<VirtualCpu>, CpuStatus)>,
    /// The process's page, which has a record for each.
    page: SharedFrame<ProcessPage>,
    /// How the process ended or is going to.
    ending: Option<WaitStatus>,
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
        Self { process, list: List::new(), page, ending: None, reaper_place: Some(reaper_place) }
    }

    /// Their number, whatever they do.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// How the process ended or is going to.
    pub fn ending(&self) -> Option<WaitStatus> {
        self.ending
    }

    /// Virtual CPU `index` and its state.
    pub fn get(&self, index: usize) -> Option<(&Arc<VirtualCpu>, CpuState)> {
        self.list.get(index).map(|(cpu, status)| (cpu, status.state()))
    }

    /// All of them, with their states.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<VirtualCpu>, CpuState)> {
        self.list.iter().map(|(cpu, status)| (cpu, status.state()))
    }

    /// The status of virtual CPU `index`, of which there is one.
    pub fn status(&mut self, index: usize) -> &mut CpuStatus {
        &mut self.list[index].1
    }

    /// The number of the next virtual CPU, with memory for [`push`](Self::push).
    ///
    /// # Errors
    /// `EAGAIN` at the limit, `ESRCH` if the process is ending, `ENOMEM`.
    pub fn reserve(&mut self) -> Result<usize, Errno> {
        if self.list.len() >= MAX_CPUS {
            return Err(Errno::EAGAIN);
        }
        if self.ending.is_some() {
            return Err(Errno::ESRCH);
        }
        self.list.try_reserve(1)?;
        Ok(self.list.len())
    }

    /// Adds a virtual CPU, which is runnable.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn push(&mut self, cpu: Arc<VirtualCpu>) -> Result<(), Errno> {
        let record = self.page.cpus.get(self.list.len());
        Ok(self.list.try_push((cpu, CpuStatus::runnable(record)))?)
    }

    /// Removes the last one, to be dropped without the lock. Called by the reaper.
    pub fn pop(&mut self) -> Option<(Arc<VirtualCpu>, CpuStatus)> {
        self.list.pop()
    }

    /// Applies `event` to virtual CPU `index`. Returns its new state, `None` if the event is not
    /// allowed.
    ///
    /// If that ends the last virtual CPU of an ending process, the reaper is notified.
    #[must_use]
    pub fn apply(&mut self, index: usize, event: CpuEvent) -> Option<CpuState> {
        let ending = self.ending.is_some();
        let (_, status) = self.list.get_mut(index)?;
        let state = status.apply(event, ending, self.page.cpus.get(index));
        if ending && state == Some(CpuState::Ended) {
            self.reap_if_ended();
        }
        state
    }

    /// Makes a parked virtual CPU runnable; the caller puts it into the run queue.
    pub fn unpark_one(&mut self) -> Option<Arc<VirtualCpu>> {
        let index = self.iter().position(|(_, state)| state == CpuState::Parked)?;
        let state = self.apply(index, CpuEvent::Unpark);
        (state == Some(CpuState::Runnable)).then(|| self.list[index].0.clone())
    }

    /// The process ends with `status`, unless it is ending already. Returns whether it was this
    /// status. [`kill`](Self::kill) follows.
    pub fn begin_ending(&mut self, status: WaitStatus) -> bool {
        let is_first = self.ending.is_none();
        self.ending.get_or_insert(status);
        is_first
    }

    /// Ends those that no hart runs, and interrupts the harts that run the others: the trap is
    /// sufficient, because a hart checks for the end before it enters user mode again.
    pub fn kill(&mut self) {
        for (cpu, status) in &mut self.list {
            let killed = status.apply(CpuEvent::Kill, true, self.page.cpus.get(cpu.index));
            if let (None, CpuState::Running { hart }) = (killed, status.state())
                && hart != arch::hart_index()
            {
                arch::send_interrupt_to(hart);
            }
        }
        self.reap_if_ended();
    }

    /// Whether no virtual CPU can run any more.
    pub fn all_ended(&self) -> bool {
        self.iter().all(|(_, state)| state == CpuState::Ended)
    }

    /// When no virtual CPU of an ending process can run any more, passes the process to the reaper.
    pub fn reap_if_ended(&mut self) {
        if self.ending.is_some()
            && self.all_ended()
            && let Some(place) = self.reaper_place.take()
        {
            reaper::take(self.process, place);
        }
    }
}
