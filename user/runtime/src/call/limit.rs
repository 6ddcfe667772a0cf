//! Back-pressure: calls that the kernel rejects because too many are in flight wait here, first
//! come, first served.
//!
//! Room comes from two sides. A call of this library that ends grants a turn to the first one in
//! the queue. Other room the library does not see: calls of other processes of the family end, or
//! a limit is raised. So as long as a call is queued, one of them is attempted again each
//! [`PAUSE`]: a worker with work looks at the clock between polls ([`retry_if_due`]), and one
//! without sleeps for no longer than that ([`pause`]).
//!
//! No wake is lost. A call that queues up increments [`QUEUED`] while its worker runs, and that
//! worker reads it before it parks, so it sleeps for a pause instead. What a poll of that worker
//! takes longer than a pause, the queued call waits longer. A worker that stops running coroutines
//! without parking (`worker::leave`) grants a turn if another one is asleep: that one comes for the
//! coroutine, and reads [`QUEUED`] before it parks again. If none is asleep and none runs, no
//! coroutine could use the room, and the next `run` looks.
//!
//! A rejected call makes no room, so it grants no turn: two calls that grant each other turns would
//! be rejected for ever, and nothing less urgent would run, also not what would make room.
//!
//! May touch: slots of waiting calls.

use core::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use core::task::Waker;
use core::time::Duration;

use alloc::collections::VecDeque;

use super::slot::{self, Lease};
use crate::lock::Lock;
use crate::{arch, system, time};

/// Time between two attempts of a queued call for which this library made no room. Each costs two
/// system calls.
const PAUSE: Duration = Duration::from_millis(1);
/// The queue may have this many tokens of calls that were dropped, and as many as it has others.
const DROPPED_MAX: usize = 64;

/// Number of this library's calls that the kernel has, or is being asked to take.
static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);
/// Number of calls that wait for a turn: a lower bound of the tokens in [`QUEUE`].
static QUEUED: AtomicUsize = AtomicUsize::new(0);
static QUEUE: Lock<VecDeque<u64>> = Lock::new(VecDeque::new());
/// When a queued call was last attempted again without room from this library, in ticks.
static LAST_RETRY_TICKS: AtomicU64 = AtomicU64::new(0);

/// Whether a result could arrive.
#[inline]
pub fn any_in_flight() -> bool {
    IN_FLIGHT.load(Relaxed) != 0
}

/// Whether a call waits for a turn.
#[inline]
pub fn any_queued() -> bool {
    QUEUED.load(SeqCst) != 0
}

/// A call is about to enter the kernel.
pub fn begin() {
    IN_FLIGHT.fetch_add(1, SeqCst);
}

/// A call has ended: completed or cancelled.
#[inline]
pub fn end() {
    IN_FLIGHT.fetch_sub(1, SeqCst);
    if any_queued() {
        grant_next();
    }
}

/// Queues a call that the kernel has rejected, in front if it had its turn. `waker` is woken when
/// the call should be tried again.
#[cold]
pub fn queue(lease: &Lease, waker: &Waker, had_turn: bool) {
    IN_FLIGHT.fetch_sub(1, SeqCst);
    let waiting = QUEUED.fetch_add(1, SeqCst);
    // Before its token can be found, and without the lock: the waker of before is dropped.
    lease.queue(waker);
    let mut queue = QUEUE.lock();
    if queue.len() > 2 * waiting + DROPPED_MAX {
        queue.retain(|&token| slot::is_queued(token));
    }
    if had_turn {
        queue.push_front(lease.token());
    } else {
        queue.push_back(lease.token());
    }
}

/// A queued call was dropped: it waits no more, or passes its turn on.
#[cold]
pub fn give_up(lease: &Lease) {
    if lease.unqueue() {
        grant_next();
    } else {
        QUEUED.fetch_sub(1, SeqCst);
    }
}

/// Grants a turn to the first call in the queue that still waits.
#[cold]
pub fn grant_next() {
    loop {
        let mut queue = QUEUE.lock();
        let Some(token) = queue.pop_front() else { return };
        drop(queue);
        if slot::grant(token) {
            QUEUED.fetch_sub(1, SeqCst);
            return;
        }
    }
}

/// Grants a turn to a queued call, if that has not been done for a [`PAUSE`]. For workers between
/// polls.
#[cold]
pub fn retry_if_due() {
    let last = LAST_RETRY_TICKS.load(Relaxed);
    let now = arch::clock_ticks();
    if now.wrapping_sub(last) >= time::ticks_in(PAUSE)
        && LAST_RETRY_TICKS.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
    {
        grant_next();
    }
}

/// Sleeps in place of parking, while a call waits for its turn.
#[cold]
pub fn pause() {
    system::sleep(PAUSE);
    retry_if_due();
}
