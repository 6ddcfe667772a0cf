//! A bounded channel with a single sender and a single receiver.
//!
//! There is no queue of waiters, and therefore no choice by priority: each end waits for the other
//! one only. Where many may send or receive, use [`channel`](super::channel()).

use ::core::fmt;
use ::core::future::poll_fn;
use ::core::mem::swap;
use ::core::task::{Context, Poll, Waker};
use alloc::collections::VecDeque;
use alloc::sync::Arc;

use super::channel_error::{SendError, TryReceiveError, TrySendError};
use crate::core::atomic::{AtomicBool, Ordering};
use crate::front::lock::Guarded;

/// Makes a channel that holds at most `capacity` values. It allocates here, for all of them, and
/// never again.
///
/// ```
/// # use cops_executor::{Executor, Priority};
/// use cops_executor::sync::spsc;
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let (mut sender, mut receiver) = spsc::channel(2);
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
/// # Panics
///
/// If `capacity` is 0, or there is no memory for so many values.
#[must_use]
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity != 0, "a channel holds at least one value");
    let state = Guarded::new(State {
        values: VecDeque::with_capacity(capacity),
        capacity,
        sender: None,
        receiver: None,
        is_closed: false,
    });
    let shared = Arc::new(Shared { state, seems_empty: AtomicBool::new(true) });
    (Sender { shared: shared.clone() }, Receiver { shared })
}

struct Shared<T> {
    state: Guarded<State<T>>,
    /// Whether there was no value when the state was last unlocked. Read without the lock, as a
    /// hint: a receiver that finds it set brings its waker to the first try.
    seems_empty: AtomicBool,
}

struct State<T> {
    values: VecDeque<T>,
    capacity: usize,
    /// The end that waits.
    sender: Option<Waker>,
    receiver: Option<Waker>,
    /// One of the two ends is gone.
    is_closed: bool,
}

/// Sets `is_closed`, and wakes the other end.
fn close<T>(shared: &Shared<T>, other: impl FnOnce(&mut State<T>) -> Option<Waker>) {
    let waker = shared.state.with(|state| {
        state.is_closed = true;
        other(state)
    });
    wake(waker);
}

#[inline]
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The end of a [`channel`] where values go in.
///
/// When it is dropped, the receiver gets what is in the channel, and then `None`. Not to be dropped
/// in interrupt handlers.
///
/// ```
/// # use cops_executor::sync::{TryReceiveError, spsc};
/// let (mut sender, mut receiver) = spsc::channel(2);
/// sender.try_send(1).unwrap();
/// drop(sender);
/// assert_eq!(receiver.try_receive(), Ok(1));
/// assert_eq!(receiver.try_receive(), Err(TryReceiveError::Closed));
/// ```
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

/// The end of a [`channel`] where values come out.
///
/// When it is dropped, what is in the channel is dropped, and nothing can be sent any more. Not to
/// be dropped in interrupt handlers.
///
/// ```
/// # use cops_executor::sync::{TrySendError, spsc};
/// let (mut sender, receiver) = spsc::channel(2);
/// drop(receiver);
/// assert_eq!(sender.try_send(1), Err(TrySendError::Closed(1)));
/// ```
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// Sends a value, once there is a place for it.
    ///
    /// Cancel-safe in that a future that is dropped before it is ready has sent nothing; the value
    /// is dropped with it. Not in interrupt handlers.
    ///
    /// # Errors
    ///
    /// [`SendError`], with the value, if the receiver is gone.
    ///
    /// ```
    /// # use cops_executor::{Executor, sync::{SendError, spsc}};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let (mut sender, receiver) = spsc::channel(1);
    /// drop(receiver);
    /// assert_eq!(EXECUTOR.block_on(sender.send("back")), Err(SendError("back")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn send(&mut self, value: T) -> impl Future<Output = Result<(), SendError<T>>> {
        let mut value = Some(value);
        poll_fn(move |context| match value.take().map(|value| self.try_send(value)) {
            Some(Err(TrySendError::Full(unsent))) => self.wait_to_send(context, &mut value, unsent),
            Some(Err(TrySendError::Closed(unsent))) => Poll::Ready(Err(SendError(unsent))),
            Some(Ok(())) | None => Poll::Ready(Ok(())),
        })
    }

    /// The channel was full a moment ago: registers the waker and tries once more.
    ///
    /// Apart: the rest is small and becomes part of the coroutine's own poll.
    #[inline(never)]
    fn wait_to_send(
        &self,
        context: &Context<'_>,
        value: &mut Option<T>,
        unsent: T,
    ) -> Poll<Result<(), SendError<T>>> {
        let mut waker = Some(context.waker().clone());
        match self.push(unsent, &mut waker) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(TrySendError::Closed(unsent)) => Poll::Ready(Err(SendError(unsent))),
            Err(TrySendError::Full(unsent)) => {
                *value = Some(unsent);
                Poll::Pending
            }
        }
    }

    /// Sends a value if that needs no waiting. Not in interrupt handlers.
    ///
    /// # Errors
    ///
    /// [`TrySendError`], with the value.
    ///
    /// ```
    /// # use cops_executor::sync::{TrySendError, spsc};
    /// let (mut sender, mut receiver) = spsc::channel(1);
    /// assert_eq!(sender.try_send(1), Ok(()));
    /// assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
    /// assert_eq!(receiver.try_receive(), Ok(1));
    /// ```
    pub fn try_send(&mut self, value: T) -> Result<(), TrySendError<T>> {
        self.push(value, &mut None)
    }

    /// If the channel is full, a `waker` is registered; the previous one replaces it.
    fn push(&self, value: T, waker: &mut Option<Waker>) -> Result<(), TrySendError<T>> {
        let receiver = self.shared.state.with(|state| {
            if state.is_closed {
                return Err(TrySendError::Closed(value));
            }
            if state.values.len() >= state.capacity {
                if waker.is_some() {
                    swap(&mut state.sender, waker);
                }
                return Err(TrySendError::Full(value));
            }
            state.values.push_back(value);
            self.shared.seems_empty.store(false, Ordering::Relaxed);
            Ok(state.receiver.take())
        })?;
        wake(receiver);
        Ok(())
    }
}

