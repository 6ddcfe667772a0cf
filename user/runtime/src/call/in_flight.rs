//! Which coroutines have calls in flight, so that a change of priority reaches the kernel's part of
//! these calls.
//!
//! There are counters indexed by the coroutine's index. In almost all cases, one load shows that
//! the coroutine has no call in flight. Several coroutines share a counter; if it is not 0, all
//! slots are searched.
//!
//! No change is lost. The submitter stores the handle and then checks whether the priority is still
//! the one that the call has inherited. The code that changes a priority changes it first and then
//! looks for handles. Both have a fence in between, so at least one of them sees the other.
//!
//! May touch: slots, the kernel.

use core::sync::atomic::{
    AtomicU32,
    Ordering::{Relaxed, SeqCst},
    fence,
};

use cops_abi::CoroutineId;

use super::slot;
use crate::{shared, system, task, worker};

const COUNTERS: usize = 256;

static IN_FLIGHT: [AtomicU32; COUNTERS] = [const { AtomicU32::new(0) }; COUNTERS];

fn counter(coroutine: CoroutineId) -> &'static AtomicU32 {
    &IN_FLIGHT[coroutine.index() as usize % COUNTERS]
}

/// A call for `coroutine` is about to enter the kernel.
pub fn begin(coroutine: CoroutineId) {
    counter(coroutine).fetch_add(1, Relaxed);
}

/// The call has completed or was cancelled.
pub fn end(coroutine: CoroutineId) {
    counter(coroutine).fetch_sub(1, Relaxed);
}

/// The level that a call made now inherits: the one that the kernel sees in this worker's record.
#[inline]
pub fn inherited() -> u32 {
    let workers = &shared::process_page().workers;
    workers[worker::current() % workers.len()].current_priority.load(Relaxed)
}

/// The call is in flight. Corrects its priority if that of the coroutine has changed meanwhile, or
/// if the call was made for another coroutine than the current one.
#[inline]
pub fn check_priority(coroutine: CoroutineId, inherited: u32, handle: u64) {
    fence(SeqCst);
    if let Some(priority) = task::priority(coroutine)
        && u32::from(priority.level()) != inherited
    {
        system::set_call_priority(handle, priority);
    }
}

/// The priority of `coroutine` has changed: its calls get the one at which it runs now. That is
/// what it inherits, if that is more urgent than its own.
pub(crate) fn renew_priority_of(coroutine: CoroutineId) {
    fence(SeqCst);
    if counter(coroutine).load(Relaxed) != 0
        && let Some(priority) = task::priority(coroutine)
    {
        slot::calls_of(coroutine.raw(), |handle| system::set_call_priority(handle, priority));
    }
}
