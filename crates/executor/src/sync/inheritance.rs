//! Priority inheritance: a coroutine that holds a mutex is as urgent as the most urgent of those
//! that wait for it.
//!
//! *Rule.* The holder of a mutex inherits the priority of the first in its queue, if that is more
//! urgent; of several, the most urgent. A holder that itself waits in the table stands there by the
//! priority it has with that, so the rule carries on from mutex to mutex. It is established again
//! by [`Locked::propagate`] whenever something changes: a record is marked when the first of its
//! queue has changed, and for each marked record the holder's inheritance is computed anew from all
//! records it holds; if that changes how urgent it is, it moves in the queues where it waits, and
//! those records are marked.
//!
//! *It ends.* A change goes one way, to more or to less urgent, along holders; round a circle of
//! them (a deadlock) levels only rise or only sink, and there are 64.
//!
//! *Cost.* One lock for the table. The time of a change does not depend on how many mutexes are
//! contended, how many of them the holder has, or how many coroutines wait. If the holder waits
//! itself and its priority changes, the nodes with which it waits are moved.
#![allow(unsafe_code)]

use ::core::ptr;
use ::core::task::Waker;

use super::contended::{CONTENDED, FREE, Locked, NO_COROUTINE, Record, list_of, table, word_of};
use super::queue::{Link, Place, Queue, node, priority_of};
use super::waiting::{self, FOR_MUTEXES, FOR_OTHERS};
use crate::core::atomic::{AtomicU64, Ordering};
use crate::core::{CoroutineId, Priority};
use crate::front::registry;

/// Changes the priority of a coroutine; one that is ready moves to the tail of its new level. May
/// be called wherever [`wake_up`](crate::wake_up) may. False if the coroutine has exited.
///
/// One that waits in a queue of [`sync`](crate::sync) comes to stand at the end of its new level
/// there; if it waits for anything but a mutex, it is polled for that. (While one waits for a
/// mutex, this takes time in the number of mutexes that are contended.) The new priority counts in
/// each hand-over that begins after this has returned.
///
/// ```
/// # use cops_executor::{Executor, Priority, priority, set_priority};
/// # static EXECUTOR: Executor = Executor::new();
/// # EXECUTOR.start_on_host(1)?;
/// let id = EXECUTOR.spawn(std::future::pending(), Priority::DEFAULT)?;
/// assert!(set_priority(id, Priority::MOST_URGENT));
/// assert_eq!(priority(id), Some(Priority::MOST_URGENT));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn set_priority(id: CoroutineId, priority: Priority) -> bool {
    let changed = registry::set_own_priority(id, priority);
    // A waiter in a queue of `sync` moves to another place.
    priority_changed(id);
    changed
}

/// To be called after `set_priority`, in any context.
///
/// A waiter for a mutex is moved at once, and the urgency of the holder changes too. If the table
/// is in use at this moment, by another thread or by what an interrupt handler has interrupted,
/// the user of the table does that before it unlocks the table: so it is done before the next
/// mutex is handed over. To wake the waiter, so that it moves itself, is not enough: a mutex may be
/// handed over before the waiter is polled. A waiter for something else is woken, because it may be
/// the first now.
fn priority_changed(id: CoroutineId) {
    if FOR_OTHERS.may_contain(id) {
        waiting::note_change();
        registry::wake_up(id);
    }
    if FOR_MUTEXES.may_contain(id) {
        if let Some(table) = table().try_lock() {
            table.requeue_waits_of(id);
            table.propagate();
        } else {
            table().postpone(id);
        }
    }
}

/// What `contend` has come to.
pub(super) enum Contended {
    /// The mutex was free, and is the caller's.
    Acquired,
    Waiting,
}

