//! The executor: its memory, setting it up, and looking at it.

use super::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, load_published};
use ::core::cell::UnsafeCell;
use ::core::ptr;

use super::hooks::Hooks;
use super::interface::{
    STATUS_ALREADY_DONE, STATUS_NO_MEMORY, STATUS_NOT_INITIALISED, STATUS_OK, STATUS_OUT_OF_RANGE,
};
use super::record::WorkerState;
use super::slab::Slab;
use super::worker::{MAX_WORKERS, Worker};

/// All of an executor except what its hooks hand out. The caller places it, usually in a static,
/// and it must stay there for ever: ids and wakers are never counted.
///
/// ```
/// use cops_executor::core::{Executor, FutureVTable, Hooks, NO_WORKER, RUN_STALLED, STATUS_OK, WorkerState};
/// use std::alloc::{Layout, alloc_zeroed};
/// use std::ptr::null_mut;
///
/// static CORE: Executor = Executor::new();
/// static WORKER: WorkerState = WorkerState::new();
/// // A future that is ready at once.
/// static FUTURE: FutureVTable = FutureVTable { poll, drop: drop_future, kind: 0 };
///
/// unsafe extern "C" fn poll(_data: *mut (), _id: u64) -> bool { true }
/// unsafe extern "C" fn drop_future(_data: *mut ()) {}
/// unsafe extern "C" fn grow(_: *mut (), bytes: usize) -> *mut u8 {
///     let layout = Layout::from_size_align(bytes, 64).unwrap();
///     // SAFETY: the core never asks for nothing.
///     unsafe { alloc_zeroed(layout) }
/// }
/// unsafe extern "C" fn release(_: *mut (), _: *mut u8, _: usize) {}
/// unsafe extern "C" fn notify(_: *mut (), _worker: u32) {}
///
/// let hooks = Hooks { context: null_mut(), grow, release, notify, preempt: None, external: None, relax: None };
/// // SAFETY: the hooks and the future are what the core asks for, and all of it lives for ever.
/// unsafe {
///     assert_eq!(CORE.initialise(0, &hooks), STATUS_OK);
///     assert_eq!(CORE.add_worker(0, &WORKER), STATUS_OK);
///     let id = CORE.spawn(null_mut(), &FUTURE, 32, NO_WORKER);
///     assert_eq!(CORE.priority(id), 32);
///     assert_eq!(CORE.run(0, u64::MAX), RUN_STALLED);
///     assert_eq!(CORE.priority(id), 64, "it has exited");
/// }
/// ```
#[repr(C, align(64))]
pub struct Executor {
    /// Bit w: worker w has parked or is about to. On a line of its own: every wake reads it.
    pub(super) parked: AtomicU64,
    /// What scheduling points must see to beside their own worker's lists: the bits `ATTENTION_*`.
    /// Seldom written.
    pub(super) attention: AtomicU32,
    /// See `set_aging`; 0 if it is off.
    pub(super) aging_period: AtomicU32,
    /// Bit w: `notify` was called for worker w since it last parked. A worker that is parked too is
    /// about to look.
    pub(super) notified: AtomicU64,
    /// Bit w: while worker w is parked, it looks for work by itself before long. See `set_quiet`.
    pub(super) quiet: AtomicU64,
    line: [u32; 8],
    pub(super) live: AtomicU64,
    number: AtomicU32,
    /// There is a hook `preempt`.
    pub(super) preempts: AtomicBool,
    /// See `rely_on_offers`.
    pub(super) relies_on_offers: AtomicBool,
    /// 0: no hooks yet; 1: being set; 2: set.
    initialised: AtomicU32,
    /// All worker numbers are below this.
    worker_limit: AtomicU32,
    hooks: UnsafeCell<Option<Hooks>>,
    /// Where the workers are, and their records. Written once, the record first.
    workers: [AtomicPtr<Worker>; MAX_WORKERS as usize],
    states: [AtomicPtr<WorkerState>; MAX_WORKERS as usize],
    pub(super) slab: Slab,
}

#[allow(unsafe_code)]
// SAFETY: the only field that is not an atomic is `hooks`: written once, by the caller that won
// `initialised`, and read only after `initialised` says so. What the hooks point to is shared by
// contract of `Hooks`.
unsafe impl Sync for Executor {}
#[allow(unsafe_code)]
// SAFETY: no field belongs to a thread; what the hooks point to may be used by any thread, by
// contract of `Hooks`.
unsafe impl Send for Executor {}

const HOOKS_SET: u32 = 2;

/// A stop is requested.
pub(super) const ATTENTION_STOP: u32 = 1;
/// There is a hook `external` to call.
pub(super) const ATTENTION_EXTERNAL: u32 = 2;
/// There are several workers.
pub(super) const ATTENTION_OTHER_WORKERS: u32 = 4;

