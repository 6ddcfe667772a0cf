//! Descriptors, reading and writing, the standard streams.
//!
//! Streams implement the traits of `embedded-io-async`, re-exported here as [`Read`], [`Write`] and
//! [`Seek`], so code written for those runs on COPS, and the reverse.
//!
//! # Cancel safety
//! A dropped `read` loses nothing: bytes that had arrived are returned by the next read of that
//! descriptor, and so is the error of a stream, after them. A dropped `write` may or may not have
//! written. A dropped `write_all` or `read_exact` may have moved a part.

mod console;
mod error;
mod fd;
mod operation;
mod positional;
pub mod terminal;

use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec::Vec;

use cops_abi::Errno;

pub(crate) use console::Gather;
pub use console::{Stderr, Stdin, Stdout, stderr, stdin, stdout};
#[doc(hidden)]
pub use console::{print_to_stderr, print_to_stdout};
pub use embedded_io_async::{
    BufRead, ErrorKind, ErrorType, Read, ReadExactError, Seek, SeekFrom, Write,
};
pub use error::{Error, Result};
pub use fd::{AsFd, BorrowedFd, Fd, pipe};
pub use operation::{Buffer, ReadInto, ReadOwned, WriteFrom, fill};
pub use positional::{ReadAt, Synchronise, WriteAt, read_at, synchronise, write_at};

/// `text` with a zero at its end.
///
/// # Errors
/// [`Error::ZeroByte`], `ENOMEM`.
pub(crate) fn c_string(text: &str) -> Result<CString> {
    let mut bytes = Vec::new();
    // Also for the zero, so that `CString` allocates nothing.
    bytes.try_reserve_exact(text.len() + 1).map_err(|_| Errno::ENOMEM)?;
    bytes.extend_from_slice(text.as_bytes());
    CString::new(bytes).map_err(|_| Error::ZeroByte)
}

/// `bytes` as text; those that are not UTF-8 are replaced.
///
/// # Errors
/// `ENOMEM`.
pub(crate) fn text(bytes: &[u8]) -> Result<String> {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        let replacement = if chunk.invalid().is_empty() { "" } else { "\u{fffd}" };
        for part in [chunk.valid(), replacement] {
            text.try_reserve(part.len()).map_err(|_| Errno::ENOMEM)?;
            text.push_str(part);
        }
    }
    Ok(text)
}

/// Implements the traits for a type; [`AsFd`] returns the descriptor to use.
macro_rules! implement_stream {
    ($type:ty: Read) => {
        #[allow(refining_impl_trait, reason = "a future that a caller can name and count the bytes of")]
        impl $crate::io::Read for $type {
            /// Cancel-safe: a dropped read loses nothing.
            fn read<'f, 'b>(
                &'f mut self,
                buffer: &'b mut [u8],
            ) -> $crate::call::Converted<$crate::io::ReadInto<'f, 'b>> {
                let read = $crate::io::ReadInto::new($crate::io::AsFd::as_fd(self), buffer);
                $crate::call::Call::new(read).converted()
            }
        }
    };
    ($type:ty: Write) => {
        $crate::io::implement_stream!($type: Write by new);
    };
    // With this function of `WriteFrom`.
    ($type:ty: Write by $new:ident) => {
        #[allow(refining_impl_trait, reason = "a future that a caller can name and count the bytes of")]
        impl $crate::io::Write for $type {
            /// Not cancel-safe: a dropped write may have written.
            fn write<'f, 'b>(
                &'f mut self,
                bytes: &'b [u8],
            ) -> $crate::call::Converted<$crate::io::WriteFrom<'f, 'b>> {
                let write = $crate::io::WriteFrom::$new($crate::io::AsFd::as_fd(self), bytes);
                $crate::call::Call::new(write).converted()
            }

            /// Not cancel-safe: a part may have been written.
            fn write_all<'f, 'b>(
                &'f mut self,
                bytes: &'b [u8],
            ) -> $crate::call::Whole<$crate::io::WriteFrom<'f, 'b>> {
                let write = $crate::io::WriteFrom::$new($crate::io::AsFd::as_fd(self), bytes);
                $crate::call::Whole::new(write)
            }

            /// Nothing is buffered, so there is nothing to do.
            async fn flush(&mut self) -> $crate::io::Result<()> {
                Ok(())
            }
        }
    };
    ($type:ty: Read + Write) => {
        $crate::io::implement_stream!($type: Read);
        $crate::io::implement_stream!($type: Write);
    };
}
pub(crate) use implement_stream;

/// Number of bytes that [`copy`] moves at a time.
const COPY_BYTES: usize = 4096;

/// Writes everything from `reader` to `writer`, until the end. Returns the number of bytes.
///
/// # Errors
/// The first error of either. Not cancel-safe.
pub async fn copy<R, W>(reader: &mut R, writer: &mut W) -> core::result::Result<u64, R::Error>
where
    R: Read,
    W: Write<Error = R::Error>,
{
    let mut buffer = alloc::vec![0; COPY_BYTES];
    let mut total = 0;
    loop {
        let count = reader.read(&mut buffer).await?;
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
            return Ok(total);
        };
        writer.write_all(bytes).await?;
        total += count as u64;
    }
}
