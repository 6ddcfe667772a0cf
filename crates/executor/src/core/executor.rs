//! The executor: its memory, setting it up, and looking at it.

use super::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use ::core::cell::UnsafeCell;
use ::core::ptr;

use super::hooks::Hooks;
use super::interface::{
    STATUS_ALREADY_DONE, STATUS_NO_MEMORY, STATUS_NOT_INITIALISED, STATUS_OK, STATUS_OUT_OF_RANGE,
};
use super::record::WorkerState;
use super::slab::Slab;
use super::snapshot::Place;
use super::worker::{MAX_WORKERS, Worker};

/// All of an executor except what its hooks hand out. The caller places it, usually in a static, and it
/// must stay there for ever: ids and wakers are never counted.
#[repr(C, align(64))]
pub struct Executor {
    /// Bit w: worker w has parked or is about to. On a line of its own: every wake reads it.
    pub(super) parked: AtomicU64,
    /// What scheduling points must see to beside their own worker's lists: the bits `ATTENTION_*`. Seldom written.
    pub(super) attention: AtomicU32,
    /// See `set_aging`; 0 if it is off.
    pub(super) aging_period: AtomicU32,
    line: [u32; 12],
    pub(super) live: AtomicU64,
    number: AtomicU32,
    /// There is a hook `preempt`.
    pub(super) preempts: AtomicBool,
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

/// What a coroutine is doing, as `ps` sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Phase {
    /// No coroutine is in this slot.
    Free = 0,
    /// Waits to be woken.
    Blocked = 1,
    /// Waits for a worker.
    Ready = 2,
    /// Is being polled or dropped.
    Running = 3,
}

/// A coroutine as `ps` sees it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Inspection {
    /// Bits of the id.
    pub id: u64,
    /// See [`Phase`].
    pub phase: u32,
    /// What it runs at, 0 to 63: its own priority, or a more urgent one that it has inherited.
    pub priority: u32,
    /// The worker that runs it or ran it last.
    pub worker: u32,
    /// 1 if it was cancelled and its future not dropped yet.
    pub cancelled: u32,
}

#[allow(unsafe_code)]
// SAFETY: the only field that is not an atomic is `hooks`: written once by whoever won `initialised`, read
// only after that said so. What the hooks point to is shared by contract of `Hooks`.
unsafe impl Sync for Executor {}
#[allow(unsafe_code)]
// SAFETY: as above; nothing in it belongs to a thread.
unsafe impl Send for Executor {}

const HOOKS_SET: u32 = 2;

/// A stop is requested.
pub(super) const ATTENTION_STOP: u32 = 1;
/// There is a hook `external` to call.
pub(super) const ATTENTION_EXTERNAL: u32 = 2;
/// There are several workers.
pub(super) const ATTENTION_FELLOWS: u32 = 4;

