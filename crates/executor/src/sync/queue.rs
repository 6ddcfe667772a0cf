//! The wait queue: waiters by priority, and within a priority by arrival; nodes that lie in the
//! waiters' own futures.
//!
//! The order is that of `levels`: no operation depends on the number of waiters, except updating
//! the places of waiters after a change of their priority ([`Queue::requeue`]).
//!
//! # Rules (the safety argument of every block here)
//!
//! - A queue, and what is in the nodes linked in it, is touched only under one lock.
//! - A node is pinned, and unlinked before it is dropped. Its owner touches it only under that
//!   lock, or while it is not linked and was not granted.
//! - All accesses go through raw pointers to the `UnsafeCell`; a reference into a node ends before
//!   another begins.
#![allow(unsafe_code)]

use ::core::cell::UnsafeCell;
use ::core::marker::PhantomPinned;
use ::core::ptr;
use ::core::task::Waker;

use super::levels::{Levels, Linked, Links};
use crate::core::{CoroutineId, Priority};
use crate::front::registry;

/// The current priority: that of a coroutine of an executor, the default for all others.
pub(super) fn priority_of(owner: Option<CoroutineId>) -> Priority {
    owner.and_then(registry::priority).unwrap_or(Priority::DEFAULT)
}

/// Where a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In no queue.
    Out,
    /// In a queue.
    Queued,
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
    /// In its queue.
    links: Links<Node<D>>,
    place: Place,
    owner: Option<CoroutineId>,
    waker: Option<Waker>,
    data: D,
}

impl<D> Node<D> {
    pub const fn new(data: D) -> Node<D> {
        let links = Links::new();
        let inner = Inner { links, place: Place::Out, owner: None, waker: None, data };
        Node { cell: UnsafeCell::new(inner), _pinned: PhantomPinned }
    }
}

/// The field `$field` of a node.
macro_rules! field {
    ($node:expr, $field:ident) => {
        (*(*$node).cell.get()).$field
    };
}

/// The links of a node in a queue.
pub(super) enum InQueue {}

impl<D> Linked<InQueue> for Node<D> {
    unsafe fn links(here: Link<D>) -> *mut Links<Node<D>> {
        // SAFETY: by contract of the trait the node is valid, and only a pointer is formed.
        unsafe { &raw mut field!(here, links) }
    }
}

/// # Safety (of all functions here)
///
/// The rules of the module, for `node`.
pub(super) mod node {
    use super::*;

    pub unsafe fn place<D>(node: Link<D>) -> Place {
        // SAFETY: the rules of the module hold for `node`: it is valid, and this is under its lock
        // or by its owner.
        unsafe { field!(node, place) }
    }

    pub unsafe fn priority<D>(node: Link<D>) -> Priority {
        // SAFETY: the rules of the module hold for `node`: it is valid, and this is under its lock
        // or by its owner.
        unsafe { Order::<D>::linked_priority(node) }
    }

    pub unsafe fn owner<D>(node: Link<D>) -> Option<CoroutineId> {
        // SAFETY: the rules of the module hold for `node`: it is valid, and this is under its lock
        // or by its owner.
        unsafe { field!(node, owner) }
    }

    pub unsafe fn set_owner<D>(node: Link<D>, owner: Option<CoroutineId>) {
        // SAFETY: the rules of the module hold for `node`: it is valid, and this is under its lock
        // or by its owner.
        unsafe { field!(node, owner) = owner }
    }

    pub unsafe fn data<D: Copy>(node: Link<D>) -> D {
        // SAFETY: the rules of the module hold for `node`: it is valid, and this is under its lock
        // or by its owner.
        unsafe { field!(node, data) }
    }

    /// Where the data is.
    pub unsafe fn data_place<D>(node: Link<D>) -> *mut D {
        // SAFETY: the rules of the module hold for `node`; only a pointer is formed.
        unsafe { &raw mut field!(node, data) }
    }

    pub unsafe fn set_data<D: Copy>(node: Link<D>, data: D) {
        // SAFETY: the rules of the module hold for `node`: it is valid, and this is under its lock
        // or by its owner.
        unsafe { field!(node, data) = data }
    }

