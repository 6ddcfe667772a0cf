//! Children: coroutines that begin with the priority of their spawner, and that end with the
//! handle to them.

use ::core::future::Future;
use ::core::pin::Pin;
use ::core::task::{Context, Poll};

use super::executor::Executor;
use super::join::JoinHandle;
use super::join_error::JoinError;
use super::outcome::SpawnError;
use super::registry;
use crate::core::{CoroutineId, Priority};

/// What a child of the coroutine that runs here begins with.
pub(crate) fn inherited() -> Priority {
    registry::current().and_then(registry::base_priority).unwrap_or(Priority::DEFAULT)
}

impl Executor {
    /// As [`spawn`](Executor::spawn), with the priority of the coroutine that calls: the one it was
    /// given, without what it inherits for a mutex that it holds at this moment.
    /// [`Priority::DEFAULT`] outside of coroutines.
    ///
    /// The child's priority is its own from then on: it does not follow the parent's.
    ///
    /// # Errors
    ///
    /// As `spawn`.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let urgent = Priority::new(3).unwrap();
    /// let parent = async { priority(EXECUTOR.spawn_inheriting(std::future::pending()).unwrap()) };
    /// let parent = EXECUTOR.spawn_join(parent, urgent)?;
    /// assert_eq!(EXECUTOR.block_on(parent)?, Some(urgent));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_inheriting<F>(&self, future: F) -> Result<CoroutineId, SpawnError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.spawn(future, inherited())
    }

    /// As [`spawn_join`](Executor::spawn_join), with the priority of the coroutine that calls; see
    /// [`spawn_inheriting`](Executor::spawn_inheriting).
    ///
    /// # Errors
    ///
    /// As `spawn`.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, current, priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let parent = async {
    ///     let child = EXECUTOR.spawn_join_inheriting(async { current().and_then(priority) });
    ///     child.unwrap().await.unwrap()
    /// };
    /// let parent = EXECUTOR.spawn_join(parent, Priority::LEAST_URGENT)?;
    /// assert_eq!(EXECUTOR.block_on(parent)?, Some(Priority::LEAST_URGENT));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_join_inheriting<F>(&self, future: F) -> Result<JoinHandle<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.spawn_join(future, inherited())
    }
}

impl<T> JoinHandle<T> {
    /// Ties the coroutine to the handle: dropping the returned handle cancels it.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let child = EXECUTOR.spawn_join(std::future::pending::<()>(), Priority::DEFAULT)?.abort_on_drop();
    /// let id = child.id();
    /// drop(child);
    /// EXECUTOR.run_until_stalled(0);
    /// assert_eq!(priority(id), None, "it is gone");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn abort_on_drop(self) -> AbortOnDrop<T> {
        AbortOnDrop(self)
    }

    /// Something that can cancel the coroutine and may be kept, copied and sent apart from the
    /// handle.
    ///
    /// ```
    /// # use cops_executor::{Executor, JoinError, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let endless = EXECUTOR.spawn_join(std::future::pending::<()>(), Priority::DEFAULT)?;
    /// let switch = endless.abort_handle();
    /// assert!(switch.abort());
    /// assert_eq!(EXECUTOR.block_on(endless), Err(JoinError::Cancelled));
    /// assert!(!switch.abort(), "it is gone");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle(self.id())
    }
}

/// Cancels a coroutine; see [`JoinHandle::abort_handle`]. Never reaches another one: ids are not
/// used again.
///
/// ```
/// # use cops_executor::{Executor, Priority};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let polite = EXECUTOR.spawn_join(async { "done" }, Priority::DEFAULT)?;
/// let switch = polite.abort_handle();
/// std::thread::spawn(move || switch.abort()).join().unwrap();
/// assert!(EXECUTOR.block_on(polite).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AbortHandle(CoroutineId);

impl AbortHandle {
    /// Cancels it, see [`cancel`](super::cancel). False if it has exited. In any context.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let switch = EXECUTOR.spawn_join(async {}, Priority::DEFAULT)?.abort_handle();
    /// EXECUTOR.run_until_stalled(0);
    /// assert!(!switch.abort(), "it has exited");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn abort(self) -> bool {
        registry::cancel(self.0)
    }

    /// The coroutine.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let handle = EXECUTOR.spawn_join(async {}, Priority::DEFAULT)?;
    /// assert_eq!(handle.abort_handle().id(), handle.id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn id(self) -> CoroutineId {
        self.0
    }
}

/// A [`JoinHandle`] that cancels its coroutine when it is dropped; see
/// [`JoinHandle::abort_on_drop`].
///
/// Awaiting is as with a `JoinHandle`. (Cancelling a coroutine that has exited does nothing.)
///
/// Cancel-safe as the handle is, as long as it is awaited by reference; awaited by value, dropping
/// the future cancels the coroutine.
///
/// ```
/// # use cops_executor::{Executor, Priority};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let child = EXECUTOR.spawn_join(async { 1 }, Priority::DEFAULT)?.abort_on_drop();
/// assert_eq!(EXECUTOR.block_on(child)?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it cancels the coroutine"]
pub struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> AbortOnDrop<T> {
    /// The coroutine's id.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let child = EXECUTOR.spawn_join(async { 1 }, Priority::DEFAULT)?.abort_on_drop();
    /// assert_eq!(cops_executor::priority(child.id()), Some(Priority::DEFAULT));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn id(&self) -> CoroutineId {
        self.0.id()
    }

    /// Whether the output, or the reason why there is none, is there.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let child = EXECUTOR.spawn_join(async { 1 }, Priority::DEFAULT)?.abort_on_drop();
    /// assert!(!child.is_finished());
    /// EXECUTOR.run_until_stalled(0);
    /// assert!(child.is_finished());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.is_finished()
    }
}

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
