//! The errors a socket operation can end with.
//!
//! Nothing here knows about errno: the system call layer maps one to the other.

use core::fmt;

/// Why a socket operation did not do what was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// The operation would have to wait. Register a waker, or use the `poll_` form.
    WouldBlock,
    /// The socket has no connection (any more), and none is being made.
    NotConnected,
    /// The peer sent a reset.
    ConnectionReset,
    /// The peer answered the first SYN with a reset: nobody listens there.
    ConnectionRefused,
    /// This side gave the connection up: its own address went away, or `abort` was called.
    ConnectionAborted,
    /// The peer has been silent for longer than the connection may wait.
    TimedOut,
    /// The sending direction is shut down.
    BrokenPipe,
    /// Another socket holds this port, or this exact pair of addresses is in use.
    AddressInUse,
    /// The address is not one of ours, or no port is left.
    AddressNotAvailable,
    /// No interface leads to this address.
    NetworkUnreachable,
    /// The address or the number makes no sense here (port 0 to connect to, multicast for TCP, ...).
    InvalidArgument,
    /// The datagram is longer than the interface or the socket can carry in one piece.
    MessageTooLong,
    /// There is no memory for the buffers of one more socket.
    OutOfMemory,
    /// [`Configuration::maximum_connections`](crate::Configuration::maximum_connections) is reached.
    TooManyConnections,
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Error::WouldBlock => "the operation would block",
            Error::NotConnected => "not connected",
            Error::ConnectionReset => "connection reset by peer",
            Error::ConnectionRefused => "connection refused",
            Error::ConnectionAborted => "connection aborted",
            Error::TimedOut => "timed out",
            Error::BrokenPipe => "broken pipe",
            Error::AddressInUse => "address in use",
            Error::AddressNotAvailable => "address not available",
            Error::NetworkUnreachable => "network unreachable",
            Error::InvalidArgument => "invalid argument",
            Error::MessageTooLong => "message too long",
            Error::OutOfMemory => "out of memory",
            Error::TooManyConnections => "too many connections",
        })
    }
}

impl core::error::Error for Error {}

impl From<cops_fallible::OutOfMemory> for Error {
    fn from(_: cops_fallible::OutOfMemory) -> Error {
        Error::OutOfMemory
    }
}
