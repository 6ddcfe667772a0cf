//! Wait queues: the calls to be woken when something changes.
//!
//! A waiter is inserted first and attempts again afterwards. The other side makes a change first
//! and wakes waiters afterwards. So either the waiter sees the change, or the waker sees the
//! waiter. `cops_algorithms::wait_list` defines the order of waiters and how a woken waiter passes
//! the wake on. A waiter is a call: its node is in its cell, so inserting it allocates nothing, and
//! a call that ends or is cancelled is removed at once. Not for interrupt context (takes a lock).
//!
//! A queue may also have watches (`watch`), which each wake notifies.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use alloc::task::Wake;

use cops_abi::Priority;
use cops_algorithms::wait_list::{Node, Nodes, WaitList};
use cops_executor::CoroutineId;
use cops_fallible::OutOfMemory;
use cops_lock::{Mutex, MutexGuard};

use super::watch::{WatchSet, Watcher};
use super::{Woken, burst, wait_node, wake_by_number};

/// A call that waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// The number of its cell.
    pub number: u32,
    /// Its kernel coroutine.
    pub coroutine: CoroutineId,
    /// Its priority.
    pub priority: Priority,
}

/// The direction of a file that a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// For something to read or to accept.
    ToRead,
    /// For room to write, or for a connection to be established.
    ToWrite,
}

/// Calls that wait for the same event.
#[derive(Default)]
pub struct WaitQueue {
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    waiters: WaitList,
    /// `None`: the queue has never been watched.
    watches: Option<Arc<WatchSet>>,
}

/// The cells' nodes.
struct Cells;

impl Nodes for Cells {
    fn node(&self, number: u32) -> &Node {
        wait_node(number)
    }
}

impl WaitQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { list: Mutex::new(List { waiters: WaitList::new(), watches: None }) }
    }

    /// Whether no call waits.
    pub fn is_empty(&self) -> bool {
        self.list.lock().waiters.is_empty()
    }

    /// Queues `waiter`, which attempts once more afterwards. Further calls have no effect while it
    /// is queued.
    pub fn insert(&self, waiter: Waiter) {
        let mut list = self.list.lock();
        let (number, wake_number) = (waiter.number, waiter.coroutine.raw());
        let next = list.waiters.insert(&Cells, number, waiter.priority, wake_number);
        drop(list);
        wake(next);
    }

    /// The waiter with this number has found what it waits for by itself. When it is removed, it
    /// passes that on as if it had been woken.
    pub fn found(&self, waiter: u32) {
        self.list.lock().waiters.found(&Cells, waiter);
    }

    /// The waiter with this number, if it is queued, stays so when it is woken: it attempts after
    /// each wake, and need not be inserted again.
    pub fn stay(&self, waiter: u32) {
        self.list.lock().waiters.stay(&Cells, waiter);
    }

    /// The waiter with this number stops waiting. `may_be_ready`: another one may succeed.
    pub fn remove(&self, waiter: u32, may_be_ready: bool) {
        let next = self.list.lock().waiters.remove(&Cells, waiter, may_be_ready);
        wake(next);
    }

    /// The waiter with this number has become less urgent: if it has been woken and has not
    /// attempted yet, another one is woken.
    pub fn pass_on(&self, waiter: u32) {
        let next = self.list.lock().waiters.pass_on(&Cells, waiter);
        wake(next);
    }

    /// Wakes the most urgent waiter. It wakes the next one if it leaves something. Tells all
    /// watches.
    pub fn wake_one(&self) {
        let mut list = self.list.lock();
        let first = list.waiters.first();
        let next = list.waiters.wake_one(&Cells);
        if list.watches.is_some() {
            return notify(list, next);
        }
        drop(list);
        if let (Some(cell), Some(coroutine)) = (first, next) {
            burst::wake(Woken { cell, coroutine });
        }
    }

    /// Wakes all current waiters one after another: each wakes the next one after its attempt.
    /// Tells all watches.
    pub fn wake_all(&self) {
        let mut list = self.list.lock();
        let next = list.waiters.wake_all(&Cells);
        wake_and_tell(list, next);
    }

    /// Arms the watch of `watcher`, which looks at the condition afterwards. No effect while it is
    /// armed.
    ///
    /// # Errors
    /// [`OutOfMemory`], only the first time.
    pub fn watch(
        &self,
        watcher: &Arc<dyn Watcher>,
        waiting: Waiting,
        priority: Priority,
    ) -> Result<(), OutOfMemory> {
        let mut list = self.list.lock();
        let watches = match &list.watches {
            Some(watches) => watches.clone(),
            None => list.watches.insert(WatchSet::try_new()?).clone(),
        };
        drop(list);
        watches.arm(watcher, waiting, priority)
    }

    /// Removes the watch of `watcher`.
    pub fn unwatch(&self, watcher: &dyn Watcher, waiting: Waiting) {
        let watches = self.list.lock().watches.clone();
        if let Some(watches) = watches {
            watches.disarm(watcher, waiting);
        }
    }

    /// Tells all watches of an event that is none for the waiters.
    pub fn notify_watches(&self) {
        wake_and_tell(self.list.lock(), None);
    }
}

/// What is watched no longer exists: its watches are notified, so that no watcher waits for it.
impl Drop for WaitQueue {
    fn drop(&mut self) {
        self.notify_watches();
    }
}

/// Unlocks the list, wakes a waiter, and notifies the watches.
#[inline(always)]
fn wake_and_tell(list: MutexGuard<'_, List>, next: Option<u64>) {
    if list.watches.is_some() {
        return notify(list, next);
    }
    drop(list);
    wake(next);
}

#[cold]
#[inline(never)]
fn notify(list: MutexGuard<'_, List>, next: Option<u64>) {
    let watches = list.watches.clone();
    drop(list);
    wake(next);
    if let Some(watches) = watches {
        watches.notify();
    }
}

fn wake(coroutine: Option<u64>) {
    if let Some(coroutine) = coroutine {
        wake_by_number(coroutine);
    }
}

/// Used as the waker for events of the network stack.
impl Wake for WaitQueue {
    fn wake(self: Arc<Self>) {
        self.wake_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_one();
    }
}
