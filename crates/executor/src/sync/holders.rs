//! What each holder of contended mutexes inherits: its records in the table, in the order of their
//! levels.
//!
//! The first of them, and no other, is in the table's index `HOLDER`. So what the holder inherits
//! is found in one step, and adding a mutex, removing it or changing its level passes at most 63
//! leaders (`levels`), however many others the holder has.
#![allow(unsafe_code)]

use ::core::ptr;

use super::contended::{HOLDER, Locked, Record};
use super::levels::{Levels, Linked, Links};
use super::queue::{Link, Node, node};
use crate::core::Priority;

/// The links of a record among those of its holder.
enum OfHolder {}

impl Linked<OfHolder> for Node<Record> {
    unsafe fn links(here: Link<Record>) -> *mut Links<Node<Record>> {
        // SAFETY: by contract of the trait the node is valid, and only a pointer is formed.
        unsafe { &raw mut (*node::data_place(here)).of_holder }
    }
}

/// The records of a holder.
type Held = Levels<Node<Record>, OfHolder>;

/// The word of the holder, as `contended::word_of` forms it.
///
/// # Safety
///
/// The node is in the table, and the table's lock is held.
unsafe fn holder_of(here: Link<Record>) -> u64 {
    // SAFETY: by contract the node is valid, and under the table's lock no reference to its record
    // is alive.
    unsafe { (*node::data_place(here)).holder }
}

// "The lock" stands for the argument at the other half of this, in `contended`.
impl Locked<'_> {
    fn held_by(&self, holder: u64) -> Held {
        // SAFETY: the table's lock is held, and `first` is in one of its lists, so it is valid.
        let first = self.list(HOLDER, holder).find(|&first| unsafe { holder_of(first) == holder });
        Held::from_first(first.unwrap_or(ptr::null()))
    }

    /// The level of the most urgent coroutine that waits for a mutex of `holder`.
    pub fn most_urgent_for(&self, holder: u64) -> Option<Priority> {
        let first = self.held_by(holder).first();
        // SAFETY: the table's lock is held; a record of the list is valid, and linked among those
        // of its holder.
        (!first.is_null()).then(|| unsafe { Held::linked_priority(first) })
    }

    /// Changes the list of a holder, and puts the first of it into the index.
    ///
    /// # Safety
    ///
    /// `change` leaves a list of records of this holder.
    unsafe fn change(&self, holder: u64, change: impl FnOnce(&mut Held)) {
        let mut held = self.held_by(holder);
        let before = held.first();
        change(&mut held);
        let after = held.first();
        if ptr::eq(before, after) {
            return;
        }
        // SAFETY: the lock. What was the first is in the index, and what has become the first is
        // not.
        unsafe {
            if !before.is_null() {
                self.take(HOLDER, holder, before);
            }
            if !after.is_null() {
                self.put(HOLDER, holder, after);
            }
        }
    }

    /// Adds a record to those of its holder, by the level of its node.
    ///
    /// # Safety
    ///
    /// It is a record that was not added.
    pub unsafe fn add_held(&self, here: Link<Record>) {
        // SAFETY: the table's lock is held; by contract the record is valid and in no list of a
        // holder.
        unsafe { self.change(holder_of(here), |held| held.link(here, node::priority(here))) }
    }

    /// Removes a record from those of its holder.
    ///
    /// # Safety
    ///
    /// It is a record that was added.
    pub unsafe fn remove_held(&self, here: Link<Record>) {
        // SAFETY: the table's lock is held; by contract the record is in the list of its holder.
        unsafe { self.change(holder_of(here), |held| held.unlink(here)) }
    }

    /// Moves a record after a possible change of its node's level. Returns whether it has changed.
    ///
    /// # Safety
    ///
    /// It is a record that was added.
    pub unsafe fn update_held(&self, here: Link<Record>) -> bool {
        // SAFETY: the table's lock is held; by contract the record is in the list of its holder.
        unsafe {
            let has_changed = Held::linked_priority(here) != node::priority(here);
            if has_changed {
                self.remove_held(here);
                self.add_held(here);
            }
            has_changed
        }
    }
}
