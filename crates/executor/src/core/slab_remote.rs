//! Examining the coroutines of an executor in the memory of another program, word by word: for a
//! kernel's `ps`.
//!
//! No word is trusted: the owner of the memory may have written anything there, and may be changing
//! it. So nothing is dereferenced but by asking for the word at an address, every step is bounded,
//! and what comes out are numbers in their ranges.

use ::core::mem::offset_of;

use super::{Directory, Segment, Slab, split};
use crate::core::executor::Executor;
use crate::core::slot::{FutureVTable, Slot};
use crate::core::snapshot::{Place, Snapshot};
use crate::core::{CoroutineId, Inspected, Inspection, Phase};

const POINTER_BYTES: u64 = size_of::<usize>() as u64;

impl Executor {
    /// As [`inspect`](Executor::inspect), for the executor with this `number` at `address` of
    /// another memory. `word` reads 8 bytes of that memory, `None` if it cannot. The executor must
    /// be of this version of the crate, on a machine of 64 bits.
    ///
    /// Which of those that are ready is running is not known here: it is the current one of a
    /// worker ([`WorkerState::current_id`](crate::WorkerState)).
    ///
    /// ```
    /// use cops_executor::core::Executor;
    /// // Nothing can be read there, so no coroutine is found.
    /// use cops_executor::core::Inspected;
    /// assert_eq!(Executor::inspect_remote(0x1000, 0, 1, |_address| None), Inspected::End);
    /// ```
    pub fn inspect_remote(
        address: u64,
        number: u8,
        index: u32,
        mut word: impl FnMut(u64) -> Option<u64>,
    ) -> Inspected {
        let Some(slot) = remote_slot(address, index, &mut word) else { return Inspected::End };
        let Some(state) = word(slot.wrapping_add(offset_of!(Slot, state) as u64)) else {
            return Inspected::End;
        };
        let state = Snapshot(state);
        let phase = match state.place() {
            Place::Nowhere => return Inspected::Empty,
            Place::Blocked => Phase::Blocked,
            Place::Inbox | Place::List => Phase::Ready,
        };
        let id = state.id_high() | u64::from(number) << 24 | u64::from(index & 0xff_ffff);
        CoroutineId::from_raw(id).map_or(Inspected::Empty, |id| {
            Inspected::Coroutine(Inspection {
                id,
                phase,
                priority: state.priority(),
                worker: state.worker(),
                is_cancelled: state.is_cancelled(),
                kind: remote_kind(slot, &mut word),
            })
        })
    }
}

/// The address of slot `index` of the executor at `address`; `None` if there is no such slot.
fn remote_slot(address: u64, index: u32, word: &mut impl FnMut(u64) -> Option<u64>) -> Option<u64> {
    let (directory, segment, slot) = split(index);
    let root = offset_of!(Executor, slab) + offset_of!(Slab, root);
    let entry = |base: u64, offset: usize, index: usize| {
        base.wrapping_add(offset as u64).wrapping_add(index as u64 * POINTER_BYTES)
    };
    let mut follow = |place: u64| word(place).filter(|&pointer| pointer != 0);
    let directory = follow(entry(address, root, directory))?;
    let segment = follow(entry(directory, offset_of!(Directory, segments), segment))?;
    let slot = offset_of!(Segment, slots) + slot * size_of::<Slot>();
    Some(segment.wrapping_add(slot as u64))
}

/// The kind of the coroutine in the slot at `slot`; 0 if its table cannot be read.
fn remote_kind(slot: u64, word: &mut impl FnMut(u64) -> Option<u64>) -> usize {
    let mut read = || {
        let table = word(slot.wrapping_add(Slot::VTABLE_OFFSET as u64))?;
        word(table.wrapping_add(offset_of!(FutureVTable, kind) as u64))
    };
    read().unwrap_or(0) as usize
}
