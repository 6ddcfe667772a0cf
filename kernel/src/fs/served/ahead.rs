//! Reading ahead: requests for pages that no call waits for, so that a server has several at a time
//! when it runs, and what a reader needs next is there (decision 47).
//!
//! They are sent beside the request of a call that reads a file in order, with the call's priority,
//! and are charged to its family until they are answered. A call that needs such a page waits for
//! it here, instead of asking once more.

use alloc::sync::Arc;

use cops_abi::Priority;
use cops_algorithms::requests::Room;
use cops_lock::Mutex;

use super::connection::Connection;
use super::request::Request;
use crate::sched::{WaitQueue, Waiter};

/// Requests of a connection that are under way at a time.
const FLIGHTS_MAX: usize = 16;

/// The requests of a connection that read ahead.
pub struct Ahead {
    flights: Mutex<[Option<Flight>; FLIGHTS_MAX]>,
    /// Calls that wait for one of them.
    waiting: WaitQueue,
}

/// A request for pages of a node.
struct Flight {
    node: u64,
    first: u64,
    /// The page behind them.
    end: u64,
    request: Arc<Request>,
}

impl Flight {
    fn brings(&self, (node, page): (u64, u64)) -> bool {
        self.node == node && (self.first..self.end).contains(&page)
    }
}

impl Ahead {
    /// None.
    pub const fn new() -> Self {
        Self { flights: Mutex::new([const { None }; FLIGHTS_MAX]), waiting: WaitQueue::new() }
    }

    /// Whether a request for this page of a node is under way.
    pub fn brings(&self, page: (u64, u64)) -> bool {
        self.flights.lock().iter().flatten().any(|flight| flight.brings(page))
    }

    /// The page behind those of the request for this page of a node, if one is under way.
    pub fn end_of(&self, page: (u64, u64)) -> Option<u64> {
        let flights = self.flights.lock();
        flights.iter().flatten().find(|flight| flight.brings(page)).map(|flight| flight.end)
    }

    /// The call of `waiter` waits for this page of a node, which is as urgent as the call from now
    /// on.
    pub fn insert_waiter(&self, connection: &Connection, page: (u64, u64), waiter: Waiter) {
        // Before the look: what is answered afterwards wakes it.
        let priority = waiter.priority;
        self.waiting.insert(waiter);
        let flights = self.flights.lock();
        let flight = flights.iter().flatten().find(|flight| flight.brings(page));
        let request = flight.map(|flight| flight.request.clone());
        drop(flights);
        if let Some(request) = request {
            connection.hurry(&request, priority);
        }
    }

    /// The waiter with this number does not wait any more.
    pub fn remove_waiter(&self, waiter: u32) {
        self.waiting.remove(waiter, false);
    }

    /// Sends `request` for pages `first..end`, unless there are too many, or one for the first.
    pub fn send(
        &self,
        connection: &Connection,
        (first, end): (u64, u64),
        request: Arc<Request>,
        priority: Priority,
    ) {
        let Ok(room) = Room::try_new() else { return };
        let node = request.node();
        let mut flights = self.flights.lock();
        if flights.iter().flatten().any(|flight| flight.brings((node, first))) {
            return;
        }
        let Some(place) = flights.iter_mut().find(|place| place.is_none()) else { return };
        *place = Some(Flight { node, first, end, request: request.clone() });
        drop(flights);
        if !connection.send_alone(&request, room, priority) {
            self.ends(&request);
        }
    }

    /// `request` has its answer, or will have none.
    pub fn ends(&self, request: &Request) {
        let mut flights = self.flights.lock();
        let is_it = |flight: &mut Flight| core::ptr::eq(&raw const *flight.request, request);
        let ended = flights.iter_mut().find_map(|place| place.take_if(is_it));
        drop(flights);
        if ended.is_some() {
            self.waiting.wake_all();
        }
    }
}
