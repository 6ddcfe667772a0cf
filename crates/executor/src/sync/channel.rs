//! A bounded channel: many senders, many receivers.
//!
//! A future that must wait waits for a claim: a sender for one to a free place, a receiver for one
//! to a value. The claim is kept for the future that it was granted to until its next poll, so no
//! other passes it, and a future that is dropped returns it.

use ::core::fmt;
use ::core::future::poll_fn;
use ::core::mem::take;
use ::core::pin::pin;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use super::channel_error::{SendError, TryReceiveError, TrySendError};
use super::channel_state::{Side, State};
use super::monitor::{Monitor, Resource, Ticket};
use crate::front::registry::current;

/// Makes a channel that holds at most `capacity` values. It allocates here, for all of them, and
/// never again.
///
/// Values come out in the order in which they went in. Waiting senders and waiting receivers are
/// each served by priority, and within a priority in the order of arrival; a newcomer that need not
/// wait passes only less urgent ones.
///
/// ```
/// # use cops_executor::{Executor, Priority};
/// use cops_executor::sync::channel;
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let (sender, receiver) = channel(2);
/// EXECUTOR.spawn(
///     async move {
///         for number in 1..=10 {
///             sender.send(number).await.expect("there is a receiver");
///         }
///     },
///     Priority::DEFAULT,
/// )?;
/// let sum = async move {
///     let mut sum = 0;
///     while let Some(number) = receiver.receive().await {
///         sum += number;
///     }
///     sum
/// };
/// let sum = EXECUTOR.spawn_join(sum, Priority::DEFAULT)?;
/// assert_eq!(EXECUTOR.block_on(sum)?, 55);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// As a `Stream` of the ecosystem:
///
/// ```
/// # use cops_executor::sync::channel;
/// use futures_util::{StreamExt, stream};
/// let (sender, receiver) = channel(3);
/// for number in 0..3 {
///     sender.try_send(number).unwrap();
/// }
/// drop(sender);
/// let stream = stream::unfold(receiver, async |receiver| Some((receiver.receive().await?, receiver)));
/// # use cops_executor::Executor;
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// assert_eq!(EXECUTOR.block_on(stream.collect::<Vec<_>>()), [0, 1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
///
/// If `capacity` is 0, or there is no memory for so many values.
#[must_use]
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity != 0, "a channel holds at least one value");
    let state = Arc::new(Monitor::new(State::new(capacity)));
    (Sender { state: state.clone() }, Receiver { state })
}

/// The end of a [`channel`] where values go in; may be cloned.
///
/// When the last is dropped, the channel is closed. Not to be cloned or dropped in interrupt
/// handlers.
///
/// ```
/// # use cops_executor::sync::{TryReceiveError, channel};
/// let (sender, receiver) = channel(2);
/// let other = sender.clone();
/// sender.try_send(1).unwrap();
/// drop(sender);
/// other.try_send(2).unwrap();
/// drop(other);
/// assert_eq!([receiver.try_receive(), receiver.try_receive()], [Ok(1), Ok(2)]);
/// assert_eq!(receiver.try_receive(), Err(TryReceiveError::Closed));
/// ```
pub struct Sender<T> {
    state: Arc<Monitor<State<T>>>,
}

/// The end of a [`channel`] where values come out; may be cloned, and each value goes to one
/// receiver.
///
/// When the last is dropped, the channel is closed, and what is in it is dropped. Not to be cloned
/// or dropped in interrupt handlers.
///
/// ```
/// # use cops_executor::sync::channel;
/// let (sender, receiver) = channel(2);
/// let other = receiver.clone();
/// sender.try_send(1).unwrap();
/// assert_eq!(other.try_receive(), Ok(1));
/// assert!(receiver.is_empty(), "each value goes to one of them");
/// ```
pub struct Receiver<T> {
    state: Arc<Monitor<State<T>>>,
}

