//! Requests for a coroutine that any thread may make, in any context: spawn, wake, cancel, change
//! its priority.
//!
//! `wake`, `cancel`, `set_priority` and `set_inherited` are a transition of the coroutine's state,
//! at most one push into an inbox or one move between lists, and an announcement: no wait, no
//! allocation. So interrupt handlers may call them. What can be linked at once, because the lock of
//! the worker happens to be free, is; otherwise no caller waits for the lock.

use super::atomic::{Ordering, spin_loop};

use super::executor::Executor;
use super::id::CoroutineId;
use super::interface::{STATUS_NO_MEMORY, STATUS_NOT_INITIALISED};
use super::locked::{Locked, Requeued};
use super::priority::Priority;
use super::slot::{FutureVTable, Slot};
use super::snapshot::Snapshot;
use super::state::Request;
use super::worker::{TRIES_FOR_LOCK, Worker};

/// How often a spawn looks for a free slot while a lock keeps it from seeing all of them.
const LOOKS_FOR_FREE_SLOT: u32 = if cfg!(loom) { 2 } else { 200 };

/// What came of looking for a free slot.
enum Free<'a> {
    /// Only the caller uses this slot from now on.
    Slot(&'a Slot),
    /// A worker's lock is held, and that worker may have one.
    Contended,
    None,
}

impl Executor {
    /// The slot that an arbitrary id refers to, and the generation to check there.
    fn find(&self, id: u64) -> Option<(&Slot, u32)> {
        let id = CoroutineId::from_raw(id)?;
        Some((self.slab.get(id.index())?, id.generation()))
    }

    /// Makes a READY coroutine of a future. Returns its id, or a status below 2^32 (which no id
    /// is): no memory, no worker yet, or not initialised. `here` is the calling worker or
    /// [`NO_WORKER`](super::NO_WORKER).
    ///
    /// Lock-free; calls `Hooks::grow` when it needs a slot and none is free; may be called wherever
    /// that may. Priorities above 63 count as 63.
    ///
    /// # Safety
    ///
    /// `data` and `vtable` are fit for any worker to poll and drop by the rules of
    /// [`FutureVTable`]. On a status they are still the caller's.
    ///
    /// ```
    /// # use cops_executor::{Executor, core::{FutureVTable, NO_WORKER}};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// # static FUTURE: FutureVTable = FutureVTable { poll, drop: drop_future };
    /// # unsafe extern "C" fn poll(_: *mut (), _: u64) -> bool { true } unsafe extern "C" fn drop_future(_: *mut ()) {}
    /// // SAFETY: a table of functions that do nothing.
    /// let id = unsafe { EXECUTOR.core().spawn(std::ptr::null_mut(), &FUTURE, 32, NO_WORKER) };
    /// EXECUTOR.run_until_stalled(0);
    /// assert_eq!(EXECUTOR.live_count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(unsafe_code)]
    pub unsafe fn spawn(
        &self,
        data: *mut (),
        vtable: *const FutureVTable,
        priority: u32,
        here: u32,
    ) -> u64 {
        if let Some(worker) = self.worker(here)
            && let Some(locked) = worker.lock_to_link()
            && let Some(slot) = locked.take_free(&self.slab)
        {
            return self.spawn_linked(locked, worker, slot, data, vtable, priority, here);
        }
        self.spawn_slowly(data, vtable, priority, here)
    }

