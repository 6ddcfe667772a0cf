//! The list of waiters for one condition: most urgent first, in order of arrival within a level.
//!
//! A waiter's [`Node`] belongs to the waiter (in the kernel, to the cell of its call) and has a
//! number. The list links nodes by their numbers, so it allocates nothing. Every operation takes a
//! constant number of steps, except that a search for a level visits at most 64 nodes.
//!
//! ```text
//!  first -> A(5) ----------> D(32) ----------> F(60)      the first waiter of each level, by level
//!            |                |
//!           ring: A B C      ring: D E                     the waiters of one level, oldest first
//! ```
//!
//! # The states of a node, and the baton
//!
//! | state | meaning | left by |
//! | --- | --- | --- |
//! | idle | in no list | [`WaitList::insert`] |
//! | queued | in the list | `wake_one`, `wake_all`, [`WaitList::found`], [`WaitList::remove`] |
//! | stays | in the list; `wake_one` leaves it there | `insert`, `wake_all`, `remove`, `pass_on` |
//! | woken alone | removed by `wake_one` or `found`; has the baton | `insert`, `remove` |
//! | woken in a round | removed by `wake_all`; has not checked the condition yet | `insert`, `remove` |
//!
//! An event wakes *one* waiter. A woken waiter holds the baton until one of these happens:
//! - It checks the condition and must wait again. Then the condition is false, and whatever makes
//!   it true wakes one waiter. The waiter keeps its place: it is inserted at the front of its
//!   level.
//! - It is removed while the condition may be true, because it has a result or is cancelled. Then
//!   it passes the baton on: `remove` returns the next waiter to wake.
//!
//! So this invariant holds: *if the condition is true and a waiter is queued, then some waiter
//! holds the baton* (or an event is about to wake one). No wake is lost, and an event costs one
//! poll more than there are waiters that can use it.
//!
//! Some conditions become true without an event: a source that announces one event for each
//! registration announces none between an event and the next registration. The waiter that
//! registers is queued already, checks, and finds the condition true. It takes the baton itself
//! with [`WaitList::found`] before it is removed.
//!
//! A waiter that *stays* ([`WaitList::stay`]) checks the condition for each wake and goes on
//! waiting, without being inserted again. The list does not know whether it holds the baton, and
//! assumes so: whenever it leaves the list, it passes the baton on. A wake that it gets while it
//! holds the baton makes it check once more.
//!
//! If the waiters of a list wait for different conditions (the ends of different children), each of
//! them must check its own. `wake_all` begins a *round*: every waiter inserted before it is
//! woken, one after the other; each of them wakes the next one when it has checked. So one poll
//! does only a bounded part of a round. The waiters of one level are in the order of their rounds:
//! an inserted waiter goes to the back, or, if it comes back to the front, counts as inserted in
//! the round of the one behind it.
//!
//! The caller has a lock for each list, and changes the nodes of its waiters only under that lock.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

use cops_abi::Priority;

use super::priority::AtomicPriority;

/// Not a node's number.
const NONE: u32 = u32::MAX;
/// In `previous_level`: the node is not the first of its level.
const NOT_FIRST: u32 = u32::MAX - 1;

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const WOKEN_ALONE: u8 = 2;
const WOKEN_IN_ROUND: u8 = 3;
const STAYS: u8 = 4;

/// The links and state of one waiter. The fields are atomic only so that nodes can be shared; the
/// list's lock protects them.
#[derive(Debug)]
pub struct Node {
    state: AtomicU8,
    priority: AtomicPriority,
    /// The list's round number when the waiter was inserted.
    round: AtomicU32,
    /// The neighbours in the ring of the level.
    next: AtomicU32,
    previous: AtomicU32,
    /// The first nodes of the neighbouring levels. Valid only in the first node of a level.
    next_level: AtomicU32,
    previous_level: AtomicU32,
    /// The value that the list returns when this waiter is to be woken.
    wake: AtomicU64,
}

impl Default for Node {
    fn default() -> Self {
        Self::new()
    }
}

impl Node {
    /// A node that is in no list.
    pub const fn new() -> Self {
        Self {
            state: AtomicU8::new(IDLE),
            priority: AtomicPriority::new(Priority::DEFAULT),
            round: AtomicU32::new(0),
            next: AtomicU32::new(NONE),
            previous: AtomicU32::new(NONE),
            next_level: AtomicU32::new(NONE),
            previous_level: AtomicU32::new(NOT_FIRST),
            wake: AtomicU64::new(0),
        }
    }

