//! Spawning into a `JoinSet`.

use std::future::Future;

use super::free;
use crate::core::Priority;
use crate::front::{AbortHandle, JoinSet};

impl<T: 'static> JoinSet<T> {
    /// Spawns a member on the runtime that the caller is in, with the caller's priority: see the
    /// free [`spawn`](crate::spawn).
    ///
    /// # Panics
    ///
    /// As the free `spawn`.
    ///
    /// ```
    /// use cops_executor::{JoinSet, block_on};
    /// let sum = block_on(async {
    ///     let mut set: JoinSet<u32> = (1..=4).fold(JoinSet::new(), |mut set, n| {
    ///         set.spawn(async move { n * n });
    ///         set
    ///     });
    ///     let mut sum = 0;
    ///     while let Some(square) = set.join_next().await {
    ///         sum += square?;
    ///     }
    ///     Ok::<_, cops_executor::JoinError>(sum)
    /// });
    /// assert_eq!(sum, Ok(30));
    /// ```
    pub fn spawn<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        self.insert(free::spawn(future))
    }

    /// As [`spawn`](JoinSet::spawn), with the priority of the caller's choice.
    ///
    /// # Panics
    ///
    /// As the free [`spawn`](crate::spawn).
    ///
    /// ```
    /// use cops_executor::{JoinSet, Priority, block_on};
    /// let order = block_on(async {
    ///     let mut set = JoinSet::new();
    ///     set.spawn_at(async { "later" }, Priority::LEAST_URGENT);
    ///     set.spawn_at(async { "first" }, Priority::MOST_URGENT);
    ///     [set.join_next().await, set.join_next().await]
    /// });
    /// assert_eq!(order, [Some(Ok("first")), Some(Ok("later"))]);
    /// ```
    pub fn spawn_at<F>(&mut self, future: F, priority: Priority) -> AbortHandle
    where
        F: Future<Output = T> + Send + 'static,
        T: Send,
    {
        self.insert(free::spawn_at(future, priority))
    }

    /// Spawns a member that stays on this thread: see the free [`spawn_local`](crate::spawn_local).
    ///
    /// # Panics
    ///
    /// As the free `spawn_local`.
    ///
    /// ```
    /// use cops_executor::{JoinSet, block_on};
    /// use std::rc::Rc;
    /// let shared = Rc::new(3);
    /// let output = block_on(async {
    ///     let mut set = JoinSet::new();
    ///     let copy = shared.clone();
    ///     set.spawn_local(async move { copy });
    ///     set.join_next().await
    /// });
    /// assert!(Rc::ptr_eq(&output.unwrap()?, &shared));
    /// # Ok::<(), cops_executor::JoinError>(())
    /// ```
    pub fn spawn_local<F>(&mut self, future: F) -> AbortHandle
    where
        F: Future<Output = T> + 'static,
    {
        self.insert(free::spawn_local(future))
    }
}