impl<T> Sender<T> {
    /// Sends a value, once there is a place for it.
    ///
    /// Cancel-safe in that a future that is dropped before it is ready has sent nothing; the value
    /// is dropped with it. Not in interrupt handlers.
    ///
    /// # Errors
    ///
    /// [`SendError`], with the value, if it will never be received.
    ///
    /// ```
    /// # use cops_executor::{Executor, sync::{SendError, channel}};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let (sender, receiver) = channel(1);
    /// drop(receiver);
    /// assert_eq!(EXECUTOR.block_on(sender.send("back")), Err(SendError("back")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut value = Some(value);
        let mut ticket = pin!(Ticket::new(&*self.state, Side::Send));
        let sent = poll_fn(|context| {
            ticket.as_mut().poll(context, |state, grant| state.push(grant, &mut value))
        });
        match (sent.await, value) {
            (Err(()), Some(value)) => Err(SendError(value)),
            _ => Ok(()),
        }
    }

    /// Sends a value if that needs no waiting. Not in interrupt handlers.
    ///
    /// # Errors
    ///
    /// [`TrySendError`], with the value.
    ///
    /// ```
    /// # use cops_executor::sync::{TrySendError, channel};
    /// let (sender, receiver) = channel(1);
    /// assert_eq!(sender.try_send(1), Ok(()));
    /// assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
    /// assert_eq!(receiver.try_receive(), Ok(1));
    /// ```
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        let (owner, mut value) = (current(), Some(value));
        let sent = self.state.with(|state, _| {
            let grant = state.try_now(&mut Side::Send, owner)?;
            Some(state.push(grant, &mut value))
        });
        match (sent, value) {
            (None, Some(value)) => Err(TrySendError::Full(value)),
            (Some(Err(())), Some(value)) => Err(TrySendError::Closed(value)),
            _ => Ok(()),
        }
    }

    /// Whether sending is in vain. Not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::sync::channel;
    /// let (sender, receiver) = channel::<u32>(1);
    /// assert!(!sender.is_closed());
    /// drop(receiver);
    /// assert!(sender.is_closed());
    /// ```
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.state.with(|state, _| state.closed)
    }
}

impl<T> Receiver<T> {
    /// The next value; `None` once the channel is closed and empty.
    ///
    /// Cancel-safe: a future that is dropped takes nothing. Not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::{Executor, sync::channel};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let (sender, receiver) = channel(1);
    /// sender.try_send(1)?;
    /// drop(sender);
    /// assert_eq!(EXECUTOR.block_on(receiver.receive()), Some(1));
    /// assert_eq!(EXECUTOR.block_on(receiver.receive()), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn receive(&self) -> Option<T> {
        let mut ticket = pin!(Ticket::new(&*self.state, Side::Receive));
        poll_fn(|context| ticket.as_mut().poll(context, |state, grant| state.pop(grant))).await
    }

    /// The next value, if that needs no waiting. Not in interrupt handlers.
    ///
    /// # Errors
    ///
    /// [`TryReceiveError`].
    ///
    /// ```
    /// # use cops_executor::sync::{TryReceiveError, channel};
    /// let (sender, receiver) = channel(1);
    /// assert_eq!(receiver.try_receive(), Err(TryReceiveError::Empty));
    /// sender.try_send(7).unwrap();
    /// drop(sender);
    /// assert_eq!(receiver.try_receive(), Ok(7));
    /// assert_eq!(receiver.try_receive(), Err(TryReceiveError::Closed));
    /// ```
    pub fn try_receive(&self) -> Result<T, TryReceiveError> {
        let owner = current();
        self.state.with(|state, _| {
            let grant = state.try_now(&mut Side::Receive, owner).ok_or(TryReceiveError::Empty)?;
            state.pop(grant).ok_or(TryReceiveError::Closed)
        })
    }

    /// Closes the channel: nothing more goes in; what is in it can be received. Not in interrupt
    /// handlers.
    ///
    /// ```
    /// # use cops_executor::sync::{TrySendError, channel};
    /// let (sender, receiver) = channel(2);
    /// sender.try_send(1).unwrap();
    /// receiver.close();
    /// assert_eq!(sender.try_send(2), Err(TrySendError::Closed(2)));
    /// assert_eq!(receiver.try_receive(), Ok(1));
    /// ```
    pub fn close(&self) {
        self.state.with(|state, _| state.closed = true);
    }

    /// Values in it now, also those that belong to receivers which have not taken them yet. Not in
    /// interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::sync::channel;
    /// let (sender, receiver) = channel(2);
    /// assert!(receiver.is_empty());
    /// sender.try_send('a').unwrap();
    /// assert_eq!(receiver.len(), 1);
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.state.with(|state, _| state.buffer.len())
    }

    /// Whether there is no value in it now.
    ///
    /// Not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::sync::channel;
    /// let (sender, receiver) = channel(1);
    /// assert!(receiver.is_empty());
    /// sender.try_send(1).unwrap();
    /// assert!(!receiver.is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.state.with(|state, _| state.senders += 1);
        Sender { state: self.state.clone() }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.state.with(|state, _| state.receivers += 1);
        Receiver { state: self.state.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.state.with(|state, _| {
            state.senders -= 1;
            state.closed |= state.senders == 0;
        });
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Values that will never be received are dropped here, after the unlock.
        let _values = self.state.with(|state, _| {
            state.receivers -= 1;
            if state.receivers != 0 {
                return VecDeque::new();
            }
            state.closed = true;
            take(&mut state.buffer)
        });
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Receiver").field("len", &self.len()).finish_non_exhaustive()
    }
}
