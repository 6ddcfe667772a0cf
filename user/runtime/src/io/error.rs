//! The error type of this library's I/O.

use core::fmt;

use cops_abi::Errno;
use embedded_io_async::{ErrorKind, ReadExactError};

/// A result with an I/O error.
pub type Result<T> = core::result::Result<T, Error>;

/// The reason why input or output failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// An error of the kernel.
    Kernel(Errno),
    /// The stream ended before the requested number of bytes was read.
    UnexpectedEnd,
    /// A path or an argument contains a zero byte.
    ZeroByte,
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Error::Kernel(errno)
    }
}

impl From<ReadExactError<Error>> for Error {
    fn from(error: ReadExactError<Error>) -> Self {
        match error {
            ReadExactError::UnexpectedEof => Error::UnexpectedEnd,
            ReadExactError::Other(error) => error,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Kernel(errno) => errno.fmt(formatter),
            Error::UnexpectedEnd => formatter.write_str("unexpected end of the stream"),
            Error::ZeroByte => formatter.write_str("a zero byte in a string for the kernel"),
        }
    }
}

impl core::error::Error for Error {}

impl embedded_io_async::Error for Error {
    fn kind(&self) -> ErrorKind {
        match self {
            Error::ZeroByte => ErrorKind::InvalidInput,
            Error::UnexpectedEnd => ErrorKind::Other,
            Error::Kernel(errno) => match errno {
                Errno::ENOENT | Errno::ESRCH => ErrorKind::NotFound,
                Errno::EPERM | Errno::EACCES | Errno::EROFS => ErrorKind::PermissionDenied,
                Errno::ECONNREFUSED => ErrorKind::ConnectionRefused,
                Errno::ECONNRESET => ErrorKind::ConnectionReset,
                Errno::ECONNABORTED => ErrorKind::ConnectionAborted,
                Errno::ENOTCONN => ErrorKind::NotConnected,
                Errno::EADDRINUSE => ErrorKind::AddrInUse,
                Errno::EADDRNOTAVAIL => ErrorKind::AddrNotAvailable,
                Errno::EPIPE => ErrorKind::BrokenPipe,
                Errno::EEXIST => ErrorKind::AlreadyExists,
                Errno::EINVAL | Errno::EBADF | Errno::EFAULT => ErrorKind::InvalidInput,
                Errno::ETIMEDOUT => ErrorKind::TimedOut,
                Errno::EINTR => ErrorKind::Interrupted,
                Errno::EOPNOTSUPP | Errno::ENOSYS => ErrorKind::Unsupported,
                Errno::ENOMEM | Errno::ENOBUFS => ErrorKind::OutOfMemory,
                _ => ErrorKind::Other,
            },
        }
    }
}
