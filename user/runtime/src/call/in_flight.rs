//! Which coroutines have calls in flight, so that a change of priority reaches the kernel's part of
//! these calls. The change may be [`task::set_priority`], or a mutex of the coroutine for which a
//! more urgent one waits.
//!
//! There is a record for each index of a coroutine: the number of its calls, and the slots of two
//! of them ([`Counted`]). So one load shows that there is no call, as in almost all cases, and
//! which slots one or two calls have. For more, all slots are searched. Coroutines share a record
//! if there are more than records; each leaves the calls of the others alone.
//!
//! No change is lost. The submitter stores the handle and then checks whether the priority is still
//! the one that the call has inherited. The code that changes a priority changes it first and then
//! looks for handles. Both have a fence in between, so at least one of them sees the other. A
//! priority that has changed twice may be as before, and the kernel have seen the one in between:
//! so what finds a call without a handle leaves a mark for the submitter.
//!
//! The slots are read at one moment, in one word. A call that is not in it begins later, and sees
//! the change itself. Parts that are read one after the other would not do: calls that begin and
//! end in between can make them fit together without naming the slot of a call that stays.
//!
//! Two that change it at the same time make their system calls in any order. Each reads the
//! priority again afterwards, so the last one sees what the other has read.
//!
//! May touch: slots, the kernel.

use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{self, Relaxed, SeqCst},
    fence,
};

use cops_abi::CoroutineId;
use cops_abi::syscall::CALLS_IN_FLIGHT_MAX;

use super::counted::{self, Counted};
use super::slot::{self, Lease};
use crate::{shared, system, task, worker};

/// The calls of a coroutine.
struct Calls {
    /// The word of a [`Counted`].
    counted: AtomicU64,
    /// How often the priority was changed while there were calls.
    changes: AtomicU32,
}

const _: () = assert!(slot::SLOTS_MAX <= counted::SLOTS_MAX);

/// A level that no coroutine has.
const NO_LEVEL: u32 = u32::MAX;

/// As many as calls that a process may have. Unused parts of the table take no memory.
static CALLS: [Calls; CALLS_IN_FLIGHT_MAX] =
    [const { Calls { counted: AtomicU64::new(Counted::NONE.word()), changes: AtomicU32::new(0) } };
        CALLS_IN_FLIGHT_MAX];

fn calls(coroutine: CoroutineId) -> &'static Calls {
    &CALLS[coroutine.index() as usize % CALLS.len()]
}

/// What a call that is about to be made inherits.
#[derive(Clone, Copy, Debug)]
pub struct Inherited {
    /// The level that the kernel sees in this worker's record; [`NO_LEVEL`] on a thread, which has
    /// no record.
    level: u32,
    /// The changes until then.
    changes: u32,
}

/// A call for `coroutine` with this slot is about to enter the kernel.
#[inline]
pub fn begin(coroutine: CoroutineId, lease: &Lease) -> Inherited {
    let calls = calls(coroutine);
    // Before the level is read, here and by the kernel: later changes see the call.
    calls.add(lease.number());
    let record = shared::process_page().workers.get(worker::current());
    let level = record.map_or(NO_LEVEL, |record| record.current_priority.load(Relaxed));
    Inherited { level, changes: calls.changes.load(Relaxed) }
}

/// The call has completed or was cancelled.
#[inline]
pub fn end(coroutine: CoroutineId, lease: &Lease) {
    calls(coroutine).remove(lease.number());
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
    if calls.counted() == Counted::NONE {
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
    #[inline]
    fn counted(&self) -> Counted {
        Counted::from_word(self.counted.load(Relaxed))
    }

    /// Counts a call. Nearly always it is the only one: that takes one attempt.
    #[inline]
    fn add(&self, slot: u32) {
        let (none, one) = (Counted::NONE, Counted::NONE.with(slot));
        if self.counted.compare_exchange(none.word(), one.word(), SeqCst, Relaxed).is_err() {
            self.update(SeqCst, move |counted| counted.with(slot));
        }
    }

    /// A call that was counted has ended.
    #[inline]
    fn remove(&self, slot: u32) {
        let (none, one) = (Counted::NONE, Counted::NONE.with(slot));
        if self.counted.compare_exchange(one.word(), none.word(), Relaxed, Relaxed).is_err() {
            self.update(Relaxed, move |counted| counted.without(slot));
        }
    }

    #[cold]
    #[inline(never)]
    fn update(&self, order: Ordering, change: impl Fn(Counted) -> Counted) {
        let changed = |word| Some(change(Counted::from_word(word)).word());
        // It never fails, since there always is a changed word.
        let _ = self.counted.fetch_update(order, Relaxed, changed);
    }

    /// Calls `each` with the handle of each call of `coroutine` that has one.
    fn each_of(&self, coroutine: CoroutineId, each: impl FnMut(u64)) {
        let coroutine = coroutine.raw();
        match self.counted().slots() {
            // What is not there any more has ended, or is a call of another coroutine.
            Some(slots) => {
                let calls = slots.into_iter().flatten();
                calls.filter_map(|slot| slot::call_in(slot, coroutine)).flatten().for_each(each);
            }
            None => slot::calls_of(coroutine, each),
        }
    }
}

/// What the executor calls with a coroutine that inherits another priority than before.
static RENEW: fn(CoroutineId) = renew_priority_of;

/// Called once, before there are coroutines.
pub(crate) fn install() {
    cops_executor::sync::set_inheritance_hook(&RENEW);
}
