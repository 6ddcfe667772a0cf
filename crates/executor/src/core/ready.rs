//! The ready lists of a worker: 64 FIFO lists and a bitmap of those that are not empty.
//!
//! Everything here is O(1). All of it is guarded by the worker's lock; the fields are atomics only so that
//! a mistake could not become a data race, and are accessed relaxed.

use ::core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use super::priority::Priority;
use super::slab::Slab;
use super::slot::Slot;

#[repr(C)]
struct List {
    /// Index of the first slot; meaningful only if the bitmap has the list's bit, as is `last`.
    first: AtomicU32,
    last: AtomicU32,
}

/// The lists. Zeroed memory is a valid empty value.
#[repr(C)]
pub(crate) struct ReadyLists {
    bitmap: AtomicU64,
    lists: [List; Priority::COUNT as usize],
}

/// # Safety of `slab.known` in this file
///
/// Lists hold only indices of slots that were linked, hence allocated, and the lock orders the linking
/// before the reading.
#[allow(unsafe_code)]
impl ReadyLists {
    #[cfg(test)]
    pub const fn new() -> ReadyLists {
        ReadyLists {
            bitmap: AtomicU64::new(0),
            lists: [const { List { first: AtomicU32::new(0), last: AtomicU32::new(0) } }; 64],
        }
    }

    pub fn bitmap(&self) -> u64 {
        self.bitmap.load(Relaxed)
    }

    /// Appends a slot that is in no list.
    #[inline]
    pub fn push(&self, slab: &Slab, slot: &Slot, level: Priority) {
        let list = &self.lists[level.index()];
        let index = slot.index();
        slot.next.store(0, Relaxed);
        let bitmap = self.bitmap();
        if bitmap & level.bit() == 0 {
            self.bitmap.store(bitmap | level.bit(), Relaxed);
            slot.previous.store(0, Relaxed);
            list.first.store(index, Relaxed);
        } else {
            let last = list.last.load(Relaxed);
            slot.previous.store(last, Relaxed);
            // SAFETY: see the head of this block.
            unsafe { slab.known(last) }.next.store(index, Relaxed);
        }
        list.last.store(index, Relaxed);
    }

    /// Takes the first slot of a list, if there is one.
    #[inline]
    pub fn pop<'a>(&self, slab: &'a Slab, level: Priority) -> Option<&'a Slot> {
        let bitmap = self.bitmap();
        if bitmap & level.bit() == 0 {
            return None;
        }
        let list = &self.lists[level.index()];
        // SAFETY: see the head of this block.
        let slot = unsafe { slab.known(list.first.load(Relaxed)) };
        let next = slot.next.load(Relaxed);
        // The new first keeps a stale `previous`; `remove` recognises the first by `List::first`.
        list.first.store(next, Relaxed);
        if next == 0 {
            self.bitmap.store(bitmap & !level.bit(), Relaxed);
        }
        Some(slot)
    }

    /// Takes a slot out of the list it is in.
    pub fn remove(&self, slab: &Slab, slot: &Slot, level: Priority) {
        let list = &self.lists[level.index()];
        let next = slot.next.load(Relaxed);
        let previous = slot.previous.load(Relaxed);
        if list.first.load(Relaxed) == slot.index() {
            let _ = self.pop(slab, level);
            return;
        }
        // SAFETY: see the head of this block; not the first, so there is a previous one.
        unsafe { slab.known(previous) }.next.store(next, Relaxed);
        if next == 0 {
            list.last.store(previous, Relaxed);
        } else {
            // SAFETY: see the head of this block.
            unsafe { slab.known(next) }.previous.store(previous, Relaxed);
        }
    }
}

#[cfg(test)]
#[path = "ready_tests.rs"]
mod tests;
