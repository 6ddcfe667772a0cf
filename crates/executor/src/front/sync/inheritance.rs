//! Priority inheritance: the table of contended mutexes, and who runs how urgently because of whom.
//!
//! A mutex that somebody waits for has a queue, and the queue's first node is its record here: the mutex's
//! address, its holder, and its place in the table's list. So an uncontended mutex is not in the table, waiting allocates
//! nothing, and nothing here points to a mutex: one that is moved or freed after a waiting future was leaked
//! leaves a record that nobody finds, not a dangling pointer.
//!
//! *Rule.* The holder of a mutex inherits the priority of the first in its queue, if that is more urgent; of several,
//! the most urgent. A holder that itself waits in the table stands there by the priority it has with that, so the
//! rule carries on from mutex to mutex. It is established again by [`Table::settle`] whenever something changes: a
//! record whose first has changed is marked, and for each marked record the holder's inheritance is computed anew
//! from all records it holds; if that changes how urgent it is, it moves in the queues where it waits, and those
//! records are marked.
//!
//! *It ends.* A change goes one way, to more or to less urgent, along holders; round a circle of them (a deadlock)
//! levels only rise or only sink, and there are 64.
//!
//! *Cost.* One lock for the table; time in the number of mutexes contended at the moment. The waiters of each are
//! looked at only if a holder waits itself and its priority changes.
#![allow(unsafe_code)]

use ::core::cell::UnsafeCell;
use ::core::ptr;
use ::core::task::Waker;

use super::lock::SpinLock;
use super::queue::{Link, Place, Queue, level_of, node};
use super::waiting::{self, FOR_MUTEXES, FOR_OTHERS};
use crate::core::atomic::{AtomicU64, Ordering};
use crate::core::{CoroutineId, Priority};
use crate::front::registry;

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
    key: usize,
    /// `word_of` the holder.
    holder: u64,
    /// Its first, or its holder, has changed.
    changed: bool,
    next: Link<Record>,
    previous: Link<Record>,
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

    /// To be called after the priority of somebody in `FOR_MUTEXES` was changed. False if the lock is held; it waits
    /// for nobody.
    fn try_refile(&self, id: CoroutineId) -> bool {
        if !self.lock.try_lock() {
            return false;
        }
        let table = Locked(self);
        table.refile_waits_of(id);
        table.settle();
        true
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // Nobody leaves notes at this lock.
        let _ = self.0.lock.unlock();
    }
}

/// To be called after `set_priority`, in any context.
///
/// Who waits for a mutex is moved at once, and so is the urgency of its holder; unless the table is in use at this moment, as it may
/// be in what an interrupt handler has interrupted: then the waiter is woken to see to it itself. Who waits for
/// something else is woken too, since it may be its turn now.
pub(in crate::front) fn priority_changed(id: CoroutineId) {
    if FOR_OTHERS.may_contain(id) {
        waiting::note_change();
        registry::wake_up(id);
    }
    if FOR_MUTEXES.may_contain(id) && !table().try_refile(id) {
        registry::wake_up(id);
    }
}

/// What `contend` has come to.
pub(super) enum Contended {
    /// The mutex was free, and is the caller's.
    Acquired,
    Waiting,
}

