//! The ready lists of a worker: 64 FIFO lists and a bitmap of those that are not empty.
//!
//! Each list is a ring, so that moving its head to its tail, which is what a coroutine that yields
//! does, is turning the ring by one: two stores, whatever else is in it.
//!
//! Everything here is O(1). All of it is guarded by the worker's lock; the fields are atomics only
//! so that a mistake could not become a data race, and are accessed relaxed.
//!
//! Unsafe: following the lists. They hold only slots that were linked, hence allocated, and slots
//! are never freed; the lock orders the linking before the reading.
#![allow(unsafe_code)]

use super::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};
#[cfg(test)]
use ::core::ptr::null_mut;

use super::priority::Priority;
use super::slab::Slab;
use super::slot::Slot;

/// The ends of a list. Both mean something only while the bitmap has the list's bit; then
/// `last.next` is `first`, and `first.previous` the handle of `last`.
#[repr(C)]
pub(crate) struct List {
    first: AtomicPtr<Slot>,
    last: AtomicPtr<Slot>,
}

/// The lists. Zeroed memory is a valid empty value.
#[repr(C)]
pub(crate) struct ReadyLists {
    bitmap: AtomicU64,
    lists: [List; Priority::COUNT as usize],
}

impl ReadyLists {
    #[cfg(test)]
    pub const fn new() -> ReadyLists {
        ReadyLists {
            bitmap: AtomicU64::new(0),
            lists: [const {
                List { first: AtomicPtr::new(null_mut()), last: AtomicPtr::new(null_mut()) }
            }; 64],
        }
    }

    #[inline(always)]
    pub fn bitmap(&self) -> u64 {
        self.bitmap.load(Relaxed)
    }

    #[inline(always)]
    pub fn list(&self, priority: Priority) -> &List {
        &self.lists[priority.index()]
    }

    /// Appends a slot that is in no list.
    #[inline(always)]
    pub fn enqueue(&self, slot: &Slot, priority: Priority) {
        let list = self.list(priority);
        let bitmap = self.bitmap();
        let this = slot.as_pointer();
        if bitmap & priority.bit() == 0 {
            self.bitmap.store(bitmap | priority.bit(), Relaxed);
            list.first.store(this, Relaxed);
            slot.next.store(this, Relaxed);
            slot.previous.store(slot.handle(), Relaxed);
        } else {
            let first = list.first.load(Relaxed);
            // SAFETY: the list is not empty, so by the rules of the module its ends are slots of
            // the slab, which are never freed before it.
            let last = unsafe { &*list.last.load(Relaxed) };
            last.next.store(this, Relaxed);
            slot.previous.store(last.handle(), Relaxed);
            slot.next.store(first, Relaxed);
            // SAFETY: the list is not empty, so by the rules of the module its ends are slots of
            // the slab, which are never freed before it.
            unsafe { &*first }.previous.store(slot.handle(), Relaxed);
        }
        list.last.store(this, Relaxed);
    }

    /// Takes a slot out of the list it is in.
    pub fn remove(&self, slab: &Slab, slot: &Slot, priority: Priority) {
        let list = self.list(priority);
        if list.is_first(slot) {
            // The next one is of no interest: nothing begins.
            let _next = self.remove_first(slab, list, priority.bit());
            return;
        }
        // SAFETY: not the first, so there is another one on either side; module documentation.
        let (next, previous) =
            unsafe { (&*slot.next.load(Relaxed), slab.known(slot.previous.load(Relaxed))) };
        previous.next.store(next.as_pointer(), Relaxed);
        next.previous.store(previous.handle(), Relaxed);
        if list.last.load(Relaxed) == slot.as_pointer() {
            list.last.store(previous.as_pointer(), Relaxed);
        }
    }

    /// Takes the first slot out of `list`, which is not empty and has `bit` in the bitmap. Returns
    /// the next, if there is one.
    #[inline(always)]
    pub fn remove_first<'a>(&self, slab: &'a Slab, list: &List, bit: u64) -> Option<&'a Slot> {
        self.remove_followed(slab, list, bit, list.first(slab).next(slab))
    }

    /// As `remove_first`, for a head that was blocked already: `next` is what came after it. A
    /// waker may own the head's links by now, so nothing here reads them (rule 5 of `slot`).
    #[inline(always)]
    pub fn remove_followed<'a>(
        &self,
        slab: &'a Slab,
        list: &List,
        bit: u64,
        next: &'a Slot,
    ) -> Option<&'a Slot> {
        if list.is_first(next) {
            self.bitmap.store(self.bitmap() & !bit, Relaxed);
            return None;
        }
        let last = list.last(slab);
        next.previous.store(last.handle(), Relaxed);
        list.first.store(next.as_pointer(), Relaxed);
        last.next.store(next.as_pointer(), Relaxed);
        Some(next)
    }
}

impl List {
    /// The first slot. Only for a list that is not empty, while the caller holds its lock.
    #[inline(always)]
    pub fn first<'a>(&self, _: &'a Slab) -> &'a Slot {
        // SAFETY: a slot, and one of this slab; module documentation.
        unsafe { &*self.first.load(Relaxed) }
    }

    /// The last slot. As `first`.
    #[inline(always)]
    pub fn last<'a>(&self, _: &'a Slab) -> &'a Slot {
        // SAFETY: the caller's list is not empty, so by the rules of the module this is a slot of
        // this slab.
        unsafe { &*self.last.load(Relaxed) }
    }

    #[inline(always)]
    fn is_first(&self, slot: &Slot) -> bool {
        self.first.load(Relaxed) == slot.as_pointer()
    }

    /// Moves the first to the tail: `next`, which came after it, is first now. Only of a list that
    /// is not empty.
    #[inline(always)]
    pub fn rotate_to(&self, first: &Slot, next: &Slot) {
        self.first.store(next.as_pointer(), Relaxed);
        self.last.store(first.as_pointer(), Relaxed);
    }
}

impl Slot {
    /// The next slot in its list. Only for a slot that is in a list, while the caller holds the
    /// lock of that list.
    #[inline(always)]
    pub fn next<'a>(&self, _: &'a Slab) -> &'a Slot {
        // SAFETY: in a ring, so a slot, and one of this slab; module documentation.
        unsafe { &*self.next.load(Relaxed) }
    }

    /// Whether it is alone in its list.
    #[inline(always)]
    pub fn is_alone(&self) -> bool {
        self.next.load(Relaxed) == self.as_pointer()
    }

    #[inline(always)]
    fn as_pointer(&self) -> *mut Slot {
        ::core::ptr::from_ref(self).cast_mut()
    }
}

#[cfg(test)]
#[path = "ready_tests.rs"]
mod tests;
