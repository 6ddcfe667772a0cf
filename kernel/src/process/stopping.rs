//! Stopping a process and making it go on (decision 34).
//!
//! The virtual CPUs of a stopped process leave their harts at the next trap and are *held*: lists
//! of them are kept in [`Cpus`](super::cpus::Cpus). Calls in flight go on, and what they wake is
//! held too. When the process goes on, the most urgent are released at once, and each that gets a
//! hart releases two more, so no portion visits thousands of threads.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::sync::atomic::Ordering::*;

use cops_algorithms::signals::{continues, excluded_by, stops_orphans};

use super::cpu::CpuState;
use super::ending::halt;
use super::{FIRST_PROCESS, Process, WaitStatus, children};

/// Virtual CPUs that are released at once when a process goes on, or its memory has been copied.
pub(super) const RELEASED_AT_ONCE: usize = 16;
/// Virtual CPUs that one which gets a hart releases.
const RELEASED_BY_EACH: usize = 2;

impl Process {
    /// Whether it is stopped, or about to be.
    pub fn is_stopped(&self) -> bool {
        self.halted.load(Relaxed) & halt::STOPPED != 0
    }

    /// How often the process has been told to go on. For a signal of a Linux program, read with the
    /// signals locked.
    pub(super) fn continued(&self) -> u64 {
        self.continued.load(SeqCst)
    }

    /// Stops the process because of `signal`, which came when it had been told to go on `continued`
    /// times. Without effect if it has been told so since, on the first process, and, unless the
    /// signal is `SIGSTOP`, on one that no other process could make go on.
    pub(super) fn stop(self: &Arc<Self>, signal: u8, continued: u64) {
        let has_shell = || !children::is_orphaned(self.group.load(Relaxed));
        if self.id == FIRST_PROCESS || !stops_orphans(signal) && !has_shell() {
            return;
        }
        let mut cpus = self.cpus.lock();
        // `SIGCONT` counts before it looks for a stop that it ends.
        if self.continued() != continued || !cpus.begin_stop(signal, continued) {
            return;
        }
        // Before harts are interrupted: a hart that checks because of that sees it.
        self.halt(halt::STOPPED);
        cpus.kick();
        drop(cpus);
        self.publish();
        self.report_stop();
    }

    /// Resumes the process if it is stopped by a signal that came before it was told to go on for
    /// the `continued`th time. By now it may have handled that, and have been stopped anew.
    fn resume(self: &Arc<Self>, continued: u64) {
        let mut cpus = self.cpus.lock();
        if !cpus.end_stop(continued) {
            return;
        }
        self.unhalt(halt::STOPPED);
        drop(cpus);
        // Before it runs: it may be stopped again at once.
        children::report_continued(self.id);
        self.release_held(RELEASED_AT_ONCE);
        self.publish();
        // It came while the process was stopped. No virtual CPU may look for a while: each may be
        // in a call on files, which no signal cuts short.
        if let Some(signal) = self.pending_signal_that_ends() {
            self.end(WaitStatus::Signalled(signal));
        }
    }

    /// Sends a signal by `send`, with the effects that it has whatever the program wants done with
    /// it.
    pub(super) fn control_job<R>(self: &Arc<Self>, signal: u8, send: impl FnOnce() -> R) -> R {
        let excluded = excluded_by(signal);
        let mut told = None;
        if excluded != 0 {
            let mut guard = self.personality.as_linux().map(|linux| linux.signals.lock());
            if let Some(signals) = guard.as_mut().and_then(|guard| guard.as_mut()) {
                signals.pending.remove(excluded);
            }
            // With the lock: a signal that stops the process, and was taken before, is older.
            told = continues(signal).then(|| self.continued.fetch_add(1, SeqCst) + 1);
        }
        let sent = send();
        // Last: the handler is to run before anything else of the program.
        if let Some(continued) = told {
            self.resume(continued);
        }
        sent
    }

    /// Informs the parent once no virtual CPU of the stopped process has a hart. Called without
    /// locks after each transition that may have been the last one.
    pub fn report_stop(&self) {
        if !self.is_stopped() {
            return;
        }
        let stopped = self.cpus.lock().take_stop_report();
        if let Some(signal) = stopped {
            children::report_stopped(self.id, signal);
        }
    }

    /// A virtual CPU has got a hart while others are held.
    #[cold]
    pub(super) fn release_more(&self) {
        self.release_held(RELEASED_BY_EACH);
    }

    /// The level of a thread has changed, which was found in this state, while some are held.
    #[cold]
    pub(super) fn level_changed_while_held(&self, state: CpuState) {
        if state == CpuState::Held {
            self.raise_copier();
        }
        // The most urgent that is held may be more urgent now than all that have been released and
        // would release it when they get a hart.
        self.release_held(1);
    }

    /// Releases up to `count` of those that are held, unless the process is stopped.
    pub(super) fn release_held(&self, count: usize) {
        for _ in 0..count {
            let mut cpus = self.cpus.lock();
            if !cpus.has_held() {
                return;
            }
            let released = cpus.release_one();
            drop(cpus);
            if let Some(cpu) = released {
                self.queue(cpu);
            }
        }
    }
}
