//! Standard output and standard error, which may be closed or full.
//!
//! A reader that has seen enough closes its end (`./cops run | head`). The rest of the output is
//! dropped then, and the command does its work to the end, with its files and its exit status.
//! Output that is lost for another reason, as on a full disk, makes the command fail.
//!
//! The macros take the place of those of the standard library, which panic in both cases. They are
//! the first items here, since a macro has its meaning from its definition on.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::Mutex;

use crate::error::STATUS_FAILED;

/// As that of the standard library.
macro_rules! print {
    ($($words:tt)*) => { $crate::output::to_stdout(format_args!($($words)*)) };
}

/// As that of the standard library.
macro_rules! println {
    () => { print!("\n") };
    ($($words:tt)*) => { print!("{}\n", format_args!($($words)*)) };
}

/// As that of the standard library.
macro_rules! eprint {
    ($($words:tt)*) => { $crate::output::to_stderr(format_args!($($words)*)) };
}

/// As that of the standard library.
macro_rules! eprintln {
    () => { eprint!("\n") };
    ($($words:tt)*) => { eprint!("{}\n", format_args!($($words)*)) };
}

/// The first reason why output was lost.
static LOST: Lost = Lost(Mutex::new(None));

struct Lost(Mutex<Option<String>>);

impl Lost {
    /// Notes that output was lost. If it was closed, nothing has been lost that is wanted.
    fn note(&self, stream: &str, result: io::Result<()>) {
        let Err(error) = result else { return };
        if error.kind() == io::ErrorKind::BrokenPipe {
            return;
        }
        let mut first = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        first.get_or_insert_with(|| format!("{stream} could not be written: {error}"));
    }

    /// The exit status of a command that has ended with `status`, and why it is another one.
    fn judge(&self, status: u8) -> (u8, Option<String>) {
        let first = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
        let has_failed = status != 0;
        (if first.is_some() && !has_failed { STATUS_FAILED } else { status }, first)
    }
}

/// Writes to standard output, without delay.
pub fn stdout_bytes(bytes: &[u8]) {
    LOST.note("standard output", write_through(io::stdout().lock(), bytes));
}

/// Writes to standard error.
pub fn stderr_bytes(bytes: &[u8]) {
    LOST.note("standard error", write_through(io::stderr().lock(), bytes));
}

/// Prints in another way.
pub fn print_with(print: impl FnOnce() -> io::Result<()>) {
    LOST.note("a message", print());
}

fn write_through(mut stream: impl Write, bytes: &[u8]) -> io::Result<()> {
    stream.write_all(bytes)?;
    stream.flush()
}

/// For the macros. A test's output is left to its harness.
pub fn to_stdout(text: Arguments<'_>) {
    if cfg!(test) {
        std::print!("{text}");
    } else {
        stdout_bytes(text.to_string().as_bytes());
    }
}

/// For the macros.
pub fn to_stderr(text: Arguments<'_>) {
    if cfg!(test) {
        std::eprint!("{text}");
    } else {
        stderr_bytes(text.to_string().as_bytes());
    }
}

/// The exit status of this program, if its command has ended with `status`.
pub fn final_status(status: u8) -> u8 {
    let (status, lost) = LOST.judge(status);
    if let Some(why) = lost {
        eprintln!("cops: {why}");
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_output_that_is_wanted_can_be_lost() {
        let lost = Lost(Mutex::new(None));
        lost.note("standard output", Ok(()));
        lost.note("standard output", Err(io::ErrorKind::BrokenPipe.into()));
        assert_eq!(lost.judge(0), (0, None));
        lost.note("standard output", Err(io::ErrorKind::StorageFull.into()));
        lost.note("standard error", Err(io::ErrorKind::StorageFull.into()));
        let (status, why) = lost.judge(0);
        assert_eq!(status, STATUS_FAILED);
        assert!(why.is_some_and(|why| why.starts_with("standard output could not be written: ")));
        // The command has another reason to fail.
        assert_eq!(lost.judge(3).0, 3);
    }
}