    /// Leaves a waker; returns the one that was there, to be dropped after the unlock.
    pub unsafe fn set_waker<D>(node: Link<D>, waker: Waker) -> Option<Waker> {
        // SAFETY: the contract. A move in and a move out: no code of the waker runs.
        unsafe { field!(node, waker).replace(waker) }
    }

    pub unsafe fn take_waker<D>(node: Link<D>) -> Option<Waker> {
        // SAFETY: the rules of the module hold for `node`. The waker is moved out, so none of its
        // code runs.
        unsafe { field!(node, waker).take() }
    }

    /// The one that comes after it in the queue, null after the last. The node is linked.
    pub unsafe fn following<D>(node: Link<D>) -> Link<D> {
        // SAFETY: the rules of the module hold for `node`, and a linked node has valid neighbours.
        unsafe { Order::<D>::following(node) }
    }
}

type Order<D> = Levels<Node<D>, InQueue>;

/// See the head of the module.
pub(super) struct Queue<D> {
    order: Order<D>,
}

// SAFETY: the nodes behind the pointer are shared under a lock, and what they hold may go to other
// threads.
unsafe impl<D: Send> Send for Queue<D> {}

impl<D> Queue<D> {
    pub const fn new() -> Queue<D> {
        Queue::from_first(ptr::null())
    }

    /// The queue that begins with `first`.
    pub const fn from_first(first: Link<D>) -> Queue<D> {
        Queue { order: Levels::from_first(first) }
    }

    /// The first node, null if there is none.
    pub fn first(&self) -> Link<D> {
        self.order.first()
    }

    pub fn is_empty(&self) -> bool {
        self.first().is_null()
    }

    /// Appends a node to the level of `priority`.
    ///
    /// # Safety
    ///
    /// The rules of the module, and the node is in no queue.
    pub unsafe fn link(&mut self, node: Link<D>, priority: Priority) {
        // SAFETY: by contract the rules of the module hold for the node, and it is in no queue.
        unsafe {
            field!(node, place) = Place::Queued;
            self.order.link(node, priority);
        }
    }

    /// Takes a node out.
    ///
    /// # Safety
    ///
    /// The rules of the module, and the node is in this queue.
    pub unsafe fn unlink(&mut self, node: Link<D>) {
        // SAFETY: by contract the rules of the module hold for the node, and it is in this queue.
        unsafe {
            self.order.unlink(node);
            field!(node, place) = Place::Out;
        }
    }

    /// Takes a node out and marks it as granted. Returns its waker, to be woken after the unlock.
    ///
    /// # Safety
    ///
    /// As [`unlink`](Self::unlink).
    pub unsafe fn grant(&mut self, node: Link<D>) -> Option<Waker> {
        // SAFETY: by contract the rules of the module hold for the node, and it is in this queue.
        unsafe {
            self.unlink(node);
            field!(node, place) = Place::Granted;
            field!(node, waker).take()
        }
    }

    /// Moves waiters with a changed priority to the end of their new level, in the order in which
    /// they stood. True if there were any. Looks at all waiters.
    ///
    /// # Safety
    ///
    /// The rules of the module.
    pub unsafe fn requeue(&mut self) -> bool {
        let (mut moved_first, mut moved_last): (Link<D>, Link<D>) = (ptr::null(), ptr::null());
        let mut next = self.first();
        // SAFETY: the contract. What follows a node is read before it is unlinked, and is linked
        // still after that. Those to be moved are chained while they are out.
        unsafe {
            while !next.is_null() {
                let here = next;
                next = node::following(here);
                if priority_of(field!(here, owner)) != node::priority(here) {
                    self.unlink(here);
                    Order::<D>::chain(here, ptr::null());
                    if moved_last.is_null() {
                        moved_first = here;
                    } else {
                        Order::<D>::chain(moved_last, here);
                    }
                    moved_last = here;
                }
            }
            next = moved_first;
            while !next.is_null() {
                let here = next;
                next = Order::<D>::chained(here);
                self.link(here, priority_of(field!(here, owner)));
            }
        }
        !moved_first.is_null()
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
