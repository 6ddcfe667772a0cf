//! A worker: its lock, inbox and ready lists, and the record it publishes.
//!
//! Unsafe: going from the private part to the record, which the caller of `add_worker` vouched for.
#![allow(unsafe_code)]

use super::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, spin_loop};
use ::core::ops::Deref;

use super::inbox::Inbox;
use super::priority::Priority;
use super::ready::{ReadyLists, Rotation};
use super::slab::Slab;
use super::slot::Slot;
use super::state::{Found, Snapshot};

/// Workers an executor can have; their numbers are 0 to 63.
pub const MAX_WORKERS: u32 = 64;
/// Stands for "not on a worker of this executor" wherever a worker number is passed.
pub const NO_WORKER: u32 = u32::MAX;

/// Bounds the time that a thief holds two locks.
const HANDED_OVER_AT_ONCE: u32 = 32;

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
    /// Its priority, while `current_id` is not 0; 64 outside of `run`.
    pub current_priority: AtomicU32,
    /// 0: not in `run`; 1: in `run`; 2: parked or about to park.
    pub phase: AtomicU32,
    /// Polls so far.
    pub polls: AtomicU64,
    /// How many of the coroutines it polled were taken from other workers.
    pub steals: AtomicU64,
    /// Not 0: the coroutine that the worker polls has woken itself. A note between the waker and `run` on
    /// one worker (so a plain store will do), used up when the poll returns.
    pub woken: AtomicU32,
    reserved_own: [u32; 7],
}

#[cfg(not(loom))]
const _: () = {
    assert!(size_of::<WorkerState>() == 128 && align_of::<WorkerState>() == 64);
    assert!(::core::mem::offset_of!(WorkerState, ready) == 0);
    assert!(::core::mem::offset_of!(WorkerState, posted) == 8);
    assert!(::core::mem::offset_of!(WorkerState, current_id) == 64);
    assert!(::core::mem::offset_of!(WorkerState, current_priority) == 72);
    assert!(::core::mem::offset_of!(WorkerState, phase) == 76);
    assert!(::core::mem::offset_of!(WorkerState, polls) == 80);
    assert!(::core::mem::offset_of!(WorkerState, steals) == 88);
    assert!(::core::mem::offset_of!(WorkerState, woken) == 96);
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
            woken: AtomicU32::new(0),
            reserved_own: [0; 7],
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
        let polls = self.current_id.load(Ordering::Relaxed) != 0;
        if polls && level < Priority::COUNT { Some(Priority::saturating(level)) } else { None }
    }

    /// Notes that the coroutine of this id was woken, if this worker is just polling it: true then. Must be called on the worker, in a
    /// coroutine or in an interrupt handler.
    ///
    /// Why a note that is no atomic update loses nothing: `run` clears `current_id` before it reads the
    /// note, both on this worker. An interrupt handler that still finds the id writes the note before that;
    /// one that comes later does not find the id, and wakes in the ordinary way.
    #[inline(always)]
    pub fn wakes_itself(&self, id: u64) -> bool {
        let itself = self.current_id.load(Ordering::Relaxed) == id;
        if itself {
            self.woken.store(1, Ordering::Relaxed);
        }
        itself
    }
}

impl Default for WorkerState {
    fn default() -> Self {
        Self::new()
    }
}

/// The private part, in memory from `Hooks::grow`. Zeroed memory plus `initialise` makes a valid value.
#[repr(C, align(64))]
pub(crate) struct Worker {
    /// Guards `lists`. Only the worker itself, in `run`, ever waits for it; interrupt handlers and fellows take
    /// it if it is free or do without. Held for some tens of instructions; no foreign code runs under it.
    /// 1 if it is held: a word, since machines set a bit of a word in one instruction, but of a byte in many.
    lock: AtomicU32,
    /// `run` is on this worker's stack: a second one is refused.
    pub running: AtomicBool,
    number: AtomicU32,
    state: AtomicPtr<WorkerState>,
    /// Others write here: not on the line that the worker writes at each scheduling point.
    pub inbox: OwnLine<Inbox>,
    lists: ReadyLists,
}

