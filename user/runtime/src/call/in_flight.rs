//! Which coroutines have calls in flight, so that a change of priority reaches the kernel's part of
//! these calls. The change may be [`task::set_priority`], or a mutex of the coroutine for which a
//! more urgent one waits.
//!
//! There is a record for each index of a coroutine: the number of its calls with the sum of their
//! slots' numbers, and the slot of the call that began last. So one load shows that there is no
//! call, as in almost all cases. One call has the slot that is the sum; of two, one is the last and
//! the other one the rest of the sum. Of more, and of coroutines that share a record because there
//! are more than records, all slots are searched.
//!
//! No change is lost. The submitter stores the handle and then checks whether the priority is still
//! the one that the call has inherited. The code that changes a priority changes it first and then
//! looks for handles. Both have a fence in between, so at least one of them sees the other. A
//! priority that has changed twice may be as before, and the kernel have seen the one in between:
//! so what finds a call without a handle leaves a mark for the submitter.
//!
//! Two that change it at the same time make their system calls in any order. Each reads the
//! priority again afterwards, so the last one sees what the other has read.
//!
//! May touch: slots, the kernel.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Relaxed, SeqCst},
    fence,
};

use cops_abi::CoroutineId;
use cops_abi::syscall::CALLS_IN_FLIGHT_MAX;

use super::slot::{self, Lease};
use crate::{shared, system, task, worker};

/// The calls of a coroutine.
struct Calls {
    /// [`CALL`] for each, and the sum of the numbers of their slots.
    sum: AtomicU64,
    /// The slot of the call that began last.
    last: AtomicU32,
    /// How often the priority was changed while there were calls.
    changes: AtomicU32,
}

/// One call in a sum; all numbers of slots are below it.
const CALL: u64 = 1 << 32;

/// As many as calls that a process may have. Unused parts of the table take no memory.
static CALLS: [Calls; CALLS_IN_FLIGHT_MAX] = [const {
    Calls { sum: AtomicU64::new(0), last: AtomicU32::new(0), changes: AtomicU32::new(0) }
}; CALLS_IN_FLIGHT_MAX];

fn calls(coroutine: CoroutineId) -> &'static Calls {
    &CALLS[coroutine.index() as usize % CALLS.len()]
}

/// What a call that is about to be made inherits.
#[derive(Clone, Copy, Debug)]
pub struct Inherited {
    /// The level that the kernel sees in this worker's record.
    level: u32,
    /// The changes until then.
    changes: u32,
}

/// A call for `coroutine` with this slot is about to enter the kernel.
#[inline]
pub fn begin(coroutine: CoroutineId, lease: &Lease) -> Inherited {
    let calls = calls(coroutine);
    calls.last.store(lease.number(), Relaxed);
    // Before the level is read, here and by the kernel: later changes see the call.
    calls.sum.fetch_add(CALL + u64::from(lease.number()), SeqCst);
    let workers = &shared::process_page().workers;
    let level = workers[worker::current() % workers.len()].current_priority.load(Relaxed);
    Inherited { level, changes: calls.changes.load(Relaxed) }
}

/// The call has completed or was cancelled.
#[inline]
pub fn end(coroutine: CoroutineId, lease: &Lease) {
    calls(coroutine).sum.fetch_sub(CALL + u64::from(lease.number()), Relaxed);
}

/// The call is in flight. Corrects its priority if that of the coroutine has changed meanwhile, or
/// if the call was made for another coroutine than the current one.
#[inline]
pub fn check_priority(coroutine: CoroutineId, inherited: Inherited, handle: u64) {
    fence(SeqCst);
    let has_changed = calls(coroutine).changes.load(Relaxed) != inherited.changes;
    let mut known = (!has_changed).then_some(inherited.level);
    while let Some(priority) = task::priority(coroutine)
        && known != Some(priority.level().into())
    {
        system::set_call_priority(handle, priority);
        known = Some(priority.level().into());
        fence(SeqCst);
    }
}

/// The priority of `coroutine` has changed: its calls get the one at which it runs now. That is
/// what it inherits, if that is more urgent than its own.
pub(crate) fn renew_priority_of(coroutine: CoroutineId) {
    fence(SeqCst);
    let calls = calls(coroutine);
    if calls.sum.load(Relaxed) == 0 {
        return;
    }
    calls.changes.fetch_add(1, SeqCst);
    let mut known = None;
    while let Some(priority) = task::priority(coroutine)
        && known.replace(priority) != Some(priority)
    {
        calls.each_of(coroutine, |handle| system::set_call_priority(handle, priority));
        fence(SeqCst);
    }
}

impl Calls {
    /// Calls `each` with the handle of each call of `coroutine` that has one.
    fn each_of(&self, coroutine: CoroutineId, each: impl FnMut(u64)) {
        let coroutine = coroutine.raw();
        let (sum, last) = (self.sum.load(Relaxed), self.last.load(Relaxed));
        let call_in = |slot| slot::call_in(slot, coroutine);
        match sum / CALL {
            0 => return,
            // Otherwise it has ended, or is that of another coroutine.
            1 => return call_in(sum as u32).flatten().into_iter().for_each(each),
            2 => {
                let rest = (sum as u32).wrapping_sub(last);
                if let (Some(one), Some(other)) = (call_in(last), call_in(rest)) {
                    return one.into_iter().chain(other).for_each(each);
                }
            }
            _ => {}
        }
        slot::calls_of(coroutine, each);
    }
}

/// What the executor calls with a coroutine that inherits another priority than before.
static RENEW: fn(CoroutineId) = renew_priority_of;

/// Called once, before there are coroutines.
pub(crate) fn install() {
    cops_executor::sync::set_inheritance_hook(&RENEW);
}
