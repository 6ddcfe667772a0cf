//! What a socket is ready for: for `poll` and `select`, and for reads that go on.

/// The operations that would not wait.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Receiving (or accepting) returns at once: with data, the end of the stream, or an error.
    pub readable: bool,
    /// Sending returns at once: there is room, or an error.
    pub writable: bool,
    /// The peer has closed its direction, or the connection has ended: no more data will arrive.
    /// There may still be some to read, so this is true as soon as the FIN has arrived.
    pub end_of_stream: bool,
    /// Both directions are closed.
    pub closed: bool,
    /// The connection failed, and that has not been reported.
    pub failed: bool,
}

impl Readiness {
    /// That of a connection without a socket that is not on the fast path. If it has failed, no
    /// operation waits.
    pub(crate) fn without_socket(has_failed: bool, is_unreported: bool) -> Readiness {
        Readiness {
            readable: has_failed,
            writable: has_failed,
            end_of_stream: has_failed,
            closed: has_failed,
            failed: is_unreported,
        }
    }
}

/// What is behind received bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Behind {
    /// How many more can be received at once.
    pub bytes: usize,
    /// The waker is woken when more arrives than these. If not, the stream or the connection has
    /// ended, and the next reads say how.
    pub wakes: bool,
}

impl Behind {
    /// Whether a read returns at once: with bytes, the end of the stream, or an error.
    pub(crate) fn is_receivable(self) -> bool {
        self.bytes > 0 || !self.wakes
    }
}