/// Something on cache lines of its own.
#[repr(C, align(64))]
pub(crate) struct OwnLine<T>(T);

impl<T> Deref for OwnLine<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// The lock of a worker, held.
pub(crate) struct Locked<'a>(&'a Worker);

impl Worker {
    /// Sets what never changes; the caller has it alone.
    ///
    /// # Safety
    ///
    /// `state` points to a record that lives as long as the worker.
    pub unsafe fn initialise(&self, number: u32, state: *const WorkerState) {
        self.number.store(number, Ordering::Relaxed);
        self.state.store(state.cast_mut(), Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// The record that the worker publishes in.
    #[inline(always)]
    pub fn state(&self) -> &WorkerState {
        // SAFETY: whoever has a reference got it after `initialise`, whose caller vouched for this.
        unsafe { &*self.state.load(Ordering::Relaxed) }
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Locked<'_>> {
        // Acquire pairs with the Release of the unlock: the holder sees the lists as they were left.
        // Sequentially consistent for `prepare_park`: a look at the parked workers that follows the linking of
        // a coroutine comes after this, and who parks looks for held locks after it is marked.
        if self.seize(Ordering::SeqCst) { Some(Locked(self)) } else { None }
    }

    /// Sets the lock; false if it was set already.
    #[inline(always)]
    fn seize(&self, order: Ordering) -> bool {
        if cfg!(loom) {
            // The same, but what fails does not write: loom may put that write after an unlock that follows it.
            return self.lock.compare_exchange(0, 1, order, Ordering::Relaxed).is_ok();
        }
        self.lock.fetch_or(1, order) & 1 == 0
    }

    /// Takes the lock if it is free and nothing waits in the inbox: what is linked now is not to overtake
    /// that. For callers on this worker. In an interrupt handler too: whoever it has interrupted under the
    /// lock keeps it, and the handler, which then goes through the inbox, never waits.
    #[inline(always)]
    pub fn lock_to_link(&self) -> Option<Locked<'_>> {
        if self.state().posted.load(Ordering::Relaxed) != 0 { None } else { self.try_lock() }
    }

    /// Takes the worker's own lock. Only thieves compete, for as long as a scheduling point takes.
    #[inline(always)]
    pub fn lock(&self) -> Locked<'_> {
        if !self.seize(Ordering::Acquire) {
            self.wait_for_lock();
        }
        Locked(self)
    }

    #[cold]
    fn wait_for_lock(&self) {
        while self.lock.load(Ordering::Relaxed) != 0 || !self.seize(Ordering::Acquire) {
            spin_loop();
        }
    }

    /// What [`Locked::exchange`] needs to requeue at `level`. Read without the lock, under which it is checked.
    #[inline(always)]
    pub fn rotation(&self, level: Priority) -> Option<Rotation<'_>> {
        self.lists.rotation(level)
    }

    pub fn is_locked(&self) -> bool {
        self.lock.load(Ordering::SeqCst) != 0
    }
}