// "The lock" stands for the argument at the other half of this, in `contended`.
impl Locked<'_> {
    /// Takes the mutex, or links the node in its queue, making the first record.
    ///
    /// # Safety
    ///
    /// The node is pinned, out of all queues, and is taken out by `give_up` before it goes, unless
    /// it is granted.
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
        let mut first = self.find(key);
        if holder != CONTENDED && !first.is_null() {
            // This mutex had no waiters: the record belonged to another one at this address. Its
            // waiters were leaked.
            // SAFETY: the table's lock is held, and `find` returns only records.
            unsafe { self.forget(first) };
            first = ptr::null();
        }
        let mut queue = Queue::from_first(first);
        // SAFETY: the table's lock is held; by contract the node is pinned and linked nowhere, and
        // `first` is null or the record of this queue.
        unsafe {
            node::set_owner(here, owner);
            node::set_data(here, Record::of(key));
            queue.link(here, priority_of(owner));
            self.enter_waiter(here);
            if first.is_null() {
                // Without a record, CONTENDED is left over from a future that was leaked: it is
                // never unlocked.
                self.insert(here, if holder == CONTENDED { NO_COROUTINE } else { holder });
            } else {
                self.replace(first, queue.first(), node::data(first).holder);
            }
        }
        self.propagate();
        Contended::Waiting
    }

    /// Gives a mutex that is in the table to its first waiter. Returns the waker, for after the
    /// unlock.
    pub fn hand_over(&self, word: &AtomicU64) -> Option<Waker> {
        let first = self.find(ptr::from_ref(word).addr());
        if first.is_null() {
            // Left over from a leaked future; its mutex was moved since.
            word.store(FREE, Ordering::Release);
            return None;
        }
        let mut queue = Queue::from_first(first);
        // SAFETY: the table's lock is held; `first` is a record and the first of its queue, and all
        // nodes of a queue are valid.
        let (waker, before) = unsafe {
            let before = node::data(first).holder;
            let waker = queue.grant(first);
            self.remove_waiter(first);
            let holder = word_of(node::owner(first));
            self.replace(first, queue.first(), holder);
            if queue.is_empty() {
                // Relaxed: the next holder sees what this one did by this one's own unlock.
                word.store(holder, Ordering::Relaxed);
            }
            (waker, before)
        };
        self.inherit(before);
        self.propagate();
        waker
    }

    /// Whether the mutex was handed over to this node's owner.
    ///
    /// # Safety
    ///
    /// The node was linked by `contend` and is pinned.
    pub unsafe fn is_granted(&self, here: Link<Record>) -> bool {
        // SAFETY: the table's lock is held; by contract the node is pinned and valid.
        unsafe { node::place(here) == Place::Granted }
    }

    /// Updates a waiter after a possible change of its owner or of the owner's priority.
    ///
    /// # Safety
    ///
    /// The node is linked in the queue of this mutex.
    pub unsafe fn look_again(&self, here: Link<Record>, owner: Option<CoroutineId>) {
        // SAFETY: the table's lock is held; by contract the node is linked, so it is entered under
        // its owner.
        unsafe {
            let before = node::owner(here);
            if before != owner {
                FOR_MUTEXES.enter(owner);
                self.remove_waiter(here);
                node::set_owner(here, owner);
                self.enter_waiter(here);
                FOR_MUTEXES.leave(before);
            }
            self.requeue(here);
        }
        self.propagate();
    }

    /// Takes out a waiter that gives up.
    ///
    /// # Safety
    ///
    /// The node is linked in the queue of this mutex.
    pub unsafe fn give_up(&self, word: &AtomicU64, here: Link<Record>) {
        let first = self.find(ptr::from_ref(word).addr());
        let mut queue = Queue::from_first(first);
        // SAFETY: the table's lock is held; by contract the node is in the queue of this mutex, so
        // `first` is the record of that queue.
        unsafe {
            let holder = node::data(first).holder;
            queue.unlink(here);
            self.remove_waiter(here);
            self.replace(first, queue.first(), holder);
            if queue.is_empty() {
                // CONTENDED is not changed without this lock. The holder unlocks by itself again
                // (Relaxed: as above).
                word.store(holder, Ordering::Relaxed);
            }
            self.inherit(holder);
        }
        self.propagate();
    }

    /// Establishes the rule at the head of the module, from each marked record on. What is left
    /// marked, because the hook has to run first, has its turn before this lock is unlocked for
    /// good.
    pub fn propagate(&self) {
        while !self.must_tell() {
            let first = self.take_marked();
            if first.is_null() {
                return;
            }
            // SAFETY: the table's lock is held, and a marked node is a record, so it is valid.
            self.inherit(unsafe { node::data(first) }.holder);
        }
    }

    /// Lets a holder inherit from those that wait for it. May mark records.
    fn inherit(&self, holder: u64) {
        let Some(id) = CoroutineId::from_raw(holder) else { return };
        let inherited = self.most_urgent_for(holder);
        let before = registry::priority(id);
        if !registry::set_inherited(id, inherited) {
            return;
        }
        // Its own level changes without the lock. If it became less urgent after the first look,
        // the priority may be as before, and the caller of `set_priority` have seen another one in
        // between.
        let now = registry::priority(id);
        let is_inherited = inherited == now && now != registry::base_priority(id);
        if now == before && !is_inherited {
            return;
        }
        self.note_inheritor(id);
        if FOR_OTHERS.may_contain(id) {
            waiting::note_change();
            registry::wake_up(id);
        }
        if FOR_MUTEXES.may_contain(id) {
            self.requeue_waits_of(id);
        }
    }

    /// After a change of a coroutine's priority, moves it in all queues where it waits, and marks
    /// those.
    fn requeue_waits_of(&self, id: CoroutineId) {
        self.requeue_waits_in(list_of(id.raw()));
    }

    /// Does what `postpone` has left to the holder of the lock.
    pub fn requeue_postponed(&self) {
        for list in self.take_postponed() {
            self.requeue_waits_in(list);
        }
        self.propagate();
    }

    /// As `requeue_waits_of`, for all coroutines in a list of the index `OWNER`. Where no priority
    /// has changed, it changes nothing.
    fn requeue_waits_in(&self, list: usize) {
        for here in self.waits_in(list) {
            // SAFETY: what is entered as waiting is linked in the queue of its mutex.
            unsafe { self.requeue(here) };
        }
    }

    /// Moves a waiter to the end of its level, if that has changed.
    ///
    /// # Safety
    ///
    /// The node is entered as waiting.
    unsafe fn requeue(&self, here: Link<Record>) {
        // SAFETY: the table's lock is held; by contract the node is in the queue of its mutex, so
        // that mutex has a record.
        unsafe {
            let priority = priority_of(node::owner(here));
            if priority == node::priority(here) {
                return;
            }
            let first = self.find(node::data(here).key);
            let holder = node::data(first).holder;
            let mut queue = Queue::from_first(first);
            queue.unlink(here);
            queue.link(here, priority);
            self.replace(first, queue.first(), holder);
        }
    }
}
