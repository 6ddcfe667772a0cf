//! The futures that wait for a clock: sleeping, and ticking at equal distances.
#![allow(unsafe_code)]

use ::core::fmt;
use ::core::future::Future;
use ::core::pin::Pin;
use ::core::ptr;
use ::core::task::{Context, Poll};

use super::clock::Clock;
use super::heap::{self, Link, Node};
use super::timers::Timers;

/// The future of [`Timers::sleep`] and [`Timers::sleep_until`].
///
/// Cancel-safe: dropped, it is taken out of the queue of deadlines. Polled again after it was
/// ready, it is ready. Not to be polled or dropped in interrupt handlers.
///
/// ```
/// use cops_executor::time::{ManualClock, Sleep, Timers};
/// use std::time::Duration;
/// let timers = Timers::new(ManualClock::new());
/// let nap: Sleep<'_, ManualClock> = timers.sleep(Duration::from_secs(1));
/// assert_eq!(nap.deadline_ticks(), 1_000_000_000);
/// ```
#[must_use = "await it"]
pub struct Sleep<'a, C: Clock> {
    timers: &'a Timers<C>,
    deadline_ticks: u64,
    /// The node has been put into the heap; whether it is there still is known under the lock.
    queued: bool,
    node: Node,
}

// SAFETY: what the node holds may go to other threads; others reach it under the timers' lock.
unsafe impl<C: Clock + Sync> Send for Sleep<'_, C> {}
// SAFETY: a shared reference gives the deadline only.
unsafe impl<C: Clock + Sync> Sync for Sleep<'_, C> {}

impl<'a, C: Clock> Sleep<'a, C> {
    pub(super) const fn new(timers: &'a Timers<C>, deadline_ticks: u64) -> Sleep<'a, C> {
        Sleep { timers, deadline_ticks, queued: false, node: Node::new() }
    }

    /// When it is ready, in ticks of the clock.
    ///
    /// ```
    /// # use cops_executor::time::{ManualClock, Timers};
    /// # let timers = Timers::new(ManualClock::new());
    /// assert_eq!(timers.sleep_until(7).deadline_ticks(), 7);
    /// ```
    #[must_use]
    pub const fn deadline_ticks(&self) -> u64 {
        self.deadline_ticks
    }
}

impl<C: Clock> Future for Sleep<'_, C> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // SAFETY: the node, the only field that must not move, is not moved out of this reference.
        let this = unsafe { self.get_unchecked_mut() };
        let (timers, deadline) = (this.timers, this.deadline_ticks);
        if timers.clock().now_ticks() >= deadline {
            // If it is in the heap still, `drop` takes it out.
            return Poll::Ready(());
        }
        let here: Link = ptr::from_ref(&this.node);
        // Cloned before and dropped after the lock: it may be foreign.
        let waker = context.waker().clone();
        this.queued = true;
        let any = timers.clock().needs_every_deadline();
        let (sets_clock, _old_waker) = timers.with(|heap| {
            // SAFETY: the lock; pinned; `drop` takes it out.
            unsafe {
                if heap::is_linked(here) {
                    return (false, heap::set_waker(here, waker));
                }
                let is_earliest = heap.deadline().is_none_or(|first| deadline < first);
                (any || is_earliest, heap.insert(here, deadline, waker))
            }
        });
        if sets_clock {
            timers.set_clock(deadline);
        }
        Poll::Pending
    }
}

impl<C: Clock> Drop for Sleep<'_, C> {
    fn drop(&mut self) {
        if !self.queued {
            return;
        }
        let here: Link = ptr::from_ref(&self.node);
        let _waker = self.timers.with(|heap| {
            // SAFETY: the lock; it was put into this heap.
            unsafe {
                if heap::is_linked(here) {
                    heap.remove(here);
                }
                heap::take_waker(here)
            }
        });
    }
}

/// Ticks at equal distances; see [`Timers::interval`].
///
/// ```
/// # use cops_executor::Executor;
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// use cops_executor::time::{Interval, ManualClock, Timers};
/// use std::time::Duration;
/// let timers = Timers::new(ManualClock::new());
/// let mut seconds: Interval<'_, ManualClock> = timers.interval(Duration::from_secs(1));
/// for _ in 0..3 {
///     timers.clock().advance(Duration::from_secs(1));
///     assert_eq!(EXECUTOR.block_on(seconds.tick()), 1);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Interval<'a, C> {
    timers: &'a Timers<C>,
    period_ticks: u64,
    next_ticks: u64,
}

impl<'a, C: Clock> Interval<'a, C> {
    pub(super) fn new(timers: &'a Timers<C>, period_ticks: u64) -> Interval<'a, C> {
        let next_ticks = timers.clock().now_ticks().saturating_add(period_ticks);
        Interval { timers, period_ticks, next_ticks }
    }

    /// Waits for the next tick: how many periods have passed since the last. That is 1, unless the
    /// caller comes late: ticks that were missed are counted and skipped, the following keep their
    /// times.
    ///
    /// Cancel-safe: a tick that is not returned is not lost.
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// use cops_executor::time::{ManualClock, Timers};
    /// use std::time::Duration;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let timers = Timers::new(ManualClock::new());
    /// let mut interval = timers.interval(Duration::from_secs(1));
    /// timers.clock().advance(Duration::from_millis(1_200));
    /// assert_eq!(EXECUTOR.block_on(interval.tick()), 1);
    /// timers.clock().advance(Duration::from_millis(2_000));
    /// assert_eq!(EXECUTOR.block_on(interval.tick()), 2, "those at 2 s and at 3 s");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn tick(&mut self) -> u64 {
        self.timers.sleep_until(self.next_ticks).await;
        let late = self.timers.clock().now_ticks().saturating_sub(self.next_ticks);
        let periods = late / self.period_ticks + 1;
        self.next_ticks = self.next_ticks.saturating_add(periods.saturating_mul(self.period_ticks));
        periods
    }
}

/// The time limit was reached.
///
/// ```
/// use cops_executor::{Priority, Runtime, time::Elapsed, timers};
/// use std::{future::pending, time::Duration};
/// let runtime = Runtime::new(1)?;
/// let limited = async { timers().timeout(Duration::from_millis(1), pending::<()>()).await };
/// let limited = runtime.spawn_at(limited, Priority::DEFAULT);
/// assert_eq!(runtime.block_on(limited), Ok(Err(Elapsed)));
/// # Ok::<(), cops_executor::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the time limit was reached")
    }
}

impl ::core::error::Error for Elapsed {}

impl<C: Clock> fmt::Debug for Sleep<'_, C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Sleep")
            .field("deadline_ticks", &self.deadline_ticks)
            .finish_non_exhaustive()
    }
}
