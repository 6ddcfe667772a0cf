//! Virtual CPUs that are asked to leave their work to another one of their program and to park
//! (decision 70): those that share a hart with it, and those with a hart of their own that makes
//! the machine no faster.
//!
//! The request is a number in the program's page. Its library obeys between two polls, or does not;
//! then only the program itself is slower.
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::Relaxed;

use cops_abi::page::MAX_CPUS;
use cops_algorithms::count::Count;
use cops_algorithms::gathering::{Look, Trial};

use super::Process;
use super::cpu::{CpuState, VirtualCpu};
use super::cpus::Cpus;
use crate::arch;
use crate::counters::COUNTERS;
use crate::sched::{self, spread};

impl Process {
    /// `cpu` is about to run on this hart, and something else than `cpu` has run there since it
    /// last did. If that is a worker of this process, and paused here, `cpu` leaves its work to it.
    pub(super) fn leave_shared_hart(&self, cpu: &VirtualCpu) {
        if self.has_other_workers(cpu) {
            let here = arch::hart_index();
            self.ask_to_leave(&self.cpus.lock(), cpu, |hart| hart == here);
        }
    }

    /// The slice of `cpu`, which has this hart, has ended: it may be time to find out whether fewer
    /// harts would do as much.
    pub(super) fn gather(&self, cpu: &VirtualCpu) {
        if !self.has_other_workers(cpu) {
            return;
        }
        let cpus = self.cpus.lock();
        let harts = cpus.workers().fold(0_u64, |harts, (_, state)| match state {
            CpuState::Running { hart } => harts | 1 << hart,
            _ => harts,
        });
        let trial = spread::gather(&Look {
            now: Count { ticks: arch::now_ticks(), calls: COUNTERS.system_calls.get() },
            process: self.id,
            spread_over: harts.count_ones(),
        });
        match trial {
            Trial::Nothing => {}
            Trial::Leave => {
                let here = arch::hart_index();
                self.ask_to_leave(&cpus, cpu, |hart| hart != here);
            }
            Trial::Return => {
                drop(cpus);
                self.unpark_another();
                sched::offer_all();
            }
        }
    }

    /// Whether `cpu` is a worker, and there are others.
    fn has_other_workers(&self, cpu: &VirtualCpu) -> bool {
        self.cpu_count() > 1 && cpu.as_thread().is_none()
    }

    /// Asks worker `cpu` to leave its work to a worker on a hart for which `is_wanted` holds, and
    /// that is not to leave itself.
    fn ask_to_leave(&self, cpus: &Cpus, cpu: &VirtualCpu, is_wanted: impl Fn(usize) -> bool) {
        let request = |index: usize| &self.page.cpus[index % MAX_CPUS].leave_to;
        let heir = cpus.workers().find(|(other, state)| {
            other.index != cpu.index
                && matches!(state, CpuState::Running { hart } if is_wanted(*hart))
                && request(other.index).load(Relaxed) == 0
        });
        if let Some((heir, _)) = heir {
            request(cpu.index).store(heir.index as u32 + 1, Relaxed);
        }
    }
}
