//! Names of threads, their priorities, parking, and wakes by wakers.
//!
//! May touch: futexes.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::task::Wake;
use core::fmt;
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use cops_abi::{Errno, Priority};

use crate::time::{Duration, Instant};
use crate::worker;
use crate::{heap, system};

/// Identifies a thread. Never reused in a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ThreadId(u64);

impl ThreadId {
    fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Relaxed))
    }
}

/// Neither parked nor unparked.
const EMPTY: u32 = 0;
/// Unparked: the next `park` returns at once.
const UNPARKED: u32 = 1;
/// Parked, or about to be.
const PARKED: u32 = 2;

/// What a handle refers to.
pub(super) struct Named {
    id: ThreadId,
    name: Option<String>,
    /// The kernel's id; 0 before it runs, and for a virtual CPU of the executor.
    pub(super) number: AtomicU32,
    level: AtomicU32,
    parking: AtomicU32,
    /// 1 if a waker of the thread was called since the last poll; for `block_on`. Apart from
    /// `parking`, which is the program's. One word for all calls of `block_on`, so none allocates.
    is_woken: AtomicU32,
}

impl Named {
    fn new(name: Option<String>, priority: Priority) -> Self {
        Self {
            id: ThreadId::next(),
            name,
            number: AtomicU32::new(0),
            level: AtomicU32::new(priority.level().into()),
            parking: AtomicU32::new(EMPTY),
            is_woken: AtomicU32::new(0),
        }
    }

    /// Called before a poll, by the thread. Returns whether there was a wake.
    pub(super) fn take_wake(&self) -> bool {
        // Partner of the swap in `wake_by_ref`: the poll sees what was done before the wake. A wake
        // from now on leaves a 1, which `wait_for_wake` finds.
        self.is_woken.swap(0, Acquire) != 0
    }

    /// Makes the thread's next [`wait_for_wake`](Self::wait_for_wake) return; called by it.
    pub(super) fn leave_wake(&self) {
        // Not a store: that would separate the next `take_wake` from a wake that came before.
        self.is_woken.swap(1, Relaxed);
    }

    /// Sleeps until there is a wake; called by the thread.
    pub(super) fn wait_for_wake(&self) {
        while self.is_woken.load(Relaxed) == 0 {
            // Returns without a reason at times; it has no time limit, so it does not fail.
            let _ = system::futex_wait(&self.is_woken, 0, None);
        }
    }
}

/// A handle to a thread.
#[derive(Clone)]
pub struct Thread(pub(super) Arc<Named>);

impl Thread {
    pub(super) fn new(name: Option<String>, priority: Priority) -> Self {
        Self(Arc::new(Named::new(name, priority)))
    }

    /// `None` if there is no memory.
    pub(super) fn try_new(name: Option<String>, priority: Priority) -> Option<Self> {
        heap::try_arc(Named::new(name, priority)).map(Self)
    }

    /// Its id.
    #[must_use]
    pub fn id(&self) -> ThreadId {
        self.0.id
    }

    /// Its name; `None` if it has none. The first virtual CPU is `main`.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Its priority. The ceiling of the process limits what counts of it. Of a virtual CPU that
    /// runs the executor: the default, since the coroutine that it runs decides.
    #[must_use]
    pub fn priority(&self) -> Priority {
        Priority::saturating(self.0.level.load(Relaxed))
    }

    /// Sets its priority. A thread that waits for a hart moves at once if it becomes more urgent,
    /// and a running one is preempted at the next kernel entry if it becomes less urgent. The call
    /// in which the thread waits follows; other calls in flight keep their priority.
    ///
    /// # Errors
    /// `EINVAL` for a virtual CPU that runs the executor; `ESRCH` if the thread has ended.
    pub fn set_priority(&self, priority: Priority) -> crate::io::Result<()> {
        match self.0.number.load(Acquire) {
            0 => Err(Errno::EINVAL.into()),
            number => {
                system::set_thread_priority(number, priority)?;
                self.0.level.store(priority.level().into(), Relaxed);
                Ok(())
            }
        }
    }

    /// Makes its current or next [`park`] return. In any context but interrupt handlers.
    pub fn unpark(&self) {
        // Partner of the swap in `park`: what this thread did before is visible after `park`.
        if self.0.parking.swap(UNPARKED, Release) == PARKED {
            system::futex_wake(&self.0.parking, 1);
        }
    }

    /// Parks the calling thread, which is this one.
    fn park(&self, limit: Option<Duration>) {
        let parking = &self.0.parking;
        let end = limit.map(|limit| Instant::now() + limit);
        // EMPTY becomes PARKED; UNPARKED becomes EMPTY, and there is nothing to wait for.
        if parking.swap(PARKED, Acquire) != UNPARKED {
            while parking.load(Relaxed) == PARKED {
                let left = end.map(|end| end - Instant::now());
                if left.is_some_and(|left| left.is_zero())
                    || system::futex_wait(parking, PARKED, left).is_err()
                {
                    break;
                }
            }
        }
        // One that came at the last moment is taken too.
        parking.swap(EMPTY, Acquire);
    }
}

impl fmt::Debug for Thread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = formatter.debug_struct("Thread");
        text.field("id", &self.id()).field("name", &self.name()).finish_non_exhaustive()
    }
}

/// The wakers of [`block_on`](super::block_on).
impl Wake for Named {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.is_woken.swap(1, Release) == 0 {
            system::futex_wake(&self.is_woken, 1);
        }
    }
}

/// The calling thread. Inside a coroutine: the virtual CPU that polls it. The first call on a
/// virtual CPU makes the handle; without memory for it, the process ends.
#[must_use]
pub fn current() -> Thread {
    match worker::current_local() {
        Some(local) => local.thread(),
        // Before the executor has started; nothing can park then.
        None => Thread::new(None, Priority::DEFAULT),
    }
}

/// Blocks the calling thread until [`Thread::unpark`] is called; returns at once if that has
/// happened since the last `park`. May also return without that.
pub fn park() {
    current().park(None);
}

/// Like [`park`], for at most `limit`.
pub fn park_timeout(limit: Duration) {
    current().park(Some(limit));
}