impl Locked<'_> {
    /// Levels that are not empty.
    #[inline(always)]
    pub fn bitmap(&self) -> u64 {
        self.0.lists.bitmap()
    }

    /// Appends a coroutine that is LINKED at `level`, and not in a list yet.
    #[inline(always)]
    pub fn push(&self, slot: &Slot, level: Priority) {
        self.0.lists.push(slot, level);
    }

    /// Takes the most urgent coroutine for worker `by`, and the word it has now.
    #[inline(always)]
    pub fn pop<'s>(&self, slab: &'s Slab, by: u32) -> Option<(&'s Slot, Snapshot)> {
        let slot = self.0.lists.pop(slab)?;
        Some((slot, slot.state.pop(self.0.number(), by)))
    }

    /// The commonest scheduling point, in one go: `slot`, which has woken itself and whose word `popped` was plain,
    /// goes to the back of its list, that of `rotation`, and the next comes out. `None`, and nothing has happened,
    /// if the lists are not such that this is right, or the word was touched.
    #[inline(always)]
    pub fn exchange<'s>(
        self,
        slab: &'s Slab,
        slot: &'s Slot,
        popped: Snapshot,
        rotation: Rotation<'_>,
    ) -> Option<(&'s Slot, Snapshot)> {
        let lists = &self.0.lists;
        if !lists.still(rotation) || !slot.state.relist(popped) {
            return None;
        }
        let next = lists.rotate(slab, slot, rotation);
        let word = next.state.pop_own();
        self.unlock_unchanged();
        Some((next, word))
    }

    /// Takes the next coroutine of a rotation, if the lists are still such that it is the most urgent.
    #[inline(always)]
    pub fn pop_in_turn<'s>(self, slab: &'s Slab, rotation: Rotation<'_>) -> Option<(&'s Slot, Snapshot)> {
        if !self.0.lists.still(rotation) {
            return None;
        }
        let slot = self.0.lists.pop_in_turn(slab, rotation);
        Some((slot, slot.state.pop_own()))
    }

    /// Unlocks when the bitmap is as it was when the lock was taken: it is published already.
    #[inline(always)]
    fn unlock_unchanged(self) {
        self.0.lock.store(0, Ordering::Release);
        ::core::mem::forget(self);
    }

    /// Takes up to half of what waits here, most urgent first, over to the lists of `to`, another worker.
    /// Stops at what is in the inbox of this worker as well.
    pub fn hand_over(&self, slab: &Slab, to: &Locked<'_>) {
        let mut left = (self.0.lists.count() / 2).min(HANDED_OVER_AT_ONCE);
        while left != 0
            && let Some((slot, level)) = self.0.lists.peek(slab)
            && slot.state.hand_over(to.0.number())
        {
            let _ = self.0.lists.pop(slab);
            to.push(slot, level);
            left = left.wrapping_sub(1);
        }
        // Before this worker's lock is free and its bitmap says that they are gone.
        to.publish();
    }

    /// Files everything in the inbox under its priority. May miss what is just being announced.
    #[inline(always)]
    pub fn drain(&self, slab: &Slab) {
        if self.0.state().posted.load(Ordering::Relaxed) != 0 {
            self.drain_now(slab);
        }
    }

    /// Files everything in the inbox; true if there was anything.
    #[cold]
    pub fn drain_unannounced(&self, slab: &Slab) -> bool {
        let filled = !self.0.inbox.is_empty();
        if filled {
            self.drain_now(slab);
        }
        filled
    }

    fn drain_now(&self, slab: &Slab) {
        let (state, number) = (self.0.state(), self.0.number());
        let posted = state.posted.load(Ordering::Relaxed);
        // The marks in `posted` move to `ready` before the coroutines do, so that a fellow who looks now
        // misses none (`WorkerState::waiting`); the unlock makes `ready` exact.
        let ready = state.ready.load(Ordering::Relaxed);
        if ready | posted != ready {
            state.ready.store(ready | posted, Ordering::Relaxed);
        }
        // Cleared before the inbox is emptied: a pusher marks its level after its push, so a mark that is
        // cleared here belongs to a slot that is taken out here.
        if posted != 0 {
            state.posted.fetch_and(!posted, Ordering::SeqCst);
        }
        let lists = &self.0.lists;
        self.0.inbox.drain(slab, |slot| match slot.state.take_from_inbox(number) {
            Found::Link(level) => lists.push(slot, level),
            Found::Move { from, to } => {
                lists.remove(slab, slot, from);
                lists.push(slot, to);
            }
            Found::Recycle => slab.recycle(slot),
            Found::Nothing => {}
        });
    }

    /// Shows the bitmap to others. A line that fellows read is written only if it changes.
    #[inline(always)]
    fn publish(&self) {
        let (state, bitmap) = (self.0.state(), self.bitmap());
        if state.ready.load(Ordering::Relaxed) != bitmap {
            state.ready.store(bitmap, Ordering::Release);
        }
    }
}

impl Drop for Locked<'_> {
    /// Publishes, so that whoever finds the lock free also finds the bitmap true (`prepare_park`).
    #[inline(always)]
    fn drop(&mut self) {
        self.publish();
        self.0.lock.store(0, Ordering::Release);
    }
}
