//! Several coroutines of which the outputs are taken as they come.
//!
//! Each member has a notice: a waker that puts the member's place into a queue, which the set and
//! all notices share. So taking the next output costs the same for any number of members, and
//! outputs come in the order in which the members finished.
//!
//! A notice allocates nothing: the queue has room for every member (`JoinSet::insert`).

use ::core::fmt;
use ::core::future::{Future, poll_fn};
use ::core::mem;
use ::core::pin::Pin;
use ::core::task::{Context, Poll, Waker};
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::task::Wake;
use alloc::vec::Vec;

use super::child::AbortHandle;
use super::join::JoinHandle;
use super::join_error::JoinError;
use super::lock::Guarded;
use crate::core::CoroutineId;

/// Coroutines that belong together: their outputs are taken as they finish, and they are cancelled
/// with the set.
///
/// Dropping the set cancels every member, see [`cancel`](super::cancel), and does not wait until
/// the members have ended; [`shutdown`](JoinSet::shutdown) does.
///
/// ```
/// use cops_executor::{JoinSet, block_on, sleep};
/// use std::time::Duration;
///
/// let answers = block_on(async {
///     let mut requests = JoinSet::new();
///     for milliseconds in [30, 0] {
///         requests.spawn(async move {
///             sleep(Duration::from_millis(milliseconds)).await;
///             milliseconds
///         });
///     }
///     let mut answers = Vec::new();
///     while let Some(answer) = requests.join_next().await {
///         answers.push(answer.expect("neither cancelled nor panicked"));
///     }
///     answers
/// });
/// assert_eq!(answers, [0, 30]);
/// ```
#[must_use = "dropping it cancels its coroutines"]
pub struct JoinSet<T> {
    /// By place. A place that is free is in `free`.
    members: Vec<Option<Member<T>>>,
    free: Vec<usize>,
    /// How many the queue has room for.
    room: usize,
    queue: Arc<Queue>,
}

enum Member<T> {
    Running(JoinHandle<T>),
    /// It had finished when it was inserted.
    Finished(CoroutineId, Result<T, JoinError>),
}

/// Places of members that have finished, and the task that awaits one.
#[derive(Default)]
struct Finished {
    places: VecDeque<usize>,
    waiter: Option<Waker>,
}

/// What the members' wakers share with the set.
type Queue = Guarded<Finished>;

impl Queue {
    /// The member at `place` has finished.
    fn push(&self, place: usize) {
        let waiter = self.with(|finished| {
            finished.places.push_back(place);
            finished.waiter.take()
        });
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}

/// The waker with which a member's handle is polled. A handle wakes once.
struct Notice {
    place: usize,
    queue: Arc<Queue>,
}

impl Wake for Notice {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.queue.push(self.place);
    }
}

impl<T> JoinSet<T> {
    /// A set without members. Allocates.
    ///
    /// ```
    /// assert!(cops_executor::JoinSet::<u32>::new().is_empty());
    /// ```
    pub fn new() -> JoinSet<T> {
        JoinSet {
            members: Vec::new(),
            free: Vec::new(),
            room: 0,
            queue: Arc::new(Queue::new(Finished::default())),
        }
    }

    /// Makes a coroutine a member, whatever has spawned it, and of whichever executor it is. What
    /// is returned can cancel it.
    ///
    /// # Panics
    ///
    /// If the handle has returned the output already. The set stays as it was.
    ///
    /// ```
    /// use cops_executor::{JoinSet, Priority, Runtime};
    /// let (left, right) = (Runtime::new(1)?, Runtime::new(1)?);
    /// let mut both = JoinSet::new();
    /// both.insert(left.spawn(async { 1 }));
    /// both.insert(right.spawn_at(async { 1 }, Priority::MOST_URGENT));
    /// assert_eq!(left.block_on(both.join_next()), Some(Ok(1)));
    /// assert_eq!(left.block_on(both.join_next()), Some(Ok(1)));
    /// assert_eq!(left.block_on(both.join_next()), None);
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn insert(&mut self, mut handle: JoinHandle<T>) -> AbortHandle {
        let abort = handle.abort_handle();
        // Taken after the poll, which may panic.
        let place = self.free.last().copied().unwrap_or(self.members.len());
        self.make_room(place + 1);
        let notice = Arc::new(Notice { place, queue: self.queue.clone() });
        let waker = Waker::from(notice);
        let member = match Pin::new(&mut handle).poll(&mut Context::from_waker(&waker)) {
            Poll::Pending => Member::Running(handle),
            Poll::Ready(output) => {
                self.queue.push(place);
                Member::Finished(abort.id(), output)
            }
        };
        if self.free.pop().is_none() {
            self.members.push(None);
        }
        self.members[place] = Some(member);
        abort
    }

