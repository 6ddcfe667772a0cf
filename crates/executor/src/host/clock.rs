//! Timers without a reactor: the clock of the host, and the threads that watch it.
//!
//! Awake workers fire what is due after each batch of polls. Of those that sleep, the one that
//! watches (`Record::watch`) sleeps no longer than until the next deadline.
//!
//! No deadline is slept over. A watcher says that it watches, and until when: for ever. Then it
//! reads the next deadline under the lock of the timers, and says that it watches until that. A
//! thread that adds a deadline does so under that lock, then wakes the watcher it sees, if that one
//! watches until a later time. If the watcher has not read the new deadline, its reading came
//! first, and so did its saying that it watches, for ever.
//!
//! The watcher of each executor is compared, not the earliest deadline of all: it may be one of
//! another executor, of which this watcher does not know, and go with that executor.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::context::Context;
use super::record::Record;
use crate::time::{Clock, Timers};

static TIMERS: Timers<HostClock> = Timers::new(HostClock(()));
static EPOCH: OnceLock<Instant> = OnceLock::new();
/// Set once a coroutine has slept: until then no worker needs to check.
static IN_USE: AtomicBool = AtomicBool::new(false);
/// No deadline is before this, in nanoseconds after `EPOCH`; for awake workers, which check often.
static NEXT_NS: AtomicU64 = AtomicU64::new(u64::MAX);

const TICKS_PER_SECOND: u64 = 1_000_000_000;

/// The monotonic clock of the host: a tick is a nanosecond. It is the clock of [`timers`].
///
/// ```
/// use cops_executor::{time::Clock, timers};
/// let before = timers().clock().now_ticks();
/// assert!(timers().clock().now_ticks() >= before);
/// assert_eq!(timers().clock().ticks_per_second(), 1_000_000_000);
/// ```
#[derive(Debug)]
pub struct HostClock(());

/// Timers that the workers of this program fire: those of a [`Runtime`](super::Runtime), and
/// threads in [`run_until_done`](crate::Executor::run_until_done) or
/// [`block_on`](crate::Executor::block_on). They need neither a reactor nor a thread of their own.
///
/// A sleeper wakes when its time has come and a worker is between two polls, or idle. Its timer is
/// fired by the workers of the executor on which the sleeping future was first polled; if that was
/// in `block_on` of a [`Runtime`](super::Runtime) or outside of all executors, by those of any.
///
/// One of the idle workers of an executor sleeps until the next deadline. If that one is woken and
/// begins a long poll, a timer may be late by the length of that poll, although other workers are
/// idle. This holds for the first long poll only: for a second after a poll of more than 100
/// microseconds, a worker wakes another one for this before it polls. So a poll must not block its
/// thread until a timer has fired.
///
/// ```
/// use cops_executor::{Priority, Runtime, timers};
/// use std::time::{Duration, Instant};
///
/// let runtime = Runtime::new(1)?;
/// let start = Instant::now();
/// let nap = runtime.spawn_at(timers().sleep(Duration::from_millis(5)), Priority::DEFAULT);
/// runtime.block_on(nap)?;
/// assert!(start.elapsed() >= Duration::from_millis(5));
/// let late = runtime.spawn_at(timers().timeout(Duration::from_millis(1), std::future::pending::<()>()), Priority::DEFAULT);
/// assert!(runtime.block_on(late)?.is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn timers() -> &'static Timers<HostClock> {
    &TIMERS
}

fn nanoseconds(now: Instant) -> u64 {
    let elapsed = now.saturating_duration_since(*EPOCH.get_or_init(Instant::now));
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

impl Clock for HostClock {
    fn now_ticks(&self) -> u64 {
        nanoseconds(Instant::now())
    }

    fn ticks_per_second(&self) -> u64 {
        TICKS_PER_SECOND
    }

    fn deadline_set(&self, deadline_ticks: u64) {
        // Looked at first, since most deadlines are later than others, and change neither.
        if deadline_ticks < NEXT_NS.load(Ordering::SeqCst) {
            NEXT_NS.fetch_min(deadline_ticks, Ordering::SeqCst);
        }
        // Before the looks at watchers, as a watcher's saying so comes before its look at this.
        if !IN_USE.load(Ordering::SeqCst) {
            IN_USE.store(true, Ordering::SeqCst);
        }
        // A worker in a `block_on` of another runtime does not look before that returns.
        match Record::of_this_thread().filter(|_| Context::current().is_none()) {
            // A worker of the same executor that is awake, as this one is, looks before it sleeps.
            Some(record) => record.wake_watcher(deadline_ticks),
            // It is not known to which coroutine it may belong.
            None => Record::all().for_each(|record| record.wake_watcher(deadline_ticks)),
        }
    }

    fn needs_every_deadline(&self) -> bool {
        true
    }
}

/// Whether any coroutine has slept.
#[inline]
pub(super) fn is_in_use() -> bool {
    IN_USE.load(Ordering::Relaxed)
}

/// Fires what is due. For awake workers.
#[inline]
pub(super) fn fire(now: Instant) {
    if is_in_use() {
        fire_if_due(now);
    }
}

fn fire_if_due(now: Instant) {
    if nanoseconds(now) < NEXT_NS.load(Ordering::SeqCst) {
        return;
    }
    // In this order: a deadline added before the load below is read by it, and one added later
    // lowers the stored value, or has found a lower one.
    NEXT_NS.store(u64::MAX, Ordering::SeqCst);
    TIMERS.fire_due();
    if let Some(deadline_ns) = TIMERS.next_deadline() {
        NEXT_NS.fetch_min(deadline_ns, Ordering::SeqCst);
    }
}

/// Until when the watcher of this executor may sleep, `None` if for ever. To be asked after
/// `Record::watch`.
pub(super) fn next_deadline(record: &Record) -> Option<Instant> {
    if !IN_USE.load(Ordering::SeqCst) {
        return None;
    }
    let deadline_ns = TIMERS.next_deadline()?;
    record.watch_until(deadline_ns);
    EPOCH.get()?.checked_add(Duration::from_nanos(deadline_ns))
}
