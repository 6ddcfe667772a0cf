//! Back-pressure: calls that the kernel rejects because too many are in flight wait here, first
//! come, first served.
//!
//! No wake is lost. A call that queues up increments [`QUEUED`] first and then reads [`IN_FLIGHT`].
//! A call that ends decrements `IN_FLIGHT` first and then reads `QUEUED`. Both are sequentially
//! consistent, so at least one sees the other: either the last call to end grants a turn to the
//! queued one, or the queued one sees that no call is in flight and grants itself a turn.
//!
//! A rejected call makes no room, so it grants no turn: two calls that grant each other turns would
//! be rejected for ever, and nothing less urgent would run. It does both in the order decrement
//! `IN_FLIGHT`, increment `QUEUED`, read `IN_FLIGHT`. So of several calls that are rejected at the
//! same time, the last one to decrement reads 0 afterwards, unless another call has begun: then
//! the end or the rejection of that one follows.
//!
//! May touch: slots of waiting calls.

use core::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use core::task::Waker;

use alloc::collections::VecDeque;

use super::slot::{self, Lease};
use crate::lock::Lock;

/// Number of this library's calls that the kernel has, or is being asked to take.
static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);
/// Number of tokens in [`QUEUE`]; some may belong to calls that were dropped.
static QUEUED: AtomicUsize = AtomicUsize::new(0);
static QUEUE: Lock<VecDeque<u64>> = Lock::new(VecDeque::new());

/// Whether a result could arrive.
#[inline]
pub fn any_in_flight() -> bool {
    IN_FLIGHT.load(Relaxed) != 0
}

/// A call is about to enter the kernel.
pub fn begin() {
    IN_FLIGHT.fetch_add(1, SeqCst);
}

/// A call has ended: completed or cancelled.
#[inline]
pub fn end() {
    IN_FLIGHT.fetch_sub(1, SeqCst);
    if QUEUED.load(SeqCst) != 0 {
        grant_next();
    }
}

/// Queues a call that the kernel has rejected. `waker` is woken when the call should be tried
/// again.
#[cold]
pub fn queue(lease: &Lease, waker: &Waker) {
    IN_FLIGHT.fetch_sub(1, SeqCst);
    lease.queue(waker);
    let mut queue = QUEUE.lock();
    queue.push_back(lease.token());
    QUEUED.fetch_add(1, SeqCst);
    drop(queue);
    if IN_FLIGHT.load(SeqCst) == 0 {
        grant_next();
    }
}

/// Grants a turn to the first call in the queue that still waits. Also used to pass on a turn that
/// its call no longer needs.
#[cold]
pub fn grant_next() {
    loop {
        let mut queue = QUEUE.lock();
        let Some(token) = queue.pop_front() else { return };
        QUEUED.fetch_sub(1, SeqCst);
        drop(queue);
        if slot::grant(token) {
            return;
        }
    }
}
