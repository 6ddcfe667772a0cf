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
//! places. What an operation removes is returned, so that it can be dropped without the lock.
//!
//! A request is taken only if there is room for its level among the requests that the server has
//! not answered (`Unanswered`). Only an answer makes room, not the caller that leaves: otherwise
//! a caller that sends and cancels could give the server any number of requests to handle.
//!
//! A request that becomes more urgent after it was taken is *raised*: the server has to learn that,
//! so a message about it is taken before requests of the same level. That is a place of its own,
//! beside that of the request.
//!
//! A request has its [`Ticket`], which says where it is. Only the queue writes it, with its place
//! and so under the lock of the queue: however many callers change the priority of a request at a
//! time, it is found.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use cops_abi::Priority;
use cops_abi::served::{UNANSWERED_BOUND, id_of, number_and_level};
use cops_fallible::map::Spare;
use cops_fallible::{Map, OutOfMemory};

use super::priority::AtomicPriority;
use super::unanswered::Unanswered;

/// The place of a request: its level while it is unread, and its number. Taken requests have level
/// 0.
type Key = (u8, u64);

/// Memory for a request's places.
#[derive(Debug)]
pub struct Room<T> {
    place: Spare<Key, Entry<T>>,
    raise: Spare<Key, ()>,
}

impl<T> Room<T> {
    /// Bytes of this memory.
    pub const BYTES: usize = Map::<Key, Entry<T>>::ENTRY_BYTES + Map::<Key, ()>::ENTRY_BYTES;

    /// Allocates it.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_new() -> Result<Self, OutOfMemory> {
        Ok(Self { place: Spare::try_new()?, raise: Spare::try_new()? })
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

/// A request in its place.
#[derive(Debug)]
struct Entry<T> {
    request: T,
    /// Once it is taken: the level at which it was given to the server.
    given: Priority,
    /// The most urgent level that the server has learnt, or will learn from the raise.
    known: Priority,
    /// The memory for the raise, unless that is in its place.
    raise: Option<Spare<Key, ()>>,
}

/// What a server reads next.
#[derive(Debug, PartialEq, Eq)]
pub enum Message<T> {
    /// A request, which was given at this priority.
    Request(u64, Priority, T),
    /// The request with this id, which was taken before, has this priority now.
    Raise(u64, Priority),
}

/// The requests of one server; see the module.
#[derive(Debug)]
pub struct Requests<T> {
    unread: Map<Key, Entry<T>>,
    taken: Map<Key, Entry<T>>,
    /// Taken, and without a caller.
    abandoned: Map<Key, Entry<T>>,
    /// Those taken or abandoned of which the server has to learn a more urgent level: this level
    /// and the number.
    raised: Map<Key, ()>,
    unanswered: Unanswered,
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
        Self {
            unread: Map::new(),
            taken: Map::new(),
            abandoned: Map::new(),
            raised: Map::new(),
            unanswered: Unanswered::new(),
            is_closed: false,
        }
    }

    /// Whether there is no unread request.
    #[must_use]
    pub fn is_all_read(&self) -> bool {
        self.unread.is_empty()
    }

    /// Whether [`Self::take`] returns something.
    #[must_use]
    pub fn has_next(&self) -> bool {
        !self.raised.is_empty() || self.next_request().is_some()
    }

    /// The place of the request that is to be read next, if there is room for it. There is none for
    /// any other, then, because these are not more urgent.
    fn next_request(&self) -> Option<Key> {
        let (&key, _) = self.unread.first()?;
        self.unanswered.has_room(level(key)).then_some(key)
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
        // The levels count once it is taken.
        let (given, known) = (priority, priority);
        let entry = Entry { request, given, known, raise: Some(room.raise) };
        self.unread.insert_with(room.place, ticket.key(), entry);
        Ok(())
    }

    /// Takes what is to be read next: the most urgent, and a raise before a request. `None` also if
    /// there is no room for a request.
    pub fn take(&mut self) -> Option<Message<T>>
    where
        T: Clone,
    {
        let raised = self.raised.first().map(|(&key, ())| key);
        let request = self.next_request();
        match (raised, request) {
            (Some(raised), Some(request)) if request.0 < raised.0 => self.take_request(request),
            (Some(raised), _) => self.take_raise(raised),
            (None, Some(request)) => self.take_request(request),
            (None, None) => None,
        }
    }

