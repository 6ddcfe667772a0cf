//! Clocks: where the time comes from, and a clock for tests that is set by hand.

use ::core::time::Duration;

use crate::core::atomic::{AtomicU64, Ordering};

const NANOSECONDS_PER_SECOND: u128 = 1_000_000_000;

/// Where the time comes from: a counter that never goes back.
///
/// ```
/// use cops_executor::time::{Clock, Timers};
/// use std::cell::Cell;
///
/// /// Counts milliseconds, by hand.
/// struct Metronome(Cell<u64>);
/// impl Clock for Metronome {
///     fn now_ticks(&self) -> u64 {
///         self.0.get()
///     }
///     fn ticks_per_second(&self) -> u64 {
///         1_000
///     }
/// }
///
/// let timers = Timers::new(Metronome(Cell::new(5)));
/// assert_eq!(timers.ticks_after(std::time::Duration::from_secs(2)), 2_005);
/// ```
pub trait Clock {
    /// The counter now. Called in any context, also under the lock of the timers, which it must not
    /// use.
    ///
    /// ```
    /// # use cops_executor::time::{Clock, ManualClock};
    /// assert_eq!(ManualClock::new().now_ticks(), 0);
    /// ```
    fn now_ticks(&self) -> u64;

    /// How fast it counts; at least 1, and always the same.
    ///
    /// ```
    /// # use cops_executor::time::{Clock, ManualClock};
    /// assert_eq!(ManualClock::new().ticks_per_second(), 1_000_000_000);
    /// ```
    fn ticks_per_second(&self) -> u64;

    /// The earliest deadline of all sleeping futures is now `deadline_ticks`: the
    /// host has to call [`fire_due`](super::Timers::fire_due) then, or soon after. It sets its
    /// hardware timer, or unparks the thread that sleeps until the next deadline. Called under no
    /// lock, wherever sleeping futures are polled.
    ///
    /// Workers that add deadlines at the same time call this in any order, but the last of all
    /// calls is for the earliest deadline: a clock with one timer for all workers may store each in
    /// its compare register, also a later one than the last.
    ///
    /// Does nothing by default, for hosts that ask for
    /// [`next_deadline`](super::Timers::next_deadline) each time before they sleep, and sleep on
    /// the worker that would call this.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, time::{Clock, Timers}};
    /// use std::sync::atomic::{AtomicU64, Ordering};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// /// When the interrupt of this hardware comes.
    /// static COMPARE: AtomicU64 = AtomicU64::new(u64::MAX);
    ///
    /// struct Hardware;
    /// impl Clock for Hardware {
    ///     fn now_ticks(&self) -> u64 {
    ///         100
    ///     }
    ///     fn ticks_per_second(&self) -> u64 {
    ///         1_000
    ///     }
    ///     fn deadline_set(&self, deadline_ticks: u64) {
    ///         COMPARE.store(deadline_ticks, Ordering::Relaxed);
    ///     }
    /// }
    ///
    /// static TIMERS: Timers<Hardware> = Timers::new(Hardware);
    /// EXECUTOR.spawn(TIMERS.sleep_until(150), Priority::DEFAULT)?;
    /// EXECUTOR.run_until_stalled(0);
    /// assert_eq!(COMPARE.load(Ordering::Relaxed), 150);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn deadline_set(&self, deadline_ticks: u64) {
        let _ = deadline_ticks;
    }

    /// Whether `deadline_set` is called for each deadline that is added, not only for one that is
    /// earlier than all others: for a host with several threads that sleep, each until a deadline
    /// of its own. The calls of several workers come in any order then, and a clock that keeps one
    /// deadline keeps the minimum. False by default.
    ///
    /// ```
    /// # use cops_executor::time::{Clock, ManualClock};
    /// assert!(!ManualClock::new().needs_every_deadline());
    /// ```
    fn needs_every_deadline(&self) -> bool {
        false
    }
}

