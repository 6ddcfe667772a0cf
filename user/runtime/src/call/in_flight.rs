//! Which coroutines have calls in flight, so that a change of priority reaches the kernel's half of them.
//!
//! Counters by the coroutine's index: nearly always one load tells that there is nothing to do. If a counter is not 0, a few
//! coroutines share it, and the slots are searched.
//!
//! No change is lost: who submits stores the handle, then looks whether the priority is still the one that the kernel was shown; who changes the
//! priority changes it first, then looks for handles. Both with a fence in between, so one of them sees the other.
//! May touch: slots, the kernel.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
    fence,
};

use cops_abi::{CoroutineId, Priority};

use super::slot;
use crate::{shared, system, task, worker};

const COUNTERS: usize = 256;

static IN_FLIGHT: [AtomicU32; COUNTERS] = [const { AtomicU32::new(0) }; COUNTERS];

fn counter(coroutine: CoroutineId) -> &'static AtomicU32 {
    &IN_FLIGHT[coroutine.index() as usize % COUNTERS]
}

/// A call in the name of `coroutine` is about to enter the kernel.
pub fn enter(coroutine: CoroutineId) {
    counter(coroutine).fetch_add(1, Relaxed);
}

/// It is over.
pub fn leave(coroutine: CoroutineId) {
    counter(coroutine).fetch_sub(1, Relaxed);
}

/// The level that a call made now inherits: what the kernel sees in this worker's record.
#[inline]
pub fn inherited() -> u32 {
    let workers = &shared::process_page().workers;
    workers[worker::current() % workers.len()].current_priority.load(Relaxed)
}

/// The call is in flight: corrects its priority if that of the coroutine has changed meanwhile, or is not the calling one's.
#[inline]
pub fn check_priority(coroutine: CoroutineId, inherited: u32, handle: u64) {
    fence(SeqCst);
    if let Some(priority) = task::priority(coroutine)
        && u32::from(priority.level()) != inherited
    {
        system::set_call_priority(handle, priority);
    }
}

/// `coroutine` has a new priority: so have its calls.
pub(crate) fn set_priority_of(coroutine: CoroutineId, priority: Priority) {
    fence(SeqCst);
    if counter(coroutine).load(Relaxed) != 0 {
        slot::calls_of(coroutine.raw(), |handle| system::set_call_priority(handle, priority));
    }
}