impl Executor {
    /// An executor that has no hooks and no workers yet.
    ///
    /// ```
    /// # use cops_executor::core::Executor;
    /// static CORE: Executor = Executor::new();
    /// assert_eq!(CORE.live_count(), 0);
    /// ```
    pub const fn new() -> Executor {
        Executor {
            parked: AtomicU64::new(0),
            attention: AtomicU32::new(0),
            aging_period: AtomicU32::new(0),
            notified: AtomicU64::new(0),
            quiet: AtomicU64::new(0),
            line: [0; 8],
            live: AtomicU64::new(0),
            preempts: AtomicBool::new(false),
            relies_on_offers: AtomicBool::new(false),
            number: AtomicU32::new(0),
            initialised: AtomicU32::new(0),
            worker_limit: AtomicU32::new(0),
            hooks: UnsafeCell::new(None),
            workers: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_WORKERS as usize],
            states: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_WORKERS as usize],
            slab: Slab::new(),
        }
    }

    /// Sets the number that its ids carry, 0 to 255, and its hooks, once. `STATUS_OK`,
    /// `STATUS_ALREADY_DONE` or `STATUS_OUT_OF_RANGE`. Not in interrupt handlers.
    ///
    /// # Safety
    ///
    /// The hooks do what [`Hooks`] says.
    ///
    /// ```
    /// use cops_executor::{Executor, core::STATUS_ALREADY_DONE};
    /// # static EXECUTOR: Executor = Executor::new();
    /// EXECUTOR.start_on_host(1)?; // calls it
    /// # unsafe extern "C" fn grow(_: *mut (), _: usize) -> *mut u8 { std::ptr::null_mut() }
    /// # unsafe extern "C" fn release(_: *mut (), _: *mut u8, _: usize) {} unsafe extern "C" fn notify(_: *mut (), _: u32) {}
    /// # let hooks = cops_executor::Hooks { context: std::ptr::null_mut(), grow, release, notify, preempt: None, external: None, relax: None };
    /// // SAFETY: these hooks hand out nothing, which they may.
    /// assert_eq!(unsafe { EXECUTOR.core().initialise(1, &hooks) }, STATUS_ALREADY_DONE);
    /// # Ok::<(), cops_executor::StartError>(())
    /// ```
    #[allow(unsafe_code)]
    pub unsafe fn initialise(&self, number: u32, hooks: &Hooks) -> u32 {
        if number > u8::MAX as u32 {
            return STATUS_OUT_OF_RANGE;
        }
        if self.initialised.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return STATUS_ALREADY_DONE;
        }
        // SAFETY: only this call changed 0 to 1, and no reader continues before it is 2.
        unsafe { *self.hooks.get() = Some(*hooks) };
        self.number.store(number, Ordering::Relaxed);
        self.preempts.store(hooks.preempt.is_some(), Ordering::Relaxed);
        if hooks.external.is_some() {
            self.attention.fetch_or(ATTENTION_EXTERNAL, Ordering::Relaxed);
        }
        self.initialised.store(HOOKS_SET, Ordering::Release);
        STATUS_OK
    }

    #[allow(unsafe_code)]
    #[inline]
    pub(super) fn hooks(&self) -> Option<&Hooks> {
        if self.initialised.load(Ordering::Acquire) != HOOKS_SET {
            return None;
        }
        // SAFETY: set, so it is never written again.
        unsafe { (*self.hooks.get()).as_ref() }
    }

    /// Registers worker `number` (below 64, each once, in any order) and the record it shall
    /// publish in. `STATUS_OK`, `STATUS_NOT_INITIALISED`, `STATUS_OUT_OF_RANGE` (also for null),
    /// `STATUS_ALREADY_DONE` or `STATUS_NO_MEMORY`. At any time, also while others run; not in
    /// interrupt handlers.
    ///
    /// # Safety
    ///
    /// `state` points to a `WorkerState` that stays valid, and is used as atomics only, as long as
    /// the executor lives.
    ///
    /// ```
    /// use cops_executor::WorkerState;
    /// use cops_executor::core::{Executor, STATUS_NOT_INITIALISED};
    /// static CORE: Executor = Executor::new();
    /// static WORKER: WorkerState = WorkerState::new();
    /// // SAFETY: the record is a static.
    /// assert_eq!(unsafe { CORE.add_worker(0, &WORKER) }, STATUS_NOT_INITIALISED);
    /// ```
    #[allow(unsafe_code)]
    pub unsafe fn add_worker(&self, number: u32, state: *const WorkerState) -> u32 {
        let Some(hooks) = self.hooks() else { return STATUS_NOT_INITIALISED };
        let place = self.workers.get(number as usize).zip(self.states.get(number as usize));
        let Some((worker, record)) = place else { return STATUS_OUT_OF_RANGE };
        if state.is_null() {
            return STATUS_OUT_OF_RANGE;
        }
        // SAFETY: `grow` may be called from anywhere that `add_worker` is (contract of `Hooks`).
        let memory = unsafe { (hooks.grow)(hooks.context, size_of::<Worker>()) }.cast::<Worker>();
        if memory.is_null() {
            return STATUS_NO_MEMORY;
        }
        let (none, state) = (ptr::null_mut(), state.cast_mut());
        if record.compare_exchange(none, state, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            // SAFETY: the memory came from `grow` with this size, and no reference to it was
            // published.
            unsafe { (hooks.release)(hooks.context, memory.cast(), size_of::<Worker>()) };
            return STATUS_ALREADY_DONE;
        }
        // SAFETY: zeroed memory of the right size and alignment, for ever; and the caller's
        // promise. The hooks are this executor's, which stays where it is.
        unsafe { (*memory).initialise(number, state, hooks) };
        // The limit goes up last: a reader that sees the new limit finds the worker.
        worker.store(memory, Ordering::Release);
        if self.worker_limit.fetch_max(number.wrapping_add(1), Ordering::Release) != 0 {
            self.attention.fetch_or(ATTENTION_OTHER_WORKERS, Ordering::SeqCst);
            self.close_all_fast_paths();
        }
        STATUS_OK
    }

    /// The number that all ids of this executor carry.
    pub(super) fn number(&self) -> u32 {
        self.number.load(Ordering::Relaxed)
    }

    /// All worker numbers are below this.
    pub(super) fn worker_limit(&self) -> u32 {
        self.worker_limit.load(Ordering::Acquire)
    }

    /// As [`Self::worker_limit`], for a caller that does not rely on finding the last one.
    #[inline(always)]
    pub(super) fn worker_limit_relaxed(&self) -> u32 {
        self.worker_limit.load(Ordering::Relaxed)
    }

    #[allow(unsafe_code)]
    #[inline(always)]
    pub(crate) fn worker(&self, number: u32) -> Option<&Worker> {
        // SAFETY: null, or set by `add_worker` to a worker that it has initialised.
        unsafe { load_published(self.workers.get(number as usize)?).as_ref() }
    }

    /// The record of worker `number`: for looking at a worker without touching its memory.
    #[allow(unsafe_code)]
    #[inline(always)]
    pub(super) fn record(&self, number: u32) -> Option<&WorkerState> {
        let record = load_published(self.states.get(number as usize)?);
        // SAFETY: null, or what the caller of `add_worker` vouched for.
        unsafe { record.as_ref() }
    }

    /// The records of all workers, with their numbers.
    #[inline(always)]
    pub(super) fn records(&self) -> impl Iterator<Item = (u32, &WorkerState)> {
        (0..self.worker_limit()).filter_map(|number| Some((number, self.record(number)?)))
    }

    /// Gives one of every `period` polls of a worker to a level less urgent than the most urgent
    /// ready one, alternating between those with a coroutine that waits for that worker. 0 (the
    /// initial value): never, priorities are strict.
    ///
    /// In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::core::Executor;
    /// # static CORE: Executor = Executor::new();
    /// CORE.set_aging(20); // One poll in twenty.
    /// ```
    pub fn set_aging(&self, period: u32) {
        self.aging_period.store(period, Ordering::Relaxed);
        self.close_all_fast_paths();
    }

    fn close_all_fast_paths(&self) {
        (0..self.worker_limit())
            .filter_map(|number| self.worker(number))
            .for_each(Worker::close_fast_path);
    }

    /// Makes every `run` return at its next scheduling point, and parked workers wake up, until it
    /// is called with false. (A worker on another thread may miss it for some polls, 256 at most.)
    /// In any context in which `notify` may be called.
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// use cops_executor::core::RUN_STOP_REQUESTED;
    /// EXECUTOR.core().request_stop(true);
    /// assert_eq!(EXECUTOR.core().run(0, u64::MAX), RUN_STOP_REQUESTED);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn request_stop(&self, stop: bool) {
        if stop {
            self.attention.fetch_or(ATTENTION_STOP, Ordering::SeqCst);
            self.close_all_fast_paths();
            self.unpark_all();
        } else {
            self.attention.fetch_and(!ATTENTION_STOP, Ordering::SeqCst);
        }
    }

    /// Coroutines that have been spawned and not exited. When it becomes 0, parked workers are
    /// notified.
    ///
    /// In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::core::Executor;
    /// # static CORE: Executor = Executor::new();
    /// assert_eq!(CORE.live_count(), 0);
    /// ```
    pub fn live_count(&self) -> u64 {
        self.live.load(Ordering::SeqCst)
    }

    /// Bit w: worker w is parked or about to park, or was notified and has not come back yet.
    ///
    /// In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::Executor;
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(2)?;
    /// let core = EXECUTOR.core();
    /// assert!(core.prepare_park(1));
    /// assert_eq!(core.parked(), 0b10);
    /// core.finish_park(1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn parked(&self) -> u64 {
        self.parked.load(Ordering::SeqCst)
    }

    /// Id of the coroutine that worker `here` polls; 0 if none, or not a worker.
    ///
    /// In any context, interrupt handlers included.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let asks = EXECUTOR.spawn_join(async { EXECUTOR.core().current(0) }, Priority::DEFAULT)?;
    /// let id = asks.id();
    /// assert_eq!(EXECUTOR.block_on(asks)?, id.raw());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn current(&self, here: u32) -> u64 {
        self.worker(here).map_or(0, |worker| worker.state().current_id.load(Ordering::Relaxed))
    }
}

impl Default for Executor {
    fn default() -> Self {
        Self::new()
    }
}
