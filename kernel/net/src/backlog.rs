//! A listener's queue: half-open connections, and those that wait to be accepted.
//!
//! Lock order: after an endpoint's lock, so nothing here takes one.

use alloc::sync::Arc;
use core::task::Waker;

use cops_fallible::Map;
use spin::Mutex;

use crate::chain::{Chain, READY};
use crate::endpoint::Endpoint;
use crate::wakers::WakerSet;

/// Shared by a [`Listener`](crate::Listener) and the connections it has not yet handed out.
pub(crate) struct Backlog {
    limit: usize,
    queues: Mutex<Queues>,
}

#[derive(Default)]
struct Queues {
    half_open: Map<u64, Arc<Endpoint>>,
    ready: Chain<READY>,
    closed: bool,
    acceptors: WakerSet,
}

impl Backlog {
    /// `limit` counts both queues together.
    pub(crate) fn new(limit: usize) -> Backlog {
        Backlog { limit: limit.clamp(1, 4096), queues: Mutex::default() }
    }

    pub(crate) fn has_room(&self) -> bool {
        let queues = self.queues.lock();
        !queues.closed && queues.half_open.len() + queues.ready.len() < self.limit
    }

    /// Adds a half-open connection; `false` if there is no room (any more), or no memory.
    pub(crate) fn admit(&self, endpoint: &Arc<Endpoint>) -> bool {
        let mut queues = self.queues.lock();
        let room = !queues.closed && queues.half_open.len() + queues.ready.len() < self.limit;
        room && queues.half_open.try_insert(endpoint.number, endpoint.clone()).is_ok()
    }

    /// The handshake failed.
    pub(crate) fn forget(&self, endpoint: &Endpoint) {
        self.queues.lock().half_open.remove(&endpoint.number);
    }

    /// The handshake is complete. `false` if it was noted before.
    pub(crate) fn complete(&self, endpoint: &Endpoint) -> bool {
        let mut queues = self.queues.lock();
        let Some(endpoint) = queues.half_open.remove(&endpoint.number) else { return false };
        queues.ready.push_back(endpoint);
        queues.acceptors.wake_all();
        true
    }

    /// Takes the oldest complete connection. If there is none, `waker` is registered: under the
    /// same lock, so that no completion falls in between.
    pub(crate) fn take(&self, waker: Option<&Waker>) -> Option<Arc<Endpoint>> {
        let mut queues = self.queues.lock();
        let endpoint = queues.ready.pop_front();
        if endpoint.is_none()
            && let Some(waker) = waker
        {
            queues.acceptors.register(waker);
        }
        endpoint
    }

    pub(crate) fn register(&self, waker: &Waker) {
        self.queues.lock().acceptors.register(waker);
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.queues.lock().ready.is_empty()
    }

    /// Ends the listener: it takes no connection any more.
    pub(crate) fn close(&self) {
        let mut queues = self.queues.lock();
        queues.closed = true;
        queues.acceptors.wake_all();
    }

    /// Takes a connection that a closed listener never handed out.
    pub(crate) fn take_any(&self) -> Option<Arc<Endpoint>> {
        let mut queues = self.queues.lock();
        let half_open = queues.half_open.pop_first().map(|(_, endpoint)| endpoint);
        half_open.or_else(|| queues.ready.pop_front())
    }
}
