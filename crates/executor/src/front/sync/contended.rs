//! The table of contended mutexes: a list of those that somebody waits for.
//!
//! A mutex that somebody waits for has a queue, and the queue's first node is its record here: the mutex's
//! address, its holder, and its place in the list. So an uncontended mutex is not in the table, waiting allocates
//! nothing, and nothing here points to a mutex: one that is moved or freed after a waiting future was leaked
//! leaves a record that nobody finds, not a dangling pointer.
//!
//! What the records say about priorities is the concern of `inheritance`.
#![allow(unsafe_code)]

use ::core::cell::UnsafeCell;
use ::core::ptr;

use super::lock::SpinLock;
use super::queue::{Link, node};
use crate::core::CoroutineId;

/// The word of a mutex that nobody holds.
pub(super) const FREE: u64 = 0;
/// Its word while somebody who is no coroutine holds it. Ids are above 2^32.
pub(super) const SOMEBODY: u64 = 1;
/// Its word while it is in the table, which knows who holds it.
pub(super) const CONTENDED: u64 = 2;

/// What a mutex's word is while `owner` holds it and nobody waits.
pub(super) fn word_of(owner: Option<CoroutineId>) -> u64 {
    owner.map_or(SOMEBODY, CoroutineId::raw)
}

/// What each node carries, and the first of a queue uses.
#[derive(Clone, Copy)]
pub(super) struct Record {
    /// The mutex's address.
    pub key: usize,
    /// `word_of` the holder.
    pub holder: u64,
    /// Its first, or its holder, has changed.
    pub changed: bool,
    /// Its neighbours in the list; to be touched by the list's functions only.
    pub next: Link<Record>,
    pub previous: Link<Record>,
}

impl Record {
    pub const NONE: Record =
        Record { key: 0, holder: FREE, changed: false, next: ptr::null(), previous: ptr::null() };
}

pub(super) struct Table {
    lock: SpinLock,
    first: UnsafeCell<Link<Record>>,
}

// SAFETY: the list, and the nodes in it, are touched under the lock.
unsafe impl Sync for Table {}

/// The table's lock, held.
pub(super) struct Locked<'a>(&'a Table);

impl Table {
    pub const fn new() -> Table {
        Table { lock: SpinLock::new(), first: UnsafeCell::new(ptr::null()) }
    }

    pub fn lock(&self) -> Locked<'_> {
        self.lock.lock();
        Locked(self)
    }

    /// Locks, if nobody else does now.
    pub fn try_lock(&self) -> Option<Locked<'_>> {
        self.lock.try_lock().then(|| Locked(self))
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Nobody leaves notes at this lock.
        let _ = self.0.lock.unlock();
    }
}

// Whoever holds the lock may touch every node in the table: those are valid, since futures take theirs out before they
// go. This is the argument of all blocks that say "the lock".
impl Locked<'_> {
    /// The record of a mutex, null if nobody waits for it.
    pub fn find(&self, key: usize) -> Link<Record> {
        self.records()
            .find(|&first| {
                // SAFETY: the lock.
                unsafe { node::data(first) }.key == key
            })
            .unwrap_or(ptr::null())
    }

    /// The first nodes of all queues. The one that was returned last may be replaced.
    pub fn records(&self) -> impl Iterator<Item = Link<Record>> {
        // SAFETY: the lock.
        let mut next = unsafe { *self.0.first.get() };
        ::core::iter::from_fn(move || {
            let here = next;
            if here.is_null() {
                return None;
            }
            // SAFETY: the lock; what is in the list is valid.
            next = unsafe { node::data(here) }.next;
            Some(here)
        })
    }

    /// Puts a node into the list.
    ///
    /// # Safety
    ///
    /// It is the first of a queue that is not in the list.
    pub unsafe fn insert(&self, here: Link<Record>) {
        // SAFETY: the lock, and the contract.
        unsafe {
            let next = *self.0.first.get();
            node::set_data(here, Record { next, previous: ptr::null(), ..node::data(here) });
            self.join(ptr::null(), here);
            self.join(here, next);
        }
    }

    /// The record goes from one node to another, which is the first of the same queue now and is marked; or, with
    /// null, away.
    ///
    /// # Safety
    ///
    /// `before` is in the list; `after` is valid or null.
    pub unsafe fn replace(&self, before: Link<Record>, after: Link<Record>) {
        // SAFETY: the lock, and the contract.
        unsafe {
            let record = node::data(before);
            if after.is_null() {
                self.join(record.previous, record.next);
                return;
            }
            if !ptr::eq(before, after) {
                node::set_data(after, record);
                self.join(record.previous, after);
                self.join(after, record.next);
            }
            self.mark(after);
        }
    }

    /// Makes two neighbours in the list; null stands for the ends.
    ///
    /// # Safety
    ///
    /// Both are valid or null.
    pub unsafe fn join(&self, before: Link<Record>, after: Link<Record>) {
        // SAFETY: the lock, and the contract.
        unsafe {
            if before.is_null() {
                *self.0.first.get() = after;
            } else {
                node::set_data(before, Record { next: after, ..node::data(before) });
            }
            if !after.is_null() {
                node::set_data(after, Record { previous: before, ..node::data(after) });
            }
        }
    }

    /// # Safety
    ///
    /// The node is in the list.
    pub unsafe fn mark(&self, first: Link<Record>) {
        // SAFETY: the lock, and the contract.
        unsafe { node::set_data(first, Record { changed: true, ..node::data(first) }) }
    }
}

#[cfg(not(loom))]
pub(super) fn table() -> &'static Table {
    static TABLE: Table = Table::new();
    &TABLE
}

#[cfg(loom)]
pub(super) use modelled::table;

#[cfg(loom)]
#[doc(hidden)]
pub use modelled::begin_sync_model;

/// A table for each execution of a model, since a lock is bound to the execution in which it was first used.
#[cfg(loom)]
mod modelled {
    use super::Table;
    use std::boxed::Box;
    use std::cell::Cell;

    std::thread_local! {
        static TABLE: Cell<Option<&'static Table>> = const { Cell::new(None) };
    }

    /// To be called after `begin_model`.
    pub fn begin_sync_model() {
        TABLE.set(Some(Box::leak(Box::new(Table::new()))));
    }

    pub fn table() -> &'static Table {
        TABLE.get().expect("begin_sync_model comes first")
    }
}
