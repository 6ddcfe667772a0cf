//! The ready lists of a worker: 64 FIFO lists and a bitmap of those that are not empty.
//!
//! Everything here is O(1). All of it is guarded by the worker's lock; the fields are atomics only so that
//! a mistake could not become a data race, and are accessed relaxed.
//!
//! Unsafe: following the lists. They hold only slots that were linked, hence allocated, and slots are never
//! freed; the lock orders the linking before the reading.
#![allow(unsafe_code)]

use super::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::Relaxed};
use ::core::ptr;

use super::priority::Priority;
use super::slab::Slab;
use super::slot::Slot;

/// The ends of a list. Both mean something only while the bitmap has the list's bit.
#[repr(C)]
struct List {
    first: AtomicPtr<Slot>,
    last: AtomicPtr<Slot>,
}

/// A bitmap, and the list of its most urgent level.
#[derive(Clone, Copy)]
pub(crate) struct Rotation<'a> {
    bitmap: u64,
    list: &'a List,
}

/// The lists. Zeroed memory is a valid empty value.
#[repr(C)]
pub(crate) struct ReadyLists {
    bitmap: AtomicU64,
    /// How many slots all lists hold.
    count: AtomicU32,
    lists: [List; Priority::COUNT as usize],
}

impl ReadyLists {
    #[cfg(test)]
    pub const fn new() -> ReadyLists {
        ReadyLists {
            bitmap: AtomicU64::new(0),
            count: AtomicU32::new(0),
            lists: [const {
                List { first: AtomicPtr::new(ptr::null_mut()), last: AtomicPtr::new(ptr::null_mut()) }
            }; 64],
        }
    }

    #[inline(always)]
    pub fn bitmap(&self) -> u64 {
        self.bitmap.load(Relaxed)
    }

    /// Whether `rotation` is what `rotation()` would return now.
    #[inline(always)]
    pub fn still(&self, rotation: Rotation<'_>) -> bool {
        self.bitmap() == rotation.bitmap
    }

    /// How many slots all lists hold.
    pub fn count(&self) -> u32 {
        self.count.load(Relaxed)
    }

    /// Appends a slot that is in no list.
    #[inline(always)]
    pub fn push(&self, slot: &Slot, level: Priority) {
        let list = &self.lists[level.index()];
        let bitmap = self.bitmap();
        let this = ptr::from_ref(slot).cast_mut();
        slot.next.store(0, Relaxed);
        if bitmap & level.bit() == 0 {
            self.bitmap.store(bitmap | level.bit(), Relaxed);
            list.first.store(this, Relaxed);
        } else {
            // SAFETY: not empty, so a slot; module documentation.
            let last = unsafe { &*list.last.load(Relaxed) };
            slot.previous.store(last.handle(), Relaxed);
            last.next.store(slot.handle(), Relaxed);
        }
        list.last.store(this, Relaxed);
        self.count.store(self.count().wrapping_add(1), Relaxed);
    }

    /// The first slot of the most urgent list that is not empty, and that list's level.
    pub fn peek<'a>(&self, _: &'a Slab) -> Option<(&'a Slot, Priority)> {
        let level = Priority::most_urgent_in(self.bitmap())?;
        // SAFETY: not empty, so a slot, and one of this slab; module documentation.
        Some((unsafe { &*self.lists[level.index()].first.load(Relaxed) }, level))
    }

    /// Where the list `level` can be rotated as long as the bitmap stays as it is: `None` unless it is the most
    /// urgent that is not empty.
    #[inline(always)]
    pub fn rotation(&self, level: Priority) -> Option<Rotation<'_>> {
        let bitmap = self.bitmap();
        (Priority::most_urgent_in(bitmap)? == level)
            .then_some(Rotation { bitmap, list: &self.lists[level.index()] })
    }

    /// Appends a slot to the list of `rotation`, which is not empty, and takes the first of it: what a push and a
    /// pop would do, less what they would do and undo. The bitmap must be as the rotation has it.
    #[inline(always)]
    pub fn rotate<'a>(&self, slab: &'a Slab, slot: &Slot, rotation: Rotation<'_>) -> &'a Slot {
        let list = rotation.list;
        // SAFETY: not empty, so a slot; module documentation.
        let last = unsafe { &*list.last.load(Relaxed) };
        slot.previous.store(last.handle(), Relaxed);
        slot.next.store(0, Relaxed);
        last.next.store(slot.handle(), Relaxed);
        list.last.store(ptr::from_ref(slot).cast_mut(), Relaxed);
        // SAFETY: not empty, so a slot, and one of this slab; module documentation.
        let first = unsafe { &*list.first.load(Relaxed) };
        // SAFETY: a handle in a list: at least `slot` comes after the first.
        let second = unsafe { slab.known(first.next.load(Relaxed)) };
        list.first.store(ptr::from_ref(second).cast_mut(), Relaxed);
        first
    }

    /// Takes the first slot of the most urgent list that is not empty.
    #[inline(always)]
    pub fn pop<'a>(&self, slab: &'a Slab) -> Option<&'a Slot> {
        let level = Priority::most_urgent_in(self.bitmap())?;
        Some(self.pop_from(slab, level))
    }

    /// Takes the first slot of a list that is not empty.
    #[inline(always)]
    fn pop_from<'a>(&self, slab: &'a Slab, level: Priority) -> &'a Slot {
        self.take_first(slab, &self.lists[level.index()], level.bit())
    }

    /// Takes the first slot of the list of `rotation`. The bitmap must be as the rotation has it.
    #[inline(always)]
    pub fn pop_in_turn<'a>(&self, slab: &'a Slab, rotation: Rotation<'_>) -> &'a Slot {
        let bitmap = rotation.bitmap;
        self.take_first(slab, rotation.list, bitmap & bitmap.wrapping_neg())
    }

    /// Takes the first slot of `list`, which is not empty and has `bit` in the bitmap.
    #[inline(always)]
    fn take_first<'a>(&self, slab: &'a Slab, list: &List, bit: u64) -> &'a Slot {
        // SAFETY: not empty, so a slot, and one of this slab; module documentation.
        let slot = unsafe { &*list.first.load(Relaxed) };
        let next = slot.next.load(Relaxed);
        self.count.store(self.count().wrapping_sub(1), Relaxed);
        if next == 0 {
            self.bitmap.store(self.bitmap() & !bit, Relaxed);
        } else {
            // SAFETY: a handle in a list. The new first keeps a stale `previous`: `remove` knows the first by
            // the list's pointer.
            list.first.store(ptr::from_ref(unsafe { slab.known(next) }).cast_mut(), Relaxed);
        }
        slot
    }

    /// Takes a slot out of the list it is in.
    pub fn remove(&self, slab: &Slab, slot: &Slot, level: Priority) {
        let list = &self.lists[level.index()];
        if ptr::eq(list.first.load(Relaxed), slot) {
            let _ = self.pop_from(slab, level);
            return;
        }
        let next = slot.next.load(Relaxed);
        // SAFETY: not the first, so there is a previous one; module documentation.
        let previous = unsafe { slab.known(slot.previous.load(Relaxed)) };
        previous.next.store(next, Relaxed);
        if next == 0 {
            list.last.store(ptr::from_ref(previous).cast_mut(), Relaxed);
        } else {
            // SAFETY: as above.
            unsafe { slab.known(next) }.previous.store(previous.handle(), Relaxed);
        }
        self.count.store(self.count().wrapping_sub(1), Relaxed);
    }
}

#[cfg(test)]
#[path = "ready_tests.rs"]
mod tests;
