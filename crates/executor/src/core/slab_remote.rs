//! Examining the coroutines of an executor in the memory of another program, word by word: for a
//! kernel's `ps`.
//!
//! No word is trusted: the owner of the memory may have written anything there, and may be changing
//! it. So nothing is dereferenced but by asking for the word at an address, every step is bounded,
//! and what comes out are numbers in their ranges.

use ::core::mem::offset_of;

use super::{Directory, Segment, Slab, split};
use crate::core::Phase;
use crate::core::executor::{Executor, Inspection};
use crate::core::slot::Slot;
use crate::core::snapshot::{Place, Snapshot};

const POINTER_BYTES: u64 = size_of::<usize>() as u64;

impl Executor {
    /// As [`inspect`](Executor::inspect), for the executor with this `number` at `address` of
    /// another memory. `word` reads 8 bytes of that memory, `None` if it cannot. The executor must
    /// be of this version of the crate, on a machine of 64 bits. `None` if there is no such slot,
    /// `Some(None)` if it is empty.
    ///
    /// Which of those that are ready is running is not known here: it is the current one of a
    /// worker ([`WorkerState::current_id`](crate::WorkerState)).
    ///
    /// ```
    /// use cops_executor::core::Executor;
    /// // Nothing can be read there, so no coroutine is found.
    /// assert!(Executor::inspect_remote(0x1000, 0, 1, |_address| None).is_none());
    /// ```
    pub fn inspect_remote(
        address: u64,
        number: u8,
        index: u32,
        mut word: impl FnMut(u64) -> Option<u64>,
    ) -> Option<Option<Inspection>> {
        let (directory, segment, slot) = split(index);
        let root = offset_of!(Executor, slab) + offset_of!(Slab, root);
        let entry = |base: u64, offset: usize, index: usize| {
            base.wrapping_add(offset as u64).wrapping_add(index as u64 * POINTER_BYTES)
        };
        let mut follow = |place: u64| word(place).filter(|&pointer| pointer != 0);
        let directory = follow(entry(address, root, directory))?;
        let segment = follow(entry(directory, offset_of!(Directory, segments), segment))?;
        let slot = offset_of!(Segment, slots) + slot * size_of::<Slot>() + offset_of!(Slot, state);
        let state = Snapshot(word(segment.wrapping_add(slot as u64))?);
        let phase = match state.place() {
            Place::Nowhere => return Some(None),
            Place::Blocked => Phase::Blocked,
            Place::Inbox | Place::List => Phase::Ready,
        };
        Some(Some(Inspection {
            id: state.id_high() | u64::from(number) << 24 | u64::from(index & 0xff_ffff),
            phase: phase as u32,
            priority: state.priority().level().into(),
            worker: state.worker(),
            cancelled: state.is_cancelled().into(),
        }))
    }
}
