//! Spawning: a free slot for the coroutine, and the worker that it begins on.
//!
//! A slot that was used before is taken from the caller's worker, else from another one; a new slot
//! only if none is free. On the caller's own worker the coroutine goes into its list at once, else
//! through an inbox.

use super::atomic::{Ordering, spin_loop};

use super::executor::Executor;
use super::interface::{STATUS_NO_MEMORY, STATUS_NOT_INITIALISED};
use super::locked::Locked;
use super::priority::Priority;
use super::slot::{FutureVTable, Slot};
use super::worker::Worker;

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
    /// [`FutureVTable`]. The table is never freed or changed. On a status `data` is still the
    /// caller's.
    ///
    /// ```
    /// # use cops_executor::{Executor, core::{FutureVTable, NO_WORKER}};
    /// # static EXECUTOR: Executor = Executor::new();
    /// # EXECUTOR.start_on_host(1)?;
    /// # static FUTURE: FutureVTable = FutureVTable { poll, drop: drop_future, kind: 0 };
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
    /// # static FUTURE: FutureVTable = FutureVTable { poll, drop: drop_future, kind: 0 };
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
}