    /// The end of a spawn on the caller's own worker, with its lock held.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn spawn_linked(
        &self,
        locked: Locked<'_>,
        worker: &Worker,
        slot: &Slot,
        data: *mut (),
        vtable: *const FutureVTable,
        priority: u32,
        here: u32,
    ) -> u64 {
        let priority = Priority::saturating(priority);
        slot.set_future(data, vtable);
        self.live.fetch_add(1, Ordering::Relaxed);
        let id = slot.state.occupy_listed(priority, here) | slot.handle() as u64;
        self.link(locked, worker, slot, priority, here, id)
    }

    /// A spawn that needs another slot than one of its own worker's free ones, or goes through an
    /// inbox.
    #[inline(never)]
    fn spawn_slowly(
        &self,
        data: *mut (),
        vtable: *const FutureVTable,
        priority: u32,
        here: u32,
    ) -> u64 {
        let (slot, worker) = match self.find_slot(here) {
            Ok(found) => found,
            Err(status) => return status as u64,
        };
        if worker.number() == here
            && let Some(locked) = worker.lock_to_link()
        {
            return self.spawn_linked(locked, worker, slot, data, vtable, priority, here);
        }
        slot.set_future(data, vtable);
        self.live.fetch_add(1, Ordering::Relaxed);
        self.spawn_posted(slot, worker, Priority::saturating(priority), here)
    }

    /// A free slot, and the worker that its coroutine goes to; or a status.
    fn find_slot(&self, here: u32) -> Result<(&Slot, &Worker), u32> {
        // There are no workers without hooks.
        let (Some(worker), Some(hooks)) = (self.worker_near(here), self.hooks()) else {
            return Err(STATUS_NOT_INITIALISED);
        };
        let slot =
            self.used_slot(worker).or_else(|| self.slab.allocate(self.number() as u8, hooks));
        // Without memory: a coroutine may still have exited in the meantime.
        let slot = slot.or_else(|| self.used_slot(worker));
        Ok((slot.ok_or(STATUS_NO_MEMORY)?, worker))
    }

    /// A slot that was used before, if one is free.
    ///
    /// A lock that is held for a moment is no reason to take a new slot, which is never freed: so
    /// it searches again, as long as there are more slots than coroutines. Not for ever, since this
    /// may be an interrupt handler that has interrupted the holder.
    fn used_slot(&self, worker: &Worker) -> Option<&Slot> {
        for _ in 0..LOOKS_FOR_FREE_SLOT {
            if self.live.load(Ordering::Relaxed) >= self.slab.handed_out() as u64 {
                return None;
            }
            match self.free_slot(worker) {
                Free::Slot(slot) => return Some(slot),
                Free::None => return None,
                Free::Contended => spin_loop(),
            }
        }
        None
    }

    /// A free slot of this worker, else of any other. Then this worker takes all that the other
    /// has, so that slots come back from where coroutines exit to where they are spawned.
    fn free_slot(&self, worker: &Worker) -> Free<'_> {
        let Some(own) = worker.try_lock() else { return Free::Contended };
        if let Some(slot) = own.take_free(&self.slab) {
            return Free::Slot(slot);
        }
        let mut outcome = Free::None;
        for number in (0..self.worker_limit()).filter(|&number| number != worker.number()) {
            let Some(other) = self.worker(number) else { continue };
            let Some(other) = other.try_lock() else {
                outcome = Free::Contended;
                continue;
            };
            own.take_all_free(&other);
            if let Some(slot) = own.take_free(&self.slab) {
                return Free::Slot(slot);
            }
        }
        outcome
    }

    /// The end of a spawn that goes through the inbox of `worker`. Returns the id.
    #[inline(never)]
    fn spawn_posted(&self, slot: &Slot, worker: &Worker, priority: Priority, here: u32) -> u64 {
        let id = slot.state.occupy(priority, worker.number()) | slot.handle() as u64;
        self.post(slot, worker, priority, here);
        id
    }

    /// As [`spawn`](Self::spawn), but the coroutine begins blocked: it is not polled before it is
    /// woken. For a caller that has just seen that the future would be pending and registers the id
    /// where it waits.
    ///
    /// # Safety
    ///
    /// As `spawn`.
    ///
    /// ```
    /// # use cops_executor::{Executor, core::{FutureVTable, NO_WORKER}};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// # static FUTURE: FutureVTable = FutureVTable { poll, drop: drop_future };
    /// # unsafe extern "C" fn poll(_: *mut (), _: u64) -> bool { true } unsafe extern "C" fn drop_future(_: *mut ()) {}
    /// // SAFETY: a table of functions that do nothing.
    /// let id = unsafe { EXECUTOR.core().spawn_blocked(std::ptr::null_mut(), &FUTURE, 32, NO_WORKER) };
    /// assert!(EXECUTOR.core().wake(id, NO_WORKER));
    /// EXECUTOR.run_until_stalled(0);
    /// assert_eq!(EXECUTOR.live_count(), 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(unsafe_code)]
    pub unsafe fn spawn_blocked(
        &self,
        data: *mut (),
        vtable: *const FutureVTable,
        priority: u32,
        here: u32,
    ) -> u64 {
        let (slot, worker) = match self.find_slot(here) {
            Ok(found) => found,
            Err(status) => return status as u64,
        };
        slot.set_future(data, vtable);
        self.live.fetch_add(1, Ordering::Relaxed);
        slot.state.occupy_blocked(Priority::saturating(priority), worker.number())
            | slot.handle() as u64
    }

    /// Where to put a new coroutine: on the calling worker, else on a parked one, else on the
    /// first.
    #[inline(always)]
    fn worker_near(&self, here: u32) -> Option<&Worker> {
        self.worker(here).or_else(|| self.worker_outside())
    }

    #[cold]
    fn worker_outside(&self) -> Option<&Worker> {
        // Rather one that is not on its way to other work already.
        let parked = self.parked.load(Ordering::Relaxed);
        let idle = parked & !self.notified.load(Ordering::Relaxed);
        self.worker(idle.trailing_zeros())
            .or_else(|| self.worker(parked.trailing_zeros()))
            .or_else(|| (0..self.worker_limit()).find_map(|number| self.worker(number)))
    }

    /// Makes a blocked coroutine READY; one that runs will run again; a READY one stays where it
    /// is. False if the coroutine has exited. In any context, interrupt handlers included, as the
    /// other requests here.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, core::NO_WORKER};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let (core, id) = (EXECUTOR.core(), EXECUTOR.spawn(std::future::pending(), Priority::DEFAULT)?.raw());
    /// core.run(0, u64::MAX);
    /// assert!(core.wake(id, NO_WORKER));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn wake(&self, id: u64, here: u32) -> bool {
        if let Some((slot, generation)) = self.find(id)
            && let seen = slot.state.peek()
            && seen.is_blocked(generation)
            && let Some(worker) = self.worker(here)
            && let Some(locked) = worker.lock_to_link()
            && let Some(priority) = slot.state.wake_listed(seen, here)
        {
            return self.link(locked, worker, slot, priority, here, true);
        }
        self.wake_posted(id, here)
    }

    /// A wake that finds the coroutine ready or gone, or the worker's lock taken. It looks the
    /// coroutine up again, so that the short way has less to remember.
    #[inline(never)]
    fn wake_posted(&self, id: u64, here: u32) -> bool {
        let Some((slot, generation)) = self.find(id) else { return false };
        let request = slot.state.wake(generation, self.near(here));
        self.fulfil(slot, generation, request, here)
    }

    /// The short way of making something ready on one's own worker: into its list, with the lock
    /// held, rather than through its inbox. Returns `result`, as `tell` does.
    #[inline(always)]
    fn link<R>(
        &self,
        locked: Locked<'_>,
        worker: &Worker,
        slot: &Slot,
        priority: Priority,
        here: u32,
        result: R,
    ) -> R {
        let busy = locked.enqueue(slot, priority);
        drop(locked);
        self.tell(worker, priority, here, busy, result)
    }

    /// Has a worker drop the future: at once if it runs (after its poll), else when the coroutine's
    /// turn comes. False if it has exited.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, core::NO_WORKER};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let (core, id) = (EXECUTOR.core(), EXECUTOR.spawn(std::future::pending(), Priority::DEFAULT)?.raw());
    /// assert!(core.cancel(id, NO_WORKER));
    /// core.run(0, u64::MAX);
    /// assert!(!core.cancel(id, NO_WORKER), "it is gone");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self, id: u64, here: u32) -> bool {
        let Some((slot, generation)) = self.find(id) else { return false };
        let request = slot.state.cancel(generation, self.near(here));
        self.fulfil(slot, generation, request, here)
    }

    /// Changes the coroutine's own priority. One that waits moves to the tail of its new level,
    /// unless it has inherited a more urgent one. False if it has exited.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, core::NO_WORKER};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let (core, id) = (EXECUTOR.core(), EXECUTOR.spawn(std::future::pending(), Priority::DEFAULT)?.raw());
    /// core.set_priority(id, 3, NO_WORKER);
    /// assert_eq!(core.priority(id), 3);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_priority(&self, id: u64, priority: u32, here: u32) -> bool {
        let Some((slot, generation)) = self.find(id) else { return false };
        let request = slot.state.set_base(generation, Priority::saturating(priority));
        self.changed(slot, generation, request, here)
    }

    /// Lends the coroutine a priority: it runs at the more urgent of this and its own. The least
    /// urgent takes back what was lent. False if it has exited.
    ///
    /// ```
    /// # use cops_executor::{Executor, Priority, core::NO_WORKER};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// let (core, id) = (EXECUTOR.core(), EXECUTOR.spawn(std::future::pending(), Priority::DEFAULT)?.raw());
    /// core.set_inherited(id, 3, NO_WORKER);
    /// assert_eq!((core.priority(id), core.base_priority(id)), (3, 32));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_inherited(&self, id: u64, priority: u32, here: u32) -> bool {
        let Some((slot, generation)) = self.find(id) else { return false };
        let request = slot.state.set_inherited(generation, Priority::saturating(priority));
        self.changed(slot, generation, request, here)
    }

    fn changed(&self, slot: &Slot, generation: u32, request: Request, here: u32) -> bool {
        // Its own worker publishes the new priority at once: others use it to decide which worker
        // to interrupt.
        if request != Request::Gone
            && let Some(worker) = self.worker(here)
            && worker.state().current_id.load(Ordering::Relaxed)
                == (generation as u64) << 32 | slot.handle() as u64
        {
            let level = slot.state.peek().priority().level() as u32;
            worker.state().current_priority.store(level, Ordering::Relaxed);
        }
        self.fulfil(slot, generation, request, here)
    }

    /// What a coroutine runs at: its own priority or a more urgent one that it has inherited. 64 if
    /// it has exited.
    ///
    /// ```
    /// # use cops_executor::core::Executor;
    /// # static CORE: Executor = Executor::new();
    /// assert_eq!(CORE.priority(0), 64, "0 refers to no coroutine");
    /// ```
    pub fn priority(&self, id: u64) -> u32 {
        self.named(id).map_or(Priority::COUNT, |word| word.priority().level() as u32)
    }

    /// A coroutine's own priority, 64 if it has exited.
    ///
    /// ```
    /// # use cops_executor::core::Executor;
    /// # static CORE: Executor = Executor::new();
    /// assert_eq!(CORE.base_priority(0), 64, "0 refers to no coroutine");
    /// ```
    pub fn base_priority(&self, id: u64) -> u32 {
        self.named(id).map_or(Priority::COUNT, |word| word.base().level() as u32)
    }

    fn named(&self, id: u64) -> Option<Snapshot> {
        let (slot, generation) = self.find(id)?;
        let word = slot.state.load();
        word.names(generation).then_some(word)
    }

    fn near(&self, here: u32) -> Option<u32> {
        if here < self.worker_limit() { Some(here) } else { None }
    }

    #[inline]
    fn fulfil(&self, slot: &Slot, generation: u32, request: Request, here: u32) -> bool {
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
            Request::Note { worker } => {
                if let Some(worker) = self.worker(worker) {
                    worker.close_fast_path();
                }
            }
            Request::Move => self.requeue(slot, generation, here),
        }
        true
    }

    /// Moves a coroutine that is in a list, but not in that of its priority, or leaves that to the
    /// worker that has it in its list.
    fn requeue(&self, slot: &Slot, generation: u32, here: u32) {
        let mut tries = TRIES_FOR_LOCK;
        loop {
            let word = slot.state.load();
            if !word.names(generation) || !word.is_misplaced() {
                return;
            }
            let Some(worker) = self.worker(word.worker()) else { return };
            if let Some(locked) = worker.try_lock() {
                match locked.requeue(&self.slab, slot, generation) {
                    Requeued::Elsewhere => continue,
                    Requeued::Done => return,
                    Requeued::Moved { priority, busy } => {
                        drop(locked);
                        return self.tell(worker, priority, here, busy, ());
                    }
                }
            }
            if tries != 0 {
                tries = tries.wrapping_sub(1);
                spin_loop();
                continue;
            }
            worker.note_misplaced(word.listed_at(), word.priority());
            // If a thief has moved it before this mark was set, no worker would search for it.
            if slot.state.load().worker() == word.worker() {
                return self.tell(worker, word.priority(), here, true, ());
            }
        }
    }

    /// Pushes a slot after the caller has made its place Inbox.
    #[inline]
    fn post(&self, slot: &Slot, target: &Worker, priority: Priority, here: u32) {
        let was_empty = target.inbox.push(slot);
        let busy = !was_empty || target.state().ready.load(Ordering::Relaxed) != 0;
        self.announce(target, priority, here, busy);
    }
}
