//! Which coroutines wait at all: checked by `set_priority`, so that waiters move to their new
//! places.
//!
//! Counters by a hash of the id, one set for waits that the mutexes' table knows and one for all
//! others. A counter that is not zero may belong to another coroutine: then a queue is searched in
//! vain, or a coroutine polled in vain. May be touched in any context: atomics only.

use ::core::sync::atomic::{Ordering, fence};

// Hints, of which the model checker need know nothing.
#[cfg(not(loom))]
use crate::core::atomic::AtomicU32;
#[cfg(loom)]
use ::core::sync::atomic::AtomicU32;

use crate::core::CoroutineId;

const COUNTERS: usize = 256;

/// Waits of coroutines that have ids with this hash.
pub(super) struct Waiting([AtomicU32; COUNTERS]);

/// Waits for mutexes.
pub(super) static FOR_MUTEXES: Waiting = Waiting::new();
/// All other waits.
pub(super) static FOR_OTHERS: Waiting = Waiting::new();
/// How often the priority of a coroutine in `FOR_OTHERS` has changed.
static CHANGES: AtomicU32 = AtomicU32::new(0);

impl Waiting {
    const fn new() -> Waiting {
        Waiting([const { AtomicU32::new(0) }; COUNTERS])
    }

    fn counter(&self, id: CoroutineId) -> &AtomicU32 {
        &self.0[id.index() as usize % COUNTERS]
    }

    /// To be called before the priority is read at which the wait is enqueued.
    ///
    /// Either that look sees a change, or the change of the priority sees this: each side has a
    /// fence between what it writes and what it reads.
    pub fn enter(&self, owner: Option<CoroutineId>) {
        if let Some(id) = owner {
            self.counter(id).fetch_add(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    }

    pub fn leave(&self, owner: Option<CoroutineId>) {
        if let Some(id) = owner {
            self.counter(id).fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// To be called after a priority was changed.
    pub fn may_contain(&self, id: CoroutineId) -> bool {
        fence(Ordering::SeqCst);
        self.counter(id).load(Ordering::Relaxed) != 0
    }
}

/// Changes so far: queues that were put in order at this number are in order.
#[inline]
pub(super) fn changes() -> u32 {
    CHANGES.load(Ordering::Acquire)
}

/// To be called after the priority of a coroutine in `FOR_OTHERS` has changed.
pub(super) fn note_change() {
    CHANGES.fetch_add(1, Ordering::Release);
}
