//! The timer queue of an interface: the next endpoint to be served, and when.
//!
//! Most deadlines are never reached: an acknowledgement goes out with an answer, and a
//! retransmission is not needed. So what matters is the cost of a deadline that changes.
//!
//! - A deadline within the next 180 ms, which is as long as an acknowledgement waits, goes into the
//!   *wheel*: 128 slots of 2 ms, each a list without order. It costs a few instructions, whatever
//!   the number of entries. It is rounded up to the end of its slot, so an acknowledgement leaves
//!   up to 2 ms late.
//! - A later one goes into an ordered map.
//!
//! Each endpoint has at most one entry in each. When a deadline becomes later, or is no longer
//! wanted, the entry stays where it is; when the entry is due, it is put back for the deadline that
//! is then wanted, without serving the endpoint. So the retransmission timer, which moves with
//! every packet, changes the map about once a second.

use alloc::boxed::Box;
use alloc::sync::{Arc, Weak};

use cops_fallible::map::Spare;
use cops_fallible::{Map, OutOfMemory, try_box};

use crate::acknowledgements::DELAY_MICROSECONDS_MAX;
use crate::endpoint::Endpoint;

/// The deadline in microseconds, and the endpoint's number to distinguish equal deadlines.
type Key = (u64, u64);
/// What an entry of the map contained, and its memory.
type Taken = (Arc<Endpoint>, Spare<Key, Arc<Endpoint>>);

/// An endpoint's record of its entries, protected by the endpoint's lock. Their memory is allocated
/// with the endpoint, so that arming a timer cannot fail.
pub(crate) struct Armed {
    /// When the endpoint is next to be served. If there is one, at least one of the entries is due
    /// by the end of its slot.
    wanted: Option<u64>,
    /// The deadline of the entry in the map, and memory for it while there is none.
    ordered: Option<u64>,
    ordered_room: Option<Spare<Key, Arc<Endpoint>>>,
    /// The same for the wheel.
    near: Option<u64>,
    near_room: Option<Box<Near>>,
}

impl Armed {
    /// Bytes of the two entries.
    pub(crate) const ENTRY_BYTES: usize =
        Map::<Key, Arc<Endpoint>>::ENTRY_BYTES + size_of::<Near>();

    pub(crate) fn try_new() -> Result<Armed, OutOfMemory> {
        Ok(Armed {
            wanted: None,
            ordered: None,
            ordered_room: Some(Spare::try_new()?),
            near: None,
            near_room: Some(try_box(Near { endpoint: Weak::new(), next: None })?),
        })
    }
}

/// An entry of the wheel. It does not keep its endpoint: an entry cannot be taken out of the middle
/// of its list, and the buffers of an endpoint that has ended must not wait for it.
struct Near {
    endpoint: Weak<Endpoint>,
    next: Option<Box<Near>>,
}

/// Length of a slot: 2,048 microseconds.
const SLOT_BITS: u32 = 11;
/// Number of slots: enough for the longest delay of an acknowledgement. The current slot has begun
/// already, and the end is rounded up: hence two more.
const SLOTS: usize =
    (DELAY_MICROSECONDS_MAX.div_ceil(1 << SLOT_BITS) as usize + 2).next_power_of_two();

