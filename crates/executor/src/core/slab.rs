//! Where slots live: segments of 256, found through directories of 256 segments, never freed. (Of
//! 16 and 16 where pointers have 32 bits and an index has twelve.) Slots that were used before are
//! kept by the workers (`locked`).
//!
//! An index is three bytes: directory, segment, slot. Looking one up is two loads and no count of
//! leading zeros, which RV64GC has no instruction for (that, and half-empty last segments, speak
//! against segments of doubling size). Growing is lock-free: the loser of a race to install memory
//! frees its own.
//!
//! Unsafe: turning an index into a reference. The argument is the same everywhere: a pointer in a
//! directory is either null or points to zeroed memory of the right size and alignment, handed out
//! for ever by `Hooks::grow`, and all fields of a slot are atomics for which zero is valid.
#![allow(unsafe_code)]

use super::atomic::{AtomicPtr, AtomicU32, Ordering, load_published};
use ::core::ptr;

#[cfg(target_pointer_width = "64")]
#[path = "slab_remote.rs"]
mod remote;

use super::hooks::Hooks;
use super::id::{INDEX_BITS, INDEX_LIMIT};
use super::slot::Slot;

/// Bits of each of the three parts of an index.
const PART_BITS: u32 = INDEX_BITS / 3;
const FAN_OUT: usize = 1 << PART_BITS;
const _: () = assert!(PART_BITS * 3 == INDEX_BITS);

#[repr(C, align(64))]
struct Segment {
    slots: [Slot; FAN_OUT],
}

#[repr(C, align(64))]
struct Directory {
    segments: [AtomicPtr<Segment>; FAN_OUT],
}

/// All slots of an executor. Index 0 is never used, so that 0 can stand for "none" in lists.
#[repr(C)]
pub(crate) struct Slab {
    root: [AtomicPtr<Directory>; FAN_OUT],
    /// The lowest index that was never used, minus 1.
    fresh: AtomicU32,
}

/// The parts of an index, or of a handle without its top byte. Each is below `FAN_OUT`, so none of
/// the lookups below keeps a bounds check.
fn split(index: u32) -> (usize, usize, usize) {
    let part = |number: u32| (index >> (number * PART_BITS)) as usize & (FAN_OUT - 1);
    (part(2), part(1), part(0))
}

/// What `Hooks::grow` is asked for, for `coroutines` at once; at most the bytes of all indices.
pub(super) const fn memory_for(coroutines: u32) -> usize {
    // Index 0 is not used.
    let indices =
        if coroutines < INDEX_LIMIT { coroutines as usize + 1 } else { INDEX_LIMIT as usize };
    let segments = indices.div_ceil(FAN_OUT);
    segments * size_of::<Segment>() + segments.div_ceil(FAN_OUT) * size_of::<Directory>()
}

impl Slab {
    pub const fn new() -> Slab {
        Slab {
            root: [const { AtomicPtr::new(ptr::null_mut()) }; FAN_OUT],
            fresh: AtomicU32::new(0),
        }
    }

    /// The slot for an arbitrary index; `None` if there is no such slot.
    #[inline]
    pub fn get(&self, index: u32) -> Option<&Slot> {
        // Not asked of an index that uses all the bits there are.
        if INDEX_BITS < 24 && index >= INDEX_LIMIT {
            return None;
        }
        let (directory, segment, slot) = split(index);
        // SAFETY: null or a live, initialised directory (module documentation); the load pairs with
        // the Release of its installation.
        let directory = unsafe { load_published(&self.root[directory]).as_ref() }?;
        // SAFETY: null or a live, initialised segment (module documentation); the load pairs with
        // the Release of its installation.
        let segment = unsafe { load_published(&directory.segments[segment]).as_ref() }?;
        Some(&segment.slots[slot])
    }

    /// The slot of a handle.
    ///
    /// # Safety
    ///
    /// `handle` is `Slot::handle` of a slot that `allocate` of this slab has returned (and was read
    /// from where it was published since).
    #[inline(always)]
    pub unsafe fn known(&self, handle: u32) -> &Slot {
        let (directory, segment, slot) = split(handle);
        // SAFETY: `allocate` has returned the slot, hence both pointers are installed, and they
        // never change again. Relaxed will do: the index came to us by an acquire that follows
        // `allocate`.
        unsafe {
            let directory = &*self.root[directory].load(Ordering::Relaxed);
            &(*directory.segments[segment].load(Ordering::Relaxed)).slots[slot]
        }
    }

    /// How many slots have been handed out so far: the indices from 1 to this.
    pub fn handed_out(&self) -> u32 {
        self.fresh.load(Ordering::Relaxed)
    }

    /// A slot that was never used, for the caller alone. `None` if there is no memory or no index
    /// left. `number` is the executor's, always the same.
    pub fn allocate(&self, number: u8, hooks: &Hooks) -> Option<&Slot> {
        loop {
            let fresh = self.fresh.load(Ordering::Relaxed);
            let index = fresh.wrapping_add(1);
            if index >= INDEX_LIMIT {
                return None;
            }
            let Some(slot) = self.get(index) else {
                if !self.grow(index, hooks) {
                    return None;
                }
                continue;
            };
            let claimed = self.fresh.compare_exchange_weak(
                fresh,
                index,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            if claimed.is_ok() {
                slot.set_handle((number as u32) << 24 | index);
                return Some(slot);
            }
        }
    }

    /// Makes the slot `index` exist: true if it does now, whichever thread did it.
    #[cold]
    fn grow(&self, index: u32, hooks: &Hooks) -> bool {
        let (directory, segment, _) = split(index);
        let Some(directory) = install(&self.root[directory], hooks) else { return false };
        install(&directory.segments[segment], hooks).is_some()
    }
}

/// What `place` points to, after installing new memory there if it was null. `None` if there is
/// none.
///
/// Private, and called for `Directory` and `Segment` only: types for which zeroed memory is valid.
fn install<'a, T>(place: &'a AtomicPtr<T>, hooks: &Hooks) -> Option<&'a T> {
    let mut installed = place.load(Ordering::Acquire);
    if installed.is_null() {
        // SAFETY: `grow` may be called from any worker (contract of `Hooks`).
        let memory = unsafe { (hooks.grow)(hooks.context, size_of::<T>()) }.cast::<T>();
        if memory.is_null() {
            return None;
        }
        match place.compare_exchange(installed, memory, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => installed = memory,
            Err(winner) => {
                // SAFETY: the memory came from `grow` with this size, and no reference to it was
                // published.
                unsafe { (hooks.release)(hooks.context, memory.cast(), size_of::<T>()) };
                installed = winner;
            }
        }
    }
    // SAFETY: not null; what is installed is live and initialised as long as the slab (module
    // documentation).
    Some(unsafe { &*installed })
}

#[cfg(test)]
#[path = "slab_tests.rs"]
mod tests;
