//! The timers of a program: a clock, a queue of deadlines, and the futures that wait for them.
#![allow(unsafe_code)]

use ::core::cell::UnsafeCell;
use ::core::fmt;
use ::core::future::Future;
use ::core::pin::pin;
use ::core::task::{Poll, Waker};
use ::core::time::Duration;

use super::clock::{Clock, ticks_in};
use super::heap::Heap;
use super::sleep::{Elapsed, Interval, Sleep};
use crate::front::lock::SpinLock;

/// Wakers that are taken out at once before the unlock.
const FIRED_AT_ONCE: usize = 16;

/// Timers by a clock of the program's choice. To be placed in a static, or anywhere that lives long
/// enough.
///
/// Sleeping allocates nothing; adding, taking out and firing are O(log n) each in the number of
/// sleepers.
///
/// # How a host drives it
///
/// Before a worker sleeps, or in a thread of its own:
///
/// ```text
/// match timers.fire_due().next_deadline {
///     Some(ticks) => sleep until `ticks` by the clock, or until notified,
///     None => sleep until notified,
/// }
/// ```
///
/// or: the clock's [`deadline_set`](Clock::deadline_set) sets a hardware timer, and its interrupt
/// handler calls `fire_due` and sets it again for the `next_deadline` that this returns. A new
/// deadline that is earlier than all others comes by `deadline_set`, so a thread that sleeps is
/// unparked there, and looks again.
///
/// Where another processor may add a deadline while the handler runs, the handler looks again after
/// it has set the timer, or it may replace an earlier deadline with its own:
///
/// ```text
/// set the timer to never;
/// let mut set = u64::MAX;
/// while let Some(ticks) = timers.fire_due().next_deadline && ticks < set {
///     set the timer to `ticks`;
///     set = ticks;
/// }
/// ```
///
/// ```
/// # use cops_executor::{Executor, Priority};
/// use cops_executor::time::{ManualClock, Timers};
/// use std::time::Duration;
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// static TIMERS: Timers<ManualClock> = Timers::new(ManualClock::new());
///
/// let sleeper = EXECUTOR.spawn_join(TIMERS.sleep(Duration::from_millis(5)), Priority::DEFAULT)?;
/// EXECUTOR.run_until_stalled(0);
/// assert_eq!(TIMERS.next_deadline(), Some(5_000_000));
/// TIMERS.clock().advance(Duration::from_millis(5));
/// assert_eq!(TIMERS.fire_due().count, 1);
/// EXECUTOR.block_on(sleeper)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Timers<C> {
    clock: C,
    lock: SpinLock,
    heap: UnsafeCell<Heap>,
}

// SAFETY: the heap is reached by one thread at a time, under the lock.
unsafe impl<C: Sync> Sync for Timers<C> {}

impl<C: Clock> Timers<C> {
    /// Timers by this clock, without a sleeping future.
    ///
    /// ```
    /// # use cops_executor::time::{ManualClock, Timers};
    /// static TIMERS: Timers<ManualClock> = Timers::new(ManualClock::new());
    /// assert_eq!(TIMERS.next_deadline(), None);
    /// ```
    #[must_use]
    pub const fn new(clock: C) -> Timers<C> {
        Timers { clock, lock: SpinLock::new(), heap: UnsafeCell::new(Heap::new()) }
    }

    /// The clock.
    ///
    /// ```
    /// # use cops_executor::time::{Clock, ManualClock, Timers};
    /// let timers = Timers::new(ManualClock::new());
    /// assert_eq!(timers.clock().now_ticks(), 0);
    /// ```
    #[must_use]
    pub const fn clock(&self) -> &C {
        &self.clock
    }

    /// The clock's time `duration` from now, rounded up to ticks; the end of time if that is too
    /// late to count.
    ///
    /// ```
    /// # use cops_executor::time::{ManualClock, Timers};
    /// # use std::time::Duration;
    /// let timers = Timers::new(ManualClock::new());
    /// assert_eq!(timers.ticks_after(Duration::from_secs(2)), 2_000_000_000);
    /// ```
    #[must_use]
    pub fn ticks_after(&self, duration: Duration) -> u64 {
        self.clock.now_ticks().saturating_add(ticks_in(duration, self.clock.ticks_per_second()))
    }

