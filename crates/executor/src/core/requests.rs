//! Requests for a coroutine that any thread may make, in any context: wake, cancel, change its
//! priority.
//!
//! `wake`, `cancel`, `set_priority` and `set_inherited` are a transition of the coroutine's state,
//! at most one push into an inbox or one move between lists, and an announcement: no wait, no
//! allocation. So interrupt handlers may call them. What can be linked at once, because the lock of
//! the worker happens to be free, is; otherwise no caller waits for the lock.

use super::atomic::{Ordering, spin_loop};

use super::executor::Executor;
use super::id::CoroutineId;
use super::locked::{Locked, Requeued};
use super::priority::Priority;
use super::slot::Slot;
use super::snapshot::{Place, Snapshot};
use super::state::Request;
use super::worker::{TRIES_FOR_LOCK, Worker};

impl Executor {
    /// The slot that an arbitrary id refers to, and the generation to check there.
    fn find(&self, id: u64) -> Option<(&Slot, u32)> {
        let id = CoroutineId::from_raw(id)?;
        Some((self.slab.get(id.index())?, id.generation()))
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
    pub(super) fn link<R>(
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
        // Its own worker publishes the new priority at once, also if the lock is taken. Others do
        // that under the lock (`Locked::requeue`).
        if request != Request::Gone
            && let Some(worker) = self.worker(here)
            && worker.state().current_id.load(Ordering::Relaxed)
                == (generation as u64) << 32 | slot.handle() as u64
        {
            worker.publish_polled(slot);
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
    /// worker that has it in its list. If it is being polled, publishes its priority instead.
    fn requeue(&self, slot: &Slot, generation: u32, here: u32) {
        let mut tries = TRIES_FOR_LOCK;
        loop {
            let word = slot.state.load();
            if !word.names(generation) || word.place() != Place::List {
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
            if !word.is_misplaced() {
                // It is where it belongs again. Its worker at most publishes too much, until the
                // end of the poll.
                return;
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
    pub(super) fn post(&self, slot: &Slot, target: &Worker, priority: Priority, here: u32) {
        let was_empty = target.inbox.push(slot);
        let busy = !was_empty || target.state().ready.load(Ordering::Relaxed) != 0;
        self.announce(target, priority, here, busy);
    }
}
