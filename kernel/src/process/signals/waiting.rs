//! Virtual CPUs that wait: for a call, which a signal cuts short unless the call is one on files,
//! or for a signal.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::sync::atomic::Ordering::SeqCst;

use cops_abi::Errno;
use cops_algorithms::signals::{Information, Set};

use super::super::Process;
use super::super::cpu::{CpuState, VirtualCpu};
use super::super::undelivered::calls;
use super::{CpuSignalState, Wait};
use crate::arch;

impl Process {
    /// `cpu` has begun to wait for this, and its registers do not change until then.
    pub fn waits_for(self: &Arc<Self>, cpu: &VirtualCpu, wait: Wait) {
        if self.personality.is_linux() {
            cpu.signals.state.lock().wait = Some(wait);
            // After that is stored: otherwise a signal that arrives now finds nothing to cut short.
            if cpu.signals.is_due() {
                self.interrupt_wait(cpu);
            }
        }
    }

    /// Makes `cpu` look for signals. Called without a lock of the parent module, see there.
    pub(super) fn alert(self: &Arc<Self>, cpu: &Arc<VirtualCpu>) {
        cpu.signals.is_due.store(true, SeqCst);
        let state = {
            let cpus = self.cpus.lock();
            let found = cpus.get(cpu.index).filter(|(other, _)| Arc::ptr_eq(other, cpu));
            found.map(|(_, state)| state)
        };
        match state {
            Some(CpuState::Running { hart }) if hart != arch::hart_index() => {
                arch::send_interrupt_to(hart);
            }
            Some(CpuState::Waiting) => self.interrupt_wait(cpu),
            // It looks before it enters user mode.
            _ => {}
        }
    }

    /// Cuts short what `cpu` waits for if it would take a signal now, unless that has happened.
    ///
    /// The sender of a signal may come here late: `cpu` has found the signal itself, has run its
    /// handler, and waits for something else, which this signal does not concern.
    fn interrupt_wait(self: &Arc<Self>, cpu: &VirtualCpu) {
        let Some(wait) = self.take_wait_to_interrupt(cpu) else { return };
        let interrupted = match wait {
            Wait::Call(call) => calls().interrupt(self, call.get()),
            Wait::Futex => cpu.leave_futex().then_some(None),
        };
        if let Some(deadline_ticks) = interrupted {
            cpu.signals.state.lock().interrupted = Some(deadline_ticks);
            // The signal may be another one, of which the virtual CPU has not been told yet.
            cpu.signals.demand_attention();
            self.end_wait_of(cpu, None);
        }
    }

    /// What `cpu` waits for, if it would take a signal now.
    fn take_wait_to_interrupt(&self, cpu: &VirtualCpu) -> Option<Wait> {
        self.if_signalled(cpu, |state| state.wait.take()).flatten()
    }

    /// Whether `cpu`, which runs on this hart, would take a signal now.
    pub fn has_signal(&self, cpu: &VirtualCpu) -> bool {
        cpu.signals.is_due() && self.if_signalled(cpu, |_| ()).is_some()
    }

    /// Does this if `cpu` would take a signal now.
    fn if_signalled<T>(
        &self,
        cpu: &VirtualCpu,
        then: impl FnOnce(&mut CpuSignalState) -> T,
    ) -> Option<T> {
        let linux = self.personality.as_linux()?;
        let signals = linux.signals.lock();
        let of_process = signals.as_ref().map_or(0, |signals| signals.pending.set());
        // Under both locks: whatever takes the signal takes it before this or after it.
        let mut state = cpu.signals.state.lock();
        let is_signalled = (of_process | state.pending.set()) & state.taken() != 0;
        is_signalled.then(|| then(&mut state))
    }

    /// Takes one of `signals` for `cpu`, which runs on this hart. `None`: it waits for them from
    /// now on, until it returns to user mode.
    ///
    /// # Errors
    /// `ENOSYS` for a program that has no signals.
    pub fn take_signal_or_wait(
        &self,
        cpu: &VirtualCpu,
        signals: Set,
    ) -> Result<Option<Information>, Errno> {
        let linux = self.personality.as_linux().ok_or(Errno::ENOSYS)?;
        let mut guard = linux.signals.lock();
        let of_process = guard.as_mut().ok_or(Errno::ENOSYS)?;
        let mut state = cpu.signals.state.lock();
        let taken = state.take_one_of(signals, &mut of_process.pending);
        if taken.is_none() {
            state.waits_for = signals;
            of_process.waiter = Some(cpu.index);
            drop(state);
            // On its way to user mode it stops waiting.
            cpu.signals.demand_attention();
        }
        Ok(taken)
    }
}
