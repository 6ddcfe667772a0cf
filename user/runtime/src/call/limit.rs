//! Back-pressure: calls that the kernel would not take because too many are in flight wait here for their turn,
//! first come, first served.
//!
//! No wake is lost: who queues up counts itself in [`QUEUED`] first and looks at [`IN_FLIGHT`] then; whose call
//! is over leaves `IN_FLIGHT` first and looks at `QUEUED` then. Both are sequentially consistent, so one of them
//! sees the other: either the last call to end grants the newcomer its turn, or the newcomer sees that nothing
//! is in flight any more and grants itself.
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

/// Calls of this library that the kernel has, or is being asked to take.
static IN_FLIGHT: AtomicUsize = AtomicUsize::new(0);
/// Tokens in [`QUEUE`], some perhaps of calls that were dropped.
static QUEUED: AtomicUsize = AtomicUsize::new(0);
static QUEUE: Lock<VecDeque<u64>> = Lock::new(VecDeque::new());

/// Whether a result could come.
#[inline]
pub fn any_in_flight() -> bool {
    IN_FLIGHT.load(Relaxed) != 0
}

/// A call is about to enter the kernel.
pub fn enter() {
    IN_FLIGHT.fetch_add(1, SeqCst);
}

/// A call is over, whichever way.
#[inline]
pub fn leave() {
    IN_FLIGHT.fetch_sub(1, SeqCst);
    if QUEUED.load(SeqCst) != 0 {
        grant_next();
    }
}

/// The kernel would not take the call, which has [left](leave): `waker` is woken when it is worth another try.
#[cold]
pub fn queue(lease: &Lease, waker: &Waker) {
    lease.queue(waker);
    let mut queue = QUEUE.lock();
    queue.push_back(lease.token());
    QUEUED.fetch_add(1, SeqCst);
    drop(queue);
    if IN_FLIGHT.load(SeqCst) == 0 {
        grant_next();
    }
}

/// Gives the turn to the first in the queue that still wants it. Also for who was granted it and does not want it.
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
