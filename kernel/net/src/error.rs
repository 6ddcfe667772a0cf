//! The errors of socket operations.
//!
//! They are independent of errno: the system call layer maps them.

use core::fmt;

/// The reason why a socket operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Error {
    /// The operation would have to wait. Register a waker, or use the `poll_` method.
    WouldBlock,
    /// The socket is neither connected nor connecting.
    NotConnected,
    /// The peer sent a reset.
    ConnectionReset,
    /// The peer answered the first SYN with a reset: no socket listens there.
    ConnectionRefused,
    /// This side ended the connection: its own address was removed, or `abort` was called.
    ConnectionAborted,
    /// The peer was silent for longer than the connection may wait.
    TimedOut,
    /// The sending direction is shut down.
    BrokenPipe,
    /// Another socket has this port.
    AddressInUse,
    /// The address is not one of this host's, no port is left, or another connection has this pair
    /// of addresses.
    AddressNotAvailable,
    /// No interface leads to this address.
    NetworkUnreachable,
    /// The address or number is not valid here (port 0 to connect to, multicast for TCP, ...).
    InvalidArgument,
    /// The datagram is longer than the interface or the socket can carry.
    MessageTooLong,
    /// There is no memory for the buffers of another socket.
    OutOfMemory,
    /// [`Configuration::maximum_connections`](crate::Configuration::maximum_connections) is
    /// reached.
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
