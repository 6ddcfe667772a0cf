//! The queue of deadlines: a leftist heap of nodes that lie in the sleeping futures.
//!
//! A node's *rank* is the length of the path to the nearest missing child, and the left child's is
//! never less than the right one's: so the path to the right from a node is at most log2(n + 1)
//! long, and merging two heaps walks only such paths. Everything else is merging: adding (with a
//! heap of one), taking the first (its children), taking any (its children, in its place). Each
//! takes O(log n) steps in the worst case, a bound on how long the lock is held.
//!
//! Rejected: a pairing heap (cheaper on average, but the first removal after n additions takes n
//! steps), a timing wheel (constant, but kilobytes of slots, coarse or cascading deadlines, and the
//! next deadline has to be searched), a binary heap in an array (allocates).
//!
//! # Rules (the safety argument of every block here)
//!
//! - A heap, and what is in the nodes linked in it, is touched only under one lock.
//! - A node is pinned, and taken out before it is dropped. Its owner touches it only under that
//!   lock, or while it is out.
//! - All accesses go through raw pointers to the `UnsafeCell`.
#![allow(unsafe_code)]

use ::core::cell::UnsafeCell;
use ::core::marker::PhantomPinned;
use ::core::ptr;
use ::core::task::Waker;

pub(super) type Link = *const Node;

/// A deadline, and the waker of the future that waits for it.
pub(super) struct Node {
    cell: UnsafeCell<Inner>,
    _pinned: PhantomPinned,
}

struct Inner {
    parent: Link,
    left: Link,
    right: Link,
    rank: u8,
    linked: bool,
    deadline: u64,
    /// Orders equal deadlines by coming.
    number: u64,
    waker: Option<Waker>,
}

