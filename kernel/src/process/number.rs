//! A process that is being made: its number, and the process before it runs.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_algorithms::signals::{SIGNALS, bit};

use super::signals::sent_by;
use super::{Process, ProcessId, children};
use crate::mm::quota::Family;

/// A number that is reserved for a process. Dropping it frees the number.
pub(super) struct Number {
    pub(super) id: ProcessId,
    pub(super) family: Family,
}

impl Number {
    /// Reserves a number for a child of `parent`.
    ///
    /// # Errors
    /// As for [`children::reserve`].
    pub(super) fn reserve(parent: Option<&Process>) -> Result<Self, Errno> {
        let (id, family) = children::reserve(parent.map_or(0, |parent| parent.id))?;
        Ok(Self { id, family })
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        children::release(self.id);
    }
}

/// A process that is not in the table yet. The number is freed first.
pub(super) struct Unstarted {
    pub(super) number: Number,
    pub(super) process: Arc<Process>,
}

impl Unstarted {
    /// Puts the process into the table, with a ceiling not above its parent's, calls `run` to make
    /// it run, and returns it. A signal may end it before it runs: then its parent learns that.
    ///
    /// # Errors
    /// Those of `run`; the process is dropped.
    pub(super) fn start(
        self,
        parent: Option<&Process>,
        run: impl FnOnce(&Arc<Process>) -> Result<(), Errno>,
    ) -> Result<Arc<Process>, Errno> {
        let early = children::insert(&self.process);
        // It takes them when its first virtual CPU is about to enter user mode.
        for signal in (1..=SIGNALS).filter(|&signal| early & bit(signal) != 0) {
            // As on Linux, the sender is not known any more.
            self.process.signal(sent_by(0, signal));
        }
        if let Some(parent) = parent {
            // The ceilings of the family may have been lowered since the start was requested.
            self.process.lower_ceiling_to(parent.ceiling.priority());
        }
        let result = run(&self.process);
        if !self.process.is_ending() {
            result?;
        }
        let Self { number, process } = self;
        // The process uses it now.
        core::mem::forget(number);
        Ok(process)
    }
}