    fn priority(&self) -> Priority {
        self.priority.load()
    }

    /// Whether its waiter is in a list and stays there when it is woken. Without the list's lock: a
    /// round may end that at any time, and wakes the waiter.
    pub fn stays(&self) -> bool {
        self.state.load(Relaxed) == STAYS
    }
}

/// Maps numbers to nodes.
pub trait Nodes {
    /// The node with this number. It must exist as long as its waiter uses the list.
    fn node(&self, number: u32) -> &Node;
}

/// A list of waiters; see the module. Methods that return a waiter to be woken return the `wake`
/// value it was inserted with.
#[derive(Debug)]
pub struct WaitList {
    /// First node of the most urgent level.
    first: u32,
    round: u32,
}

impl Default for WaitList {
    fn default() -> Self {
        Self::new()
    }
}

impl WaitList {
    /// An empty list.
    pub const fn new() -> Self {
        Self { first: NONE, round: 0 }
    }

    /// Whether no waiter is queued.
    pub fn is_empty(&self) -> bool {
        self.first == NONE
    }

    /// The waiter that [`Self::wake_one`] wakes next.
    pub fn first(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// Queues waiter `number` with `priority`; `wake` identifies it when it is to be woken. The
    /// caller must check the condition once more afterwards.
    ///
    /// Returns another waiter that is to be woken.
    #[must_use]
    pub fn insert(
        &mut self,
        nodes: &impl Nodes,
        number: u32,
        priority: Priority,
        wake: u64,
    ) -> Option<u64> {
        let node = nodes.node(number);
        let before = node.state.load(Relaxed);
        if before == QUEUED || before == STAYS {
            if node.priority() == priority && node.wake.load(Relaxed) == wake {
                return None;
            }
            self.unlink(nodes, number);
        }
        node.priority.store(priority);
        node.wake.store(wake, Relaxed);
        node.round.store(self.round, Relaxed);
        node.state.store(QUEUED, Relaxed);
        self.link(nodes, number, before == WOKEN_ALONE);
        if before == WOKEN_IN_ROUND { self.next_of_round(nodes) } else { None }
    }

    /// Waiter `number`, if it is queued, is not removed when it is woken alone. It checks the
    /// condition after each wake.
    pub fn stay(&self, nodes: &impl Nodes, number: u32) {
        let state = &nodes.node(number).state;
        if state.load(Relaxed) == QUEUED {
            state.store(STAYS, Relaxed);
        }
    }

    /// Waiter `number` no longer waits. `may_be_ready`: whether other waiters may find the
    /// condition true.
    ///
    /// Returns another waiter that is to be woken.
    #[must_use]
    pub fn remove(&mut self, nodes: &impl Nodes, number: u32, may_be_ready: bool) -> Option<u64> {
        let node = nodes.node(number);
        match node.state.swap(IDLE, Relaxed) {
            QUEUED => {
                self.unlink(nodes, number);
                None
            }
            STAYS => {
                self.unlink(nodes, number);
                if may_be_ready { self.wake_one(nodes) } else { None }
            }
            WOKEN_ALONE if may_be_ready => self.wake_one(nodes),
            WOKEN_IN_ROUND => self.next_of_round(nodes),
            _ => None,
        }
    }

    /// Waiter `number` has found the condition true. If it is queued, it leaves the list with the
    /// baton, as if it had been woken.
    pub fn found(&mut self, nodes: &impl Nodes, number: u32) {
        if nodes.node(number).state.load(Relaxed) == QUEUED {
            self.take(nodes, number, WOKEN_ALONE);
        }
    }

    /// The condition has become true for at least one waiter. Returns the waiter to wake.
    #[must_use]
    pub fn wake_one(&mut self, nodes: &impl Nodes) -> Option<u64> {
        let first = self.first()?;
        let node = nodes.node(first);
        if node.stays() {
            return Some(node.wake.load(Relaxed));
        }
        Some(self.take(nodes, first, WOKEN_ALONE))
    }

    /// The conditions of several waiters may have become true. Returns the first waiter to wake.
    #[must_use]
    pub fn wake_all(&mut self, nodes: &impl Nodes) -> Option<u64> {
        self.round = self.round.wrapping_add(1);
        self.next_of_round(nodes)
    }

    /// Waiter `number` will take long before it checks the condition. If it holds the baton, it
    /// passes it on. One that stays leaves the list: it is inserted again when it checks.
    ///
    /// Returns another waiter that is to be woken.
    #[must_use]
    pub fn pass_on(&mut self, nodes: &impl Nodes, number: u32) -> Option<u64> {
        match nodes.node(number).state.load(Relaxed) {
            WOKEN_ALONE => self.wake_one(nodes),
            WOKEN_IN_ROUND => self.next_of_round(nodes),
            STAYS => self.remove(nodes, number, true),
            _ => None,
        }
    }

    /// Removes the most urgent waiter that was inserted before the current round.
    fn next_of_round(&mut self, nodes: &impl Nodes) -> Option<u64> {
        let mut number = self.first;
        while number != NONE {
            let node = nodes.node(number);
            // The first of a level has waited longest, so it has the lowest round.
            if self.round.wrapping_sub(node.round.load(Relaxed)) as i32 > 0 {
                return Some(self.take(nodes, number, WOKEN_IN_ROUND));
            }
            number = node.next_level.load(Relaxed);
        }
        None
    }

    fn take(&mut self, nodes: &impl Nodes, number: u32, state: u8) -> u64 {
        self.unlink(nodes, number);
        let node = nodes.node(number);
        node.state.store(state, Relaxed);
        node.wake.load(Relaxed)
    }

    /// Inserts a node into the ring of its level, at the back or at the front.
    fn link(&mut self, nodes: &impl Nodes, number: u32, at_front: bool) {
        let node = nodes.node(number);
        let priority = node.priority();
        let (mut before, mut first) = (NONE, self.first);
        while first != NONE && nodes.node(first).priority().is_more_urgent_than(priority) {
            before = first;
            first = nodes.node(first).next_level.load(Relaxed);
        }
        if first == NONE || nodes.node(first).priority() != priority {
            node.next.store(number, Relaxed);
            node.previous.store(number, Relaxed);
            self.set_first(nodes, number, before, first);
            return;
        }
        let head = nodes.node(first);
        let last = head.previous.load(Relaxed);
        node.next.store(first, Relaxed);
        node.previous.store(last, Relaxed);
        nodes.node(last).next.store(number, Relaxed);
        head.previous.store(number, Relaxed);
        if at_front {
            // As if it had waited as long as the one behind it: a round looks at the first ones.
            node.round.store(head.round.load(Relaxed), Relaxed);
            let after = head.next_level.load(Relaxed);
            head.previous_level.store(NOT_FIRST, Relaxed);
            self.set_first(nodes, number, before, after);
        } else {
            node.previous_level.store(NOT_FIRST, Relaxed);
        }
    }

    fn unlink(&mut self, nodes: &impl Nodes, number: u32) {
        let node = nodes.node(number);
        let (next, previous) = (node.next.load(Relaxed), node.previous.load(Relaxed));
        let before = node.previous_level.load(Relaxed);
        if before != NOT_FIRST {
            let after = node.next_level.load(Relaxed);
            if next == number {
                self.join(nodes, before, after);
            } else {
                self.set_first(nodes, next, before, after);
            }
            node.previous_level.store(NOT_FIRST, Relaxed);
        }
        nodes.node(previous).next.store(next, Relaxed);
        nodes.node(next).previous.store(previous, Relaxed);
    }

    /// Makes `number` the first of its level, between the levels that begin with `before` and
    /// `after`.
    fn set_first(&mut self, nodes: &impl Nodes, number: u32, before: u32, after: u32) {
        self.join(nodes, before, number);
        self.join(nodes, number, after);
    }

    /// Links two neighbouring levels, given their first nodes. `NONE` stands for either end of the
    /// list.
    fn join(&mut self, nodes: &impl Nodes, before: u32, after: u32) {
        match before {
            NONE => self.first = after,
            before => nodes.node(before).next_level.store(after, Relaxed),
        }
        if after != NONE {
            nodes.node(after).previous_level.store(before, Relaxed);
        }
    }
}

#[cfg(test)]
#[path = "wait_list_tests.rs"]
mod tests;