impl Node {
    pub const fn new() -> Node {
        let none = ptr::null();
        Node {
            cell: UnsafeCell::new(Inner {
                parent: none,
                left: none,
                right: none,
                rank: 1,
                linked: false,
                deadline: 0,
                number: 0,
                waker: None,
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

/// The heap.
pub(super) struct Heap {
    first: Link,
    count: usize,
    next_number: u64,
}

// SAFETY: the nodes are shared under a lock, and wakers may go to other threads.
unsafe impl Send for Heap {}

impl Heap {
    pub const fn new() -> Heap {
        Heap { first: ptr::null(), count: 0, next_number: 0 }
    }

    pub fn count(&self) -> usize {
        self.count
    }

    /// The earliest deadline.
    pub fn deadline(&self) -> Option<u64> {
        // SAFETY: the rules; what is linked is valid.
        (!self.first.is_null()).then(|| unsafe { field!(self.first, deadline) })
    }

    /// Adds a node.
    ///
    /// # Safety
    ///
    /// The rules of the module, and the node is in no heap.
    pub unsafe fn insert(&mut self, node: Link, deadline: u64, waker: Waker) -> Option<Waker> {
        // SAFETY: by contract the rules of the module hold for the node, and it is in no heap.
        unsafe {
            let inner = &mut *(*node).cell.get();
            inner.parent = ptr::null();
            inner.left = ptr::null();
            inner.right = ptr::null();
            inner.rank = 1;
            inner.linked = true;
            inner.deadline = deadline;
            inner.number = self.next_number;
            let old = inner.waker.replace(waker);
            self.next_number += 1;
            self.count += 1;
            self.first = merge(self.first, node);
            old
        }
    }

    /// Takes out the node with the earliest deadline if that is not after `now`: its waker.
    pub fn pop_due(&mut self, now: u64) -> Option<Option<Waker>> {
        if self.deadline()? > now {
            return None;
        }
        let first = self.first;
        // SAFETY: the rules; the first is linked here.
        unsafe {
            self.remove(first);
            Some(field!(first, waker).take())
        }
    }

    /// Takes a node out.
    ///
    /// # Safety
    ///
    /// The rules of the module, and the node is in this heap.
    pub unsafe fn remove(&mut self, node: Link) {
        // SAFETY: the contract; what is linked is valid.
        unsafe {
            let (parent, left, right) =
                (field!(node, parent), field!(node, left), field!(node, right));
            field!(node, linked) = false;
            self.count -= 1;
            for child in [left, right] {
                if !child.is_null() {
                    field!(child, parent) = ptr::null();
                }
            }
            let merged = merge(left, right);
            if !merged.is_null() {
                field!(merged, parent) = parent;
            }
            if parent.is_null() {
                self.first = merged;
            } else {
                if ptr::eq(field!(parent, left), node) {
                    field!(parent, left) = merged;
                } else {
                    field!(parent, right) = merged;
                }
                repair(parent);
            }
        }
    }
}

/// Whether a node is in a heap.
///
/// # Safety
///
/// The rules of the module.
pub(super) unsafe fn is_linked(node: Link) -> bool {
    // SAFETY: by contract the rules of the module hold for the node: it is valid, and this is under
    // its lock or by its owner.
    unsafe { field!(node, linked) }
}

/// Leaves a waker in a node; returns the one before, to be dropped after the unlock.
///
/// # Safety
///
/// The rules of the module.
pub(super) unsafe fn set_waker(node: Link, waker: Waker) -> Option<Waker> {
    // SAFETY: the contract. Moves only: no code of the waker runs.
    unsafe { field!(node, waker).replace(waker) }
}

/// Takes the waker.
///
/// # Safety
///
/// The rules of the module.
pub(super) unsafe fn take_waker(node: Link) -> Option<Waker> {
    // SAFETY: by contract the rules of the module hold for the node: it is valid, and this is under
    // its lock or by its owner.
    unsafe { field!(node, waker).take() }
}

/// # Safety
///
/// The rules of the module.
unsafe fn rank(node: Link) -> u8 {
    // SAFETY: by contract the node is null or the rules of the module hold for it.
    if node.is_null() { 0 } else { unsafe { field!(node, rank) } }
}

/// # Safety
///
/// The rules of the module.
unsafe fn comes_before(one: Link, other: Link) -> bool {
    // SAFETY: by contract the rules of the module hold for both nodes.
    unsafe {
        (field!(one, deadline), field!(one, number))
            < (field!(other, deadline), field!(other, number))
    }
}

/// Merges two heaps without parents: down their right paths, then up again, setting ranks right.
///
/// # Safety
///
/// The rules of the module.
unsafe fn merge(mut one: Link, mut other: Link) -> Link {
    let (mut root, mut last): (Link, Link) = (ptr::null(), ptr::null());
    // SAFETY: the contract; what is linked is valid.
    unsafe {
        while !one.is_null() && !other.is_null() {
            if comes_before(other, one) {
                ::core::mem::swap(&mut one, &mut other);
            }
            // `one` comes next on the path.
            if last.is_null() {
                root = one;
            } else {
                field!(last, right) = one;
            }
            field!(one, parent) = last;
            last = one;
            one = field!(one, right);
        }
        let rest = if one.is_null() { other } else { one };
        if last.is_null() {
            return rest;
        }
        field!(last, right) = rest;
        if !rest.is_null() {
            field!(rest, parent) = last;
        }
        // All of the path: its ranks are those of before the merge.
        while !last.is_null() {
            set_right(last);
            last = field!(last, parent);
        }
    }
    root
}

/// Establishes the order of the children's ranks, and the rank. True if the rank has changed.
///
/// # Safety
///
/// The rules of the module.
unsafe fn set_right(node: Link) -> bool {
    // SAFETY: by contract the rules of the module hold for the node, and so for its children, which
    // are in the same heap.
    unsafe {
        let inner = &mut *(*node).cell.get();
        if rank(inner.left) < rank(inner.right) {
            ::core::mem::swap(&mut inner.left, &mut inner.right);
        }
        let before = ::core::mem::replace(&mut inner.rank, rank(inner.right) + 1);
        inner.rank != before
    }
}

/// From a node with changed children upwards, as long as ranks change. With each step the new
/// rank grows by one, so there are at most as many steps as ranks: log2(n + 1).
///
/// # Safety
///
/// The rules of the module.
unsafe fn repair(mut node: Link) {
    // SAFETY: by contract the rules of the module hold for the node, and so for its ancestors,
    // which are in the same heap.
    unsafe {
        while !node.is_null() && set_right(node) {
            node = field!(node, parent);
        }
    }
}

#[cfg(test)]
#[path = "heap_tests.rs"]
mod tests;
