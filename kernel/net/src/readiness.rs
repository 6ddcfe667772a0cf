//! What a socket is ready for, as `poll` and `select` want to know.

/// What can be done without waiting.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Receiving (accepting) returns at once: data, the end of the stream, or an error.
    pub readable: bool,
    /// Sending returns at once: there is room, or an error.
    pub writable: bool,
    /// The peer has closed its direction, or the connection is over: no more data will arrive.
    pub end_of_stream: bool,
    /// The connection ended in an error.
    pub failed: bool,
}
