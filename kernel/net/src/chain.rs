//! Queues of endpoints, linked through the endpoints, so that queueing allocates nothing.
//!
//! An endpoint is in at most one queue of each kind. For each kind, a mark in the endpoint says
//! whether it is queued.

use alloc::sync::Arc;

use cops_lock::Mutex;

use crate::endpoint::Endpoint;

/// The outbox of an interface, or its turns. The mark is [`Endpoint::dirty`].
pub(crate) const TURN: usize = 0;
/// Endpoints that wait for room in the device. The mark is `EndpointState::blocked`.
pub(crate) const BLOCKED: usize = 1;
/// A listener's complete connections. Each endpoint is queued here at most once.
pub(crate) const READY: usize = 2;
const KINDS: usize = 3;

/// An endpoint's links: the next endpoint in the queue of each kind. In the lock order these are
/// leaves.
pub(crate) type Links = [Mutex<Option<Arc<Endpoint>>>; KINDS];

/// A first-in, first-out queue of one kind.
#[derive(Default)]
pub(crate) struct Chain<const KIND: usize> {
    first: Option<Arc<Endpoint>>,
    last: Option<Arc<Endpoint>>,
    length: usize,
}

impl<const KIND: usize> Chain<KIND> {
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Appends an endpoint that is in no queue of this kind.
    pub(crate) fn push_back(&mut self, endpoint: Arc<Endpoint>) {
        match self.last.replace(endpoint.clone()) {
            Some(last) => *last.links[KIND].lock() = Some(endpoint),
            None => self.first = Some(endpoint),
        }
        self.length += 1;
    }

    pub(crate) fn pop_front(&mut self) -> Option<Arc<Endpoint>> {
        let first = self.first.take()?;
        self.first = first.links[KIND].lock().take();
        if self.first.is_none() {
            self.last = None;
        }
        self.length -= 1;
        Some(first)
    }

    /// Moves all entries of `other` to the end.
    pub(crate) fn append(&mut self, other: &mut Self) {
        let Some(first) = other.first.take() else { return };
        match core::mem::replace(&mut self.last, other.last.take()) {
            Some(last) => *last.links[KIND].lock() = Some(first),
            None => self.first = Some(first),
        }
        self.length += core::mem::take(&mut other.length);
    }
}

/// Drops the entries one after the other. Otherwise each endpoint would drop the next one
/// recursively.
impl<const KIND: usize> Drop for Chain<KIND> {
    fn drop(&mut self) {
        while self.pop_front().is_some() {}
    }
}
