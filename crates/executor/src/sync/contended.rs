//! The table of contended mutexes: those that a coroutine waits for, and the waiters.
//!
//! A contended mutex has a queue, and the queue's first node is its record here: the mutex's
//! address, its holder, and its places in the indexes. So an uncontended mutex is not in the table,
//! waiting allocates nothing, and nothing here points to a mutex: one that is moved or freed after
//! a waiting future was leaked leaves a stale record, not a dangling pointer; the next mutex to be
//! contended at that address removes it.
//!
//! There are four indexes, each of them a number of lists, doubly linked through the nodes. All
//! operations on them are O(1) but the search in a list, which has few elements if the keys are
//! spread:
//!
//! | index | contains | list by | to find |
//! | --- | --- | --- | --- |
//! | `MUTEX` | records | hash of the mutex's address | the queue of a mutex |
//! | `HOLDER` | of each holder's records, the most urgent | hash of the holder's id | what a coroutine inherits |
//! | `OWNER` | all waiting nodes | hash of the waiter's id | where a coroutine waits |
//! | `CHANGED` | marked records | one list | what `inheritance` has to look at again |
//!
//! The records of one holder are a list in the order of their levels (`levels`); the first of them
//! is in the index: what the holder inherits is found in a step, and releasing one of many
//! contended mutexes takes no longer than releasing the only one.
//!
//! Rejected: one list of all contended mutexes (it was that: the time of each operation grew with
//! their number), a pointer to the first waiter in the mutex (after a change of a waiter's priority
//! the mutex cannot be accessed, because it may have been dropped), trees (as many links, and more
//! code), all records of a holder in the index (each unlock looked at all other mutexes of its
//! holder).
//!
//! What the records say about priorities is the concern of `inheritance`, and the hook for that is
//! in `inheritors`.
#![allow(unsafe_code)]

use ::core::cell::UnsafeCell;
use ::core::ptr;

use super::inheritors::Inheritors;
use super::levels::Links;
use super::queue::{Link, Node, Queue, node};
use super::steps;
use crate::core::CoroutineId;
use crate::core::atomic::{AtomicU32, Ordering};
use crate::front::lock::SpinLock;

/// The word of a mutex that is free.
pub(super) const FREE: u64 = 0;
/// Its word while its holder is not a coroutine. Ids are above 2^32.
pub(super) const NO_COROUTINE: u64 = 1;
/// Its word while it is in the table, which knows the holder.
pub(super) const CONTENDED: u64 = 2;

/// What a mutex's word is while `owner` holds it and there are no waiters.
pub(super) fn word_of(owner: Option<CoroutineId>) -> u64 {
    owner.map_or(NO_COROUTINE, CoroutineId::raw)
}

const MUTEX: usize = 0;
pub(super) const HOLDER: usize = 1;
const OWNER: usize = 2;
const CHANGED: usize = 3;
const INDEXES: usize = 4;

/// Lists of each index but the last, a power of two: a pointer each. Many where there may be many
/// coroutines.
const LISTS: usize = if cfg!(loom) {
    2
} else if cfg!(feature = "std") {
    1024
} else if cfg!(feature = "alloc") {
    512
} else {
    16
};
const _: () = assert!(LISTS.is_power_of_two());
/// Lists that a word of `Table::postponed` stands for.
const BITS: usize = u32::BITS as usize;

/// The neighbours in a list of an index.
#[derive(Clone, Copy)]
struct Places {
    next: Link<Record>,
    previous: Link<Record>,
}

/// What each node carries. All but `key` and the places in `OWNER` are used in the first of a queue
/// only.
#[derive(Clone, Copy)]
pub(super) struct Record {
    /// The mutex's address.
    pub key: usize,
    /// `word_of` the holder.
    pub holder: u64,
    /// Its first, or its holder, has changed: it is in `CHANGED`.
    is_changed: bool,
    /// In each index.
    places: [Places; INDEXES],
    /// Among the records of its holder.
    pub of_holder: Links<Node<Record>>,
}

impl Record {
    /// That of a node that waits for the mutex at this address.
    pub const fn of(key: usize) -> Record {
        let nowhere = Places { next: ptr::null(), previous: ptr::null() };
        Record {
            key,
            holder: FREE,
            is_changed: false,
            places: [nowhere; INDEXES],
            of_holder: Links::new(),
        }
    }
}

pub(super) struct Table {
    /// A note at it says that there may be marks in `postponed`.
    lock: SpinLock,
    /// The first of each list.
    lists: UnsafeCell<Lists>,
    /// A bit for each list of `OWNER` that has waiters to be moved: the priority of their coroutine
    /// changed while the lock was held.
    postponed: [AtomicU32; LISTS.div_ceil(BITS)],
}

struct Lists {
    hashed: [[Link<Record>; LISTS]; CHANGED],
    changed: Link<Record>,
    inheritors: Inheritors,
}

// SAFETY: the lists, and the nodes in them, are touched under the lock.
unsafe impl Sync for Table {}