    fn take_request(&mut self, key: Key) -> Option<Message<T>>
    where
        T: Clone,
    {
        let (mut entry, spare) = self.unread.take(&key)?;
        let (given, request) = (level(key), entry.request.clone());
        (entry.given, entry.known) = (given, given);
        self.unanswered.add(given);
        self.taken.insert_with(spare, (0, key.1), entry);
        Some(Message::Request(id_of(key.1, given), given, request))
    }

    fn take_raise(&mut self, key: Key) -> Option<Message<T>> {
        let ((), spare) = self.raised.take(&key)?;
        let entry = self.given_mut(key.1)?;
        entry.raise = Some(spare);
        Some(Message::Raise(id_of(key.1, entry.given), level(key)))
    }

    /// The request with this number, if it has been taken.
    fn given_mut(&mut self, number: u64) -> Option<&mut Entry<T>> {
        let key = (0, number);
        match self.taken.get_mut(&key) {
            None => self.abandoned.get_mut(&key),
            found => found,
        }
    }

    /// Something else than a request, which is answered too, is given at this priority. Returns
    /// whether there is room for it. Its id has number 0.
    pub fn give_other(&mut self, priority: Priority) -> bool {
        let has_room = self.has_room(priority);
        if has_room {
            self.unanswered.add(priority);
        }
        has_room
    }

    /// Whether [`Self::give_other`] would find room.
    #[must_use]
    pub fn has_room(&self, priority: Priority) -> bool {
        self.unanswered.has_room(priority)
    }

    /// There is an answer to `id`, which makes room. Removes the request, if it has been taken with
    /// this id and was not removed.
    pub fn answered(&mut self, id: u64) -> Option<T> {
        let (number, given) = number_and_level(id);
        self.unanswered.remove(given);
        let is_its_level = self.given_mut(number).is_some_and(|entry| entry.given == given);
        if is_its_level { self.remove_given(number) } else { None }
    }

    /// Removes a request that has been taken, and its raise.
    fn remove_given(&mut self, number: u64) -> Option<T> {
        let key = (0, number);
        let entry = self.taken.remove(&key).or_else(|| self.abandoned.remove(&key))?;
        Some(self.without_raise(number, entry))
    }

    /// The request of an entry that was removed.
    fn without_raise(&mut self, number: u64, entry: Entry<T>) -> T {
        if entry.raise.is_none() {
            self.raised.remove(&(entry.known.level(), number));
        }
        entry.request
    }

    /// Removes a request, whether it has been taken or not.
    pub fn remove(&mut self, ticket: &Ticket) -> Option<T> {
        match self.unread.remove(&ticket.key()) {
            Some(entry) => Some(entry.request),
            None => self.remove_given(ticket.number()),
        }
    }

    /// The caller of a request does not wait any longer. Removes the request unless it has been
    /// taken, and may still be answered.
    pub fn abandon(&mut self, ticket: &Ticket) -> Option<T> {
        let key = (0, ticket.number());
        if let Some((entry, spare)) = self.taken.take(&key) {
            if self.is_closed {
                return Some(self.without_raise(key.1, entry));
            }
            self.abandoned.insert_with(spare, key, entry);
            return None;
        }
        self.unread.remove(&ticket.key()).map(|entry| entry.request)
    }

    /// Whether there is room for one more abandoned request of a server that answers what it was
    /// given. One that makes room by replies to nothing leaves any number without an answer.
    #[must_use]
    pub fn may_abandon(&self) -> bool {
        self.abandoned.len() < UNANSWERED_BOUND
    }

    /// Removes an abandoned request of a closed queue.
    pub fn pop_abandoned(&mut self) -> Option<T> {
        if !self.is_closed {
            return None;
        }
        let ((_, number), entry) = self.abandoned.pop_first()?;
        Some(self.without_raise(number, entry))
    }

    /// Changes the priority of a request, and its place if it is unread. If it has been taken, and
    /// is more urgent than the server knows, there is a message about it.
    pub fn set_priority(&mut self, ticket: &Ticket, priority: Priority) {
        let unread = self.unread.take(&ticket.key());
        ticket.priority.store(priority);
        match unread {
            Some((entry, spare)) => {
                self.unread.insert_with(spare, ticket.key(), entry);
            }
            None => self.raise_given(ticket.number(), priority),
        }
    }

