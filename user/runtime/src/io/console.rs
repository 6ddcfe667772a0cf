//! The standard streams, and printing.

use core::fmt::{self, Write as _};

use cops_abi::syscall::console_mode;

use super::{AsFd, BorrowedFd, ErrorType, implement_stream};
use crate::system;

macro_rules! standard_stream {
    ($(#[$doc:meta])+ $type:ident, $function:ident, $raw:literal, $($traits:tt)+) => {
        $(#[$doc])+
        #[derive(Clone, Copy, Debug)]
        pub struct $type;

        $(#[$doc])+
        #[must_use]
        pub fn $function() -> $type {
            $type
        }

        impl AsFd for $type {
            fn as_fd(&self) -> BorrowedFd<'_> {
                BorrowedFd::standard($raw)
            }
        }

        impl ErrorType for $type {
            type Error = super::Error;
        }

        implement_stream!($type: $($traits)+);
    };
}

standard_stream! {
    /// Standard input: bytes as they are typed, or lines, as [`take_console`] or the parent of this
    /// process has chosen. While another process has the console, a read waits.
    Stdin, stdin, 0, Read
}
standard_stream! {
    /// Standard output, without a buffer.
    Stdout, stdout, 1, Write
}
standard_stream! {
    /// Standard error, without a buffer.
    Stderr, stderr, 2, Write
}

/// How the process that has the console reads from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsoleMode {
    /// The kernel edits and echoes lines, and a read returns at most one of them. Otherwise bytes
    /// are read as they are typed.
    pub lines: bool,
    /// Ctrl-C is not input: the process that handed the console over reads it, as a byte 3, from
    /// its standard input.
    pub interrupt: bool,
}

impl ConsoleMode {
    /// For programs that do not set a mode themselves: lines, and Ctrl-C ends the program.
    pub const ORDINARY: ConsoleMode = ConsoleMode { lines: true, interrupt: true };
    /// Keys as they are typed, except Ctrl-C.
    pub const KEYS: ConsoleMode = ConsoleMode { lines: false, interrupt: true };
    /// For a shell's own prompt: lines. Ctrl-C cancels the line, which is then read as an empty
    /// one.
    pub const PROMPT: ConsoleMode = ConsoleMode { lines: true, interrupt: false };

    pub(crate) const fn bits(self) -> usize {
        let lines = if self.lines { console_mode::LINES } else { 0 };
        let interrupt = if self.interrupt { console_mode::INTERRUPT } else { 0 };
        lines | interrupt
    }
}

/// Makes this process, which has the console or has handed it over, the foreground process, with
/// `mode`.
///
/// # Errors
/// `EPERM` if this process neither has the console nor has handed it over.
pub fn take_console(mode: ConsoleMode) -> super::Result<()> {
    Ok(system::hand_over_console(0, mode.bits())?)
}

/// Text to be written to a descriptor, gathered so that a line is written by one call and appears
/// in one piece.
pub(crate) struct Gather {
    fd: i32,
    length: usize,
    bytes: [u8; 512],
}

impl Gather {
    pub(crate) fn new(fd: i32) -> Self {
        Self { fd, length: 0, bytes: [0; 512] }
    }

    fn flush(&mut self) {
        let mut rest = self.bytes.get(..self.length).unwrap_or_default();
        self.length = 0;
        while !rest.is_empty() {
            match system::write(self.fd, rest) {
                Ok(count) if count > 0 => rest = rest.get(count..).unwrap_or_default(),
                // The error cannot be reported, because output does not work.
                _ => return,
            }
        }
    }
}

impl fmt::Write for Gather {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.length == self.bytes.len() {
                self.flush();
            }
            if let Some(place) = self.bytes.get_mut(self.length) {
                *place = byte;
                self.length += 1;
            }
        }
        Ok(())
    }
}

impl Drop for Gather {
    fn drop(&mut self) {
        self.flush();
    }
}

#[doc(hidden)]
pub fn print_to_stdout(arguments: fmt::Arguments<'_>) {
    let _ = Gather::new(1).write_fmt(arguments);
}

#[doc(hidden)]
pub fn print_to_stderr(arguments: fmt::Arguments<'_>) {
    let _ = Gather::new(2).write_fmt(arguments);
}

/// Prints to standard output synchronously: the virtual CPU waits. Errors are ignored. Arguments as
/// for `format!`.
#[macro_export]
macro_rules! print {
    ($($argument:tt)*) => { $crate::io::print_to_stdout(::core::format_args!($($argument)*)) };
}

/// [`print!`] and a newline.
#[macro_export]
macro_rules! println {
    () => { $crate::print!("\n") };
    ($($argument:tt)*) => { $crate::print!("{}\n", ::core::format_args!($($argument)*)) };
}

/// [`print!`] to standard error.
#[macro_export]
macro_rules! eprint {
    ($($argument:tt)*) => { $crate::io::print_to_stderr(::core::format_args!($($argument)*)) };
}

/// [`eprint!`] and a newline.
#[macro_export]
macro_rules! eprintln {
    () => { $crate::eprint!("\n") };
    ($($argument:tt)*) => { $crate::eprint!("{}\n", ::core::format_args!($($argument)*)) };
}
