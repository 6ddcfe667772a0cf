//! Why a channel does not send or receive; what was not sent comes back.

use ::core::fmt;

/// Nobody will receive it: the channel is closed, or all receivers are gone. Gives the value back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why a value is not sent at once. Gives it back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// There is no free place, or somebody at least as urgent waits for it.
    Full(T),
    /// Nobody will receive it.
    Closed(T),
}

/// Why there is no value at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TryReceiveError {
    /// There is none now, or somebody at least as urgent waits for it.
    Empty,
    /// There will never be one.
    Closed,
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SendError(..)")
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the channel is closed")
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            TrySendError::Full(_) => "Full(..)",
            TrySendError::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            TrySendError::Full(_) => "the channel is full",
            TrySendError::Closed(_) => "the channel is closed",
        })
    }
}

impl fmt::Display for TryReceiveError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            TryReceiveError::Empty => "the channel is empty",
            TryReceiveError::Closed => "the channel is closed and empty",
        })
    }
}

impl<T> ::core::error::Error for SendError<T> {}

impl<T> ::core::error::Error for TrySendError<T> {}

impl ::core::error::Error for TryReceiveError {}