/// The table's lock, held.
pub(super) struct Locked<'a>(&'a Table);

impl Table {
    pub const fn new() -> Table {
        let lists = Lists {
            hashed: [[ptr::null(); LISTS]; CHANGED],
            changed: ptr::null(),
            inheritors: Inheritors::NONE,
        };
        Table {
            lock: SpinLock::new(),
            lists: UnsafeCell::new(lists),
            postponed: [const { AtomicU32::new(0) }; LISTS.div_ceil(BITS)],
        }
    }

    pub fn lock(&self) -> Locked<'_> {
        self.lock.lock();
        Locked(self)
    }

    /// Locks, if the lock is free.
    pub fn try_lock(&self) -> Option<Locked<'_>> {
        self.lock.try_lock().then(|| Locked(self))
    }

    /// Unlocks, unless there is a note: takes it, and keeps the lock.
    #[must_use]
    pub fn try_unlock(&self) -> bool {
        self.lock.unlock()
    }

    /// Has the waiters of this coroutine moved by the holder of the lock, before it unlocks. Does
    /// not wait, and may be called in any context.
    pub fn postpone(&self, id: CoroutineId) {
        let list = list_of(id.raw());
        // Before the note, which releases it.
        self.postponed[list / BITS].fetch_or(1 << (list % BITS), Ordering::Relaxed);
        if self.lock.lock_or_note() {
            // The lock was free by then, so it is held here now.
            Locked(self).requeue_postponed();
        }
    }
}

