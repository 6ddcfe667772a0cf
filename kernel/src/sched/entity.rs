//! What the scheduler knows of a virtual CPU: its own record, and what it asks the owner.

use alloc::sync::Arc;

use cops_abi::Priority;
use cops_algorithms::priority::AtomicPriority;
use cops_algorithms::run_queue::{Member, Place};
use cops_algorithms::standing::Cell;
pub use cops_algorithms::standing::Standing;
use cops_fallible::OutOfMemory;
use cops_lock::Mutex;

use super::account::Account;

/// A virtual CPU, as the scheduler sees it. `process` implements it, so the scheduler names no
/// process.
pub trait Client: Member + Send + Sync + 'static {
    /// The scheduler's record of it.
    fn entity(&self) -> &Entity<Self>;

    /// The account to which its time is charged: that of its process.
    fn account(&self) -> &Account;

    /// Its standing is [`Paused`](Standing::Paused) from now on, so others can raise it. Returns
    /// the most urgent level at which they may have done so before they could see that, at most the
    /// ceiling of its process.
    fn begin_pause(&self) -> Option<Priority>;

    /// The switching coroutine that has paused it is polled, and runs it or gives it up.
    fn end_pause(&self);

    /// Whether it can be stopped for others without a look at its registers: at any time, and not
    /// only when its slice ends.
    fn yields_to_others(&self) -> bool;

    /// It is about to run on this hart, where another switching coroutine has run its virtual CPU
    /// since this one did. That one may be paused here.
    fn comes_after_others(&self);

    /// Its switching coroutine has stopped it because others are to run. If it is still runnable,
    /// puts it back into the run queue.
    fn stop_running(self: &Arc<Self>);
}

/// The scheduler's record of a virtual CPU.
pub struct Entity<C> {
    /// The level with which it was last made runnable.
    priority: AtomicPriority,
    /// Where the switching coroutine is that holds it; see [`Standing`].
    standing: Cell,
    /// Its place in the run queue; changed under that queue's lock.
    queued: Mutex<Place<C>>,
}

impl<C> Entity<C> {
    /// For a virtual CPU that is not in the run queue.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn new() -> Result<Self, OutOfMemory> {
        Ok(Self {
            priority: AtomicPriority::new(Priority::DEFAULT),
            standing: Cell::new(),
            queued: Mutex::new(Place::try_new()?),
        })
    }

    /// The level with which it was last made runnable.
    pub fn priority(&self) -> Priority {
        self.priority.load()
    }

    /// Sets the level. The caller puts it into the run queue, or runs it.
    pub fn set_priority(&self, priority: Priority) {
        self.priority.store(priority);
    }

    /// Calls `act` with its place in the run queue. For that queue.
    #[inline]
    pub fn with_place<R>(&self, act: impl FnOnce(&mut Place<C>) -> R) -> R {
        act(&mut self.queued.lock())
    }

    /// Where its switching coroutine is. Undefined while no switching coroutine holds it.
    pub fn standing(&self) -> Standing {
        self.standing.get()
    }

    /// Records where its switching coroutine is.
    pub(super) fn set_standing(&self, standing: Standing) {
        self.standing.set(standing);
    }

    /// Its switching coroutine is raised to `priority`. Returns false if that is not paused, or not
    /// less urgent.
    pub(super) fn raise_standing(&self, priority: Priority) -> bool {
        self.standing.raise(priority)
    }
}
