//! Requests to a server, from the moment they are sent until they are answered, taken back, or
//! failed because the server is gone.
//!
//! ```text
//!          insert           take              answered
//!   (new) --------> unread -------> taken ------------------> (with its caller)
//!                     |               |
//!                     +---------------+--- remove: the caller does not wait any longer
//!                     +---------------+--- next_to_fail, once the queue is closed
//! ```
//!
//! A request of which the answer counts also when its caller has left is *abandoned* instead of
//! removed: if it has been taken, it stays until it is answered.
//!
//! Requests are taken most urgent first, and in the order of their numbers within a level. Every
//! operation takes O(log n) steps and allocates nothing: a request comes with the memory for its
//! place. What an operation removes is returned, so that it can be dropped without the lock.

use cops_abi::Priority;
use cops_fallible::map::Spare;
use cops_fallible::{Map, OutOfMemory};

/// The place of a request: its level while it is unread, and its number. Taken requests have level
/// 0.
type Key = (u8, u64);

/// Memory for a request's place.
#[derive(Debug)]
pub struct Room<T>(Spare<Key, T>);

impl<T> Room<T> {
    /// Bytes of this memory.
    pub const BYTES: usize = Map::<Key, T>::ENTRY_BYTES;

    /// Allocates it.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_new() -> Result<Self, OutOfMemory> {
        Spare::try_new().map(Self)
    }
}

/// By which a request is found while it is unread or taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    priority: Priority,
    number: u64,
}

impl Ticket {
    /// The ticket of the request with this number, at this priority.
    #[must_use]
    pub const fn new(priority: Priority, number: u64) -> Self {
        Self { priority, number }
    }

    /// The request's number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.number
    }

    /// Its priority.
    #[must_use]
    pub const fn priority(self) -> Priority {
        self.priority
    }

    const fn key(self) -> Key {
        (self.priority.level(), self.number)
    }
}

/// The requests of one server; see the module.
#[derive(Debug)]
pub struct Requests<T> {
    unread: Map<Key, T>,
    taken: Map<Key, T>,
    /// Taken, and without a caller.
    abandoned: Map<Key, T>,
    is_closed: bool,
}

impl<T> Default for Requests<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Requests<T> {
    /// No requests.
    #[must_use]
    pub const fn new() -> Self {
        Self { unread: Map::new(), taken: Map::new(), abandoned: Map::new(), is_closed: false }
    }

    /// Whether there is no unread request.
    #[must_use]
    pub fn is_all_read(&self) -> bool {
        self.unread.is_empty()
    }

    /// Whether [`Self::close`] has been called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Adds a request, of which the number is new.
    ///
    /// # Errors
    /// The request, if the queue is closed.
    pub fn insert(&mut self, room: Room<T>, ticket: Ticket, request: T) -> Result<(), T> {
        if self.is_closed {
            return Err(request);
        }
        self.unread.insert_with(room.0, ticket.key(), request);
        Ok(())
    }

    /// Takes the request that is to be read next. Returns it with its number.
    pub fn take(&mut self) -> Option<(u64, T)>
    where
        T: Clone,
    {
        let key = *self.unread.first()?.0;
        let (request, spare) = self.unread.take(&key)?;
        self.taken.insert_with(spare, (0, key.1), request.clone());
        Some((key.1, request))
    }

    /// Removes the request with this number, which has been taken and is answered.
    pub fn answered(&mut self, number: u64) -> Option<T> {
        let key = (0, number);
        self.taken.remove(&key).or_else(|| self.abandoned.remove(&key))
    }

    /// Removes a request, whether it has been taken or not.
    pub fn remove(&mut self, ticket: Ticket) -> Option<T> {
        self.unread.remove(&ticket.key()).or_else(|| self.answered(ticket.number))
    }

    /// The caller of a request does not wait any longer. Removes the request unless it has been
    /// taken, and may still be answered.
    pub fn abandon(&mut self, ticket: Ticket) -> Option<T> {
        let key = (0, ticket.number);
        if let Some((request, spare)) = self.taken.take(&key) {
            if self.is_closed {
                return Some(request);
            }
            self.abandoned.insert_with(spare, key, request);
            return None;
        }
        self.unread.remove(&ticket.key())
    }

