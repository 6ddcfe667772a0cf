//! A worker: its lock, inbox and ready lists, and the record it publishes.
//!
//! Unsafe: going from the private part to the record, which the caller of `add_worker` vouched for.
#![allow(unsafe_code)]

use super::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, spin_loop};
use ::core::ops::Deref;

use super::hooks::Hooks;
use super::inbox::Inbox;
use super::locked::Locked;
use super::priority::Priority;
use super::ready::{List, ReadyLists};
use super::record::{NO_PRIORITY, WorkerState};
use super::slot::Slot;

/// Workers an executor can have; their numbers are 0 to 63.
///
/// ```
/// # use cops_executor::{AddWorkerError, Executor, WorkerState, core::MAX_WORKERS};
/// # static WORKER: WorkerState = WorkerState::new();
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// assert_eq!(EXECUTOR.add_worker(MAX_WORKERS, &WORKER), Err(AddWorkerError::NumberOutOfRange));
/// # Ok::<(), cops_executor::StartError>(())
/// ```
pub const MAX_WORKERS: u32 = 64;
/// Stands for "not on a worker of this executor" wherever a worker number is passed.
///
/// ```
/// # use cops_executor::{core::NO_WORKER, current_worker_of};
/// assert_eq!(current_worker_of(0), NO_WORKER, "this thread is none");
/// ```
pub const NO_WORKER: u32 = u32::MAX;

/// `Worker::running_level` of a worker that polls nothing.
pub(super) const NO_LEVEL: u32 = Priority::COUNT;
/// How often a request tries for the lock of a worker before it leaves word there. A holder is in
/// the middle of some tens of instructions; in an interrupt handler, it may be the code that was
/// interrupted.
pub(crate) const TRIES_FOR_LOCK: u32 = if cfg!(loom) { 0 } else { 16 };

/// Looks at a lock that is held before the host is asked to run another thread. A section is some
/// tens of instructions, so a holder that runs has left it long before.
const LOOKS_BEFORE_RELAX: u32 = if cfg!(loom) { 1 } else { 100 };

/// The private part, in memory from `Hooks::grow`. Zeroed memory plus `initialise` makes a valid
/// value.
#[repr(C, align(64))]
pub(crate) struct Worker {
    /// Guards `lists`, `waiting`, `free`, `running_level`, `fast_path_open`. Only the worker
    /// itself, in `run`, ever waits for it; interrupt handlers and other workers take it if it is
    /// free, or do without it. Held for some tens of instructions; no foreign code runs under it. 1
    /// if it is held: a word, since machines set a bit of a word in one instruction, but of a byte
    /// in many.
    pub(super) lock: AtomicU32,
    /// Not 0: since the worker last looked at everything, nothing has happened except what the fast
    /// path does. Cleared without the lock too, by a caller that wants the worker to look.
    pub(super) fast_path_open: AtomicU32,
    /// The head of this list is being polled. 64 if nothing is.
    pub(super) running_level: AtomicU32,
    number: AtomicU32,
    state: AtomicPtr<WorkerState>,
    /// The executor's, for `Hooks::relax`.
    hooks: AtomicPtr<Hooks>,
    /// `run` is on this worker's stack: a second one is refused.
    pub running: AtomicBool,
    /// Slots that were used before, for spawns on this worker, linked by `next`. Guarded by the
    /// lock.
    pub(super) free: AtomicPtr<Slot>,
    /// For aging (`schedule`): polls since the last that went to a less urgent level, and that
    /// level. The worker's own.
    pub polls_since_aged: AtomicU32,
    pub aged_level: AtomicU32,
    /// Levels at which a coroutine waits in the lists, not counting the one that is being polled.
    /// `WorkerState::ready` is a copy of this. Guarded by the lock.
    pub(super) waiting: AtomicU64,
    /// Others write here: not on the line that the worker writes at each scheduling point.
    pub inbox: OwnLine<Inbox>,
    /// Bit l: a coroutine in list l has another priority, and the caller that changed it could not
    /// get the lock.
    pub(super) misplaced: OwnLine<AtomicU64>,
    pub(super) lists: ReadyLists,
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

impl Worker {
    /// Sets what never changes; the caller has it alone.
    ///
    /// # Safety
    ///
    /// `state` and `hooks` point to what lives as long as the worker, and does not change.
    pub unsafe fn initialise(&self, number: u32, state: *const WorkerState, hooks: *const Hooks) {
        self.hooks.store(hooks.cast_mut(), Ordering::Relaxed);
        self.number.store(number, Ordering::Relaxed);
        self.state.store(state.cast_mut(), Ordering::Relaxed);
        // Zero would be a level, in both.
        self.running_level.store(NO_LEVEL, Ordering::Relaxed);
        self.state().current_priority.store(NO_PRIORITY, Ordering::Relaxed);
    }

