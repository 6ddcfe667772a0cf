//! A channel for a single value.

use ::core::fmt;
use ::core::future::poll_fn;
use ::core::pin::pin;
use alloc::sync::Arc;

use super::monitor::{Line, Monitor, Resource, Ticket, Wakes};
use crate::core::CoroutineId;

struct Place<T> {
    value: Option<T>,
    /// One of the two ends is gone.
    closed: bool,
    line: Line<Place<T>>,
}

impl<T> Resource for Place<T> {
    type Demand = ();
    type Grant = ();

    fn accept(&mut self, _: u64) {}

    fn try_now(&mut self, (): &mut (), _: Option<CoroutineId>) -> Option<()> {
        (self.value.is_some() || self.closed).then_some(())
    }

    fn line(&mut self, (): ()) -> &mut Line<Self> {
        &mut self.line
    }

    fn distribute(&mut self, wakes: &mut Wakes) {
        if self.value.is_some() || self.closed {
            self.line.grant_first((), wakes);
        }
    }

    fn release_grant(&mut self, (): (), (): (), _: &mut Wakes) {}
}

/// Makes a channel for a single value: one allocation, none later.
///
/// ```
/// # use cops_executor::{Executor, Priority};
/// use cops_executor::sync::oneshot;
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let (answer, mut question) = oneshot();
/// let asker = EXECUTOR.spawn_join(async move { question.receive().await }, Priority::DEFAULT)?;
/// assert_eq!(answer.send(42), Ok(()));
/// assert_eq!(EXECUTOR.block_on(asker)?, Some(42));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let place = Arc::new(Monitor::new(Place { value: None, closed: false, line: Line::new() }));
    (OneshotSender { place: place.clone() }, OneshotReceiver { place })
}

/// Where the value goes in; see [`oneshot`].
///
/// Dropping it without having sent tells the receiver. Not in interrupt handlers.
///
/// ```
/// # use cops_executor::{Executor, sync::oneshot};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let (sender, mut receiver) = oneshot::<u32>();
/// drop(sender);
/// assert_eq!(EXECUTOR.block_on(receiver.receive()), None);
/// # Ok::<(), cops_executor::StartError>(())
/// ```
pub struct OneshotSender<T> {
    place: Arc<Monitor<Place<T>>>,
}

/// Where the value comes out; see [`oneshot`].
///
/// Dropping it drops what was sent, and tells the sender. Not in interrupt handlers.
///
/// ```
/// # let (sender, receiver) = cops_executor::sync::oneshot();
/// drop(receiver);
/// assert_eq!(sender.send("come back"), Err("come back"));
/// ```
pub struct OneshotReceiver<T> {
    place: Arc<Monitor<Place<T>>>,
}

impl<T> OneshotSender<T> {
    /// Sends the value. Does not wait; not in interrupt handlers.
    ///
    /// # Errors
    ///
    /// The value, if the receiver is gone.
    ///
    /// ```
    /// # use cops_executor::sync::oneshot;
    /// let (sender, receiver) = oneshot();
    /// drop(receiver);
    /// assert_eq!(sender.send("no receiver"), Err("no receiver"));
    /// ```
    pub fn send(self, value: T) -> Result<(), T> {
        self.place.with(|place, _| {
            if place.closed {
                return Err(value);
            }
            place.value = Some(value);
            Ok(())
        })
    }

    /// Whether the receiver is gone. Not in interrupt handlers.
    ///
    /// ```
    /// # let (sender, receiver) = cops_executor::sync::oneshot::<u32>();
    /// assert!(!sender.is_closed());
    /// drop(receiver);
    /// assert!(sender.is_closed());
    /// ```
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.place.with(|place, _| place.closed)
    }
}

impl<T> OneshotReceiver<T> {
    /// The value, or `None` if the sender is gone without having sent, or the value was received
    /// before.
    ///
    /// Cancel-safe: a future that is dropped takes nothing.
    ///
    /// In coroutines, and wherever futures are polled; not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// use cops_executor::sync::oneshot;
    /// let (sender, mut receiver) = oneshot();
    /// sender.send(1).unwrap();
    /// assert_eq!(EXECUTOR.block_on(receiver.receive()), Some(1));
    /// assert_eq!(EXECUTOR.block_on(receiver.receive()), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn receive(&mut self) -> Option<T> {
        let mut ticket = pin!(Ticket::new(&*self.place, ()));
        poll_fn(|context| ticket.as_mut().poll(context, |place, ()| place.value.take())).await
    }

    /// The value, if it is there. Not in interrupt handlers.
    ///
    /// ```
    /// # let (sender, mut receiver) = cops_executor::sync::oneshot();
    /// assert_eq!(receiver.try_receive(), None);
    /// sender.send(1).unwrap();
    /// assert_eq!(receiver.try_receive(), Some(1));
    /// ```
    pub fn try_receive(&mut self) -> Option<T> {
        self.place.with(|place, _| place.value.take())
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        self.place.with(|place, _| place.closed = true);
    }
}

impl<T> Drop for OneshotReceiver<T> {
    fn drop(&mut self) {
        // A value that will never be received is dropped here, after the unlock.
        let _value = self.place.with(|place, _| {
            place.closed = true;
            place.value.take()
        });
    }
}

impl<T> fmt::Debug for OneshotSender<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OneshotSender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for OneshotReceiver<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("OneshotReceiver").finish_non_exhaustive()
    }
}
