//! Wait queues: the calls to be woken when something changes.
//!
//! A waiter is inserted first and attempts again afterwards. The other side makes a change first
//! and wakes waiters afterwards. So either the waiter sees the change, or the waker sees the
//! waiter. `cops_algorithms::wait_list` defines the order of waiters and how a woken waiter passes
//! the wake on. A waiter is a call: its node is in its cell, so inserting it allocates nothing, and
//! a call that ends or is cancelled is removed at once. Not for interrupt context (takes a lock).
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use alloc::task::Wake;

use cops_abi::Priority;
use cops_algorithms::wait_list::{Node, Nodes, WaitList};
use cops_executor::CoroutineId;
use spin::Mutex;

use super::{wait_node, wake_by_number};

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
#[derive(Debug, Default)]
pub struct WaitQueue {
    list: Mutex<WaitList>,
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
        Self { list: Mutex::new(WaitList::new()) }
    }

    /// Queues `waiter`, which attempts once more afterwards. Further calls have no effect while it
    /// is queued.
    pub fn insert(&self, waiter: Waiter) {
        let mut list = self.list.lock();
        let next = list.insert(&Cells, waiter.number, waiter.priority, waiter.coroutine.raw());
        drop(list);
        wake(next);
    }

    /// The waiter with this number stops waiting. `may_be_ready`: another one may succeed.
    pub fn remove(&self, waiter: u32, may_be_ready: bool) {
        let next = self.list.lock().remove(&Cells, waiter, may_be_ready);
        wake(next);
    }

    /// The waiter with this number has become less urgent: if it has been woken and has not
    /// attempted yet, another one is woken.
    pub fn pass_on(&self, waiter: u32) {
        let next = self.list.lock().pass_on(&Cells, waiter);
        wake(next);
    }

    /// Wakes the most urgent waiter. It wakes the next one if it leaves something.
    pub fn wake_one(&self) {
        let next = self.list.lock().wake_one(&Cells);
        wake(next);
    }

    /// Wakes all current waiters one after another: each wakes the next one after its attempt.
    pub fn wake_all(&self) {
        let next = self.list.lock().wake_all(&Cells);
        wake(next);
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
