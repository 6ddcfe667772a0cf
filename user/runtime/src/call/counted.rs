//! The calls of a coroutine in one word: how many there are, and the slots of two of them. So one
//! load reads all of it at one moment.
//!
//! May touch: nothing. The guest tests (`call_levels`) also compile this file, and try all
//! sequences of calls.

/// The number of calls, and the slots of up to two of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted(u64);

/// Bits of a place for a slot: its number plus 1, or 0.
const PLACE_BITS: u32 = 20;
const PLACE: u64 = (1 << PLACE_BITS) - 1;
/// One call in the count, which is above both places.
const CALL: u64 = 1 << (2 * PLACE_BITS);

/// All numbers of slots are below it.
pub const SLOTS_MAX: usize = PLACE as usize;

impl Counted {
    /// No call.
    pub const NONE: Self = Self(0);

    /// The value with this word.
    #[inline]
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The word of this value.
    #[inline]
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The same and a call in this slot, which has none.
    #[inline]
    pub const fn with(self, slot: u32) -> Self {
        let (first, second) = self.places();
        let entry = slot as u64 + 1;
        let place = if first == 0 {
            entry
        } else if second == 0 {
            entry << PLACE_BITS
        } else {
            0
        };
        Self(self.0 + CALL + place)
    }

    /// The same without the call in this slot.
    #[inline]
    pub const fn without(self, slot: u32) -> Self {
        let (first, second) = self.places();
        let entry = slot as u64 + 1;
        let place = if first == entry {
            entry
        } else if second == entry {
            entry << PLACE_BITS
        } else {
            0
        };
        Self(self.0 - CALL - place)
    }

    /// The slots of all calls; `None` if there are others than the two that are noted.
    #[inline]
    pub const fn slots(self) -> Option<[Option<u32>; 2]> {
        let (first, second) = self.places();
        let noted = (first != 0) as u64 + (second != 0) as u64;
        if self.0 / CALL != noted {
            return None;
        }
        Some([number(first), number(second)])
    }

    const fn places(self) -> (u64, u64) {
        (self.0 & PLACE, self.0 >> PLACE_BITS & PLACE)
    }
}

const fn number(place: u64) -> Option<u32> {
    if place == 0 { None } else { Some(place as u32 - 1) }
}