/// The earlier of two deadlines, of which there may be none.
pub(crate) fn earlier(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// The end of the slot to which a deadline belongs.
fn end_of_slot(deadline: u64) -> u64 {
    deadline.div_ceil(1 << SLOT_BITS) << SLOT_BITS
}

/// The near deadlines.
struct Wheel {
    slots: [Slot; SLOTS],
    /// The earliest deadline of a slot that has entries.
    earliest: Option<u64>,
    length: usize,
}

struct Slot {
    /// The end of the slot, if it has entries.
    deadline: u64,
    first: Option<Box<Near>>,
}

impl Default for Wheel {
    fn default() -> Self {
        let slots = [const { Slot { deadline: 0, first: None } }; SLOTS];
        Wheel { slots, earliest: None, length: 0 }
    }
}

impl Wheel {
    /// Adds an entry that is due at the end of the slot of `deadline`. Returns that time, or the
    /// memory of the entry if the deadline is too far from `now`.
    fn push(&mut self, mut entry: Box<Near>, deadline: u64, now: u64) -> Result<u64, Box<Near>> {
        let end = end_of_slot(deadline);
        let slot = &mut self.slots[(end >> SLOT_BITS) as usize % SLOTS];
        // A slot that was due and is not yet empty has another deadline.
        let other = slot.first.is_some() && slot.deadline != end;
        if other || end >> SLOT_BITS >= (now >> SLOT_BITS) + SLOTS as u64 {
            return Err(entry);
        }
        slot.deadline = end;
        entry.next = slot.first.take();
        slot.first = Some(entry);
        self.length += 1;
        if self.earliest.is_none_or(|earliest| end < earliest) {
            self.earliest = Some(end);
        }
        Ok(end)
    }

    /// Takes an entry of the earliest slot.
    fn pop(&mut self) -> Option<Box<Near>> {
        let slot = &mut self.slots[(self.earliest? >> SLOT_BITS) as usize % SLOTS];
        let mut entry = slot.first.take()?;
        slot.first = entry.next.take();
        self.length -= 1;
        if slot.first.is_none() {
            let used = self.slots.iter().filter(|slot| slot.first.is_some());
            self.earliest = used.map(|slot| slot.deadline).min();
        }
        Some(entry)
    }
}

impl Drop for Wheel {
    /// Frees the lists one entry after the other: the compiler's own way is recursive.
    fn drop(&mut self) {
        while self.pop().is_some() {}
    }
}

/// The entries of both kinds.
#[derive(Default)]
pub(crate) struct TimerQueue {
    wheel: Wheel,
    ordered: Map<Key, Arc<Endpoint>>,
    /// The first key of the map.
    first: Option<Key>,
}

/// A due entry.
pub(crate) struct Due {
    /// `None`: the endpoint has ended.
    pub(crate) endpoint: Option<Arc<Endpoint>>,
    room: Room,
}

/// The memory of a due entry.
enum Room {
    Near(Box<Near>),
    Ordered(Spare<Key, Arc<Endpoint>>),
}

impl TimerQueue {
    /// `endpoint` is to be served at `deadline`, and not because of an earlier call; `None`: not
    /// because of the time.
    #[inline]
    pub(crate) fn arm(
        &mut self,
        endpoint: &Arc<Endpoint>,
        armed: &mut Armed,
        deadline: Option<u64>,
        now: u64,
    ) {
        armed.wanted = deadline;
        let Some(deadline) = deadline else { return };
        // Usually an entry is due early enough.
        if armed.near.is_some_and(|current| current <= end_of_slot(deadline))
            || armed.ordered.is_some_and(|current| current <= deadline)
        {
            return;
        }
        self.add(endpoint, armed, deadline, now);
    }

    /// Adds an entry for `deadline`.
    #[inline(never)]
    fn add(&mut self, endpoint: &Arc<Endpoint>, armed: &mut Armed, deadline: u64, now: u64) {
        if let Some(mut entry) = armed.near_room.take() {
            entry.endpoint = Arc::downgrade(endpoint);
            match self.wheel.push(entry, deadline, now) {
                Ok(end) => return armed.near = Some(end),
                Err(entry) => armed.near_room = Some(entry),
            }
        }
        self.remove_ordered(endpoint, armed);
        if let Some(room) = armed.ordered_room.take() {
            let key = (deadline, endpoint.number);
            self.ordered.insert_with(room, key, endpoint.clone());
            armed.ordered = Some(deadline);
            if self.first.is_none_or(|first| key < first) {
                self.first = Some(key);
            }
        }
    }

    /// `endpoint` is not to be served any more. Its entry in the wheel stays until it is due.
    pub(crate) fn disarm(&mut self, endpoint: &Endpoint, armed: &mut Armed) {
        armed.wanted = None;
        self.remove_ordered(endpoint, armed);
    }

    fn remove_ordered(&mut self, endpoint: &Endpoint, armed: &mut Armed) {
        if let Some(current) = armed.ordered.take()
            && let Some((_, room)) = self.take_ordered((current, endpoint.number))
        {
            armed.ordered_room = Some(room);
        }
    }

    fn take_ordered(&mut self, key: Key) -> Option<Taken> {
        let taken = self.ordered.take(&key);
        if self.first == Some(key) {
            self.first = self.ordered.first().map(|(&key, _)| key);
        }
        taken
    }

    /// Takes the first entry that is due at `now`. The caller passes it to [`is_wanted`] with the
    /// endpoint's record.
    ///
    /// [`is_wanted`]: Self::is_wanted
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Due> {
        let ordered = self.first.filter(|key| key.0 <= now);
        let near = self.wheel.earliest.filter(|&end| end <= now);
        match (near, ordered) {
            (Some(near), ordered) if ordered.is_none_or(|key| near <= key.0) => {
                let mut entry = self.wheel.pop()?;
                let endpoint = core::mem::take(&mut entry.endpoint).upgrade();
                Some(Due { endpoint, room: Room::Near(entry) })
            }
            (_, Some(key)) => {
                let (endpoint, room) = self.take_ordered(key)?;
                Some(Due { endpoint: Some(endpoint), room: Room::Ordered(room) })
            }
            _ => None,
        }
    }

    /// Whether `endpoint`, the one of `due`, is to be served at `now`. If it is to be served later,
    /// it gets an entry for that.
    pub(crate) fn is_wanted(
        &mut self,
        due: Due,
        endpoint: &Arc<Endpoint>,
        armed: &mut Armed,
        now: u64,
    ) -> bool {
        match due.room {
            Room::Near(room) => (armed.near, armed.near_room) = (None, Some(room)),
            Room::Ordered(room) => (armed.ordered, armed.ordered_room) = (None, Some(room)),
        }
        let is_wanted = armed.wanted.is_some_and(|at| at <= now);
        if !is_wanted {
            self.arm(endpoint, armed, armed.wanted, now);
        }
        is_wanted
    }

    /// The earliest deadline of an entry.
    pub(crate) fn earliest(&self) -> Option<u64> {
        earlier(self.wheel.earliest, self.first.map(|(deadline, _)| deadline))
    }

    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.wheel.length + self.ordered.len()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn entry() -> Box<Near> {
        try_box(Near { endpoint: Weak::new(), next: None }).unwrap()
    }

    proptest! {
        /// Against a map from the end of each slot to its number of entries.
        #[test]
        fn the_wheel_gives_entries_back_in_order_and_soon_after_their_time(
            steps in prop::collection::vec((0..9_000u64, 0..180_000u64, 0..4u8), 0..300),
        ) {
            let (mut wheel, mut model, mut now) = (Wheel::default(), BTreeMap::new(), 12_345);
            for (passes, ahead, pops) in steps {
                now += passes;
                let deadline = now + ahead;
                match wheel.push(entry(), deadline, now) {
                    Ok(end) => {
                        prop_assert!((deadline..deadline + 2048).contains(&end));
                        *model.entry(end).or_insert(0) += 1;
                    }
                    Err(_) => {
                        // Too far, or its slot has entries that are overdue.
                        let overdue = model.first_key_value().is_some_and(|(&end, _)| end <= now);
                        prop_assert!(ahead > DELAY_MICROSECONDS_MAX || overdue);
                    }
                }
                for _ in 0..pops {
                    let earliest = model.first_key_value().map(|(&end, _)| end);
                    prop_assert_eq!(wheel.earliest, earliest);
                    let Some(end) = earliest.filter(|&end| end <= now) else { break };
                    prop_assert!(wheel.pop().is_some());
                    let count = model.get_mut(&end).unwrap();
                    *count -= 1;
                    if *count == 0 {
                        model.remove(&end);
                    }
                }
                prop_assert_eq!(wheel.length, model.values().sum::<usize>());
            }
            while wheel.pop().is_some() {}
            prop_assert_eq!((wheel.length, wheel.earliest), (0, None));
        }
    }

    #[test]
    fn a_long_list_is_freed_without_recursion() {
        let mut wheel = Wheel::default();
        for _ in 0..200_000 {
            assert!(wheel.push(entry(), 5_000, 0).is_ok());
        }
    }
}
