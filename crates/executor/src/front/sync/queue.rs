//! The wait queue: waiters by priority, and within a priority by arrival; nodes that lie in the waiters' own futures.
//!
//! ```text
//!   first ──► A(3) ◄──next level──► D(32) ◄──next level──► G(63)      leaders: the first of each level
//!              │ ring                 │ ring
//!             B(3), C(3)             E(32), F(32)
//! ```
//!
//! Linking passes the leaders of more urgent levels, at most 63; taking the first and unlinking any node look at
//! neighbours only. So no operation depends on the number of waiters, except putting right the places of those whose
//! priority has changed ([`Queue::refile`]).
//!
//! Rejected: one sorted list (linking depends on the number of waiters), 64 list heads (1 KiB a queue), a
//! heap (needs sequence numbers to be fair, and is no simpler).
//!
//! # Rules (the safety argument of every block here)
//!
//! - A queue, and what is in the nodes linked in it, is touched only under one lock.
//! - A node is pinned, and unlinked before it is dropped. Its owner touches it only under that lock, or while it is
//!   not linked and was not granted.
//! - All accesses go through raw pointers to the `UnsafeCell`; a reference into a node ends before another begins.
#![allow(unsafe_code)]

use ::core::cell::UnsafeCell;
use ::core::marker::PhantomPinned;
use ::core::ptr;
use ::core::task::Waker;

use crate::core::{CoroutineId, Priority};
use crate::front::registry;

/// The priority that counts now: an executor's coroutine's own, for everybody else the default.
pub(super) fn level_of(owner: Option<CoroutineId>) -> Priority {
    owner.and_then(registry::priority).unwrap_or(Priority::DEFAULT)
}

/// Where a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In no queue.
    Out,
    /// In a queue, the first of its level.
    Leader,
    /// In a queue, behind others of its level.
    Behind,
    /// In no queue any more: it got what it waited for.
    Granted,
}

pub(super) type Link<D> = *const Node<D>;

/// A waiter.
pub(super) struct Node<D> {
    cell: UnsafeCell<Inner<D>>,
    _pinned: PhantomPinned,
}

struct Inner<D> {
    /// The ring of its level.
    next: Link<D>,
    previous: Link<D>,
    /// Of a leader: the neighbouring leaders.
    next_leader: Link<D>,
    previous_leader: Link<D>,
    place: Place,
    level: Priority,
    owner: Option<CoroutineId>,
    waker: Option<Waker>,
    data: D,
}

impl<D> Node<D> {
    pub const fn new(data: D) -> Node<D> {
        let none = ptr::null();
        Node {
            cell: UnsafeCell::new(Inner {
                next: none,
                previous: none,
                next_leader: none,
                previous_leader: none,
                place: Place::Out,
                level: Priority::DEFAULT,
                owner: None,
                waker: None,
                data,
            }),
            _pinned: PhantomPinned,
        }
    }
}

/// The field `$field` of a node.
macro_rules! field {
    ($node:expr, $field:ident) => {
        (*(*$node).cell.get()).$field
    };
}

/// # Safety (of all functions here)
///
/// The rules of the module, for `node`.
pub(super) mod node {
    use super::*;

    pub unsafe fn place<D>(node: Link<D>) -> Place {
        // SAFETY: the contract.
        unsafe { field!(node, place) }
    }

    pub unsafe fn level<D>(node: Link<D>) -> Priority {
        // SAFETY: the contract.
        unsafe { field!(node, level) }
    }

    pub unsafe fn owner<D>(node: Link<D>) -> Option<CoroutineId> {
        // SAFETY: the contract.
        unsafe { field!(node, owner) }
    }

    pub unsafe fn set_owner<D>(node: Link<D>, owner: Option<CoroutineId>) {
        // SAFETY: the contract.
        unsafe { field!(node, owner) = owner }
    }

    pub unsafe fn data<D: Copy>(node: Link<D>) -> D {
        // SAFETY: the contract.
        unsafe { field!(node, data) }
    }

    /// Where the data is.
    pub unsafe fn data_place<D>(node: Link<D>) -> *mut D {
        // SAFETY: the contract.
        unsafe { &raw mut field!(node, data) }
    }

    pub unsafe fn set_data<D: Copy>(node: Link<D>, data: D) {
        // SAFETY: the contract.
        unsafe { field!(node, data) = data }
    }

    /// Leaves a waker; returns the one that was there, to be dropped after the unlock.
    pub unsafe fn set_waker<D>(node: Link<D>, waker: Waker) -> Option<Waker> {
        // SAFETY: the contract. A move in and a move out: no code of the waker runs.
        unsafe { field!(node, waker).replace(waker) }
    }

    pub unsafe fn take_waker<D>(node: Link<D>) -> Option<Waker> {
        // SAFETY: as above.
        unsafe { field!(node, waker).take() }
    }