impl Executor {
    /// An executor that has no hooks and no workers yet.
    pub const fn new() -> Executor {
        Executor {
            parked: AtomicU64::new(0),
            attention: AtomicU32::new(0),
            aging_period: AtomicU32::new(0),
            line: [0; 12],
            live: AtomicU64::new(0),
            preempts: AtomicBool::new(false),
            number: AtomicU32::new(0),
            initialised: AtomicU32::new(0),
            worker_limit: AtomicU32::new(0),
            hooks: UnsafeCell::new(None),
            workers: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_WORKERS as usize],
            states: [const { AtomicPtr::new(ptr::null_mut()) }; MAX_WORKERS as usize],
            slab: Slab::new(),
        }
    }

    /// Sets the number that its ids carry and its hooks, once. A status of [`interface`](super).
    ///
    /// # Safety
    ///
    /// The hooks do what [`Hooks`] says.
    #[allow(unsafe_code)]
    pub unsafe fn initialise(&self, number: u32, hooks: &Hooks) -> u32 {
        if number > u8::MAX as u32 {
            return STATUS_OUT_OF_RANGE;
        }
        if self.initialised.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return STATUS_ALREADY_DONE;
        }
        // SAFETY: we alone went from 0 to 1, and nobody reads before 2.
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

    /// Registers worker `number` (below 64, each once, in any order) and the record it shall publish in.
    /// A status of [`interface`](super).
    ///
    /// # Safety
    ///
    /// `state` points to a `WorkerState` that stays valid, and is used as atomics only, as long as the
    /// executor lives.
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
            // SAFETY: the memory came from `grow` with this size, and nobody has seen it.
            unsafe { (hooks.release)(hooks.context, memory.cast(), size_of::<Worker>()) };
            return STATUS_ALREADY_DONE;
        }
        // SAFETY: zeroed memory of the right size and alignment, for ever; and the caller's promise.
        unsafe { (*memory).initialise(number, state) };
        // The limit goes up last, so whoever is below it is there.
        worker.store(memory, Ordering::Release);
        if self.worker_limit.fetch_max(number.wrapping_add(1), Ordering::Release) != 0 {
            self.attention.fetch_or(ATTENTION_FELLOWS, Ordering::SeqCst);
            self.unsettle_all();
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

    #[allow(unsafe_code)]
    #[inline(always)]
    pub(super) fn worker(&self, number: u32) -> Option<&Worker> {
        // SAFETY: null, or set by `add_worker` to a worker that it has initialised.
        unsafe { self.workers.get(number as usize)?.load(Ordering::Acquire).as_ref() }
    }

    /// The records of all workers, with their numbers: for looking round without touching the workers.
    #[allow(unsafe_code)]
    #[inline(always)]
    pub(super) fn records(&self) -> impl Iterator<Item = (u32, &WorkerState)> {
        (0..self.worker_limit()).filter_map(|number| {
            let record = self.states.get(number as usize)?.load(Ordering::Acquire);
            // SAFETY: null, or what the caller of `add_worker` vouched for.
            Some((number, unsafe { record.as_ref() }?))
        })
    }

    /// Of every `period` polls of a worker, has one go to a level that is less urgent than the most urgent ready one, in
    /// turn among those at which somebody waits for that worker. 0 (as it begins): never, priorities are strict.
    pub fn set_aging(&self, period: u32) {
        self.aging_period.store(period, Ordering::Relaxed);
        self.unsettle_all();
    }

    fn unsettle_all(&self) {
        (0..self.worker_limit()).filter_map(|number| self.worker(number)).for_each(Worker::unsettle);
    }

    /// Makes every `run` return at its next scheduling point, and parked workers wake up, until it is called
    /// with false. (A worker on another thread may miss it for some polls, 256 at most.)
    pub fn request_stop(&self, stop: bool) {
        if stop {
            self.attention.fetch_or(ATTENTION_STOP, Ordering::SeqCst);
            self.unsettle_all();
            self.unpark_all();
        } else {
            self.attention.fetch_and(!ATTENTION_STOP, Ordering::SeqCst);
        }
    }

    /// Coroutines that have been spawned and not exited. When it becomes 0, parked workers are notified.
    pub fn live_count(&self) -> u64 {
        self.live.load(Ordering::SeqCst)
    }

    /// Id of the coroutine that worker `here` polls; 0 if none, or not a worker.
    pub fn current(&self, here: u32) -> u64 {
        self.worker(here).map_or(0, |worker| worker.state().current_id.load(Ordering::Relaxed))
    }

    /// Describes the coroutine in slot `index`. 0 if there is no such slot, 1 if it is free, 2 if `out` was
    /// filled. So all coroutines are found by counting up from 1 until 0 is returned.
    pub fn inspect(&self, index: u32, out: &mut Inspection) -> u32 {
        let Some(slot) = (if index == 0 { None } else { self.slab.get(index) }) else { return 0 };
        let word = slot.state.load();
        let id = word.id_high() | slot.handle() as u64;
        let phase = match word.place() {
            Place::Nowhere => return 1,
            Place::Blocked => Phase::Blocked,
            Place::Inbox => Phase::Ready,
            Place::List if self.current(word.worker()) == id => Phase::Running,
            Place::List => Phase::Ready,
        };
        *out = Inspection {
            id,
            phase: phase as u32,
            priority: word.priority().level() as u32,
            worker: word.worker(),
            cancelled: word.is_cancelled() as u32,
        };
        2
    }
}

impl Default for Executor {
    fn default() -> Self {
        Self::new()
    }
}
