//! Priority that is donated to the holder of a lock that the kernel does not know (decision 77).
//!
//! A program's own locks are words in its memory. One that waits for such a lock names the holder,
//! and the kernel lets the holder run as if it were as urgent, for a moment. May touch: what is
//! donated to a virtual CPU, and its place in the run queue.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use cops_abi::page::MAX_CPUS;
use cops_abi::syscall::HOLDER_UNKNOWN;
use cops_abi::{Errno, Priority};

use super::cpu::{CpuState, VirtualCpu};
use super::{Process, RUN_QUEUE};
use crate::sched::Standing;

impl Process {
    /// `cpu` waits for a lock of `holder`: the number of a virtual CPU, the id of a thread, or
    /// [`HOLDER_UNKNOWN`], for all virtual CPUs that are not threads. If that waits for a hart, it
    /// has the urgency of `cpu` until it has had one for a moment. Returns how many do.
    ///
    /// This gives a program nothing that it does not have: the priority is that of its own virtual
    /// CPU, and capped.
    ///
    /// # Errors
    /// `ESRCH` if there is no such virtual CPU or thread.
    pub fn donate_priority(&self, cpu: &VirtualCpu, holder: usize) -> Result<usize, Errno> {
        // With what was donated to it: the holder of its lock may wait for another one.
        let priority = cpu.priority();
        let mut found = [const { None }; MAX_CPUS];
        let cpus = self.cpus.lock();
        if holder == HOLDER_UNKNOWN {
            for (place, (cpu, state)) in found.iter_mut().zip(cpus.workers()) {
                *place = accept(cpu, state, priority);
            }
        } else {
            let index = if holder < MAX_CPUS {
                Some(holder)
            } else {
                let id = u32::try_from(holder).ok();
                id.and_then(|id| cpus.thread(id)).map(|cpu| cpu.index)
            };
            let named = index.and_then(|index| cpus.get(index)).ok_or(Errno::ESRCH)?;
            found[0] = accept(named.0, named.1, priority);
        }
        drop(cpus);
        let count = found.iter().flatten().count();
        if count > 0 {
            RUN_QUEUE.raise_all(&found, priority);
            for cpu in found.iter().flatten().filter(|cpu| is_paused(cpu)) {
                RUN_QUEUE.raise_paused(cpu, priority);
            }
        }
        Ok(count)
    }
}

/// `cpu` accepts the priority, if it waits for a hart and is less urgent.
///
/// Called under the lock with which it is dispatched: so it finds this when it runs next.
fn accept(cpu: &Arc<VirtualCpu>, state: CpuState, priority: Priority) -> Option<Arc<VirtualCpu>> {
    let waits = match state {
        CpuState::Runnable => true,
        CpuState::Running { .. } => is_paused(cpu),
        _ => false,
    };
    if !waits || !priority.is_more_urgent_than(cpu.priority()) {
        return None;
    }
    cpu.donated.raise(priority);
    Some(cpu.clone())
}

/// Whether the switching coroutine that has `cpu` lets coroutines of the kernel run first.
fn is_paused(cpu: &VirtualCpu) -> bool {
    matches!(cpu.entity.standing(), Standing::Paused { .. })
}

impl VirtualCpu {
    /// Whether it runs, or is about to, with what others have donated.
    pub(super) fn has_donation(&self) -> bool {
        self.donated.load(Relaxed).is_some()
    }

    /// It has run for a moment, and counts as what it is.
    pub(super) fn end_donation(&self) {
        self.donated.store(None, Relaxed);
    }
}
