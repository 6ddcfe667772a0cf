//! A line on stderr that shows the progress of a run.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Interval between two updates.
const INTERVAL: Duration = Duration::from_millis(250);

/// A line that overwrites itself. Does nothing unless stderr is a terminal.
pub struct Progress {
    next: Option<Instant>,
    drawn: bool,
}

impl Progress {
    /// Silent unless stderr is a terminal.
    #[must_use]
    pub fn new() -> Self {
        Self { next: stderr().is_terminal().then(Instant::now), drawn: false }
    }

    /// Shows the result of `line`, if the interval has passed.
    pub fn show(&mut self, line: impl FnOnce() -> String) {
        let Some(next) = self.next else { return };
        let now = Instant::now();
        if now >= next {
            self.next = Some(now + INTERVAL);
            self.drawn = true;
            // If stderr cannot be written to, the line is lost.
            let _ = write!(stderr(), "\r\x1b[K{}", line());
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
