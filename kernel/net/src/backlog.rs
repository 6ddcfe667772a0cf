//! The backlog of a listener: half-open connections, and connections that wait to be accepted.
//!
//! Lock order: after an endpoint's lock. Therefore nothing here locks an endpoint.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::task::Waker;

use cops_fallible::Map;
use cops_lock::Mutex;

use crate::chain::{Chain, READY};
use crate::endpoint::Endpoint;
use crate::wakers::WakerSet;

/// Pays for the connections of a listener, half-open ones too, until they are accepted.
///
/// The stack calls it under its locks, so it must neither wait nor use the stack.
pub trait Payer: Send + Sync {
    /// Charges a connection. `false`: that is refused, and the connection with it.
    fn charge(&self) -> bool;

    /// Releases the charge for a connection.
    fn release(&self);
}

/// Shared by a [`Listener`](crate::Listener) and the connections that it has not returned from
/// accept.
pub(crate) struct Backlog {
    /// Pays for each connection in the queues; `None`: they cost nothing.
    payer: Option<Box<dyn Payer>>,
    queues: Mutex<Queues>,
    /// What is behind it among [`ClosedListeners`].
    next_closed: Mutex<Option<Arc<Backlog>>>,
}

#[derive(Default)]
struct Queues {
    /// Of both queues together.
    limit: usize,
    half_open: Map<u64, Arc<Endpoint>>,
    ready: Chain<READY>,
    closed: bool,
    acceptors: WakerSet,
}

impl Queues {
    fn has_room(&self) -> bool {
        !self.closed && self.half_open.len() + self.ready.len() < self.limit
    }
}

impl Backlog {
    /// `limit` applies to both queues together.
    pub(crate) fn new(limit: usize, payer: Option<Box<dyn Payer>>) -> Backlog {
        let backlog = Backlog { payer, queues: Mutex::default(), next_closed: Mutex::default() };
        backlog.set_limit(limit);
        backlog
    }

    /// Connections beyond a smaller limit stay.
    pub(crate) fn set_limit(&self, limit: usize) {
        self.queues.lock().limit = limit.clamp(1, 4096);
    }

    pub(crate) fn has_room(&self) -> bool {
        self.queues.lock().has_room()
    }

    /// Adds a half-open connection. Returns `false` if there is no room, no memory, the payer
    /// refuses it, or the listener is closed.
    pub(crate) fn admit(&self, endpoint: &Arc<Endpoint>) -> bool {
        if self.payer.as_ref().is_some_and(|payer| !payer.charge()) {
            return false;
        }
        let mut queues = self.queues.lock();
        let admitted = queues.has_room()
            && queues.half_open.try_insert(endpoint.number, endpoint.clone()).is_ok();
        drop(queues);
        if !admitted {
            self.release();
        }
        admitted
    }

    /// A connection is in neither queue any more.
    fn release(&self) {
        if let Some(payer) = &self.payer {
            payer.release();
        }
    }

    /// Removes a connection with a failed handshake.
    pub(crate) fn forget(&self, endpoint: &Endpoint) {
        let removed = self.queues.lock().half_open.remove(&endpoint.number);
        removed.inspect(|_| self.release());
    }

    /// The handshake is complete: moves the connection to the queue to be accepted. Returns `false`
    /// if that was done before.
    pub(crate) fn complete(&self, endpoint: &Endpoint) -> bool {
        let mut queues = self.queues.lock();
        let Some(endpoint) = queues.half_open.remove(&endpoint.number) else { return false };
        queues.ready.push_back(endpoint);
        queues.acceptors.wake_all();
        true
    }

    /// Takes the oldest complete connection. If there is none, registers `waker` under the same
    /// lock, so that no completion is missed.
    pub(crate) fn take(&self, waker: Option<&Waker>) -> Option<Arc<Endpoint>> {
        let mut queues = self.queues.lock();
        let endpoint = queues.ready.pop_front();
        if endpoint.is_none()
            && let Some(waker) = waker
        {
            queues.acceptors.register(waker);
        }
        drop(queues);
        endpoint.inspect(|_| self.release())
    }

    pub(crate) fn register(&self, waker: &Waker) {
        self.queues.lock().acceptors.register(waker);
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.queues.lock().ready.is_empty()
    }

    /// Closes the listener: it admits no more connections.
    fn close(&self) {
        let mut queues = self.queues.lock();
        queues.closed = true;
        queues.acceptors.wake_all();
    }

    /// Takes a connection that the closed listener has not returned.
    fn take_any(&self) -> Option<Arc<Endpoint>> {
        let mut queues = self.queues.lock();
        let half_open = queues.half_open.pop_first().map(|(_, endpoint)| endpoint);
        let endpoint = half_open.or_else(|| queues.ready.pop_front());
        drop(queues);
        endpoint.inspect(|_| self.release())
    }
}

/// Closed listeners with connections that they have not returned: up to 4,096 each. The polling
/// coroutine resets them, a few at a time.
#[derive(Default)]
pub(crate) struct ClosedListeners(Mutex<Option<Arc<Backlog>>>);

impl ClosedListeners {
    /// Closes the listener of `backlog`.
    pub(crate) fn add(&self, backlog: Arc<Backlog>) {
        backlog.close();
        let mut first = self.0.lock();
        *backlog.next_closed.lock() = first.take();
        *first = Some(backlog);
    }

    /// Takes a connection of one of them; `None`: there is none.
    pub(crate) fn take_connection(&self) -> Option<Arc<Endpoint>> {
        let mut first = self.0.lock();
        loop {
            if let Some(endpoint) = first.as_ref()?.take_any() {
                return Some(endpoint);
            }
            // A closed backlog admits nothing, so an empty one stays empty.
            let next = first.take()?.next_closed.lock().take();
            *first = next;
        }
    }
}