    fn raise_given(&mut self, number: u64, priority: Priority) {
        let Some(entry) = self.given_mut(number) else { return };
        if !priority.is_more_urgent_than(entry.known) {
            return;
        }
        let before = core::mem::replace(&mut entry.known, priority);
        let spare = match entry.raise.take() {
            Some(spare) => Some(spare),
            None => self.raised.take(&(before.level(), number)).map(|(_, spare)| spare),
        };
        if let Some(spare) = spare {
            self.raised.insert_with(spare, (priority.level(), number), ());
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
        let first = self.taken.pop_first().or_else(|| self.unread.pop_first());
        let ((_, number), entry) = first?;
        Some(self.without_raise(number, entry))
    }
}

/// The level of a place of an unread request, or of a raise.
fn level((level, _): Key) -> Priority {
    Priority::saturating(level.into())
}

#[cfg(test)]
mod tests {
    extern crate std;
    use cops_abi::served::{UNANSWERED_MAX, UNANSWERED_URGENT_MAX};
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
        core::iter::from_fn(|| requests.take().map(|message| number_of(&message))).collect()
    }

    /// The number of a request that was taken.
    fn number_of(message: &Message<u64>) -> u64 {
        match message {
            &Message::Request(id, given, number) => {
                assert_eq!(id, id_of(number, given));
                number
            }
            Message::Raise(..) => panic!("{message:?}"),
        }
    }

    fn take_one(requests: &mut Requests<u64>) -> Option<u64> {
        requests.take().map(|message| number_of(&message))
    }

    /// There is an answer to a request that was given at `level`.
    fn answered(requests: &mut Requests<u64>, level: u8, number: u64) -> Option<u64> {
        requests.answered(id_of(number, priority(level)))
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
        assert_eq!(answered(&mut requests, 5, 1), None, "it has not been read");
        assert_eq!(take_one(&mut requests), Some(1));
        assert_eq!(answered(&mut requests, 5, 2), None);
        assert_eq!(answered(&mut requests, 6, 1), None, "it was given at another level");
        assert_eq!(answered(&mut requests, 5, 1), Some(1));
        assert_eq!(answered(&mut requests, 5, 1), None, "a second answer");
    }

    #[test]
    fn what_is_removed_is_neither_read_nor_answered() {
        let mut requests = Requests::new();
        let (unread, taken) = (insert(&mut requests, 5, 1), insert(&mut requests, 4, 2));
        assert_eq!(take_one(&mut requests), Some(2));
        assert_eq!(requests.remove(&unread), Some(1));
        assert_eq!(requests.remove(&taken), Some(2));
        assert_eq!(requests.remove(&taken), None);
        assert_eq!(requests.take(), None);
        assert_eq!(answered(&mut requests, 4, 2), None);
    }

    #[test]
    fn an_abandoned_request_is_answered_if_it_has_been_taken() {
        let mut requests = Requests::new();
        let (unread, taken) = (insert(&mut requests, 5, 1), insert(&mut requests, 4, 2));
        assert_eq!(take_one(&mut requests), Some(2));
        assert_eq!(requests.abandon(&unread), Some(1));
        assert_eq!(requests.abandon(&taken), None);
        assert_eq!(requests.take(), None);
        assert_eq!(answered(&mut requests, 4, 2), Some(2));
        assert_eq!(answered(&mut requests, 4, 2), None);
    }

