//! The control block of a coroutine: 40 bytes, all of them atomics. (32 bytes where pointers have
//! 32 bits.)
//!
//! # Owners of the fields
//!
//! The place in the state word (`state`) determines the owner of each other field. "The lock of W"
//! is the lock of the worker that the word names. A field with the owner "none" is not accessed.
//!
//! | place | `data`, `vtable` | `next` | `previous` |
//! | --- | --- | --- | --- |
//! | Nowhere, in a free chain | none | the lock of the worker that has the chain | none |
//! | Nowhere, taken from there | the spawner | the spawner | the spawner |
//! | Inbox | none | the pusher until the push; then the lock of W, under which the inbox is drained | none |
//! | List, waiting | none | the lock of W | the lock of W |
//! | List, being polled | the polling worker, without a lock | the lock of W | the lock of W |
//! | Blocked | none | none | none |
//!
//! Rules, for every function of the core:
//!
//! 1. `handle` is written before the slot is handed out for the first time, and never again. It may
//!    be read at any time.
//! 2. `state` may be read and updated at any time, by the transitions of `state` only. It is stored
//!    without a comparison twice: by `occupy` (its caller owns the slot), and by `vacate`, when the
//!    coroutine is gone.
//! 3. `data` and `vtable` are written by the spawner before `occupy`, and read by the worker that
//!    polls or drops: it has the slot as the head of its list `running_level`. They are not
//!    accessed after `vacate`. `inspect` reads `vtable` at any time: it finds that of the coroutine
//!    or of a later one, and tables are never freed.
//! 4. A transition gives the fields to the new owner at once. A caller that makes a coroutine
//!    Blocked, Inbox or Nowhere owns none of its fields afterwards. A caller that takes it out of
//!    Blocked owns `next` (and, into a list, `previous`) from then on.
//! 5. So what is needed of the links of a coroutine that blocks or exits is read before the
//!    transition: `next`, and nothing else. `ReadyLists::remove_followed` takes that value and not
//!    the slot, and finds the rest in the list's own ends.
//! 6. The neighbours of a slot in a list are in the same list, so the same lock guards their links.
//! 7. The word that a transition returns is used, or the caller says why it is of no interest: it
//!    is the only view of what was requested before the transition. A request that comes after it
//!    sees the new owner.
//! 8. Memory safety depends on nothing that code outside of this crate can write to, such as a
//!    `WorkerState`: the lists and `Worker::waiting` say what is there; the record says when to
//!    look.

use super::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::state::State;

/// How the core polls and drops a future of a type that it does not know. The caller owns the
/// table.
///
/// ```
/// use cops_executor::{CoroutineId, Executor, FutureVTable, Priority};
/// use std::sync::atomic::{AtomicU32, Ordering};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
///
/// // A future that counts down, and lives in a static.
/// static LEFT: AtomicU32 = AtomicU32::new(3);
/// static COUNTDOWN: FutureVTable = FutureVTable { poll, drop: drop_nothing, kind: 0 };
///
/// unsafe extern "C" fn poll(_data: *mut (), id: u64) -> bool {
///     CoroutineId::from_raw(id).map(cops_executor::wake_up);
///     LEFT.fetch_sub(1, Ordering::Relaxed) == 1
/// }
/// unsafe extern "C" fn drop_nothing(_data: *mut ()) {}
///
/// // SAFETY: the functions touch atomics only.
/// unsafe { EXECUTOR.spawn_raw(std::ptr::null_mut(), &COUNTDOWN, Priority::DEFAULT) }?;
/// EXECUTOR.run_until_stalled(0);
/// assert_eq!(LEFT.load(Ordering::Relaxed), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy)]
#[repr(C)]
pub struct FutureVTable {
    /// Polls the future of coroutine `id` (the bits of its `CoroutineId`); true if it is finished
    /// and must not be polled again. Must not unwind.
    pub poll: unsafe extern "C" fn(data: *mut (), id: u64) -> bool,
    /// Drops the future and whatever holds it; called exactly once, on a worker, never during
    /// `poll`. Must not unwind.
    pub drop: unsafe extern "C" fn(data: *mut ()),
    /// What the coroutine is, for those that [inspect](super::Inspection::kind) it. The meaning is
    /// the caller's; 0 is usual.
    pub kind: usize,
}

/// A control block. It lives in a slab that is never freed, so a late wake finds a word to read.
///
/// Fields are atomics even where a lock guards them: those accesses are relaxed, hence plain loads
/// and stores, and no argument about data races is needed.
#[repr(C)]
pub(crate) struct Slot {
    pub state: State,
    /// The future: written by spawn before `occupy`, read by the worker that popped the coroutine.
    data: AtomicPtr<()>,
    vtable: AtomicPtr<FutureVTable>,
    /// The next slot in the ready list, the inbox or the free chain: rules 4 and 5.
    pub next: AtomicPtr<Slot>,
    /// Handle of the slot before this one in the ready list: rules 4 and 5.
    pub previous: AtomicU32,
    /// The low half of the ids of this slot: executor number and index. Constant once the slot has
    /// been handed out for the first time.
    handle: AtomicU32,
}

/// Promised in the documentation: what a coroutine costs beside its future.
#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == if cfg!(target_pointer_width = "64") { 40 } else { 32 });

impl Slot {
    /// Where the pointer to the table is.
    pub const VTABLE_OFFSET: usize = ::core::mem::offset_of!(Slot, vtable);

    /// What lists and inboxes hold of a slot; never 0, and `Slab::known` leads back from it.
    #[inline(always)]
    pub fn handle(&self) -> u32 {
        self.handle.load(Ordering::Relaxed)
    }

    pub fn set_handle(&self, handle: u32) {
        self.handle.store(handle, Ordering::Relaxed);
    }

    pub fn set_future(&self, data: *mut (), vtable: *const FutureVTable) {
        self.data.store(data, Ordering::Relaxed);
        self.vtable.store(vtable.cast_mut(), Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn data(&self) -> *mut () {
        self.data.load(Ordering::Relaxed)
    }

    #[inline(always)]
    pub fn vtable(&self) -> *const FutureVTable {
        self.vtable.load(Ordering::Relaxed)
    }

    /// The kind of the coroutine in this slot, or of a later one. Called after a coroutine was seen
    /// in it.
    #[allow(unsafe_code)]
    pub fn kind(&self) -> usize {
        // SAFETY: the caller has seen, with Acquire, the state word of a coroutine in this slot, so
        // this load finds the table that was set before that, or a later one. By the contract of
        // `spawn`, tables are never freed or changed. A null pointer is not read.
        unsafe { self.vtable().as_ref() }.map_or(0, |table| table.kind)
    }
}
