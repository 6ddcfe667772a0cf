//! The control block of a coroutine: 40 bytes, all of them atomics. (32 bytes where pointers have 32 bits.)

use super::atomic::{AtomicPtr, AtomicU32, Ordering};

use super::state::State;

/// How the core polls and drops a future whose type it does not know. The caller owns the table.
///
/// ```
/// use cops_executor::{CoroutineId, Executor, FutureVTable, Priority};
/// use std::sync::atomic::{AtomicU32, Ordering};
/// # static EXECUTOR: Executor = Executor::new(1);
/// # EXECUTOR.start_on_host(1)?;
///
/// // A future that counts down, and lives in a static.
/// static LEFT: AtomicU32 = AtomicU32::new(3);
/// static COUNTDOWN: FutureVTable = FutureVTable { poll, drop: drop_nothing };
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
    /// Polls the future of coroutine `id` (the bits of its `CoroutineId`); true if it is finished and must
    /// not be polled again. Must not unwind.
    pub poll: unsafe extern "C" fn(data: *mut (), id: u64) -> bool,
    /// Drops the future and whatever holds it; called exactly once, on a worker, never during `poll`.
    /// Must not unwind.
    pub drop: unsafe extern "C" fn(data: *mut ()),
}

/// A control block. It lives in a slab that is never freed, so a late wake finds a word to read.
///
/// Fields are atomics even where a lock guards them: those accesses are relaxed, hence plain loads and
/// stores, and no argument about data races is needed.
#[repr(C)]
pub(crate) struct Slot {
    pub state: State,
    /// The future: written by spawn before `occupy`, read by the worker that popped the coroutine.
    data: AtomicPtr<()>,
    vtable: AtomicPtr<FutureVTable>,
    /// The next slot in the ready list, or among the free slots of a worker: guarded by the lock of that worker. In an
    /// inbox it belongs to the pusher.
    pub next: AtomicPtr<Slot>,
    /// Handle of the slot before this one in the ready list, guarded as `next`.
    pub previous: AtomicU32,
    /// The low half of the ids of this slot: executor number and index. Constant once the slot has been
    /// handed out for the first time.
    handle: AtomicU32,
}

/// Promised in the documentation: what a coroutine costs beside its future.
#[cfg(not(loom))]
const _: () = assert!(size_of::<Slot>() == if cfg!(target_pointer_width = "64") { 40 } else { 32 });

impl Slot {
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
}
