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
//!
//! A request has its [`Ticket`], which says where it is. Only the queue writes it, with its place
//! and so under the lock of the queue: however many callers change the priority of a request at a
//! time, it is found.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cops_abi::Priority;
use cops_fallible::map::Spare;
use cops_fallible::{Map, OutOfMemory};

use super::priority::AtomicPriority;

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

/// By which a request is found while it is unread or taken. Part of the request, in one queue
/// during its life. Others than the queue only read it.
#[derive(Debug)]
pub struct Ticket {
    priority: AtomicPriority,
    /// 0 before it is inserted.
    number: AtomicU64,
}

impl Default for Ticket {
    fn default() -> Self {
        Self::new()
    }
}

impl Ticket {
    /// The ticket of a request that is not inserted yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { priority: AtomicPriority::new(Priority::LEAST_URGENT), number: AtomicU64::new(0) }
    }

    /// The request's number.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number.load(Relaxed)
    }

    /// Its priority.
    #[must_use]
    pub fn priority(&self) -> Priority {
        self.priority.load()
    }

    fn key(&self) -> Key {
        (self.priority().level(), self.number())
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

    /// Adds `request`, which has `ticket`, with a new number that is not 0. Its priority is
    /// `priority`, or that which it was raised to before.
    ///
    /// # Errors
    /// The request, if the queue is closed.
    pub fn insert(
        &mut self,
        room: Room<T>,
        ticket: &Ticket,
        (priority, number): (Priority, u64),
        request: T,
    ) -> Result<(), T> {
        if self.is_closed {
            return Err(request);
        }
        self.raise(ticket, priority);
        ticket.number.store(number, Relaxed);
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
    pub fn remove(&mut self, ticket: &Ticket) -> Option<T> {
        self.unread.remove(&ticket.key()).or_else(|| self.answered(ticket.number()))
    }

    /// The caller of a request does not wait any longer. Removes the request unless it has been
    /// taken, and may still be answered.
    pub fn abandon(&mut self, ticket: &Ticket) -> Option<T> {
        let key = (0, ticket.number());
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

    /// Changes the priority of a request, and its place if it is unread.
    pub fn set_priority(&mut self, ticket: &Ticket, priority: Priority) {
        let unread = self.unread.take(&ticket.key());
        ticket.priority.store(priority);
        if let Some((request, spare)) = unread {
            self.unread.insert_with(spare, ticket.key(), request);
        }
    }

    /// The same, if `priority` is more urgent than that of the request. Returns whether it is.
    pub fn raise(&mut self, ticket: &Ticket, priority: Priority) -> bool {
        let is_raised = priority.is_more_urgent_than(ticket.priority());
        if is_raised {
            self.set_priority(ticket, priority);
        }
        is_raised
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

    fn priority(level: u8) -> Priority {
        Priority::saturating(u32::from(level))
    }

    fn insert(requests: &mut Requests<u64>, level: u8, number: u64) -> Ticket {
        let ticket = Ticket::new();
        let place = (priority(level), number);
        assert_eq!(requests.insert(Room::try_new().unwrap(), &ticket, place, number), Ok(()));
        ticket
    }

    fn take_all(requests: &mut Requests<u64>) -> Vec<u64> {
        core::iter::from_fn(|| requests.take().map(|(number, _)| number)).collect()
    }

    #[test]
    fn the_most_urgent_is_first_and_then_the_oldest() {
        let mut requests = Requests::new();
        for (number, level) in (1..).zip([40, 5, 63, 5, 0, 40]) {
            insert(&mut requests, level, number);
        }
        assert_eq!(take_all(&mut requests), [5, 2, 4, 1, 6, 3]);
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
        assert_eq!(requests.remove(&unread), Some(1));
        assert_eq!(requests.remove(&taken), Some(2));
        assert_eq!(requests.remove(&taken), None);
        assert_eq!(requests.take(), None);
        assert_eq!(requests.answered(2), None);
    }

    #[test]
    fn an_abandoned_request_is_answered_if_it_has_been_taken() {
        let mut requests = Requests::new();
        let (unread, taken) = (insert(&mut requests, 5, 1), insert(&mut requests, 4, 2));
        assert_eq!(requests.take(), Some((2, 2)));
        assert_eq!(requests.abandon(&unread), Some(1));
        assert_eq!(requests.abandon(&taken), None);
        assert_eq!(requests.take(), None);
        assert_eq!(requests.answered(2), Some(2));
        assert_eq!(requests.answered(2), None);
    }

    #[test]
    fn abandoned_requests_are_not_failed() {
        let mut requests = Requests::new();
        let tickets: Vec<Ticket> = (1..5).map(|number| insert(&mut requests, 5, number)).collect();
        take_all(&mut requests);
        assert_eq!(requests.abandon(&tickets[0]), None);
        assert_eq!(requests.abandon(&tickets[2]), None);
        assert_eq!(requests.pop_abandoned(), None, "it is not closed");
        requests.close();
        assert_eq!(requests.abandon(&tickets[1]), Some(2));
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
        requests.set_priority(&second, priority(3));
        assert_eq!(requests.take(), Some((2, 2)));
        requests.set_priority(&second, priority(30));
        assert_eq!(requests.take(), Some((1, 1)));
        assert_eq!(requests.remove(&second), Some(2));
        assert_eq!(requests.remove(&first), Some(1));
    }

    /// Several calls that wait for a request raise it, in any order, also while it is being sent.
    #[test]
    fn a_request_is_found_whatever_raises_it() {
        let (mut requests, early) = (Requests::new(), Ticket::new());
        assert!(requests.raise(&early, priority(7)));
        insert(&mut requests, 10, 1);
        let place = (priority(20), 2);
        assert_eq!(requests.insert(Room::try_new().unwrap(), &early, place, 2), Ok(()));
        assert_eq!(early.priority(), priority(7), "raised before it was sent");
        let late = insert(&mut requests, 20, 3);
        for (level, is_raised) in [(5, true), (3, true), (5, false), (3, false)] {
            assert_eq!(requests.raise(&late, priority(level)), is_raised);
        }
        assert_eq!(late.priority(), priority(3), "the most urgent of its callers");
        assert_eq!(requests.take(), Some((3, 3)));
        assert!(requests.raise(&late, priority(1)), "it has been taken");
        assert_eq!(requests.remove(&late), Some(3));
        assert_eq!(requests.abandon(&early), Some(2));
        assert_eq!(take_all(&mut requests), [1]);
    }

    #[test]
    fn after_the_end_all_are_failed_and_none_is_added() {
        let mut requests = Requests::new();
        for number in 1..6 {
            insert(&mut requests, 9, number);
        }
        requests.take();
        assert_eq!(requests.next_to_fail(), None, "it is not closed");
        requests.close();
        let (ticket, place) = (Ticket::new(), (Priority::DEFAULT, 9));
        assert_eq!(requests.insert(Room::try_new().unwrap(), &ticket, place, 9), Err(9));
        let failed: Vec<u64> = core::iter::from_fn(|| requests.next_to_fail()).collect();
        assert_eq!(failed, [1, 2, 3, 4, 5]);
    }

    proptest! {
        /// Whatever happens, each request leaves exactly once, and always the right one is read.
        #[test]
        fn each_leaves_once(steps in prop::collection::vec((0..5u8, 0..64u8, 0..20usize), 0..200)) {
            let mut requests = Requests::new();
            // (ticket, has been taken)
            let mut model: Vec<(Ticket, bool)> = Vec::new();
            let mut next = 1;
            for (what, level, index) in steps {
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
                            expected.as_ref().map(|(ticket, _)| ticket.number())
                        );
                        if let Some((_, is_taken)) = expected {
                            *is_taken = true;
                        }
                    }
                    (2, Some(chosen)) => {
                        let (number, is_taken) = (model[chosen].0.number(), model[chosen].1);
                        let answered = requests.answered(number);
                        prop_assert_eq!(answered, is_taken.then_some(number));
                        if is_taken {
                            model.remove(chosen);
                        }
                    }
                    (3, Some(chosen)) => {
                        let (ticket, _) = model.remove(chosen);
                        prop_assert_eq!(requests.remove(&ticket), Some(ticket.number()));
                    }
                    (_, Some(chosen)) => {
                        requests.set_priority(&model[chosen].0, priority(level));
                    }
                    _ => {}
                }
            }
            requests.close();
            let mut failed: Vec<u64> = core::iter::from_fn(|| requests.next_to_fail()).collect();
            let mut left: Vec<u64> = model.iter().map(|(ticket, _)| ticket.number()).collect();
            failed.sort_unstable();
            left.sort_unstable();
            prop_assert_eq!(failed, left);
        }
    }
}