    /// The one that comes after it in the queue.
    pub unsafe fn following<D>(node: Link<D>) -> Link<D> {
        // SAFETY: the contract; a linked node's ring is linked.
        unsafe {
            let next = field!(node, next);
            if field!(next, place) == Place::Leader { field!(next, next_leader) } else { next }
        }
    }
}

/// See the head of the module.
pub(super) struct Queue<D> {
    first: Link<D>,
}

// SAFETY: the nodes behind the pointer are shared under a lock, and what they hold may go to other threads.
unsafe impl<D: Send> Send for Queue<D> {}

impl<D> Queue<D> {
    pub const fn new() -> Queue<D> {
        Queue { first: ptr::null() }
    }

    /// The queue whose first node is `first`.
    pub const fn from_first(first: Link<D>) -> Queue<D> {
        Queue { first }
    }

    /// The node whose turn it is, null if there is none.
    pub fn first(&self) -> Link<D> {
        self.first
    }

    pub fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Appends a node to its level.
    ///
    /// # Safety
    ///
    /// The rules of the module, and the node is in no queue.
    pub unsafe fn link(&mut self, node: Link<D>, level: Priority) {
        // SAFETY: the contract; linked nodes and their neighbours are valid.
        unsafe {
            field!(node, level) = level;
            let (mut before, mut leader) = (ptr::null(), self.first);
            while !leader.is_null() && field!(leader, level).is_more_urgent_than(level) {
                before = leader;
                leader = field!(leader, next_leader);
            }
            if !leader.is_null() && field!(leader, level) == level {
                let tail = field!(leader, previous);
                field!(node, place) = Place::Behind;
                field!(node, next) = leader;
                field!(node, previous) = tail;
                field!(tail, next) = node;
                field!(leader, previous) = node;
                return;
            }
            field!(node, place) = Place::Leader;
            field!(node, next) = node;
            field!(node, previous) = node;
            self.join_leaders(before, node);
            self.join_leaders(node, leader);
        }
    }

    /// Makes two leaders neighbours; null stands for the ends.
    ///
    /// # Safety
    ///
    /// The rules of the module.
    unsafe fn join_leaders(&mut self, before: Link<D>, after: Link<D>) {
        // SAFETY: the contract.
        unsafe {
            if before.is_null() {
                self.first = after;
            } else {
                field!(before, next_leader) = after;
            }
            if !after.is_null() {
                field!(after, previous_leader) = before;
            }
        }
    }

    /// Takes a node out.
    ///
    /// # Safety
    ///
    /// The rules of the module, and the node is in this queue.
    pub unsafe fn unlink(&mut self, node: Link<D>) {
        // SAFETY: the contract; linked nodes and their neighbours are valid.
        unsafe {
            let next = field!(node, next);
            if field!(node, place) == Place::Leader {
                let (before, after) = (field!(node, previous_leader), field!(node, next_leader));
                if ptr::eq(next, node) {
                    self.join_leaders(before, after);
                } else {
                    field!(next, place) = Place::Leader;
                    self.join_leaders(before, next);
                    self.join_leaders(next, after);
                }
            }
            let previous = field!(node, previous);
            field!(previous, next) = next;
            field!(next, previous) = previous;
            field!(node, place) = Place::Out;
        }
    }

    /// Takes a node out and marks it as granted. Returns its waker, to be woken after the unlock.
    ///
    /// # Safety
    ///
    /// As [`unlink`](Self::unlink).
    pub unsafe fn grant(&mut self, node: Link<D>) -> Option<Waker> {
        // SAFETY: the contract.
        unsafe {
            self.unlink(node);
            field!(node, place) = Place::Granted;
            field!(node, waker).take()
        }
    }

    /// Puts those whose priority has changed at the end of their new level, in the order in which they stood. True
    /// if there were any. Looks at all waiters.
    ///
    /// # Safety
    ///
    /// The rules of the module.
    pub unsafe fn refile(&mut self) -> bool {
        let (mut moved_first, mut moved_last): (Link<D>, Link<D>) = (ptr::null(), ptr::null());
        let mut next = self.first;
        // SAFETY: the contract. What follows a node is read before it is unlinked, and is linked still after that.
        // Those to be moved are chained by `next`, which nobody else uses of a node that is out.
        unsafe {
            while !next.is_null() {
                let here = next;
                next = node::following(here);
                if level_of(field!(here, owner)) != field!(here, level) {
                    self.unlink(here);
                    field!(here, next) = ptr::null();
                    if moved_last.is_null() {
                        moved_first = here;
                    } else {
                        field!(moved_last, next) = here;
                    }
                    moved_last = here;
                }
            }
            next = moved_first;
            while !next.is_null() {
                let here = next;
                next = field!(here, next);
                self.link(here, level_of(field!(here, owner)));
            }
        }
        !moved_first.is_null()
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