    /// Waits for at least `duration`, from this call on (not from the first poll on). Cancel-safe.
    ///
    /// A future that is dropped takes its deadline with it. In coroutines, and wherever futures are
    /// polled; not in interrupt handlers.
    ///
    /// ```
    /// use cops_executor::{Priority, Runtime, timers};
    /// use std::time::Duration;
    /// let runtime = Runtime::new(1)?;
    /// let nap = runtime.spawn_at(async { timers().sleep(Duration::from_millis(1)).await }, Priority::DEFAULT);
    /// assert_eq!(runtime.block_on(nap), Ok(()));
    /// # Ok::<(), cops_executor::BuildError>(())
    /// ```
    pub fn sleep(&self, duration: Duration) -> Sleep<'_, C> {
        self.sleep_until(self.ticks_after(duration))
    }

    /// Waits until the clock shows `deadline_ticks` or more; ready at once if it does. Cancel-safe.
    ///
    /// ```
    /// # use cops_executor::{Executor, time::{ManualClock, Timers}};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let timers = Timers::new(ManualClock::new());
    /// timers.clock().advance_to(10);
    /// EXECUTOR.block_on(timers.sleep_until(10));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub const fn sleep_until(&self, deadline_ticks: u64) -> Sleep<'_, C> {
        Sleep::new(self, deadline_ticks)
    }

    /// The output of `future`, if it comes within `limit` from this call on; otherwise `future` is
    /// dropped. If both are ready at the same time, the output wins. Cancel-safe if `future` is; a
    /// limit cancels it in the same way.
    ///
    /// # Errors
    ///
    /// [`Elapsed`].
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// use cops_executor::{sync::Mutex, time::{Elapsed, ManualClock, Timers}};
    /// use std::time::Duration;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// static TIMERS: Timers<ManualClock> = Timers::new(ManualClock::new());
    /// static TABLE: Mutex<u32> = Mutex::new(0);
    ///
    /// let _held = TABLE.try_lock();
    /// let impatient = async { TIMERS.timeout(Duration::from_secs(1), TABLE.lock()).await.map(|table| *table) };
    /// let impatient = EXECUTOR.spawn_join(impatient, Priority::DEFAULT)?;
    /// EXECUTOR.run_until_stalled(0);
    /// TIMERS.clock().advance(Duration::from_secs(1));
    /// TIMERS.fire_due();
    /// assert_eq!(EXECUTOR.block_on(impatient)?, Err(Elapsed));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timeout<F: Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> impl Future<Output = Result<F::Output, Elapsed>> {
        let sleep = self.sleep(limit);
        async move {
            let (mut future, mut sleep) = (pin!(future), pin!(sleep));
            ::core::future::poll_fn(|context| match future.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Ok(output)),
                Poll::Pending => sleep.as_mut().poll(context).map(|()| Err(Elapsed)),
            })
            .await
        }
    }

    /// Ticks every `period`, for the first time one period from now; see [`Interval::tick`].
    ///
    /// # Panics
    ///
    /// If `period` is zero.
    ///
    /// ```
    /// # use cops_executor::time::{ManualClock, Timers};
    /// # use std::time::Duration;
    /// let timers = Timers::new(ManualClock::new());
    /// let mut interval = timers.interval(Duration::from_millis(20));
    /// timers.clock().advance(Duration::from_millis(20));
    /// # use cops_executor::Executor;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// assert_eq!(EXECUTOR.block_on(interval.tick()), 1);
    /// # Ok::<(), cops_executor::StartError>(())
    /// ```
    pub fn interval(&self, period: Duration) -> Interval<'_, C> {
        let period_ticks = ticks_in(period, self.clock.ticks_per_second());
        assert!(period_ticks != 0, "an interval has a length");
        Interval::new(self, period_ticks)
    }

    /// The earliest deadline of the sleeping futures, in ticks of the clock. `None` if there are
    /// none. Not in interrupt handlers, which get it from [`fire_due`](Timers::fire_due).
    ///
    /// ```
    /// # use cops_executor::time::{ManualClock, Timers};
    /// # use std::{future::Future, pin::pin, task::{Context, Waker}};
    /// let timers = Timers::new(ManualClock::new());
    /// let mut sleep = pin!(timers.sleep_until(7));
    /// assert!(sleep.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    /// assert_eq!((timers.next_deadline(), timers.count()), (Some(7), 1));
    /// ```
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.with(|heap| heap.deadline())
    }

    /// Number of sleeping futures. Not in interrupt handlers.
    ///
    /// ```
    /// # use cops_executor::time::{ManualClock, Timers};
    /// # use std::time::Duration;
    /// assert_eq!(Timers::new(ManualClock::new()).count(), 0);
    /// ```
    #[must_use]
    pub fn count(&self) -> usize {
        self.with(|heap| heap.count())
    }

    /// Wakes the futures with a deadline that has passed, the earliest first.
    ///
    /// In any context, interrupt handlers included: it never waits. If another caller is adding or
    /// removing a timer at this moment, that one does it instead, and then calls
    /// [`Clock::deadline_set`] for the next deadline; this returns the default. The same goes for
    /// what is left after each 16 wakes: then `count` is what this call has woken.
    ///
    /// Wakers run in the call; those of coroutines of this crate are an atomic update and a push
    /// each.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// use cops_executor::time::{ManualClock, Timers};
    /// static TIMERS: Timers<ManualClock> = Timers::new(ManualClock::new());
    /// for ticks in [10, 20] {
    ///     EXECUTOR.spawn(TIMERS.sleep_until(ticks), Priority::DEFAULT)?;
    /// }
    /// EXECUTOR.run_until_stalled(0);
    /// TIMERS.clock().advance_to(10);
    /// let fired = TIMERS.fire_due(); // In earnest: in the handler of the timer's interrupt.
    /// assert_eq!((fired.count, fired.next_deadline), (1, Some(20)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fire_due(&self) -> Fired {
        if self.lock.lock_or_note() { self.fire_and_unlock() } else { Fired::default() }
    }

    /// Acts on the heap under the lock; then fires, if a note was left that it is time.
    pub(super) fn with<T>(&self, act: impl FnOnce(&mut Heap) -> T) -> T {
        let (result, owed) = self.act(act);
        if let Some(deadline) = owed {
            self.set_clock(deadline);
        }
        result
    }

    /// As `with`. Also returns the deadline to set if it has fired: what left the note set none.
    fn act<T>(&self, act: impl FnOnce(&mut Heap) -> T) -> (T, Option<u64>) {
        self.lock.lock();
        // SAFETY: the lock, and this is the only reference.
        let result = act(unsafe { &mut *self.heap.get() });
        let owed = if self.lock.unlock() { None } else { self.fire_and_unlock().next_deadline };
        (result, owed)
    }

    /// Gives the clock a deadline that was the earliest under the lock. Without the lock.
    ///
    /// Another worker may have added an earlier one since, and may have given that to the clock
    /// before. So this looks again after each call: the last of all calls is for the earliest
    /// deadline.
    pub(super) fn set_clock(&self, mut deadline: u64) {
        loop {
            self.clock.deadline_set(deadline);
            if self.clock.needs_every_deadline() {
                return;
            }
            let (earliest, owed) = self.act(|heap| heap.deadline());
            match owed.or(earliest.filter(|&earliest| earliest < deadline)) {
                Some(next) => deadline = next,
                None => return,
            }
        }
    }

    /// The lock is held.
    fn fire_and_unlock(&self) -> Fired {
        let mut fired = Fired::default();
        let mut wakers = Wakers::new();
        loop {
            let now = self.clock.now_ticks();
            // SAFETY: the lock is held, and this reference ends before the unlock.
            let heap = unsafe { &mut *self.heap.get() };
            while !wakers.is_full()
                && let Some(waker) = heap.pop_due(now)
            {
                wakers.push(waker);
                fired.count += 1;
            }
            fired.next_deadline = heap.deadline();
            if wakers.is_full() {
                self.lock.release();
                wakers.wake_all();
                // The holder fires the rest, and sets the clock.
                if !self.lock.lock_or_note() {
                    fired.next_deadline = None;
                    return fired;
                }
            } else if self.lock.unlock() {
                wakers.wake_all();
                return fired;
            }
        }
    }
}

