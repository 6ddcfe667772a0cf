//! Lists in the order of levels, and within a level of arrival; the links lie in the elements.
//!
//! ```text
//!   first ──► A(3) ◄──next level──► D(32) ◄──next level──► G(63)      leaders: the first of each level
//!              │ ring                 │ ring
//!             B(3), C(3)             E(32), F(32)
//! ```
//!
//! Linking passes the leaders of more urgent levels, at most 63; taking the first and unlinking any
//! element look at neighbours only. So no operation depends on the number of elements.
//!
//! Rejected: one sorted list (linking depends on the number of elements), 64 list heads (1 KiB a
//! list), a heap (needs sequence numbers to be fair, and is no simpler).
//!
//! An element may be in several lists, by different links: `K` says which.
//!
//! Unsafe: raw pointers to elements. The contract of every function: all elements that are linked
//! are valid, links are touched under one lock, and no reference to them is alive.
#![allow(unsafe_code)]

use ::core::marker::PhantomData;
use ::core::ptr;

use super::steps;
use crate::core::Priority;

/// What an element carries for one list.
pub(super) struct Links<N> {
    /// The ring of its level.
    next: *const N,
    previous: *const N,
    /// Of a leader: the neighbouring leaders.
    next_leader: *const N,
    previous_leader: *const N,
    priority: Priority,
    is_leader: bool,
}

impl<N> Links<N> {
    pub const fn new() -> Links<N> {
        let none = ptr::null();
        Links {
            next: none,
            previous: none,
            next_leader: none,
            previous_leader: none,
            priority: Priority::DEFAULT,
            is_leader: false,
        }
    }
}

impl<N> Clone for Links<N> {
    fn clone(&self) -> Links<N> {
        *self
    }
}

impl<N> Copy for Links<N> {}

/// An element with links of the kind `K`.
pub(super) trait Linked<K>: Sized {
    /// A pointer to them, the same at each call. The blocks below rely on it.
    ///
    /// # Safety
    ///
    /// The element is valid.
    unsafe fn links(here: *const Self) -> *mut Links<Self>;
}

/// See the head of the module.
pub(super) struct Levels<N, K> {
    first: *const N,
    _kind: PhantomData<K>,
}

/// The field `$field` of an element's links.
macro_rules! link {
    ($node:expr, $field:ident) => {
        (*<N as Linked<K>>::links($node)).$field
    };
}

impl<N: Linked<K>, K> Levels<N, K> {
    /// The list that begins with `first`; empty if that is null.
    pub const fn from_first(first: *const N) -> Levels<N, K> {
        Levels { first, _kind: PhantomData }
    }

    /// The most urgent element that came first, null if there is none.
    pub fn first(&self) -> *const N {
        self.first
    }

    /// The priority under which an element is linked, or was last.
    ///
    /// # Safety
    ///
    /// That of the module.
    pub unsafe fn linked_priority(here: *const N) -> Priority {
        // SAFETY: by contract of the module the element is valid and no reference to its links
        // exists.
        unsafe { link!(here, priority) }
    }

    /// The element that comes after a linked one, null after the last.
    ///
    /// # Safety
    ///
    /// That of the module, and the element is in a list.
    pub unsafe fn following(here: *const N) -> *const N {
        // SAFETY: the contract; a linked element's ring is linked.
        unsafe {
            let next = link!(here, next);
            if link!(next, is_leader) { link!(next, next_leader) } else { next }
        }
    }

    /// Appends an element to the level of `priority`.
    ///
    /// # Safety
    ///
    /// That of the module, and the element is in no list of this kind.
    pub unsafe fn link(&mut self, here: *const N, priority: Priority) {
        // SAFETY: the contract; linked elements and their neighbours are valid.
        unsafe {
            link!(here, priority) = priority;
            let (mut before, mut leader) = (ptr::null(), self.first);
            while !leader.is_null() && link!(leader, priority).is_more_urgent_than(priority) {
                steps::count();
                before = leader;
                leader = link!(leader, next_leader);
            }
            if !leader.is_null() && link!(leader, priority) == priority {
                let tail = link!(leader, previous);
                link!(here, is_leader) = false;
                link!(here, next) = leader;
                link!(here, previous) = tail;
                link!(tail, next) = here;
                link!(leader, previous) = here;
                return;
            }
            link!(here, is_leader) = true;
            link!(here, next) = here;
            link!(here, previous) = here;
            self.join_leaders(before, here);
            self.join_leaders(here, leader);
        }
    }

    /// Makes two leaders neighbours; null stands for the ends.
    ///
    /// # Safety
    ///
    /// That of the module.
    unsafe fn join_leaders(&mut self, before: *const N, after: *const N) {
        // SAFETY: by contract of the module both elements are null or valid, and no reference to
        // their links exists.
        unsafe {
            if before.is_null() {
                self.first = after;
            } else {
                link!(before, next_leader) = after;
            }
            if !after.is_null() {
                link!(after, previous_leader) = before;
            }
        }
    }

    /// Takes an element out.
    ///
    /// # Safety
    ///
    /// That of the module, and the element is in this list.
    pub unsafe fn unlink(&mut self, here: *const N) {
        // SAFETY: the contract; linked elements and their neighbours are valid.
        unsafe {
            let next = link!(here, next);
            if link!(here, is_leader) {
                let (before, after) = (link!(here, previous_leader), link!(here, next_leader));
                if ptr::eq(next, here) {
                    self.join_leaders(before, after);
                } else {
                    link!(next, is_leader) = true;
                    self.join_leaders(before, next);
                    self.join_leaders(next, after);
                }
            }
            let previous = link!(here, previous);
            link!(previous, next) = next;
            link!(next, previous) = previous;
        }
    }

    /// Chains an element that is linked nowhere to another one, or, with null, ends the chain with
    /// it. Linking it overwrites this.
    ///
    /// # Safety
    ///
    /// `here` is valid, is in no list of this kind, and no reference to its links is alive.
    pub unsafe fn chain(here: *const N, next: *const N) {
        // SAFETY: by contract the element is valid; it is not linked, so its links are free for
        // this use.
        unsafe { link!(here, next) = next }
    }

    /// What `chain` has set.
    ///
    /// # Safety
    ///
    /// As for `chain`.
    pub unsafe fn chained(here: *const N) -> *const N {
        // SAFETY: by contract the element is valid and no reference to its links is alive.
        unsafe { link!(here, next) }
    }
}