// All functions below hold the lock, and so may touch every node in the table: those are valid, since futures take
// theirs out before they go. This is the argument of all blocks that say "the lock".
impl Locked<'_> {
    /// Takes the mutex, or links the node in its queue, making the first record.
    ///
    /// # Safety
    ///
    /// The node is pinned, out of all queues, and is taken out by `leave` before it goes.
    pub unsafe fn contend(
        &self,
        word: &AtomicU64,
        here: Link<Record>,
        owner: Option<CoroutineId>,
    ) -> Contended {
        let key = ptr::from_ref(word).addr();
        let mut holder = word.load(Ordering::Relaxed);
        while holder != CONTENDED {
            // Acquire pairs with the Release of the unlock.
            let next = if holder == FREE { word_of(owner) } else { CONTENDED };
            match word.compare_exchange(holder, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) if holder == FREE => return Contended::Acquired,
                Ok(_) => break,
                Err(now) => holder = now,
            }
        }
        FOR_MUTEXES.enter(owner);
        let first = self.find(key);
        let mut queue = Queue::from_first(first);
        // SAFETY: the lock, and the contract.
        unsafe {
            node::set_owner(here, owner);
            queue.link(here, level_of(owner));
            if first.is_null() {
                // Without a record, CONTENDED is left over from a future that was leaked: nobody will unlock it.
                let holder = if holder == CONTENDED { SOMEBODY } else { holder };
                node::set_data(here, Record { key, holder, ..Record::NONE });
                self.insert(here);
                self.mark(here);
            } else {
                self.replace(first, queue.first());
            }
        }
        self.settle();
        Contended::Waiting
    }

    /// Gives a mutex that is in the table to the first who waits. Returns his waker, for after the unlock.
    pub fn hand_over(&self, word: &AtomicU64) -> Option<Waker> {
        let first = self.find(ptr::from_ref(word).addr());
        if first.is_null() {
            // Left over from a leaked future whose mutex was moved since.
            word.store(FREE, Ordering::Release);
            return None;
        }
        let mut queue = Queue::from_first(first);
        // SAFETY: the lock.
        let (waker, before) = unsafe {
            let mut record = node::data(first);
            let before = record.holder;
            let waker = queue.grant(first);
            record.holder = word_of(node::owner(first));
            // Whoever finds the node in the table's list finds the new holder.
            node::set_data(first, record);
            self.replace(first, queue.first());
            if queue.is_empty() {
                // Relaxed: who locks next sees what the holder did by the holder's own unlock.
                word.store(record.holder, Ordering::Relaxed);
            }
            (waker, before)
        };
        self.inherit(before);
        self.settle();
        waker
    }

    /// Whether the mutex was handed over to this node's owner.
    ///
    /// # Safety
    ///
    /// The node was linked by `contend` and is pinned.
    pub unsafe fn is_granted(&self, here: Link<Record>) -> bool {
        // SAFETY: the lock, and the contract.
        unsafe { node::place(here) == Place::Granted }
    }

    /// Puts a waiter right whose owner, or whose owner's priority, may have changed. `first` is not needed: the
    /// record is found by the key.
    ///
    /// # Safety
    ///
    /// The node is linked in the queue of this mutex.
    pub unsafe fn look_again(&self, word: &AtomicU64, here: Link<Record>, owner: Option<CoroutineId>) {
        let first = self.find(ptr::from_ref(word).addr());
        // SAFETY: the lock, and the contract.
        unsafe {
            let before = node::owner(here);
            if before != owner {
                FOR_MUTEXES.enter(owner);
                node::set_owner(here, owner);
                FOR_MUTEXES.leave(before);
            }
            if level_of(owner) != node::level(here) {
                let mut queue = Queue::from_first(first);
                queue.refile();
                self.replace(first, queue.first());
                self.settle();
            }
        }
    }

    /// Takes out a waiter that gives up.
    ///
    /// # Safety
    ///
    /// The node is linked in the queue of this mutex.
    pub unsafe fn give_up(&self, word: &AtomicU64, here: Link<Record>) {
        let first = self.find(ptr::from_ref(word).addr());
        let mut queue = Queue::from_first(first);
        // SAFETY: the lock, and the contract.
        unsafe {
            let holder = node::data(first).holder;
            queue.unlink(here);
            self.replace(first, queue.first());
            if queue.is_empty() {
                // Nobody else changes CONTENDED without this lock. The holder unlocks by itself again (Relaxed: as above).
                word.store(holder, Ordering::Relaxed);
            }
            self.inherit(holder);
        }
        self.settle();
    }

    /// The record of a mutex, null if nobody waits for it.
    fn find(&self, key: usize) -> Link<Record> {
        self.records()
            .find(|&first| {
                // SAFETY: the lock.
                unsafe { node::data(first) }.key == key
            })
            .unwrap_or(ptr::null())
    }

    /// The first nodes of all queues. The one that was returned last may be replaced.
    fn records(&self) -> impl Iterator<Item = Link<Record>> {
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
    unsafe fn insert(&self, here: Link<Record>) {
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
    unsafe fn replace(&self, before: Link<Record>, after: Link<Record>) {
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
    unsafe fn join(&self, before: Link<Record>, after: Link<Record>) {
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
    unsafe fn mark(&self, first: Link<Record>) {
        // SAFETY: the lock, and the contract.
        unsafe { node::set_data(first, Record { changed: true, ..node::data(first) }) }
    }

    /// Establishes the rule at the head of the module.
    fn settle(&self) {
        // SAFETY: the lock.
        while let Some(first) = self.records().find(|&first| unsafe { node::data(first) }.changed) {
            // SAFETY: the lock.
            let record = unsafe { node::data(first) };
            // SAFETY: the lock.
            unsafe { node::set_data(first, Record { changed: false, ..record }) };
            self.inherit(record.holder);
        }
    }

    /// Lets a holder inherit from those who wait for it. May mark records.
    fn inherit(&self, holder: u64) {
        let Some(id) = CoroutineId::from_raw(holder) else { return };
        let mut inherited: Option<Priority> = None;
        for first in self.records() {
            // SAFETY: the lock.
            let (record, level) = unsafe { (node::data(first), node::level(first)) };
            if record.holder == holder {
                inherited = Some(inherited.map_or(level, |other| other.more_urgent_of(level)));
            }
        }
        let before = registry::priority(id);
        if !registry::set_inherited(id, inherited) || registry::priority(id) == before {
            return;
        }
        if FOR_OTHERS.may_contain(id) {
            waiting::note_change();
            registry::wake_up(id);
        }
        if FOR_MUTEXES.may_contain(id) {
            self.refile_waits_of(id);
        }
    }

    /// Moves a coroutine whose priority has changed in all queues where it waits, and marks those.
    fn refile_waits_of(&self, id: CoroutineId) {
        for first in self.records() {
            let mut next = first;
            // SAFETY: the lock.
            unsafe {
                while !next.is_null() && node::owner(next) != Some(id) {
                    next = node::following(next);
                }
                if next.is_null() {
                    continue;
                }
                let mut queue = Queue::from_first(first);
                if queue.refile() {
                    self.replace(first, queue.first());
                }
            }
        }
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
