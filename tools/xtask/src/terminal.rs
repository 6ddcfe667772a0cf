//! Output for the user besides results: colours, and progress of long steps.
//!
//! Colours, and progress that rewrites its own line, are used on terminals only; a log file gets
//! plain lines.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The colours in use. Empty strings if the stream is not a terminal.
#[derive(Debug, Clone, Copy)]
pub struct Palette {
    pub green: &'static str,
    pub red: &'static str,
    pub bold: &'static str,
    pub reset: &'static str,
}

const PLAIN: Palette = Palette { green: "", red: "", bold: "", reset: "" };
const COLOURED: Palette =
    Palette { green: "\x1b[32m", red: "\x1b[31m", bold: "\x1b[1m", reset: "\x1b[0m" };

/// The palette for standard output. Respects `NO_COLOR`.
pub fn stdout_palette() -> Palette {
    palette(std::io::stdout().is_terminal())
}

/// The palette for standard error. Respects `NO_COLOR`.
pub fn stderr_palette() -> Palette {
    palette(std::io::stderr().is_terminal())
}

fn palette(is_terminal: bool) -> Palette {
    if is_terminal && std::env::var_os("NO_COLOR").is_none() { COLOURED } else { PLAIN }
}

/// How a command reports its long steps on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// One line per step, with its time. `run`, `test`, `build`.
    Lines,
    /// Only on a terminal: a line that is erased at the end of the step. For `exec`, because its
    /// standard error belongs to the program.
    Transient,
}

/// A long step in progress.
#[derive(Debug)]
pub struct Step {
    progress: Progress,
    name: String,
    started: Instant,
    is_terminal: bool,
    drawn: bool,
}

/// A shorter step has no transient line.
const PATIENCE: Duration = Duration::from_millis(400);

impl Step {
    pub fn begin(progress: Progress, name: impl Into<String>) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        Self { progress, name: name.into(), started: Instant::now(), is_terminal, drawn: false }
    }

    /// Shows the current detail of the step. Cheap enough to be called often.
    pub fn detail(&mut self, detail: &str) {
        if !self.is_terminal || self.started.elapsed() < PATIENCE {
            return;
        }
        let line = format!("{}: {}", self.name, detail.trim());
        let line: String = line.chars().take(100).collect();
        eprint!("\r\x1b[K{line}");
        let _ = std::io::stderr().flush();
        self.drawn = true;
    }

    fn wipe(&mut self) {
        if self.drawn {
            eprint!("\r\x1b[K");
            let _ = std::io::stderr().flush();
            self.drawn = false;
        }
    }

    /// The step has succeeded.
    pub fn done(mut self) {
        self.wipe();
        if self.progress == Progress::Lines {
            let palette = stderr_palette();
            let (bold, reset) = (palette.bold, palette.reset);
            eprintln!("{bold}{}{reset} ({:.1} s)", self.name, self.started.elapsed().as_secs_f64());
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        self.wipe();
    }
}
