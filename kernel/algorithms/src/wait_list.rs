//! The list of waiters of one thing: most urgent first, first come first served within a level.
//!
//! A waiter's [`Node`] belongs to the waiter (in the kernel: to the cell of its call) and has a number.
//! The list consists of numbers, so that it allocates nothing. Every operation takes a constant number
//! of steps, except that a search for a level passes at most 64 nodes.
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
//! | idle | in no list | [`WaitList::enter`] |
//! | queued | in the list | [`WaitList::wake_one`], [`WaitList::wake_all`], [`WaitList::leave`] |
//! | woken alone | taken out by `wake_one`; has not looked yet | `enter`, `leave` |
//! | woken in a round | taken out by `wake_all`; has not looked yet | `enter`, `leave` |
//!
//! An event wakes *one* waiter. A woken waiter holds the baton, until one of these happens:
//! - It finds that it must wait again. Then the condition is false, and whatever makes it true wakes
//!   one waiter. It keeps its place: it enters its level at the front.
//! - It leaves, with a result or because it is cancelled, while the condition may be true: it passes
//!   the baton on, that is, `leave` names the next waiter to wake.
//!
//! So the following holds at all times: *if the condition is true and a waiter is queued, then some
//! waiter holds the baton* (or an event is about to wake one). No wake is lost, and an event costs
//! as many polls as waiters can use it, plus one.
//!
//! A queue whose waiters wait for different things (the ends of different children) needs each of them to
//! look. `wake_all` begins a *round*: every waiter that entered before it is woken, one after the other;
//! each of them wakes the next one when it has looked. So a round is done in portions of one poll.
//! Entries of one level are in the order of their rounds, because a waiter that enters goes to the back.
//!
//! The caller has a lock for each list, and changes the nodes of its waiters under that lock only.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// No node.
const NONE: u32 = u32::MAX;
/// In `previous_level`: the node is not the first of its level.
const NOT_FIRST: u32 = u32::MAX - 1;

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const WOKEN_ALONE: u8 = 2;
const WOKEN_IN_ROUND: u8 = 3;

/// What a waiter contributes to the list. Atomic only so that it can be shared: a lock protects it.
#[derive(Debug)]
pub struct Node {
    state: AtomicU8,
    level: AtomicU8,
    /// The list's round when the waiter entered.
    round: AtomicU32,
    /// The ring of the level.
    next: AtomicU32,
    previous: AtomicU32,
    /// The first nodes of the neighbouring levels; of the first node of a level only.
    next_level: AtomicU32,
    previous_level: AtomicU32,
    /// What the caller wakes.
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
            level: AtomicU8::new(0),
            round: AtomicU32::new(0),
            next: AtomicU32::new(NONE),
            previous: AtomicU32::new(NONE),
            next_level: AtomicU32::new(NONE),
            previous_level: AtomicU32::new(NOT_FIRST),
            wake: AtomicU64::new(0),
        }
    }

    fn level(&self) -> u8 {
        self.level.load(Relaxed)
    }
}

/// Where nodes are found by their numbers.
pub trait Nodes {
    /// The node with this number; it exists as long as a waiter uses it.
    fn node(&self, number: u32) -> &Node;
}

/// See the module. The value of a waiter that is to be woken is what it entered with.
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

    /// Queues waiter `number` of `level`, to be woken by `wake`. The caller looks at the condition once more afterwards.
    ///
    /// Returns another waiter that is to be woken.
    #[must_use]
    pub fn enter(&mut self, nodes: &impl Nodes, number: u32, level: u8, wake: u64) -> Option<u64> {
        let node = nodes.node(number);
        let before = node.state.load(Relaxed);
        if before == QUEUED {
            if node.level() == level && node.wake.load(Relaxed) == wake {
                return None;
            }
            self.unlink(nodes, number);
        }
        node.level.store(level, Relaxed);
        node.wake.store(wake, Relaxed);
        node.round.store(self.round, Relaxed);
        node.state.store(QUEUED, Relaxed);
        self.link(nodes, number, before == WOKEN_ALONE);
        if before == WOKEN_IN_ROUND { self.next_of_round(nodes) } else { None }
    }

    /// Waiter `number` waits no more. `may_be_ready`: whether others may find the condition true.
    ///
    /// Returns another waiter that is to be woken.
    #[must_use]
    pub fn leave(&mut self, nodes: &impl Nodes, number: u32, may_be_ready: bool) -> Option<u64> {
        let node = nodes.node(number);
        match node.state.swap(IDLE, Relaxed) {
            QUEUED => {
                self.unlink(nodes, number);
                None
            }
            WOKEN_ALONE if may_be_ready => self.wake_one(nodes),
            WOKEN_IN_ROUND => self.next_of_round(nodes),
            _ => None,
        }
    }

    /// The condition has become true for at least one waiter. Returns the waiter to wake.
    #[must_use]
    pub fn wake_one(&mut self, nodes: &impl Nodes) -> Option<u64> {
        (self.first != NONE).then(|| self.take(nodes, self.first, WOKEN_ALONE))
    }

    /// The conditions of several waiters may have become true. Returns the first waiter to wake.
    #[must_use]
    pub fn wake_all(&mut self, nodes: &impl Nodes) -> Option<u64> {
        self.round = self.round.wrapping_add(1);
        self.next_of_round(nodes)
    }

    /// Waiter `number` is going to take long before it looks: if it holds the baton, it passes it on.
    ///
    /// Returns another waiter that is to be woken.
    #[must_use]
    pub fn pass_on(&mut self, nodes: &impl Nodes, number: u32) -> Option<u64> {
        match nodes.node(number).state.load(Relaxed) {
            WOKEN_ALONE => self.wake_one(nodes),
            WOKEN_IN_ROUND => self.next_of_round(nodes),
            _ => None,
        }
    }

    /// Takes out the most urgent waiter that entered before the current round.
    fn next_of_round(&mut self, nodes: &impl Nodes) -> Option<u64> {
        let mut number = self.first;
        while number != NONE {
            let node = nodes.node(number);
            // The oldest of its level is the first.
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

    /// Puts a node into the ring of its level, at its back or at its front.
    fn link(&mut self, nodes: &impl Nodes, number: u32, at_front: bool) {
        let node = nodes.node(number);
        let level = node.level();
        let (mut before, mut first) = (NONE, self.first);
        while first != NONE && nodes.node(first).level() < level {
            before = first;
            first = nodes.node(first).next_level.load(Relaxed);
        }
        if first == NONE || nodes.node(first).level() != level {
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

    /// Makes `number` the first of its level, between the levels that begin with `before` and `after`.
    fn set_first(&mut self, nodes: &impl Nodes, number: u32, before: u32, after: u32) {
        self.join(nodes, before, number);
        self.join(nodes, number, after);
    }

    /// Makes the levels that begin with these two neighbours; `NONE` is the end of the list on either side.
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