/// The list of an index in which a value is.
pub(super) const fn list_of(value: u64) -> usize {
    // Fibonacci hashing: addresses and ids differ in their low bits, the product in its high ones.
    (value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & (LISTS - 1)
}

/// A field of a node's record.
macro_rules! record {
    ($node:expr) => {
        *node::data_place($node)
    };
}

// The holder of the lock may touch every node in the table: those are valid, since futures take
// theirs out before they go. This is the argument of all blocks that say "the lock".
impl<'a> Locked<'a> {
    /// Where the first of a list is.
    fn first_of(&self, index: usize, list: usize) -> *mut Link<Record> {
        let lists = self.0.lists.get();
        // SAFETY: the lock; places in a static, in bounds.
        unsafe {
            if index == CHANGED {
                &raw mut (*lists).changed
            } else {
                &raw mut (*lists).hashed[index][list]
            }
        }
    }

    pub fn table(&self) -> &'a Table {
        self.0
    }

    /// Accesses the coroutines of which the hook is to be called.
    pub fn with_inheritors<R>(&self, access: impl FnOnce(&mut Inheritors) -> R) -> R {
        // SAFETY: the lock; nothing else refers to this field, and `access` returns before anything
        // else may.
        access(unsafe { &mut (*self.0.lists.get()).inheritors })
    }

    /// The nodes of a list. The one that was returned last may be taken out, and others may be put
    /// in.
    pub fn list(&self, index: usize, value: u64) -> impl Iterator<Item = Link<Record>> {
        self.list_at(index, list_of(value))
    }

    /// As `list`, by the number of the list.
    fn list_at(&self, index: usize, list: usize) -> impl Iterator<Item = Link<Record>> {
        // SAFETY: the table's lock is held; the pointers are to fields of a static, and the index
        // is below its length.
        let mut next = unsafe { *self.first_of(index, list) };
        ::core::iter::from_fn(move || {
            let here = next;
            if here.is_null() {
                return None;
            }
            steps::count();
            // SAFETY: the lock; what is in a list is valid.
            next = unsafe { record!(here).places[index].next };
            Some(here)
        })
    }

    /// # Safety
    ///
    /// The node is valid, and in no list of this index.
    pub unsafe fn put(&self, index: usize, value: u64, here: Link<Record>) {
        // SAFETY: the table's lock is held, so nothing else accesses its lists; nodes in a list are
        // valid, and by contract `here` is.
        unsafe {
            let first = self.first_of(index, list_of(value));
            let next = *first;
            record!(here).places[index] = Places { next, previous: ptr::null() };
            if !next.is_null() {
                record!(next).places[index].previous = here;
            }
            *first = here;
        }
    }

    /// # Safety
    ///
    /// The node is in the list of this value.
    pub unsafe fn take(&self, index: usize, value: u64, here: Link<Record>) {
        // SAFETY: the table's lock is held; nodes in a list are valid, and by contract `here` is.
        unsafe {
            let Places { next, previous } = record!(here).places[index];
            if previous.is_null() {
                *self.first_of(index, list_of(value)) = next;
            } else {
                record!(previous).places[index].next = next;
            }
            if !next.is_null() {
                record!(next).places[index].previous = previous;
            }
        }
    }

    /// The record of a mutex, null if there are no waiters.
    pub fn find(&self, key: usize) -> Link<Record> {
        self.list(MUTEX, key as u64)
            .find(|&first| {
                // SAFETY: the table's lock is held, and `first` is in a list, so it is valid.
                unsafe { record!(first).key == key }
            })
            .unwrap_or(ptr::null())
    }

    /// The nodes in one list of `OWNER`: those with which a coroutine waits are all in the list of
    /// its id.
    pub fn waits_in(&self, list: usize) -> impl Iterator<Item = Link<Record>> {
        self.list_at(OWNER, list)
    }

    /// The lists that `postpone` has marked, which are marked no more.
    pub fn take_postponed(&self) -> impl Iterator<Item = usize> {
        self.0.postponed.iter().enumerate().flat_map(|(word, marks)| {
            // Relaxed: taking the note has acquired what was marked before it.
            let marks = marks.swap(0, Ordering::Relaxed);
            (0..BITS).filter(move |bit| marks >> bit & 1 != 0).map(move |bit| word * BITS + bit)
        })
    }

    /// Enters a node as waiting for its owner.
    ///
    /// # Safety
    ///
    /// It is valid, has its owner, and is not entered.
    pub unsafe fn enter_waiter(&self, here: Link<Record>) {
        // SAFETY: by contract the node is valid, has its owner, and is not in this index.
        unsafe { self.put(OWNER, word_of(node::owner(here)), here) }
    }

    /// The opposite. To be called before the owner changes.
    ///
    /// # Safety
    ///
    /// It is entered.
    pub unsafe fn remove_waiter(&self, here: Link<Record>) {
        // SAFETY: by contract the node is in this index under its current owner.
        unsafe { self.take(OWNER, word_of(node::owner(here)), here) }
    }

    /// Makes a node the record of its mutex, and marks it.
    ///
    /// # Safety
    ///
    /// It is the first of a queue that has no record, and has its key.
    pub unsafe fn insert(&self, here: Link<Record>, holder: u64) {
        // SAFETY: the table's lock is held; by contract the node is valid and not a record, so it
        // is in none of these lists.
        unsafe {
            record!(here).holder = holder;
            record!(here).is_changed = false;
            self.put(MUTEX, record!(here).key as u64, here);
            self.add_held(here);
            self.mark(here);
        }
    }

    /// Takes a record out of the table; the node may go on waiting.
    ///
    /// # Safety
    ///
    /// It is a record.
    pub unsafe fn remove(&self, here: Link<Record>) {
        // SAFETY: the table's lock is held; by contract the node is a record, so it is in these
        // lists: in `CHANGED` only if it is marked.
        unsafe {
            self.take(MUTEX, record!(here).key as u64, here);
            self.remove_held(here);
            if record!(here).is_changed {
                record!(here).is_changed = false;
                self.take(CHANGED, 0, here);
            }
        }
    }

    /// The record goes from one node to another, which is the first of the same queue now; or, with
    /// null, away. The mutex is held by `holder` now. If any of that, or the level of the node, is
    /// not as before, the record is marked.
    ///
    /// # Safety
    ///
    /// `before` is a record; `after` is valid and has the same key, or is null.
    pub unsafe fn replace(&self, before: Link<Record>, after: Link<Record>, holder: u64) {
        // SAFETY: the table's lock is held; by contract `before` is a record, and once it has been
        // removed, `after` is null, or valid and not a record.
        unsafe {
            if ptr::eq(before, after) && record!(before).holder == holder {
                if self.update_held(before) {
                    self.mark(before);
                }
                return;
            }
            self.remove(before);
            if !after.is_null() {
                self.insert(after, holder);
            }
        }
    }

    /// Takes out a record that belongs to a mutex which is no more: its waiters were leaked, so
    /// they are never polled or dropped.
    ///
    /// # Safety
    ///
    /// It is a record.
    pub unsafe fn forget(&self, first: Link<Record>) {
        // SAFETY: the lock, and the contract: the nodes of its queue are valid, and entered as
        // waiting.
        unsafe {
            self.remove(first);
            let mut next = Queue::from_first(first).first();
            while !next.is_null() {
                self.remove_waiter(next);
                next = node::following(next);
            }
        }
    }

    /// # Safety
    ///
    /// The node is a record.
    pub unsafe fn mark(&self, first: Link<Record>) {
        // SAFETY: the table's lock is held; by contract the node is a record, which is in `CHANGED`
        // only if it is marked.
        unsafe {
            if !record!(first).is_changed {
                record!(first).is_changed = true;
                self.put(CHANGED, 0, first);
            }
        }
    }

    /// A marked record, which is marked no more; null if there is none.
    pub fn take_marked(&self) -> Link<Record> {
        // SAFETY: the table's lock is held, and what is in `CHANGED` is a record, so it is valid.
        unsafe {
            let first = *self.first_of(CHANGED, 0);
            if !first.is_null() {
                record!(first).is_changed = false;
                self.take(CHANGED, 0, first);
            }
            first
        }
    }
}

#[cfg(all(test, feature = "std", not(feature = "image"), not(loom)))]
#[path = "contended_tests.rs"]
mod tests;

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

/// A table for each execution of a model, since a lock is bound to the execution in which it was
/// first used.
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
