//! A worker: its lock, inbox and ready lists, and the record it publishes.

use ::core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::inbox::Inbox;
use super::priority::Priority;
use super::ready::ReadyLists;
use super::slab::Slab;
use super::state::Found;

/// Workers an executor can have; their numbers are 0 to 63.
pub const MAX_WORKERS: u32 = 64;
/// Stands for "not on a worker of this executor" wherever a worker number is passed.
pub const NO_WORKER: u32 = u32::MAX;

/// What a worker shows to others: to its fellows, to `ps`, and, if it lies in a page shared with the
/// kernel, to the kernel. The executor only ever takes these fields for hints about *when* to look.
///
/// Two cache lines, because fellows read the first at each of their scheduling points and the worker
/// writes the second at each of its own. Zeroed memory is a valid initial value.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct WorkerState {
    /// Bit p: coroutines of priority p wait in the worker's lists.
    pub ready: AtomicU64,
    /// Bit p: coroutines of priority p have been put into the worker's inbox since it last looked.
    pub posted: AtomicU64,
    reserved: [u64; 6],
    /// Id of the coroutine that the worker polls, 0 if none.
    pub current_id: AtomicU64,
    /// Its priority; 64 if none.
    pub current_priority: AtomicU32,
    /// 0: not in `run`; 1: in `run`; 2: parked or about to park.
    pub phase: AtomicU32,
    /// Polls so far.
    pub polls: AtomicU64,
    /// How many of the coroutines it polled were taken from other workers.
    pub steals: AtomicU64,
    reserved_own: [u64; 4],
}

const _: () = {
    assert!(size_of::<WorkerState>() == 128 && align_of::<WorkerState>() == 64);
    assert!(::core::mem::offset_of!(WorkerState, ready) == 0);
    assert!(::core::mem::offset_of!(WorkerState, posted) == 8);
    assert!(::core::mem::offset_of!(WorkerState, current_id) == 64);
    assert!(::core::mem::offset_of!(WorkerState, current_priority) == 72);
    assert!(::core::mem::offset_of!(WorkerState, phase) == 76);
    assert!(::core::mem::offset_of!(WorkerState, polls) == 80);
    assert!(::core::mem::offset_of!(WorkerState, steals) == 88);
};

/// `WorkerState::current_priority` of a worker that polls nothing.
pub(crate) const NO_PRIORITY: u32 = Priority::COUNT;
pub(crate) const PHASE_OUTSIDE: u32 = 0;
pub(crate) const PHASE_RUNNING: u32 = 1;
pub(crate) const PHASE_PARKED: u32 = 2;

impl WorkerState {
    /// A record of a worker that has not run yet.
    pub const fn new() -> WorkerState {
        WorkerState {
            ready: AtomicU64::new(0),
            posted: AtomicU64::new(0),
            reserved: [0; 6],
            current_id: AtomicU64::new(0),
            current_priority: AtomicU32::new(NO_PRIORITY),
            phase: AtomicU32::new(PHASE_OUTSIDE),
            polls: AtomicU64::new(0),
            steals: AtomicU64::new(0),
            reserved_own: [0; 4],
        }
    }

    /// Levels at which something waits for this worker, in its lists or its inbox. May name a level that has
    /// just become empty, but never misses one: what moves from inbox to lists is marked there (`ready`)
    /// before the mark here (`posted`) goes, and we look in the opposite order.
    #[inline]
    pub fn waiting(&self) -> u64 {
        let posted = self.posted.load(Ordering::Acquire);
        posted | self.ready.load(Ordering::Relaxed)
    }

    /// Priority of what the worker polls, `None` if it polls nothing.
    pub fn current_priority(&self) -> Option<Priority> {
        let level = self.current_priority.load(Ordering::Relaxed);
        if level < Priority::COUNT { Some(Priority::saturating(level)) } else { None }
    }

    pub(crate) fn publish_current(&self, id: u64, priority: u32) {
        self.current_id.store(id, Ordering::Relaxed);
        self.current_priority.store(priority, Ordering::Relaxed);
    }
}

impl Default for WorkerState {
    fn default() -> Self {
        Self::new()
    }
}

/// The private part, in memory from `Hooks::grow`.
#[repr(C, align(64))]
pub(crate) struct Worker {
    /// Guards `lists`. Interrupt handlers never take it, nobody waits for another worker's, and no foreign
    /// code runs under it.
    lock: AtomicBool,
    /// `run` is on this worker's stack: a second one is refused.
    pub running: AtomicBool,
    pub inbox: Inbox,
    pub lists: ReadyLists,
}

/// The lock of a worker, held.
pub(crate) struct Locked<'a> {
    pub worker: &'a Worker,
    pub state: &'a WorkerState,
    number: u32,
}

impl Worker {
    /// Takes the lock if it is free.
    pub fn try_lock<'a>(&'a self, state: &'a WorkerState, number: u32) -> Option<Locked<'a>> {
        // Acquire pairs with the Release of the unlock: the holder sees the lists as they were left.
        if self.lock.swap(true, Ordering::Acquire) {
            return None;
        }
        Some(Locked { worker: self, state, number })
    }

    pub fn is_locked(&self) -> bool {
        self.lock.load(Ordering::Acquire)
    }
}

impl Locked<'_> {
    /// Levels that are not empty.
    pub fn bitmap(&self) -> u64 {
        self.worker.lists.bitmap()
    }

    /// Files everything in the inbox under its priority.
    #[inline]
    pub fn drain(&self, slab: &Slab) {
        let posted = self.state.posted.load(Ordering::Relaxed);
        if posted != 0 || self.worker.inbox.looks_filled() {
            self.drain_now(slab, posted);
        }
    }

    fn drain_now(&self, slab: &Slab, posted: u64) {
        // The marks in `posted` move to `ready` before the coroutines do, so that a fellow who looks now
        // misses none (`WorkerState::waiting`); the unlock makes `ready` exact.
        let ready = self.state.ready.load(Ordering::Relaxed);
        if ready | posted != ready {
            self.state.ready.store(ready | posted, Ordering::Relaxed);
        }
        // Cleared before the inbox is emptied: a pusher marks its level after its push, so a mark that is
        // cleared here belongs to a slot that is taken out here.
        if posted != 0 {
            self.state.posted.fetch_and(!posted, Ordering::SeqCst);
        }
        let lists = &self.worker.lists;
        self.worker.inbox.drain(slab, |slot| match slot.state.take_from_inbox(self.number) {
            Found::Link(level) => lists.push(slab, slot, level),
            Found::Move { from, to } => {
                lists.remove(slab, slot, from);
                lists.push(slab, slot, to);
            }
            Found::Recycle => slab.recycle(slot),
            Found::Nothing => {}
        });
    }

    /// Shows the bitmap to others. A line that fellows read is written only if it changes.
    #[inline]
    pub fn publish(&self) {
        let bitmap = self.bitmap();
        if self.state.ready.load(Ordering::Relaxed) != bitmap {
            self.state.ready.store(bitmap, Ordering::Release);
        }
    }
}

impl Drop for Locked<'_> {
    /// Publishes, so that whoever finds the lock free also finds the bitmap true (`prepare_park`).
    #[inline]
    fn drop(&mut self) {
        self.publish();
        self.worker.lock.store(false, Ordering::Release);
    }
}