/// Ticks in `duration`, rounded up, so that what waits for them waits long enough; at most
/// `u64::MAX`.
pub(super) fn ticks_in(duration: Duration, ticks_per_second: u64) -> u64 {
    // A product of more than 128 bits is of more ticks than that, too.
    let product = duration.as_nanos().saturating_mul(u128::from(ticks_per_second));
    u64::try_from(product.div_ceil(NANOSECONDS_PER_SECOND)).unwrap_or(u64::MAX)
}

/// The time in so many ticks, rounded up, for a host that sleeps by durations. At most 2^64 - 1
/// seconds.
///
/// ```
/// use cops_executor::time::duration_of;
/// use std::time::Duration;
/// assert_eq!(duration_of(3, 2), Duration::from_millis(1500));
/// ```
///
/// # Panics
///
/// If `ticks_per_second` is 0.
#[must_use]
pub fn duration_of(ticks: u64, ticks_per_second: u64) -> Duration {
    let rest = u128::from(ticks % ticks_per_second) * NANOSECONDS_PER_SECOND;
    let nanoseconds = rest.div_ceil(u128::from(ticks_per_second));
    // Less than a second and at most a nanosecond more: fits.
    Duration::from_secs(ticks / ticks_per_second)
        .saturating_add(Duration::from_nanos(nanoseconds as u64))
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now_ticks(&self) -> u64 {
        (**self).now_ticks()
    }

    fn ticks_per_second(&self) -> u64 {
        (**self).ticks_per_second()
    }

    fn deadline_set(&self, deadline_ticks: u64) {
        (**self).deadline_set(deadline_ticks);
    }

    fn needs_every_deadline(&self) -> bool {
        (**self).needs_every_deadline()
    }
}

/// A clock that stands still until it is advanced: for tests and simulations. A tick is a
/// nanosecond.
///
/// ```
/// use cops_executor::time::{Clock, ManualClock};
/// let clock = ManualClock::new();
/// clock.advance(std::time::Duration::from_micros(2));
/// assert_eq!(clock.now_ticks(), 2_000);
/// ```
#[derive(Debug)]
pub struct ManualClock {
    now_ticks: AtomicU64,
}

impl ManualClock {
    /// A clock at 0.
    ///
    /// ```
    /// # use cops_executor::time::{Clock, ManualClock};
    /// assert_eq!(ManualClock::new().now_ticks(), 0);
    /// ```
    #[must_use]
    pub const fn new() -> ManualClock {
        ManualClock { now_ticks: AtomicU64::new(0) }
    }

    /// Advances it; this alone wakes no future ([`fire_due`](super::Timers::fire_due)).
    ///
    /// Not beyond 2^64 - 1 nanoseconds, 584 years: it would begin at 0 again. In any context.
    ///
    /// ```
    /// # use cops_executor::time::{Clock, ManualClock};
    /// let clock = ManualClock::new();
    /// clock.advance(std::time::Duration::from_millis(3));
    /// assert_eq!(clock.now_ticks(), 3_000_000);
    /// ```
    pub fn advance(&self, duration: Duration) {
        self.now_ticks.fetch_add(ticks_in(duration, self.ticks_per_second()), Ordering::AcqRel);
    }

    /// Moves it on to `ticks`; not back.
    ///
    /// ```
    /// # use cops_executor::time::{Clock, ManualClock};
    /// let clock = ManualClock::new();
    /// clock.advance_to(70);
    /// clock.advance_to(50);
    /// assert_eq!(clock.now_ticks(), 70);
    /// ```
    pub fn advance_to(&self, ticks: u64) {
        let mut now = self.now_ticks.load(Ordering::Acquire);
        while now < ticks {
            match self.now_ticks.compare_exchange(now, ticks, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(later) => now = later,
            }
        }
    }
}

impl Default for ManualClock {
    fn default() -> ManualClock {
        ManualClock::new()
    }
}

impl Clock for ManualClock {
    fn now_ticks(&self) -> u64 {
        self.now_ticks.load(Ordering::Acquire)
    }

    fn ticks_per_second(&self) -> u64 {
        1_000_000_000
    }
}
