//! Why a channel does not send or receive; what was not sent comes back.

use ::core::fmt;

/// It will never be received: the channel is closed, or all receivers are dropped. Contains the
/// value.
///
/// ```
/// # use cops_executor::Executor;
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// use cops_executor::sync::{SendError, channel};
/// let (sender, receiver) = channel(1);
/// drop(receiver);
/// let refused = EXECUTOR.block_on(sender.send("letter")).unwrap_err();
/// assert_eq!(refused, SendError("letter"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why a value is not sent at once. Gives it back.
///
/// ```
/// use cops_executor::sync::{TrySendError, channel};
/// let (sender, receiver) = channel(1);
/// sender.try_send(1).unwrap();
/// assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
/// drop(receiver);
/// assert_eq!(sender.try_send(3), Err(TrySendError::Closed(3)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// There is no free place, or another one at least as urgent waits for it.
    Full(T),
    /// It will never be received.
    Closed(T),
}

/// Why there is no value at once.
///
/// ```
/// use cops_executor::sync::{TryReceiveError, channel};
/// let (sender, receiver) = channel::<u32>(1);
/// assert_eq!(receiver.try_receive(), Err(TryReceiveError::Empty));
/// drop(sender);
/// assert_eq!(receiver.try_receive(), Err(TryReceiveError::Closed));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TryReceiveError {
    /// There is none now, or another receiver, at least as urgent, waits for it or has been woken
    /// for it.
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
