//! The standard streams, and printing.

use core::fmt::{self, Write as _};

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
    /// Standard input. If it is the terminal: bytes as they are typed, or lines, as
    /// [`terminal::set_mode`](super::terminal::set_mode) or the parent of this process has chosen;
    /// a read in the background stops this process.
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
