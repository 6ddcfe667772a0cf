//! Time: instants, sleeping, time limits.

use core::fmt;
use core::future::{Future, poll_fn};
use core::ops::{Add, Sub};
use core::pin::pin;
use core::sync::atomic::Ordering::Relaxed;
use core::task::Poll;

use crate::call::{Call, Mode, Operation, Request, Scratch};
use crate::{arch, shared, task};
use cops_abi::errno::CallResult;
use cops_abi::syscall::{CLOCK_MONOTONIC, CLOCK_NANOSLEEP};
use cops_abi::{CoroutineId, Errno, Priority};
use cops_executor::base_priority;

pub use core::time::Duration;

const NANOSECONDS_PER_SECOND: u128 = 1_000_000_000;

/// A moment on the machine's clock, which is the same in every process and never goes back. Reading
/// it does not enter the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    ticks: u64,
}

fn ticks_per_second() -> u64 {
    shared::system_page().ticks_per_second.load(Relaxed).max(1)
}

/// Rounded up, so that a wait for this number of ticks is long enough; at most `u64::MAX`.
pub(crate) fn ticks_in(duration: Duration) -> u64 {
    // A product of more than 128 bits is of more ticks than that, too.
    let product = duration.as_nanos().saturating_mul(u128::from(ticks_per_second()));
    u64::try_from(product.div_ceil(NANOSECONDS_PER_SECOND)).unwrap_or(u64::MAX)
}

/// The duration of a number of ticks of the machine's clock.
#[must_use]
pub fn duration_of_ticks(ticks: u64) -> Duration {
    let per_second = ticks_per_second();
    let rest = u128::from(ticks % per_second) * NANOSECONDS_PER_SECOND / u128::from(per_second);
    Duration::new(ticks / per_second, rest as u32)
}

impl Instant {
    /// The current time.
    #[must_use]
    pub fn now() -> Self {
        Self { ticks: arch::clock_ticks() }
    }

    /// The time at which the clocks of `clock_gettime` were 0, shortly after the machine started.
    #[must_use]
    pub fn boot() -> Self {
        Self { ticks: shared::system_page().clock_base_ticks.load(Relaxed) }
    }

    /// Time since then; zero if it is in the future.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Self::now().duration_since(self)
    }

    /// Time from `earlier` to this; zero if `earlier` is later.
    #[must_use]
    pub fn duration_since(self, earlier: Self) -> Duration {
        duration_of_ticks(self.ticks.saturating_sub(earlier.ticks))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the end of the clock's range, which is centuries away.
    fn add(self, duration: Duration) -> Self {
        Self { ticks: self.ticks.saturating_add(ticks_in(duration)) }
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

/// Time since the beginning of 1970 UTC; since the machine started if it has no real-time clock.
#[must_use]
pub fn since_1970() -> Duration {
    crate::system::real_time()
}

/// Waits for at least `duration`. Cancel-safe.
pub async fn sleep(duration: Duration) {
    sleep_until(Instant::now() + duration).await;
}

/// Waits until `deadline` has passed; returns at once if it has. Cancel-safe.
///
/// While the kernel has no memory for a timer, the coroutine polls the clock as one of the least
/// urgent: at its own priority it would keep all that are less urgent from running.
pub async fn sleep_until(deadline: Instant) {
    while Instant::now() < deadline {
        if Call::new(Sleep::until(deadline)).await.is_err() {
            let polling = LeastUrgent::new();
            task::yield_now().await;
            drop(polling);
        }
    }
}

/// The current coroutine is one of the least urgent. Restores its priority when it is dropped,
/// unless another one has been set meanwhile.
struct LeastUrgent {
    coroutine: CoroutineId,
    before: Priority,
}

impl LeastUrgent {
    fn new() -> Option<Self> {
        let coroutine = task::current()?;
        let before = base_priority(coroutine)?;
        task::set_priority(coroutine, Priority::LEAST_URGENT);
        Some(Self { coroutine, before })
    }
}

impl Drop for LeastUrgent {
    fn drop(&mut self) {
        if base_priority(self.coroutine) == Some(Priority::LEAST_URGENT) {
            task::set_priority(self.coroutine, self.before);
        }
    }
}

/// The time limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("time limit reached")
    }
}

impl core::error::Error for Elapsed {}

/// The output of `future`, if it is ready within `limit`; otherwise `future` is dropped.
///
/// # Errors
/// [`Elapsed`]. If both are ready at the same time, the output wins.
pub async fn timeout<F: Future>(limit: Duration, future: F) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    // Only when the future has to wait: most are ready at once, and need no clock.
    let mut limited = pin!(None);
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        if limited.is_none() {
            limited.set(Some(sleep(limit)));
        }
        let is_over =
            limited.as_mut().as_pin_mut().is_none_or(|sleep| sleep.poll(context).is_ready());
        if is_over { Poll::Ready(Err(Elapsed)) } else { Poll::Pending }
    })
    .await
}

/// `clock_nanosleep` until an instant.
#[derive(Debug)]
pub struct Sleep {
    deadline: Instant,
    /// Linux's `timespec`: seconds and nanoseconds.
    remaining: [u64; 2],
}

impl Sleep {
    /// Sleeps until `deadline`.
    #[must_use]
    pub fn until(deadline: Instant) -> Self {
        Self { deadline, remaining: [0; 2] }
    }

    /// Sleeps for `duration` from this call on, not from the first poll.
    #[must_use]
    pub fn lasting(duration: Duration) -> Self {
        Self::until(Instant::now() + duration)
    }
}

// SAFETY: the kernel writes nothing; it copies the time before the system call returns.
#[allow(unsafe_code)]
unsafe impl Operation for Sleep {
    type Output = Result<(), Errno>;

    fn shortcut(&mut self) -> Option<Self::Output> {
        (Instant::now() >= self.deadline).then_some(Ok(()))
    }

    /// Uses a relative time, because it is not specified that the kernel's monotonic clock began
    /// together with the machine's.
    fn request(&mut self, _mode: Mode) -> Request {
        // One nanosecond more, because the duration was rounded down.
        let remaining = self.deadline - Instant::now() + Duration::from_nanos(1);
        self.remaining = [remaining.as_secs(), remaining.subsec_nanos().into()];
        let address = self.remaining.as_ptr().expose_provenance();
        Request { number: CLOCK_NANOSLEEP, arguments: [CLOCK_MONOTONIC, 0, address, 0, 0, 0] }
    }

    fn finish(&mut self, result: CallResult, _scratch: &Scratch) -> Self::Output {
        result.map(drop)
    }
}
