//! Signals to many processes: to a group, or to all that the caller may signal, in portions.
//!
//! A process that is being started is a member of its group as soon as it has a number. Its record
//! in the table keeps the signal until it has a virtual CPU. Numbers are visited upwards, so the
//! parent gets the signal first: a `fork` that finds it makes no child until it is handled.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::sync::atomic::Ordering::Relaxed;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::linux::signal_code;
use cops_algorithms::signals::{Effect, Information, default_effect, stops_orphans};

use super::children::{self, Entry};
use super::signals::sent_by;
use super::{FIRST_PROCESS, Process, ProcessId};

/// Number of processes that one portion sends `signal` to. A signal that does not stop orphans has
/// the group of each examined.
fn portion_processes(signal: u8) -> usize {
    if default_effect(signal) == Effect::Stop && !stops_orphans(signal) { 1 } else { 4 }
}

/// Which processes get a signal.
#[derive(Clone, Copy)]
pub enum Target {
    /// Those of this group.
    Group(ProcessId),
    /// All but the first process and the caller.
    All,
}

/// A signal that is being sent to many processes. The caller gets it last, since it may end.
pub struct Signalling {
    target: Target,
    signal: u8,
    /// The kernel sends it, on behalf of the caller, which needs no authority.
    is_of_kernel: bool,
    next: ProcessId,
    /// Whether a process was found, and whether one was signalled.
    found: bool,
    reached: bool,
}

impl Signalling {
    /// Sends `signal`; 0 sends nothing and only checks.
    pub fn new(target: Target, signal: u8) -> Self {
        let is_of_kernel = false;
        Self { target, signal, is_of_kernel, next: 0, found: false, reached: false }
    }

    /// Sends `signal` of the kernel to the members of `group`, of which the caller is one.
    pub fn by_kernel(group: ProcessId, signal: u8) -> Self {
        Self { is_of_kernel: true, ..Self::new(Target::Group(group), signal) }
    }

    fn information(&self, caller: &Process) -> Information {
        if self.is_of_kernel {
            sent_by_kernel(self.signal)
        } else {
            sent_by(caller.id, self.signal)
        }
    }

    /// Executes a portion on behalf of `caller`. `None` if there is more to do.
    pub fn resume(&mut self, caller: &Arc<Process>) -> Option<CallResult> {
        for _ in 0..portion_processes(self.signal) {
            let entry = match self.target {
                Target::Group(group) => children::member_from(group, self.next),
                Target::All => children::at_or_after(self.next),
            };
            let Some(Entry { id, process, .. }) = entry else {
                return Some(self.finish(caller));
            };
            self.next = id + 1;
            let is_meant = match self.target {
                Target::Group(_) => true,
                Target::All => id != FIRST_PROCESS && id != caller.id,
            };
            if !is_meant {
                continue;
            }
            let sender = (!self.is_of_kernel).then_some(caller.family);
            match process.or_else(|| children::keep(id, self.signal, sender)) {
                Some(process)
                    if !self.is_of_kernel && caller.check_authority_over(&process).is_err() =>
                {
                    // Of all processes, only those are meant that the caller may signal.
                    self.found |= matches!(self.target, Target::Group(_));
                }
                Some(process) => {
                    (self.found, self.reached) = (true, true);
                    if process.id != caller.id && self.signal != 0 {
                        process.signal(self.information(caller));
                    }
                }
                // It is being started, or has ended, which is no error.
                None => (self.found, self.reached) = (true, true),
            }
        }
        None
    }

    fn finish(&self, caller: &Arc<Process>) -> CallResult {
        let is_member = match self.target {
            Target::Group(group) => caller.group.load(Relaxed) == group,
            Target::All => false,
        };
        if is_member && self.signal != 0 {
            caller.signal(self.information(caller));
        }
        match (self.found, self.reached) {
            (_, true) => Ok(0),
            (true, false) => Err(Errno::EPERM),
            (false, false) => Err(Errno::ESRCH),
        }
    }
}

/// Sends `signal` of the kernel itself to some members of `group`, from number `from` on. Returns
/// the number to continue with; `None` if there are no more.
pub fn signal_some(group: ProcessId, signal: u8, from: ProcessId) -> Option<ProcessId> {
    let mut next = from;
    for _ in 0..portion_processes(signal) {
        let Entry { id, process, .. } = children::member_from(group, next)?;
        next = id + 1;
        if let Some(process) = process.or_else(|| children::keep(id, signal, None)) {
            process.signal(sent_by_kernel(signal));
        }
    }
    Some(next)
}

fn sent_by_kernel(signal: u8) -> Information {
    Information { signal, code: signal_code::KERNEL, fields: [0, 0] }
}
