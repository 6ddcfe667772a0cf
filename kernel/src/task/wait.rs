//! Wait queues: the calls that are to be woken when something changes.
//!
//! A waiter enters first and attempts again afterwards; a change is made first and announced afterwards.
//! Either the waiter sees the change or the change finds the waiter. The order of waiters, and how a
//! woken waiter passes the wake on, are `cops_algorithms::wait_list`'s. A waiter is a call: its node is in
//! its cell, so entering allocates nothing, and a call that ends, or is cancelled, leaves at once.
//! May touch: the cells' nodes, the executor's wakes. Not for interrupt context (takes a lock).
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use alloc::task::Wake;

use cops_algorithms::wait_list::{Node, Nodes, WaitList};
use cops_executor::CoroutineId;
use spin::Mutex;

use super::wake_by_number;
use crate::call;

/// A call that waits.
#[derive(Clone, Copy, Debug)]
pub struct Waiter {
    /// The number of its cell.
    pub number: u32,
    /// The kernel coroutine that works for it.
    pub coroutine: CoroutineId,
    /// Its priority.
    pub level: u8,
}

/// Calls that wait for one thing.
#[derive(Debug, Default)]
pub struct WaitQueue {
    list: Mutex<WaitList>,
}

/// The cells' nodes.
struct Cells;

impl Nodes for Cells {
    fn node(&self, number: u32) -> &Node {
        call::wait_node(number)
    }
}

impl WaitQueue {
    /// An empty queue.
    pub const fn new() -> Self {
        Self { list: Mutex::new(WaitList::new()) }
    }

    /// Queues `waiter`, which attempts once more afterwards. Once, however often it is called.
    pub fn enter(&self, waiter: Waiter) {
        let mut list = self.list.lock();
        let next = list.enter(&Cells, waiter.number, waiter.level, waiter.coroutine.raw());
        drop(list);
        wake(next);
    }

    /// The waiter of this number waits no more. `may_be_ready`: another one may be served.
    pub fn leave(&self, waiter: u32, may_be_ready: bool) {
        let next = self.list.lock().leave(&Cells, waiter, may_be_ready);
        wake(next);
    }

    /// The waiter of this number has become less urgent: if it has been woken and has not attempted yet, another one is.
    pub fn pass_on(&self, waiter: u32) {
        let next = self.list.lock().pass_on(&Cells, waiter);
        wake(next);
    }

    /// Wakes the most urgent waiter. It wakes the next one if it leaves something for it.
    pub fn wake_one(&self) {
        let next = self.list.lock().wake_one(&Cells);
        wake(next);
    }

    /// Wakes all that wait now, one after the other: each wakes the next when it has attempted.
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

/// As the waker of something that the network stack announces.
impl Wake for WaitQueue {
    fn wake(self: Arc<Self>) {
        self.wake_one();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_one();
    }
}
