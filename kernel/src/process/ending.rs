//! The end of a process: what begins it, and what the reaper frees in portions.

use alloc::sync::Arc;
use core::sync::atomic::Ordering::*;

use super::resumable::take_sweep;
use super::{Process, Releasing, Sweeping, VirtualCpu, WaitStatus};
use crate::fs::{Descriptor, File};

/// Number of files that one portion closes.
const PORTION_FILES: usize = 4;

/// Reasons for which virtual CPUs do not enter user mode: bits of `Process::halted`. Written with
/// `cpus` locked, which has the reason itself, and read without.
pub(super) mod halt {
    /// The process is ending.
    pub const ENDING: u8 = 1;
    /// One of them replaces the program; all others end.
    pub const REPLACING: u8 = 2;
    /// The process is stopped.
    pub const STOPPED: u8 = 4;
    /// One of them copies the memory of the process; all others are held.
    pub const COPYING: u8 = 8;
}

/// What a virtual CPU that ends with its program leaves to be done, in portions: other processes
/// may wait for it.
pub(super) enum Left {
    /// Its robust mutexes.
    Mutexes(Releasing),
    /// The rest of a wake that it was in the middle of.
    Wake(Sweeping),
}

impl Left {
    /// Executes a portion. Returns whether there is more to do.
    pub(super) fn do_some(&mut self, process: &Process) -> bool {
        match self {
            Self::Mutexes(list) => list.release_some(process),
            Self::Wake(sweeping) => sweeping.resume(process).is_none(),
        }
    }
}

impl Process {
    /// Whether it has ended or is going to.
    pub fn is_ending(&self) -> bool {
        self.is_halted_for(halt::ENDING)
    }

    /// Whether there may be a reason for which a virtual CPU does not enter user mode.
    #[inline(always)]
    pub(super) fn is_halted(&self) -> bool {
        self.halted.load(Acquire) != 0
    }

    /// Whether one of its virtual CPUs replaces the program.
    pub(super) fn is_being_replaced(&self) -> bool {
        self.is_halted_for(halt::REPLACING)
    }

    /// Whether its program ends: with the process, or because a virtual CPU replaces it.
    pub fn is_program_ending(&self) -> bool {
        self.is_halted_for(halt::ENDING | halt::REPLACING)
    }

    /// Whether it is halted for one of these reasons.
    pub(super) fn is_halted_for(&self, reasons: u8) -> bool {
        self.halted.load(Acquire) & reasons != 0
    }

    /// Whether `cpu`, which has a hart, must leave it.
    #[cold]
    pub(super) fn must_leave(&self, cpu: &VirtualCpu) -> bool {
        self.cpus.lock().must_leave(cpu.index)
    }

    /// Adds a reason. Called with `cpus` locked, before harts are interrupted.
    pub(super) fn halt(&self, reason: u8) {
        self.halted.fetch_or(reason, Release);
    }

    /// Removes a reason. Called with `cpus` locked.
    pub(super) fn unhalt(&self, reason: u8) {
        self.halted.fetch_and(!reason, Release);
    }

    /// Ends the process: its running virtual CPUs stop at their next trap, the others immediately.
    ///
    /// Only the first given status counts. Returns whether it was this one.
    pub fn end(&self, status: WaitStatus) -> bool {
        let mut cpus = self.cpus.lock();
        let is_first = cpus.begin_ending(status);
        if is_first {
            // Before harts are interrupted: a hart that checks because of that sees it.
            self.halt(halt::ENDING);
            cpus.kill();
        }
        is_first
    }

    /// Removes a file from the table of a process that has ended, or frees some of the table:
    /// `Some(None)`. `None` if nothing is left.
    pub(super) fn next_file(&self) -> Option<Option<Arc<File>>> {
        self.files.lock().pop()
    }

    /// Closes some of the files with numbers from `next` to `last`, or lets `execve` close them
    /// (`marks`). Returns the number to continue with; `None` if nothing is left.
    pub(super) fn close_some(&self, mut next: usize, last: usize, marks: bool) -> Option<usize> {
        for _ in 0..PORTION_FILES {
            let mut files = self.files.lock();
            let number = files.next_from(next).filter(|&number| number <= last)?;
            let closed = if marks {
                files.set_close_on_exec(Descriptor(number), true).map(|()| None)
            } else {
                files.remove(Descriptor(number)).map(Some)
            };
            drop(files);
            if let Ok(Some(file)) = closed {
                self.close(file);
            }
            next = number + 1;
        }
        Some(next)
    }

    /// Frees some of the results for which the ring had no room, of a process that has ended.
    /// Returns whether there may be more.
    pub(super) fn close_ring_some(&self) -> bool {
        let freed = self.ring.close_some();
        self.calls_in_flight.end(freed);
        freed > 0
    }

    /// Something that is left of the virtual CPU that [`remove_cpu`](Self::remove_cpu) removes
    /// next. Other processes can find its thread until then.
    pub(super) fn take_left_of_last(&self) -> Option<Left> {
        let last = self.cpus.lock().last().cloned()?;
        self.take_left(&last)
    }

    /// Something that is left of `cpu`, which has ended.
    pub(super) fn take_left(&self, cpu: &VirtualCpu) -> Option<Left> {
        let list = self.take_robust(cpu).map(Left::Mutexes);
        list.or_else(|| take_sweep(cpu).map(Left::Wake))
    }

    /// What releases the robust mutexes of `cpu`, of which the program ends, if other processes may
    /// wait for them. It has none afterwards.
    pub(super) fn take_robust(&self, cpu: &VirtualCpu) -> Option<Releasing> {
        if !self.space.shares_memory() {
            return None;
        }
        let thread = cpu.as_thread()?;
        let list = Releasing::new(self, thread);
        thread.robust_list.store(0, Relaxed);
        list
    }

    /// Removes one of the process's virtual CPUs; returns whether there are more. Called by the
    /// reaper after calls, results and files have been freed.
    ///
    /// Also returns the virtual CPU: dropping it takes some 20,000 instructions if it has a call
    /// that it had not finished, such as the start of a program.
    pub(super) fn remove_cpu(&self) -> (bool, Option<Arc<VirtualCpu>>) {
        // The virtual CPUs hold the process: without this it would hold itself for ever.
        let mut cpus = self.cpus.lock();
        let one = cpus.pop();
        let has_more = cpus.worker_count() + cpus.thread_count() > 0;
        drop(cpus);
        if let Some((cpu, _)) = &one {
            // The table holds it, and may be a table of this process.
            cpu.leave_futex();
            cpu.leave_blocked();
        }
        if !has_more {
            self.published.replace(0);
        }
        (has_more, one.map(|(cpu, _)| cpu))
    }
}
