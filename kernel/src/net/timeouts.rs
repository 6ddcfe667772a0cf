//! How long synchronous calls on a socket wait: `SO_RCVTIMEO` and `SO_SNDTIMEO` of Linux programs.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::sched::Waiting;

/// The value of a direction without a timeout.
const NONE: u64 = u64::MAX;

/// The timeouts of the two directions of a socket, in microseconds.
pub struct Timeouts {
    reading: AtomicU64,
    writing: AtomicU64,
}

impl Timeouts {
    /// Calls wait without a limit.
    pub const fn none() -> Self {
        Self { reading: AtomicU64::new(NONE), writing: AtomicU64::new(NONE) }
    }

    /// Those of a socket that inherits them.
    pub fn copy(&self) -> Self {
        let copy = |timeout: &AtomicU64| AtomicU64::new(timeout.load(Relaxed));
        Self { reading: copy(&self.reading), writing: copy(&self.writing) }
    }

    fn of(&self, waiting: Waiting) -> &AtomicU64 {
        match waiting {
            Waiting::ToRead => &self.reading,
            Waiting::ToWrite => &self.writing,
        }
    }

    /// The number of microseconds for which a call waits at most; `None`: there is no limit.
    pub fn get(&self, waiting: Waiting) -> Option<u64> {
        Some(self.of(waiting).load(Relaxed)).filter(|&microseconds| microseconds != NONE)
    }

    /// Sets the timeout of calls that begin to wait from now on.
    pub fn set(&self, waiting: Waiting, microseconds: Option<u64>) {
        self.of(waiting).store(microseconds.unwrap_or(NONE), Relaxed);
    }
}
