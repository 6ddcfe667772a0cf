//! Instructions and time since a moment.

use cops::time::{Duration, Instant};

use crate::counter::instructions;

/// A moment.
#[derive(Clone, Copy)]
pub struct Meter {
    instructions: u64,
    instant: Instant,
}

/// What has passed since a moment.
#[derive(Clone, Copy, Default)]
pub struct Passed {
    pub instructions: u64,
    pub nanoseconds: u64,
}

impl Meter {
    /// Now.
    pub fn now() -> Self {
        Self { instructions: instructions(), instant: Instant::now() }
    }

    /// What has passed since then.
    pub fn passed(self) -> Passed {
        self.until(Self::now())
    }

    /// What passed between this moment and `later`.
    pub fn until(self, later: Self) -> Passed {
        let time: Duration = later.instant.duration_since(self.instant);
        Passed {
            instructions: later.instructions.saturating_sub(self.instructions),
            nanoseconds: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX),
        }
    }
}
