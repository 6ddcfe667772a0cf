//! A semaphore: a number of permits, given out by priority.

use ::core::fmt;
use ::core::future::poll_fn;
use ::core::mem::forget;
use ::core::pin::pin;

use super::monitor::{Line, Monitor, Resource, Ticket, Wakes};
use crate::core::CoroutineId;

/// A number of permits.
///
/// The most urgent waiter is served first, and within a priority the one that came first. No future
/// passes one that is at least as urgent, even if its own permits are available and those of the
/// other are not: so requests for many permits are not starved by requests for few, unless these
/// are more urgent.
///
/// ```
/// # use cops_executor::{Executor, Priority};
/// use cops_executor::sync::Semaphore;
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// static CONNECTIONS: Semaphore = Semaphore::new(2);
///
/// let first = CONNECTIONS.try_acquire(2).unwrap();
/// assert!(CONNECTIONS.try_acquire(1).is_none());
/// let waiter = EXECUTOR.spawn_join(
///     async {
///         let _permit = CONNECTIONS.acquire(1).await;
///         CONNECTIONS.available()
///     },
///     Priority::DEFAULT,
/// )?;
/// EXECUTOR.run_until_stalled(0);
/// assert!(!waiter.is_finished());
/// drop(first);
/// assert_eq!(EXECUTOR.block_on(waiter)?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Semaphore {
    monitor: Monitor<Permits>,
}

struct Permits {
    available: usize,
    line: Line<Permits>,
}

impl Resource for Permits {
    type Demand = usize;
    type Grant = ();

    fn accept(&mut self, posted: u64) {
        self.available =
            self.available.saturating_add(usize::try_from(posted).unwrap_or(usize::MAX));
    }

    fn try_now(&mut self, demand: &mut usize, owner: Option<CoroutineId>) -> Option<()> {
        if self.available < *demand || !self.line.lets_pass(owner) {
            return None;
        }
        self.available -= *demand;
        Some(())
    }

    fn line(&mut self, _: usize) -> &mut Line<Self> {
        &mut self.line
    }

    fn distribute(&mut self, wakes: &mut Wakes) {
        while !wakes.is_full()
            && let Some(demand) = self.line.first()
            && let Some(left) = self.available.checked_sub(demand)
        {
            self.available = left;
            self.line.grant_first((), wakes);
        }
    }

    fn release_grant(&mut self, demand: usize, (): (), _: &mut Wakes) {
        self.available = self.available.saturating_add(demand);
    }
}

impl Semaphore {
    /// A semaphore with so many permits.
    ///
    /// ```
    /// # use cops_executor::sync::Semaphore;
    /// static CONNECTIONS: Semaphore = Semaphore::new(100);
    /// assert_eq!(CONNECTIONS.available(), 100);
    /// ```
    #[must_use]
    pub const fn new(permits: usize) -> Semaphore {
        Semaphore { monitor: Monitor::new(Permits { available: permits, line: Line::new() }) }
    }

    /// Waits for `count` permits at once; for ever, if there never are so many. 0 waits for those
    /// before it.
    ///
    /// Cancel-safe: a future that is dropped takes nothing, gives up its place, and passes on what
    /// it was granted. In coroutines, and wherever futures are polled; not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// use cops_executor::sync::Semaphore;
    /// let semaphore = Semaphore::new(3);
    /// let permit = EXECUTOR.block_on(semaphore.acquire(2));
    /// assert_eq!(semaphore.available(), 1);
    /// drop(permit);
    /// assert_eq!(semaphore.available(), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn acquire(&self, count: usize) -> Permit<'_> {
        let mut ticket = pin!(Ticket::new(&self.monitor, count));
        poll_fn(|context| ticket.as_mut().poll(context, |_, ()| ())).await;
        Permit { semaphore: self, count }
    }

    /// The permits, if they are available and no waiter is at least as urgent. Not in interrupt
    /// handlers: it takes a lock.
    ///
    /// ```
    /// # use cops_executor::sync::Semaphore;
    /// let semaphore = Semaphore::new(1);
    /// let permit = semaphore.try_acquire(1).unwrap();
    /// assert!(semaphore.try_acquire(1).is_none());
    /// # drop(permit);
    /// ```
    pub fn try_acquire(&self, mut count: usize) -> Option<Permit<'_>> {
        let owner = crate::front::registry::current();
        let granted = self.monitor.with(|permits, _| permits.try_now(&mut count, owner));
        granted.map(|()| Permit { semaphore: self, count })
    }

    /// Adds permits, and wakes the waiters that get them. There are at most `usize::MAX`: what
    /// would be more is lost, also of permits that are returned.
    ///
    /// In any context, interrupt handlers included: it does not wait (the waiters' wakers run in
    /// it; those of coroutines of this crate are one atomic update each).
    ///
    /// ```
    /// # use cops_executor::sync::Semaphore;
    /// let packets = Semaphore::new(0);
    /// packets.add_permits(3); // for example in the handler of the network card
    /// packets.try_acquire(1).unwrap().forget();
    /// assert_eq!(packets.available(), 2);
    /// ```
    pub fn add_permits(&self, count: usize) {
        self.monitor.post(count as u64);
    }

    /// Available permits. Not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::sync::Semaphore;
    /// assert_eq!(Semaphore::new(3).available(), 3);
    /// ```
    pub fn available(&self) -> usize {
        self.monitor.with(|permits, _| permits.available)
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Semaphore")
            .field("available", &self.available())
            .finish_non_exhaustive()
    }
}

/// Permits of a [`Semaphore`], returned when dropped (in any context).
///
/// ```
/// # use cops_executor::sync::{Permit, Semaphore};
/// let semaphore = Semaphore::new(2);
/// let both: Permit<'_> = semaphore.try_acquire(2).unwrap();
/// assert_eq!(semaphore.available(), 0);
/// drop(both);
/// assert_eq!(semaphore.available(), 2);
/// ```
#[must_use = "permits are returned when this is dropped"]
#[derive(Debug)]
pub struct Permit<'a> {
    semaphore: &'a Semaphore,
    count: usize,
}

impl Permit<'_> {
    /// How many they are.
    ///
    /// ```
    /// # use cops_executor::sync::Semaphore;
    /// assert_eq!(Semaphore::new(5).try_acquire(3).unwrap().count(), 3);
    /// ```
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Uses them up: they are not returned.
    ///
    /// ```
    /// # use cops_executor::sync::Semaphore;
    /// let semaphore = Semaphore::new(2);
    /// semaphore.try_acquire(1).unwrap().forget();
    /// assert_eq!(semaphore.available(), 1);
    /// ```
    pub fn forget(self) {
        forget(self);
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.semaphore.add_permits(self.count);
    }
}
