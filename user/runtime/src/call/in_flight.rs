//! Which coroutines have calls in flight, so that a change of priority reaches the kernel's part of
//! these calls. The change may be [`task::set_priority`], or a mutex of
//! the coroutine for which a more urgent one waits.
//!
//! There is a word for each index of a coroutine, with the number of its calls and the sum of the
//! numbers of their slots. So one load shows that there is no call, as in almost all cases, or
//! which one it is. Of several calls, and of coroutines that share a word because there are more
//! than words, all slots are searched.
//!
//! No change is lost. The submitter stores the handle and then checks whether the priority is still
//! the one that the call has inherited. The code that changes a priority changes it first and then
//! looks for handles. Both have a fence in between, so at least one of them sees the other. Two
//! that change it at the same time make their system calls in any order. Each reads the priority
//! again afterwards, so the last one sees what the other has read.
//!
//! May touch: slots, the kernel.

use core::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};

use cops_abi::CoroutineId;
use cops_abi::syscall::CALLS_IN_FLIGHT_MAX;

use super::slot::{self, Lease};
use crate::{shared, system, task, worker};

/// As many words as calls that a process may have. Unused parts of the table take no memory.
static IN_FLIGHT: [AtomicU64; CALLS_IN_FLIGHT_MAX] =
    [const { AtomicU64::new(0) }; CALLS_IN_FLIGHT_MAX];
/// One call in a word; the sum of the slots' numbers is below it.
const CALL: u64 = 1 << 32;

fn word(coroutine: CoroutineId) -> &'static AtomicU64 {
    &IN_FLIGHT[coroutine.index() as usize % IN_FLIGHT.len()]
}

/// A call for `coroutine` with this slot is about to enter the kernel.
#[inline]
pub fn begin(coroutine: CoroutineId, lease: &Lease) {
    word(coroutine).fetch_add(CALL + u64::from(lease.number()), Relaxed);
}

/// The call has completed or was cancelled.
#[inline]
pub fn end(coroutine: CoroutineId, lease: &Lease) {
    word(coroutine).fetch_sub(CALL + u64::from(lease.number()), Relaxed);
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
    let mut known = inherited;
    fence(SeqCst);
    while let Some(priority) = task::priority(coroutine)
        && u32::from(priority.level()) != known
    {
        system::set_call_priority(handle, priority);
        known = u32::from(priority.level());
        fence(SeqCst);
    }
}

/// The priority of `coroutine` has changed: its calls get the one at which it runs now. That is
/// what it inherits, if that is more urgent than its own.
pub(crate) fn renew_priority_of(coroutine: CoroutineId) {
    fence(SeqCst);
    let word = word(coroutine).load(Relaxed);
    if word == 0 {
        return;
    }
    let mut known = None;
    while let Some(priority) = task::priority(coroutine)
        && known.replace(priority) != Some(priority)
    {
        let renew = |handle| system::set_call_priority(handle, priority);
        if word / CALL == 1 {
            slot::call_in(word as u32, coroutine.raw()).map(renew);
        } else {
            slot::calls_of(coroutine.raw(), renew);
        }
        fence(SeqCst);
    }
}

/// What the executor calls with a coroutine that inherits another priority than before.
static RENEW: fn(CoroutineId) = renew_priority_of;

/// Called once, before there are coroutines.
pub(crate) fn install() {
    cops_executor::sync::set_inheritance_hook(&RENEW);
}
