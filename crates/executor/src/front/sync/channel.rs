//! A bounded channel: many senders, many receivers.
//!
//! Who must wait, waits for a claim: a sender for one to a free place, a receiver for one to a value. The claim is
//! kept for whoever was granted it until its next poll, so nobody passes, and a future that is dropped gives it back.

use ::core::fmt;
use ::core::future::poll_fn;
use ::core::mem::take;
use ::core::pin::pin;
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use super::channel_error::{SendError, TryReceiveError, TrySendError};
use super::monitor::{Line, Monitor, Resource, Ticket, Wakes};
use crate::core::CoroutineId;
use crate::front::registry::current;

/// What an end of the channel asks for.
#[derive(Clone, Copy)]
enum Side {
    Send,
    Receive,
}

#[derive(Clone, Copy)]
enum Grant {
    /// A free place, or a value.
    Claim,
    /// There will never be one.
    Closed,
}

struct State<T> {
    buffer: VecDeque<T>,
    capacity: usize,
    /// Free places, and values, that belong to somebody who has not been polled since.
    places_claimed: usize,
    values_claimed: usize,
    closed: bool,
    senders: usize,
    receivers: usize,
    send_line: Line<State<T>>,
    receive_line: Line<State<T>>,
}

impl<T> State<T> {
    fn free_places(&self) -> usize {
        self.capacity.saturating_sub(self.buffer.len() + self.places_claimed)
    }

    fn free_values(&self) -> usize {
        // Less than zero after a claim that was leaked, once the buffer is gone.
        self.buffer.len().saturating_sub(self.values_claimed)
    }

    /// A sender uses its grant.
    fn push(&mut self, grant: Grant, value: &mut Option<T>) -> Result<(), ()> {
        if let Grant::Claim = grant {
            self.places_claimed -= 1;
            if !self.closed {
                self.buffer.extend(value.take());
                return Ok(());
            }
        }
        Err(())
    }

    /// A receiver uses its grant.
    fn pop(&mut self, grant: Grant) -> Option<T> {
        match grant {
            Grant::Claim => {
                self.values_claimed -= 1;
                self.buffer.pop_front()
            }
            Grant::Closed => None,
        }
    }
}

impl<T> Resource for State<T> {
    type Demand = Side;
    type Grant = Grant;

    fn accept(&mut self, _: u64) {}

    fn try_now(&mut self, side: &mut Side, owner: Option<CoroutineId>) -> Option<Grant> {
        match side {
            Side::Send if self.closed => Some(Grant::Closed),
            Side::Send if self.free_places() != 0 && self.send_line.lets_pass(owner) => {
                self.places_claimed += 1;
                Some(Grant::Claim)
            }
            Side::Receive if self.free_values() != 0 && self.receive_line.lets_pass(owner) => {
                self.values_claimed += 1;
                Some(Grant::Claim)
            }
            Side::Receive if self.closed && self.free_values() == 0 => Some(Grant::Closed),
            _ => None,
        }
    }

    fn line(&mut self, side: Side) -> &mut Line<Self> {
        match side {
            Side::Send => &mut self.send_line,
            Side::Receive => &mut self.receive_line,
        }
    }

    fn distribute(&mut self, wakes: &mut Wakes) {
        while !wakes.is_full() && self.receive_line.first().is_some() {
            if self.free_values() != 0 {
                self.values_claimed += 1;
                self.receive_line.grant_first(Grant::Claim, wakes);
            } else if self.closed {
                self.receive_line.grant_first(Grant::Closed, wakes);
            } else {
                break;
            }
        }
        while !wakes.is_full() && self.send_line.first().is_some() {
            if self.closed {
                self.send_line.grant_first(Grant::Closed, wakes);
            } else if self.free_places() != 0 {
                self.places_claimed += 1;
                self.send_line.grant_first(Grant::Claim, wakes);
            } else {
                break;
            }
        }
    }

    fn give_back(&mut self, side: Side, grant: Grant, _: &mut Wakes) {
        match (side, grant) {
            (Side::Send, Grant::Claim) => self.places_claimed -= 1,
            (Side::Receive, Grant::Claim) => self.values_claimed -= 1,
            (_, Grant::Closed) => {}
        }
    }
}

/// Makes a channel that holds at most `capacity` values. It allocates here, for all of them, and never again.
///
/// Values come out in the order in which they went in. Waiting senders and waiting receivers are each served by
/// priority, and within a priority in the order of their coming; who need not wait passes those only who are less urgent.
///
/// ```
/// # use cops_executor::{Executor, Priority};
/// use cops_executor::sync::channel;
/// # static EXECUTOR: Executor = Executor::new(1);
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
/// assert_eq!(EXECUTOR.block_on(0, sum)?, 55);
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
/// # static EXECUTOR: Executor = Executor::new(1);
/// # EXECUTOR.start_on_host(1)?;
/// assert_eq!(EXECUTOR.block_on(0, stream.collect::<Vec<_>>()), [0, 1, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
///
/// If `capacity` is 0, or there is no memory for so many values.
#[must_use]
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity != 0, "a channel holds at least one value");
    let state = Arc::new(Monitor::new(State {
        buffer: VecDeque::with_capacity(capacity),
        capacity,
        places_claimed: 0,
        values_claimed: 0,
        closed: false,
        senders: 1,
        receivers: 1,
        send_line: Line::new(),
        receive_line: Line::new(),
    }));
    (Sender { state: state.clone() }, Receiver { state })
}

/// The end of a [`channel`] where values go in; may be cloned.
pub struct Sender<T> {
    state: Arc<Monitor<State<T>>>,
}

/// The end of a [`channel`] where values come out; may be cloned, and each value goes to one receiver.
pub struct Receiver<T> {
    state: Arc<Monitor<State<T>>>,
}

impl<T> Sender<T> {
    /// Sends a value, once there is a place for it.
    ///
    /// Cancel-safe in that a future that is dropped before it is ready has sent nothing; the value is dropped with it.
    /// Not in interrupt handlers.
    ///
    /// # Errors
    ///
    /// [`SendError`], with the value, if nobody will receive it.
    ///
    /// ```
    /// # use cops_executor::{Executor, sync::{SendError, channel}};
    /// # static EXECUTOR: Executor = Executor::new(1);
    /// # EXECUTOR.start_on_host(1)?;
    /// let (sender, receiver) = channel(1);
    /// drop(receiver);
    /// assert_eq!(EXECUTOR.block_on(0, sender.send("back")), Err(SendError("back")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn send(&self, value: T) -> Result<(), SendError<T>> {
        let mut value = Some(value);
        let mut ticket = pin!(Ticket::new(&*self.state, Side::Send));
        let sent =
            poll_fn(|context| ticket.as_mut().poll(context, |state, grant| state.push(grant, &mut value)));
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
    /// # static EXECUTOR: Executor = Executor::new(1);
    /// # EXECUTOR.start_on_host(1)?;
    /// let (sender, receiver) = channel(1);
    /// sender.try_send(1)?;
    /// drop(sender);
    /// assert_eq!(EXECUTOR.block_on(0, receiver.receive()), Some(1));
    /// assert_eq!(EXECUTOR.block_on(0, receiver.receive()), None);
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

    /// Closes the channel: nothing more goes in; what is in it can be received. Not in interrupt handlers.
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

    /// Values in it now, also those that belong to receivers which have not taken them yet. Not in interrupt handlers.
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
        // Values that nobody will receive are dropped here, after the unlock.
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