/// What [`Timers::fire_due`] has done.
///
/// ```
/// use cops_executor::time::{Fired, ManualClock, Timers};
/// let timers = Timers::new(ManualClock::new());
/// assert_eq!(timers.fire_due(), Fired { count: 0, next_deadline: None });
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fired {
    /// Number of futures woken.
    pub count: usize,
    /// The earliest deadline of the futures that still sleep, in ticks: when to fire next. `None`
    /// if there are none, or if another caller fires and sets the clock.
    pub next_deadline: Option<u64>,
}

/// Wakers for after the unlock.
struct Wakers {
    wakers: [Option<Waker>; FIRED_AT_ONCE],
    count: usize,
}

impl Wakers {
    const fn new() -> Wakers {
        Wakers { wakers: [const { None }; FIRED_AT_ONCE], count: 0 }
    }

    fn is_full(&self) -> bool {
        self.count == FIRED_AT_ONCE
    }

    fn push(&mut self, waker: Option<Waker>) {
        self.wakers[self.count] = waker;
        self.count += 1;
    }

    fn wake_all(&mut self) {
        for waker in &mut self.wakers[..::core::mem::take(&mut self.count)] {
            if let Some(waker) = waker.take() {
                waker.wake();
            }
        }
    }
}

impl<C> fmt::Debug for Timers<C> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Timers").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
#[path = "timers_tests.rs"]
mod tests;