impl<T> Receiver<T> {
    /// The next value; `None` once the sender is gone and the channel is empty.
    ///
    /// Cancel-safe: a future that is dropped takes nothing. Not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::{Executor, sync::spsc};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let (mut sender, mut receiver) = spsc::channel(1);
    /// sender.try_send(1)?;
    /// drop(sender);
    /// assert_eq!(EXECUTOR.block_on(receiver.receive()), Some(1));
    /// assert_eq!(EXECUTOR.block_on(receiver.receive()), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn receive(&mut self) -> impl Future<Output = Option<T>> {
        poll_fn(|context| {
            if !self.seems_empty()
                && let Ok(value) = self.try_receive()
            {
                return Poll::Ready(Some(value));
            }
            self.wait_to_receive(context)
        })
    }

    /// The channel was empty a moment ago, or is closed: registers the waker, if it still has to
    /// wait.
    ///
    /// Apart: the rest is small and becomes part of the coroutine's own poll.
    #[inline(never)]
    fn wait_to_receive(&self, context: &Context<'_>) -> Poll<Option<T>> {
        let mut waker = Some(context.waker().clone());
        let must_wait = self.shared.state.with(|state| {
            let must_wait = state.values.is_empty() && !state.is_closed;
            if must_wait {
                swap(&mut state.receiver, &mut waker);
            }
            must_wait
        });
        if must_wait { Poll::Pending } else { self.stop_waiting() }
    }

    /// There is a value, which no other receiver takes, or the end. Apart, because few waits end
    /// here.
    #[inline(never)]
    fn stop_waiting(&self) -> Poll<Option<T>> {
        Poll::Ready(self.pop().ok())
    }

    /// The next value, if there is one. Not in interrupt handlers.
    ///
    /// # Errors
    ///
    /// [`TryReceiveError`].
    ///
    /// ```
    /// # use cops_executor::sync::{TryReceiveError, spsc};
    /// let (mut sender, mut receiver) = spsc::channel(1);
    /// assert_eq!(receiver.try_receive(), Err(TryReceiveError::Empty));
    /// sender.try_send(7).unwrap();
    /// drop(sender);
    /// assert_eq!(receiver.try_receive(), Ok(7));
    /// assert_eq!(receiver.try_receive(), Err(TryReceiveError::Closed));
    /// ```
    pub fn try_receive(&mut self) -> Result<T, TryReceiveError> {
        self.pop()
    }

    /// Whether there is no value, without the lock: cheaper than [`Self::try_receive`] where there
    /// usually is none. A value that is being sent at the same time may be overlooked, or may
    /// already be seen and still not be there for `try_receive`.
    ///
    /// ```
    /// # use cops_executor::sync::spsc;
    /// let (mut sender, mut receiver) = spsc::channel(2);
    /// assert!(receiver.seems_empty());
    /// sender.try_send(1)?;
    /// sender.try_send(2)?;
    /// assert_eq!(receiver.try_receive(), Ok(1));
    /// assert!(!receiver.seems_empty());
    /// # Ok::<(), cops_executor::sync::TrySendError<i32>>(())
    /// ```
    #[must_use]
    pub fn seems_empty(&self) -> bool {
        self.shared.seems_empty.load(Ordering::Relaxed)
    }

    fn pop(&self) -> Result<T, TryReceiveError> {
        let shared = &*self.shared;
        let (value, sender) = shared.state.with(|state| match state.values.pop_front() {
            Some(value) => {
                shared.seems_empty.store(state.values.is_empty(), Ordering::Relaxed);
                Ok((value, state.sender.take()))
            }
            None if state.is_closed => Err(TryReceiveError::Closed),
            None => Err(TryReceiveError::Empty),
        })?;
        wake(sender);
        Ok(value)
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        close(&self.shared, |state| state.receiver.take());
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut values = VecDeque::new();
        close(&self.shared, |state| {
            swap(&mut state.values, &mut values);
            state.sender.take()
        });
        // Without the lock, because a value may do anything when it is dropped.
        drop(values);
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Receiver").finish_non_exhaustive()
    }
}
