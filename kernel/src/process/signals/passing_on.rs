//! A signal to the process that its first choice does not take any more.
//!
//! The sender chooses one virtual CPU and alerts only that. Until the virtual CPU looks, it may
//! block the signal, stop waiting for it, or end: then it alerts others that take the signal, as on
//! Linux. Either it finds the signal here, or the sender, which adds the signal under the same lock
//! as it chooses, finds that it does not take the signal.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use cops_algorithms::signals::Set;

use super::super::cpu::{CpuState, VirtualCpu};
use super::{CPUS_ASKED, Process};

/// How many virtual CPUs are alerted at most, because an alert may end a call. If more are needed,
/// the other signals wait until one of the process's virtual CPUs changes what it blocks.
const CPUS_ALERTED: usize = 16;

impl Process {
    /// `cpu` takes these signals no longer: those of them that wait for the process are for other
    /// virtual CPUs. Called without a lock of this module.
    #[inline]
    pub fn pass_on(self: &Arc<Self>, cpu: &VirtualCpu, signals: Set) {
        if signals != 0 && self.has_threads.load(Relaxed) {
            self.alert_others(cpu, signals);
        }
    }

    #[cold]
    fn alert_others(self: &Arc<Self>, cpu: &VirtualCpu, mut signals: Set) {
        let Some(linux) = self.personality.as_linux() else { return };
        let (mut next, mut alerted) = (0, 0);
        for _ in 0..CPUS_ASKED {
            let guard = linux.signals.lock();
            signals &= guard.as_ref().map_or(0, |of_process| of_process.pending.set());
            if signals == 0 || alerted == CPUS_ALERTED {
                return;
            }
            let cpus = self.cpus.lock();
            let Some((other, state)) = cpus.at_or_after(next) else { return };
            next = other.index + 1;
            if state == CpuState::Ended || core::ptr::eq(&**other, cpu) {
                continue;
            }
            let taken = signals & other.signals.taken();
            if taken != 0 {
                let other = other.clone();
                drop(cpus);
                drop(guard);
                self.alert(&other);
                signals &= !taken;
                alerted += 1;
            }
        }
    }
}