    /// Removes an abandoned request of a closed queue.
    pub fn pop_abandoned(&mut self) -> Option<T> {
        if !self.is_closed {
            return None;
        }
        self.abandoned.pop_first().map(|(_, request)| request)
    }

    /// Changes the priority of a request if it is still unread. Returns its new ticket.
    pub fn set_priority(&mut self, ticket: Ticket, priority: Priority) -> Ticket {
        let new = Ticket { priority, ..ticket };
        if let Some((request, spare)) = self.unread.take(&ticket.key()) {
            self.unread.insert_with(spare, new.key(), request);
        }
        new
    }

    /// The server is gone: no request is added any more, and those that are left are failed with
    /// [`Self::next_to_fail`].
    pub fn close(&mut self) {
        self.is_closed = true;
    }

    /// Removes a request of a closed queue. Each request that has been failed, or was removed,
    /// fails the next one, so that none takes many steps.
    pub fn next_to_fail(&mut self) -> Option<T> {
        if !self.is_closed {
            return None;
        }
        self.taken.pop_first().or_else(|| self.unread.pop_first()).map(|(_, request)| request)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use proptest::prelude::*;
    use std::vec::Vec;

    use super::*;

    fn insert(requests: &mut Requests<u64>, level: u8, number: u64) -> Ticket {
        let ticket = Ticket::new(Priority::saturating(u32::from(level)), number);
        assert_eq!(requests.insert(Room::try_new().unwrap(), ticket, number), Ok(()));
        ticket
    }

    fn take_all(requests: &mut Requests<u64>) -> Vec<u64> {
        core::iter::from_fn(|| requests.take().map(|(number, _)| number)).collect()
    }

    #[test]
    fn the_most_urgent_is_first_and_then_the_oldest() {
        let mut requests = Requests::new();
        for (number, level) in [40, 5, 63, 5, 0, 40].into_iter().enumerate() {
            insert(&mut requests, level, number as u64);
        }
        assert_eq!(take_all(&mut requests), [4, 1, 3, 0, 5, 2]);
    }

    #[test]
    fn an_answer_counts_once_and_only_for_what_was_read() {
        let mut requests = Requests::new();
        insert(&mut requests, 5, 1);
        assert_eq!(requests.answered(1), None, "it has not been read");
        assert_eq!(requests.take(), Some((1, 1)));
        assert_eq!(requests.answered(2), None);
        assert_eq!(requests.answered(1), Some(1));
        assert_eq!(requests.answered(1), None, "a second answer");
    }

    #[test]
    fn what_is_removed_is_neither_read_nor_answered() {
        let mut requests = Requests::new();
        let (unread, taken) = (insert(&mut requests, 5, 1), insert(&mut requests, 4, 2));
        assert_eq!(requests.take(), Some((2, 2)));
        assert_eq!(requests.remove(unread), Some(1));
        assert_eq!(requests.remove(taken), Some(2));
        assert_eq!(requests.remove(taken), None);
        assert_eq!(requests.take(), None);
        assert_eq!(requests.answered(2), None);
    }

    #[test]
    fn an_abandoned_request_is_answered_if_it_has_been_taken() {
        let mut requests = Requests::new();
        let (unread, taken) = (insert(&mut requests, 5, 1), insert(&mut requests, 4, 2));
        assert_eq!(requests.take(), Some((2, 2)));
        assert_eq!(requests.abandon(unread), Some(1));
        assert_eq!(requests.abandon(taken), None);
        assert_eq!(requests.take(), None);
        assert_eq!(requests.answered(2), Some(2));
        assert_eq!(requests.answered(2), None);
    }

    #[test]
    fn abandoned_requests_are_not_failed() {
        let mut requests = Requests::new();
        let tickets: Vec<Ticket> = (1..5).map(|number| insert(&mut requests, 5, number)).collect();
        take_all(&mut requests);
        assert_eq!(requests.abandon(tickets[0]), None);
        assert_eq!(requests.abandon(tickets[2]), None);
        assert_eq!(requests.pop_abandoned(), None, "it is not closed");
        requests.close();
        assert_eq!(requests.abandon(tickets[1]), Some(2));
        assert_eq!(requests.next_to_fail(), Some(4));
        assert_eq!(requests.next_to_fail(), None);
        let left: Vec<u64> = core::iter::from_fn(|| requests.pop_abandoned()).collect();
        assert_eq!(left, [1, 3]);
    }

    #[test]
    fn a_priority_changes_the_order_only_of_unread_requests() {
        let mut requests = Requests::new();
        let first = insert(&mut requests, 10, 1);
        let second = insert(&mut requests, 20, 2);
        let second = requests.set_priority(second, Priority::saturating(3));
        assert_eq!(requests.take(), Some((2, 2)));
        let second = requests.set_priority(second, Priority::saturating(30));
        assert_eq!(requests.take(), Some((1, 1)));
        assert_eq!(requests.remove(second), Some(2));
        assert_eq!(requests.remove(first), Some(1));
    }

    #[test]
    fn after_the_end_all_are_failed_and_none_is_added() {
        let mut requests = Requests::new();
        for number in 0..5 {
            insert(&mut requests, 9, number);
        }
        requests.take();
        assert_eq!(requests.next_to_fail(), None, "it is not closed");
        requests.close();
        let ticket = Ticket::new(Priority::DEFAULT, 9);
        assert_eq!(requests.insert(Room::try_new().unwrap(), ticket, 9), Err(9));
        let failed: Vec<u64> = core::iter::from_fn(|| requests.next_to_fail()).collect();
        assert_eq!(failed, [0, 1, 2, 3, 4]);
    }

    proptest! {
        /// Whatever happens, each request leaves exactly once, and always the right one is read.
        #[test]
        fn each_leaves_once(steps in prop::collection::vec((0..5u8, 0..64u8, 0..20usize), 0..200)) {
            let mut requests = Requests::new();
            // (ticket, has been taken)
            let mut model: Vec<(Ticket, bool)> = Vec::new();
            let mut next = 0;
            for (what, level, index) in steps {
                let priority = Priority::saturating(u32::from(level));
                let chosen = (!model.is_empty()).then(|| index % model.len().max(1));
                match (what, chosen) {
                    (0, _) => {
                        model.push((insert(&mut requests, level, next), false));
                        next += 1;
                    }
                    (1, _) => {
                        let expected = model
                            .iter_mut()
                            .filter(|(_, is_taken)| !is_taken)
                            .min_by_key(|(ticket, _)| ticket.key());
                        let taken = requests.take();
                        prop_assert_eq!(
                            taken.map(|(number, _)| number),
                            expected.as_ref().map(|(ticket, _)| ticket.number)
                        );
                        if let Some((_, is_taken)) = expected {
                            *is_taken = true;
                        }
                    }
                    (2, Some(chosen)) => {
                        let (ticket, is_taken) = model[chosen];
                        let answered = requests.answered(ticket.number);
                        prop_assert_eq!(answered, is_taken.then_some(ticket.number));
                        if is_taken {
                            model.remove(chosen);
                        }
                    }
                    (3, Some(chosen)) => {
                        let (ticket, _) = model.remove(chosen);
                        prop_assert_eq!(requests.remove(ticket), Some(ticket.number));
                    }
                    (_, Some(chosen)) => {
                        model[chosen].0 = requests.set_priority(model[chosen].0, priority);
                    }
                    _ => {}
                }
            }
            requests.close();
            let mut failed: Vec<u64> = core::iter::from_fn(|| requests.next_to_fail()).collect();
            let mut left: Vec<u64> = model.iter().map(|(ticket, _)| ticket.number).collect();
            failed.sort_unstable();
            left.sort_unstable();
            prop_assert_eq!(failed, left);
        }
    }
}
