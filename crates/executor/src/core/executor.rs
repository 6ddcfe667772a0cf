//! The executor: its memory, setting it up, and what anybody may ask of it in any context.
//!
//! `wake`, `cancel` and `set_priority` are a transition of the coroutine's state, at most one push into an
//! inbox, and an announcement: no wait, no allocation. So interrupt handlers may call them. A wake on
//! the caller's own worker saves the way through the inbox if the worker's lock happens to be free; it never
//! waits for it.

use super::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use ::core::cell::UnsafeCell;
use ::core::ptr;

use super::hooks::Hooks;
use super::id::CoroutineId;
use super::interface::{
    STATUS_ALREADY_DONE, STATUS_NO_MEMORY, STATUS_NOT_INITIALISED, STATUS_OK, STATUS_OUT_OF_RANGE,
};
use super::priority::Priority;
use super::slab::Slab;
use super::slot::{FutureVTable, Slot};
use super::state::{Phase, Request};
use super::worker::{Locked, MAX_WORKERS, Worker, WorkerState};

/// All of an executor except what its hooks hand out. The caller places it, usually in a static, and it
/// must stay there for ever: ids and wakers are never counted.
#[repr(C, align(64))]
pub struct Executor {
    /// Bit w: worker w has parked or is about to. On a line of its own: every wake reads it.
    pub(super) parked: AtomicU64,
    /// What scheduling points must see to beside their own worker's lists: the bits `ATTENTION_*`. Seldom written.
    pub(super) attention: AtomicU32,
    line: [u32; 13],
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

/// A coroutine as `ps` sees it.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Inspection {
    /// Bits of the id.
    pub id: u64,
    /// See [`Phase`].
    pub phase: u32,
    /// 0 to 63.
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
            line: [0; 13],
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
            self.attention.fetch_or(ATTENTION_FELLOWS, Ordering::Release);
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

    /// The slot that an id of anybody's making points at, and the generation to check there.
    fn find(&self, id: u64) -> Option<(&Slot, u32)> {
        let id = CoroutineId::from_raw(id)?;
        Some((self.slab.get(id.index())?, id.generation()))
    }

    /// Makes a READY coroutine of a future. Returns its id, or a status below 2^32 (which no id is):
    /// no memory, no worker yet, or not initialised. `here` is the calling worker or
    /// [`NO_WORKER`](super::NO_WORKER).
    ///
    /// Lock-free; calls `Hooks::grow` when it needs a slot and none is free.
    ///
    /// # Safety
    ///
    /// `data` and `vtable` are fit for any worker to poll and drop by the rules of [`FutureVTable`]. On a
    /// status they are still the caller's.
    #[allow(unsafe_code)]
    pub unsafe fn spawn(&self, data: *mut (), vtable: *const FutureVTable, priority: u32, here: u32) -> u64 {
        // There are no workers without hooks.
        let Some(worker) = self.worker_near(here) else { return STATUS_NOT_INITIALISED as u64 };
        let Some(slot) = self.slab.take_free().or_else(|| self.fresh_slot()) else {
            return STATUS_NO_MEMORY as u64;
        };
        let priority = Priority::saturating(priority);
        slot.set_future(data, vtable);
        self.live.fetch_add(1, Ordering::Relaxed);
        if worker.number() == here
            && let Some(locked) = worker.lock_to_link()
        {
            let id = slot.state.occupy_linked(priority, here) | slot.handle() as u64;
            self.link(locked, worker, slot, priority);
            return id;
        }
        self.spawn_posted(slot, worker, priority, here)
    }

    #[cold]
    fn fresh_slot(&self) -> Option<&Slot> {
        self.slab.allocate(self.number() as u8, self.hooks()?)
    }

    /// The end of a spawn that goes through the inbox of `worker`. Returns the id.
    #[inline(never)]
    fn spawn_posted(&self, slot: &Slot, worker: &Worker, priority: Priority, here: u32) -> u64 {
        let generation = slot.state.occupy(priority, worker.number());
        let id = (generation as u64) << 32 | slot.handle() as u64;
        self.post(slot, worker, priority, here);
        id
    }

    /// As [`spawn`](Self::spawn), but the coroutine begins blocked: it is not polled before it is woken. For a
    /// caller that has just seen that the future would be pending and registers the id where it waits.
    ///
    /// # Safety
    ///
    /// As `spawn`.
    #[allow(unsafe_code)]
    pub unsafe fn spawn_blocked(
        &self,
        data: *mut (),
        vtable: *const FutureVTable,
        priority: u32,
        here: u32,
    ) -> u64 {
        let Some(worker) = self.worker_near(here) else { return STATUS_NOT_INITIALISED as u64 };
        let Some(slot) = self.slab.take_free().or_else(|| self.fresh_slot()) else {
            return STATUS_NO_MEMORY as u64;
        };
        slot.set_future(data, vtable);
        self.live.fetch_add(1, Ordering::Relaxed);
        let generation = slot.state.occupy_blocked(Priority::saturating(priority), worker.number());
        (generation as u64) << 32 | slot.handle() as u64
    }