    /// Number of members, those included that have finished and have not been taken.
    ///
    /// ```
    /// use cops_executor::{JoinSet, block_on};
    /// block_on(async {
    ///     let mut set = JoinSet::new();
    ///     set.spawn(async {});
    ///     assert_eq!(set.len(), 1);
    ///     set.join_next().await;
    ///     assert_eq!(set.len(), 0);
    /// });
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len() - self.free.len()
    }

    /// Whether it has no members.
    ///
    /// ```
    /// use cops_executor::JoinSet;
    /// assert!(JoinSet::<()>::new().is_empty());
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until a member finishes and removes it: its output, or how it ended without one.
    /// `None` if there are no members.
    ///
    /// Members come in the order in which they finish. Cancel-safe: dropped before it was ready, it
    /// has removed none.
    ///
    /// # Errors
    ///
    /// Inside: as of awaiting the [`JoinHandle`].
    ///
    /// ```
    /// use cops_executor::{JoinSet, block_on};
    /// block_on(async {
    ///     let mut set = JoinSet::new();
    ///     set.spawn(async { 5 });
    ///     assert_eq!(set.join_next().await, Some(Ok(5)));
    ///     assert_eq!(set.join_next().await, None);
    /// });
    /// ```
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        Some(self.join_next_with_id().await?.1)
    }

    /// As [`join_next`](JoinSet::join_next), with the id that the coroutine had.
    ///
    /// ```
    /// use cops_executor::{JoinSet, block_on};
    /// block_on(async {
    ///     let mut set = JoinSet::new();
    ///     let id = set.spawn(async { 5 }).id();
    ///     assert_eq!(set.join_next_with_id().await, Some((id, Ok(5))));
    /// });
    /// ```
    pub async fn join_next_with_id(&mut self) -> Option<(CoroutineId, Result<T, JoinError>)> {
        poll_fn(|context| self.poll_join_next(context)).await
    }

    /// A member that has finished, if there is one; waits for none.
    ///
    /// ```
    /// use cops_executor::{JoinSet, block_on, yield_now};
    /// block_on(async {
    ///     let mut set = JoinSet::new();
    ///     set.spawn(async { 5 });
    ///     assert_eq!(set.try_join_next(), None, "it has not run");
    ///     yield_now().await;
    ///     assert_eq!(set.try_join_next(), Some(Ok(5)));
    /// });
    /// ```
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        loop {
            let place = self.queue.with(|finished| finished.places.pop_front())?;
            if let Some((_, output)) = self.take(place) {
                return Some(output);
            }
        }
    }

    /// Cancels all members, see [`cancel`](super::cancel), and keeps them:
    /// [`join_next`](JoinSet::join_next) yields [`JoinError::Cancelled`], or the output that came
    /// first.
    ///
    /// ```
    /// use cops_executor::{JoinError, JoinSet, block_on};
    /// block_on(async {
    ///     let mut set = JoinSet::new();
    ///     set.spawn(std::future::pending::<()>());
    ///     set.abort_all();
    ///     assert_eq!(set.join_next().await, Some(Err(JoinError::Cancelled)));
    /// });
    /// ```
    pub fn abort_all(&mut self) {
        for member in self.members.iter().flatten() {
            if let Member::Running(handle) = member {
                handle.abort();
            }
        }
    }

    /// Cancels all members, and waits until each has ended. Outputs, and panics, are dropped too.
    ///
    /// The future of a member that was cancelled has been dropped then. That of one that finished
    /// is dropped by the worker that has polled it, perhaps shortly after.
    ///
    /// Cancel-safe: dropped before it was ready, the members that are left have been cancelled.
    ///
    /// ```
    /// use cops_executor::{JoinSet, block_on};
    /// block_on(async {
    ///     let mut set = JoinSet::new();
    ///     set.spawn(std::future::pending::<()>());
    ///     set.shutdown().await;
    ///     assert!(set.is_empty());
    /// });
    /// ```
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
    }

    /// Removes all members, which run on, detached.
    ///
    /// ```
    /// use cops_executor::{JoinSet, block_on, sync::oneshot, spawn};
    /// let sent = block_on(async {
    ///     let (sender, mut receiver) = oneshot();
    ///     let mut set = JoinSet::new();
    ///     set.spawn(async { drop(sender.send("still runs")) });
    ///     set.detach_all();
    ///     drop(set);
    ///     receiver.receive().await
    /// });
    /// assert_eq!(sent, Some("still runs"));
    /// ```
    pub fn detach_all(&mut self) {
        // With a queue of its own: notices of these members would come beside those of the members
        // that get their places, and the queue has room for one of each place.
        mem::take(self).members.clear();
    }

    /// Polls for the next member: see [`join_next`](JoinSet::join_next).
    pub(crate) fn poll_join_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<(CoroutineId, Result<T, JoinError>)>> {
        loop {
            if self.is_empty() {
                return Poll::Ready(None);
            }
            // Cloned before the lock, and what it replaces is dropped after: they may be foreign.
            let waiter = context.waker().clone();
            let (place, _old_waiter) =
                self.queue.with(|finished| match finished.places.pop_front() {
                    Some(place) => (Some(place), Some(waiter)),
                    None => (None, finished.waiter.replace(waiter)),
                });
            let Some(place) = place else { return Poll::Pending };
            if let Some(taken) = self.take(place) {
                return Poll::Ready(Some(taken));
            }
        }
    }

    /// Removes the member at `place` if it has finished.
    fn take(&mut self, place: usize) -> Option<(CoroutineId, Result<T, JoinError>)> {
        let member = self.members.get_mut(place)?;
        let taken = match member.take()? {
            Member::Finished(id, output) => (id, output),
            Member::Running(mut handle) => {
                let context = &mut Context::from_waker(Waker::noop());
                // A handle that is not finished keeps the waker that it has.
                let polled = if handle.is_finished() {
                    Pin::new(&mut handle).poll(context)
                } else {
                    Poll::Pending
                };
                let Poll::Ready(output) = polled else {
                    *member = Some(Member::Running(handle));
                    return None;
                };
                (handle.id(), output)
            }
        };
        self.free.push(place);
        Some(taken)
    }

    /// Makes sure that the queue has room for so many places, each of which it has once at most.
    fn make_room(&mut self, places: usize) {
        if places <= self.room {
            return;
        }
        self.room = (2 * self.room).max(4);
        // Allocated before the lock, and what it replaces is freed after.
        let mut places = VecDeque::with_capacity(self.room);
        let _old_places = self.queue.with(|finished| {
            places.extend(finished.places.drain(..));
            mem::replace(&mut finished.places, places)
        });
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        JoinSet::new()
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.abort_all();
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("JoinSet").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "join_set_tests.rs"]
mod tests;