    #[inline(always)]
    pub fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// The record that the worker publishes in.
    #[inline(always)]
    pub fn state(&self) -> &WorkerState {
        // SAFETY: a reference exists only after `initialise`; its contract says that the record
        // lives as long.
        unsafe { &*self.state.load(Ordering::Relaxed) }
    }

    /// Takes the lock if it is free.
    #[inline(always)]
    pub fn try_lock(&self) -> Option<Locked<'_>> {
        // Acquire pairs with the Release of the unlock: the holder sees the lists as they were
        // left. Sequentially consistent for `prepare_park`: a look at the parked workers that
        // follows the linking of a coroutine comes after this, and a worker that parks looks for
        // held locks after it is marked.
        if self.seize(Ordering::SeqCst) { Some(Locked(self)) } else { None }
    }

    /// Sets the lock; false if it was set already.
    #[inline(always)]
    fn seize(&self, order: Ordering) -> bool {
        if cfg!(loom) {
            // The same, but what fails does not write: loom may put that write after an unlock that
            // follows it.
            return self.lock.compare_exchange(0, 1, order, Ordering::Relaxed).is_ok();
        }
        self.lock.fetch_or(1, order) & 1 == 0
    }

    /// Takes the lock if it is free and nothing waits in the inbox: what is linked now is not to
    /// overtake that. For callers on this worker. In an interrupt handler too: code that it has
    /// interrupted under the lock keeps it, and the handler, which then goes through the inbox,
    /// never waits.
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
        let mut looks: u32 = 0;
        while self.lock.load(Ordering::Relaxed) != 0 || !self.seize(Ordering::Acquire) {
            spin_loop();
            looks = looks.wrapping_add(1);
            if looks == LOOKS_BEFORE_RELAX {
                looks = 0;
                self.relax();
            }
        }
    }

    /// Whether the lock is held, and is still held after some looks.
    pub fn stays_locked(&self) -> bool {
        (0..LOOKS_BEFORE_RELAX).all(|looks| {
            if looks != 0 {
                spin_loop();
            }
            self.lock.load(Ordering::SeqCst) != 0
        })
    }

    /// The executor's hooks; `None` before `initialise`.
    #[inline(always)]
    pub fn hooks(&self) -> Option<&Hooks> {
        // SAFETY: null, or set by `initialise`; its contract says that the hooks live as long as
        // the worker, and do not change. A caller that has found the worker sees both.
        unsafe { self.hooks.load(Ordering::Relaxed).as_ref() }
    }

    /// Lets the host run another thread: the holder of a lock may have lost its processor.
    pub fn relax(&self) {
        if let Some(hooks) = self.hooks()
            && let Some(relax) = hooks.relax
        {
            // SAFETY: `initialise` was given these hooks, and by contract of `Hooks` their
            // functions accept this context from any thread.
            unsafe { relax(hooks.context) };
        }
    }

    /// Makes the worker's next scheduling point a complete one. In any context; not only under the
    /// lock.
    #[inline(always)]
    pub fn close_fast_path(&self) {
        self.fast_path_open.store(0, Ordering::Relaxed);
    }

    /// Records that a coroutine in the list of `listed_at` has another priority now.
    ///
    /// The mark in `posted` comes last: with it the worker, or a thief, looks.
    pub fn note_misplaced(&self, listed_at: Priority, priority: Priority) {
        self.misplaced.fetch_or(listed_at.bit(), Ordering::SeqCst);
        self.state().posted.fetch_or(priority.bit(), Ordering::SeqCst);
        self.close_fast_path();
    }

    /// Publishes how urgent the coroutine in `slot` is now, which this worker polls. By this,
    /// others decide which worker comes first, and a kernel decides which has a hart.
    ///
    /// Called on this worker or under its lock: in between no other poll begins. Two callers may
    /// have changed the priority at the same time. The second of the two swaps reads what the first
    /// one has released. So that caller sees both changes when it looks again.
    #[cold]
    pub fn publish_polled(&self, slot: &Slot) {
        loop {
            let priority = slot.state.load().priority();
            self.state().current_priority.swap(priority.level() as u32, Ordering::AcqRel);
            if slot.state.load().priority() == priority {
                return;
            }
        }
    }

    /// The ready list of `priority`.
    #[inline(always)]
    pub fn list(&self, priority: Priority) -> &List {
        self.lists.list(priority)
    }
}