    /// Where to put a new coroutine: on the calling worker, else on a parked one, else on the first.
    #[inline(always)]
    fn worker_near(&self, here: u32) -> Option<&Worker> {
        self.worker(here).or_else(|| self.worker_outside())
    }

    #[cold]
    fn worker_outside(&self) -> Option<&Worker> {
        let parked = self.parked.load(Ordering::Relaxed);
        self.worker(parked.trailing_zeros())
            .or_else(|| (0..self.worker_limit()).find_map(|number| self.worker(number)))
    }

    /// Makes a blocked coroutine READY; one that runs will run again; a READY one stays where it is. False
    /// if the coroutine has exited.
    #[inline]
    pub fn wake(&self, id: u64, here: u32) -> bool {
        let Some((slot, generation)) = self.find(id) else { return false };
        if let Some(worker) = self.worker(here)
            && slot.state.load().is_plainly_idle(generation)
            && let Some(locked) = worker.lock_to_link()
            && let Some(priority) = slot.state.wake_linked(generation, here)
        {
            self.link(locked, worker, slot, priority);
            return true;
        }
        let request = slot.state.wake(generation, self.near(here));
        self.fulfil(slot, request, here)
    }

    /// The short way of making something ready on one's own worker: into its list, whose lock is held, rather
    /// than through its inbox.
    #[inline(always)]
    fn link(&self, locked: Locked<'_>, worker: &Worker, slot: &Slot, priority: Priority) {
        let busy = locked.bitmap() != 0;
        locked.push(slot, priority);
        drop(locked);
        self.tell(worker, priority, worker.number(), busy);
    }

    /// Has a worker drop the future: at once if it runs (after its poll), else when the coroutine's turn
    /// comes. False if it has exited.
    pub fn cancel(&self, id: u64, here: u32) -> bool {
        let Some((slot, generation)) = self.find(id) else { return false };
        let request = slot.state.cancel(generation, self.near(here));
        self.fulfil(slot, request, here)
    }

    /// Changes the priority; a coroutine that waits moves to the tail of its new level. False if it has
    /// exited.
    pub fn set_priority(&self, id: u64, priority: u32, here: u32) -> bool {
        let Some((slot, generation)) = self.find(id) else { return false };
        let priority = Priority::saturating(priority);
        let request = slot.state.set_priority(generation, priority);
        // Its own worker shows the new urgency at once: others decide by it whom to interrupt.
        if let Some(worker) = self.worker(here)
            && worker.state().current_id.load(Ordering::Relaxed) == id
        {
            worker.state().current_priority.store(priority.level() as u32, Ordering::Relaxed);
        }
        self.fulfil(slot, request, here)
    }

    /// The priority of a coroutine, 64 if it has exited.
    pub fn priority(&self, id: u64) -> u32 {
        self.find(id)
            .map(|(slot, generation)| (slot.state.load(), generation))
            .filter(|(word, generation)| word.generation() == *generation && word.phase() != Phase::Free)
            .map_or(Priority::COUNT, |(word, _)| word.priority().level() as u32)
    }

    fn near(&self, here: u32) -> Option<u32> {
        if here < self.worker_limit() { Some(here) } else { None }
    }

    #[inline]
    fn fulfil(&self, slot: &Slot, request: Request, here: u32) -> bool {
        match request {
            Request::Gone => return false,
            Request::Done => {}
            Request::Post { worker, priority } => {
                if let Some(worker) = self.worker(worker) {
                    self.post(slot, worker, priority, here);
                }
            }
            Request::Announce { worker, priority } => {
                if let Some(worker) = self.worker(worker) {
                    self.announce(worker, priority, here, true);
                }
            }
        }
        true
    }

    /// Pushes a slot whose IN_INBOX the caller has just set.
    #[inline]
    fn post(&self, slot: &Slot, target: &Worker, priority: Priority, here: u32) {
        let was_empty = target.inbox.push(slot);
        let busy = !was_empty || target.state().ready.load(Ordering::Relaxed) != 0;
        self.announce(target, priority, here, busy);
    }

    /// Makes every `run` return at its next scheduling point, and parked workers wake up, until it is called
    /// with false.
    pub fn request_stop(&self, stop: bool) {
        if stop {
            self.attention.fetch_or(ATTENTION_STOP, Ordering::SeqCst);
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
        if word.phase() == Phase::Free {
            return 1;
        }
        let id = word.id_high() | slot.handle() as u64;
        *out = Inspection {
            id,
            phase: word.phase() as u32,
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