    /// A server that replies to nothing, which makes room.
    #[test]
    fn abandoned_requests_have_a_bound() {
        let mut requests = Requests::new();
        for number in 1..=UNANSWERED_BOUND as u64 {
            assert!(requests.may_abandon(), "{number}");
            let ticket = insert(&mut requests, 5, number);
            take_all(&mut requests);
            assert_eq!(requests.abandon(&ticket), None);
            requests.answered(id_of(u64::from(u32::MAX), ticket.priority()));
        }
        assert!(!requests.may_abandon());
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
        assert_eq!(take_one(&mut requests), Some(2));
        requests.set_priority(&second, priority(30));
        assert_eq!(take_one(&mut requests), Some(1));
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
        assert_eq!(take_one(&mut requests), Some(3));
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

    /// Fills the room that there is for the level 50. Returns the tickets, of numbers from 1 on.
    fn fill(requests: &mut Requests<u64>) -> Vec<Ticket> {
        let tickets = (1..=UNANSWERED_MAX as u64).map(|number| insert(requests, 50, number));
        let tickets = tickets.collect();
        assert_eq!(take_all(requests).len(), UNANSWERED_MAX);
        tickets
    }

    #[test]
    fn only_what_is_more_urgent_is_read_beside_many_that_are_not_answered() {
        let mut requests = Requests::new();
        fill(&mut requests);
        insert(&mut requests, 50, 2000);
        assert_eq!((requests.has_next(), take_one(&mut requests)), (false, None));
        let urgent = 3000..3000 + UNANSWERED_URGENT_MAX as u64;
        for number in urgent.clone().chain([4000]) {
            insert(&mut requests, 7, number);
        }
        assert_eq!(take_all(&mut requests), urgent.collect::<Vec<_>>());
        assert!(!requests.has_next());
        insert(&mut requests, 6, 5000);
        assert_eq!(take_one(&mut requests), Some(5000), "still more urgent");
        assert_eq!(answered(&mut requests, 7, 3001), Some(3001));
        assert!(!requests.has_next(), "there is another one of a more urgent level");
        assert_eq!(answered(&mut requests, 6, 5000), Some(5000));
        assert_eq!(take_all(&mut requests), [4000]);
    }

    #[test]
    fn an_unread_request_is_read_when_it_is_more_urgent() {
        let mut requests = Requests::new();
        fill(&mut requests);
        let ticket = insert(&mut requests, 50, 2000);
        assert!(!requests.has_next());
        assert!(requests.raise(&ticket, priority(49)));
        assert_eq!(take_one(&mut requests), Some(2000));
        assert_eq!(answered(&mut requests, 49, 2000), Some(2000));
    }

    /// A caller that sends and cancels gives a server no more to handle.
    #[test]
    fn only_an_answer_makes_room() {
        let mut requests = Requests::new();
        let tickets = fill(&mut requests);
        insert(&mut requests, 50, 2000);
        assert_eq!(requests.remove(&tickets[0]), Some(1));
        assert_eq!(requests.abandon(&tickets[1]), None);
        assert!(!requests.has_next(), "the server still handles them");
        assert_eq!(answered(&mut requests, 50, 1), None);
        assert_eq!(take_all(&mut requests), [2000], "the answer came too late, and makes room");
        assert_eq!(answered(&mut requests, 50, 2), Some(2));
        assert!(requests.give_other(priority(50)));
        assert!(!requests.give_other(priority(50)));
        assert_eq!(answered(&mut requests, 50, 0), None);
        assert!(requests.give_other(priority(50)));
    }

    #[test]
    fn a_raise_is_read_once_and_the_last_one_counts() {
        let mut requests = Requests::new();
        let ticket = insert(&mut requests, 50, 1);
        assert!(requests.raise(&ticket, priority(40)));
        assert_eq!(take_one(&mut requests), Some(1), "raised before");
        assert!(!requests.has_next());
        requests.set_priority(&ticket, priority(30));
        requests.set_priority(&ticket, priority(60));
        requests.set_priority(&ticket, priority(20));
        insert(&mut requests, 20, 2);
        insert(&mut requests, 19, 3);
        assert_eq!(take_one(&mut requests), Some(3), "more urgent than the raise");
        let raise = Message::Raise(id_of(1, priority(40)), priority(20));
        assert_eq!(requests.take(), Some(raise));
        requests.set_priority(&ticket, priority(60));
        requests.set_priority(&ticket, priority(20));
        assert_eq!(take_one(&mut requests), Some(2), "the server knows the level");
        assert!(!requests.has_next());
        assert!(requests.raise(&ticket, priority(5)));
        assert_eq!(requests.take(), Some(Message::Raise(id_of(1, priority(40)), priority(5))));
        assert_eq!(answered(&mut requests, 40, 1), Some(1), "with the level at which it was given");
    }

    #[test]
    fn a_raise_goes_with_its_request() {
        let mut requests = Requests::new();
        let tickets: Vec<Ticket> = (1..6).map(|number| insert(&mut requests, 50, number)).collect();
        take_all(&mut requests);
        for ticket in &tickets {
            assert!(requests.raise(ticket, priority(8)));
        }
        assert_eq!(answered(&mut requests, 50, 1), Some(1));
        assert_eq!(requests.remove(&tickets[1]), Some(2));
        assert_eq!(requests.abandon(&tickets[2]), None);
        let raise = Message::Raise(id_of(3, priority(50)), priority(8));
        assert_eq!(requests.take(), Some(raise), "it may still be answered");
        assert!(requests.raise(&tickets[2], priority(7)));
        requests.close();
        assert_eq!([requests.next_to_fail(), requests.next_to_fail()], [Some(4), Some(5)]);
        assert_eq!([requests.pop_abandoned(), requests.pop_abandoned()], [Some(3), None]);
        assert!(requests.raised.is_empty() && !requests.has_next());
    }

    /// A request in the model of the test below.
    struct Modelled {
        ticket: Ticket,
        /// The level at which it was given, if it was.
        given: Option<Priority>,
        /// The most urgent level since the server has learnt one; and whether it has to learn it.
        known: Priority,
        is_raised: bool,
    }

    impl Modelled {
        /// Its priority is to be this one.
        fn is_set(&mut self, priority: Priority) {
            if self.given.is_some() && priority.is_more_urgent_than(self.known) {
                (self.known, self.is_raised) = (priority, true);
            }
        }
    }

    /// What is to be read next, by the rules: what, its level and its number.
    fn expected(model: &[Modelled], given: &[Priority]) -> Option<(bool, u8, u64)> {
        let has_room = |level: u8| {
            let as_urgent = given.iter().filter(|given| given.level() <= level).count();
            given.len() < UNANSWERED_MAX || as_urgent < UNANSWERED_URGENT_MAX
        };
        let requests = model.iter().filter(|one| one.given.is_none());
        let requests = requests.map(|one| (one.ticket.key(), true));
        let raises = model.iter().filter(|one| one.is_raised);
        let raises = raises.map(|one| ((one.known.level(), one.ticket.number()), false));
        let readable = requests.filter(|&((level, _), _)| has_room(level)).chain(raises);
        let next =
            readable.min_by_key(|&((level, number), is_request)| (level, is_request, number));
        next.map(|((level, number), is_request)| (is_request, level, number))
    }

    proptest! {
        /// Whatever happens, each request leaves exactly once, and always the right one is read,
        /// also if many are with the server.
        #[test]
        fn each_leaves_once(
            are_many in any::<bool>(),
            steps in prop::collection::vec((0..8u8, 0..64u8, 0..20usize), 0..200),
        ) {
            let mut requests = Requests::new();
            let mut model: Vec<Modelled> = Vec::new();
            // The levels of what was given and is not answered.
            let mut given: Vec<Priority> = Vec::new();
            if are_many {
                for _ in 0..UNANSWERED_MAX - 3 {
                    prop_assert!(requests.give_other(priority(45)));
                    given.push(priority(45));
                }
            }
            let answers = |given: &mut Vec<Priority>, priority: Priority| {
                if let Some(at) = given.iter().position(|&given| given == priority) {
                    given.swap_remove(at);
                }
            };
            let mut next = 1;
            for (what, level, index) in steps {
                let chosen = (!model.is_empty()).then(|| index % model.len().max(1));
                match (what, chosen) {
                    (0 | 1, _) => {
                        let ticket = insert(&mut requests, level, next);
                        let known = priority(level);
                        model.push(Modelled { ticket, given: None, known, is_raised: false });
                        next += 1;
                    }
                    (2 | 3, _) => {
                        let expected = expected(&model, &given);
                        prop_assert_eq!(requests.has_next(), expected.is_some());
                        let taken = requests.take();
                        let Some((is_request, level, number)) = expected else {
                            prop_assert_eq!(taken, None);
                            continue;
                        };
                        let level = priority(level);
                        let found = model.iter_mut().find(|one| one.ticket.number() == number);
                        let found = found.unwrap();
                        if is_request {
                            (found.given, found.known) = (Some(level), level);
                            given.push(level);
                            let message = Message::Request(id_of(number, level), level, number);
                            prop_assert_eq!(taken, Some(message));
                        } else {
                            found.is_raised = false;
                            let id = id_of(number, found.given.unwrap());
                            prop_assert_eq!(taken, Some(Message::Raise(id, level)));
                        }
                    }
                    (4, Some(chosen)) => {
                        let (number, at) = (model[chosen].ticket.number(), model[chosen].given);
                        let level = at.unwrap_or(priority(level));
                        let answered = requests.answered(id_of(number, level));
                        answers(&mut given, level);
                        prop_assert_eq!(answered, at.map(|_| number));
                        if at.is_some() {
                            model.remove(chosen);
                        }
                    }
                    (5, Some(chosen)) => {
                        let Modelled { ticket, .. } = model.remove(chosen);
                        prop_assert_eq!(requests.remove(&ticket), Some(ticket.number()));
                    }
                    (6, _) => {
                        prop_assert_eq!(requests.answered(id_of(0, priority(45))), None);
                        answers(&mut given, priority(45));
                    }
                    (_, Some(chosen)) => {
                        requests.set_priority(&model[chosen].ticket, priority(level));
                        model[chosen].is_set(priority(level));
                    }
                    _ => {}
                }
            }
            requests.close();
            let mut failed: Vec<u64> = core::iter::from_fn(|| requests.next_to_fail()).collect();
            let mut left: Vec<u64> = model.iter().map(|one| one.ticket.number()).collect();
            failed.sort_unstable();
            left.sort_unstable();
            prop_assert_eq!(failed, left);
            prop_assert!(requests.raised.is_empty());
        }
    }
}
