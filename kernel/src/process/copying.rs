//! Holding the other virtual CPUs of a process while one copies its memory for a child (decision
//! 69), so that the copy is that of one moment.
//!
//! They are held as those of a stopped process are. The one that copies is as urgent meanwhile as
//! the most urgent thread that waits for it.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use super::cpu::RUN_QUEUE;
use super::ending::halt;
use super::stopping::RELEASED_AT_ONCE;
use super::{Process, VirtualCpu};

/// The others are held until this is dropped.
pub(super) struct OthersHeld(Arc<Process>);

impl OthersHeld {
    /// Holds the others, or goes on to: `held` is what earlier attempts have made. Returns false if
    /// some have not left their harts yet, or another virtual CPU copies the memory; then the
    /// caller tries again in its next portion.
    pub(super) fn hold(held: &mut Option<Self>, cpu: &VirtualCpu) -> bool {
        let process = &cpu.process;
        let mut cpus = process.cpus.lock();
        if cpus.census().alive() == 1 {
            // No other can start one.
            return true;
        }
        if !cpus.begin_copying(cpu.index) {
            return false;
        }
        if held.is_none() {
            *held = Some(Self(process.clone()));
            // Before harts are interrupted: a hart that checks because of that sees it.
            process.halt(halt::COPYING);
            cpus.kick();
        }
        let is_alone = cpus.census().running() == 1;
        drop(cpus);
        if !is_alone {
            process.hurry_paused();
        }
        is_alone
    }
}

impl Drop for OthersHeld {
    fn drop(&mut self) {
        let process = &*self.0;
        let mut cpus = process.cpus.lock();
        cpus.end_copying();
        process.unhalt(halt::COPYING);
        drop(cpus);
        process.release_held(RELEASED_AT_ONCE);
    }
}

impl Process {
    /// Makes those of its virtual CPUs leave their harts that are to, and are paused there because
    /// of what is more urgent than they are: what waits for that may be the most urgent.
    pub(super) fn hurry_paused(&self) {
        RUN_QUEUE.hurry_paused(|cpu| core::ptr::eq(&*cpu.process, self));
    }

    /// A virtual CPU has become held, or more urgent, and has lent its level to the one that copies
    /// the memory, if there is one
    /// ([`Cpus::lend_to_copier`](super::cpus::Cpus::lend_to_copier)): moves that one forward in the
    /// run queue.
    #[cold]
    pub(super) fn raise_copier(&self) {
        if !self.is_halted_for(halt::COPYING) {
            return;
        }
        let cpus = self.cpus.lock();
        let Some((copier, state)) = cpus.copier() else { return };
        let copier = copier.clone();
        drop(cpus);
        self.urgency_changed(&copier, state);
    }
}
