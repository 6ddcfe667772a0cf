//! One line on stderr that says how far a run is, when somebody is looking.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

/// Between two updates.
const INTERVAL: Duration = Duration::from_millis(250);

/// A line that overwrites itself; nothing at all unless stderr is a terminal.
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

    /// Shows what `line` returns, if it is time to.
    pub fn show(&mut self, line: impl FnOnce() -> String) {
        let Some(next) = self.next else { return };
        let now = Instant::now();
        if now >= next {
            self.next = Some(now + INTERVAL);
            self.drawn = true;
            // If stderr cannot be written to, nobody is looking.
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
