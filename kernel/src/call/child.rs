//! Waiting for news of children: `wait4` and `waitid`.
#![forbid(unsafe_code)]

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::linux::signal_code;
use cops_abi::syscall::{signal, wait_status};
use cops_algorithms::kin::{Found, News, Which};

use crate::mm::{PinnedBuffer, UserRange};
use crate::process::children::{self, Happened, Learned};
use crate::process::{Process, WaitStatus};
use crate::sched::timer;

/// Size of Linux's `siginfo`.
pub const INFORMATION_BYTES: usize = 128;
/// Size of Linux's `rusage`.
pub const USAGE_BYTES: usize = 144;

/// Linux's `rusage` of what had a hart for so many ticks: all of it counts as time in the program.
pub fn usage_of(ticks: u64) -> [u8; USAGE_BYTES] {
    let microseconds = timer::nanoseconds_from_ticks(ticks) / 1000;
    let mut bytes = [0; USAGE_BYTES];
    bytes[..8].copy_from_slice(&(microseconds / 1_000_000).to_le_bytes());
    bytes[8..16].copy_from_slice(&(microseconds % 1_000_000).to_le_bytes());
    bytes
}

/// What a call waits for, and what it stores.
pub struct ChildWait {
    /// The children.
    pub which: Which,
    /// A set of [`News::bit`].
    pub wanted: u8,
    /// Whether it returns at once in any case.
    pub no_hang: bool,
    /// Whether the news stay for another call.
    pub keeps: bool,
    /// Where the status is stored.
    pub into: Option<PinnedBuffer>,
    /// Where what the child has used is stored.
    pub usage: Option<UserRange>,
    /// Whether it is `waitid`, which stores a `siginfo` and returns 0.
    pub is_information: bool,
}

impl ChildWait {
    /// Returns the child that there are news of; `None` if there are none yet.
    ///
    /// A call that does not wait for news waits for the signal about those that there are, which
    /// another hart is sending: otherwise the program would learn of a child before its `SIGCHLD`.
    #[inline(never)]
    pub fn attempt(&self, parent: &Process) -> Option<CallResult> {
        self.look(parent, false)
    }

    /// A signal ends this call: what it returns if there are news after all. The signal may be the
    /// one about them, which came before the waiters were woken.
    pub fn last_look(&self, parent: &Process) -> Option<CallResult> {
        self.look(parent, true)
    }

    fn look(&self, parent: &Process, early: bool) -> Option<CallResult> {
        let found = children::learn(parent.id, self.which, self.wanted, self.keeps, early);
        let learned = match found {
            Ok(Found::News(learned)) => learned,
            Ok(Found::Nothing) if self.no_hang => {
                if let (Some(into), true) = (&self.into, self.is_information) {
                    into.write_at(0, &[0; INFORMATION_BYTES]);
                }
                return Some(Ok(0));
            }
            Ok(Found::Nothing | Found::SignalDue) => return None,
            Err(error) => return Some(Err(error)),
        };
        if let Some(into) = &self.into {
            if self.is_information {
                into.write_at(0, &information(&learned));
            } else {
                into.write_at(0, &word(&learned).to_le_bytes());
            }
        }
        if let Some(usage) = self.usage {
            // The child is gone, whatever the program has done to its memory in the meantime.
            let _ = parent.space.copy_out(usage, &usage_of(learned.used_ticks));
        }
        Some(Ok(if self.is_information { 0 } else { learned.id as usize }))
    }

    /// A set of news as the options of a call name them.
    ///
    /// # Errors
    /// `EINVAL` for an empty set.
    pub fn set_of(ended: bool, stopped: bool, continued: bool) -> Result<u8, Errno> {
        let kinds = [(ended, News::Ended), (stopped, News::Stopped), (continued, News::Continued)];
        let set = kinds.iter().filter(|kind| kind.0).fold(0, |set, kind| set | kind.1.bit());
        if set == 0 { Err(Errno::EINVAL) } else { Ok(set) }
    }
}

/// The status word of `wait4`.
fn word(learned: &Learned) -> i32 {
    match learned.what {
        Happened::Ended(status) => status.word(),
        Happened::Stopped(signal) => wait_status::stopped(signal),
        Happened::Continued => wait_status::CONTINUED,
    }
}

/// Linux's `siginfo` for these news.
fn information(learned: &Learned) -> [u8; INFORMATION_BYTES] {
    let (code, status) = match learned.what {
        Happened::Ended(WaitStatus::Exited(code)) => (signal_code::CHILD_EXITED, code as u8),
        Happened::Ended(WaitStatus::Signalled(by)) => (signal_code::CHILD_KILLED, by),
        Happened::Stopped(signal) => (signal_code::CHILD_STOPPED, signal),
        Happened::Continued => (signal_code::CHILD_CONTINUED, signal::SIGCONT),
    };
    let mut bytes = [0; INFORMATION_BYTES];
    // Signal, error, code, a gap, then process, user and status.
    let words = [i32::from(signal::SIGCHLD), 0, code, 0, learned.id as i32, 0, status.into()];
    for (place, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    bytes
}
