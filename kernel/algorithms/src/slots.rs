//! Numbered slots: values that get the lowest free number and keep it, such as the threads of a
//! process.
//!
//! Slots are allocated in chunks of 64, so growing copies nothing but pointers. Every operation
//! takes a bounded number of steps: a number is found by one bit scan over the chunks and one in a
//! chunk.

use alloc::boxed::Box;
use cops_fallible::{List, OutOfMemory, try_box};

/// Slots in a chunk, and chunks: as many as a word has bits.
const CHUNK: usize = u64::BITS as usize;

/// Maximum number of values.
pub const CAPACITY: usize = CHUNK * CHUNK;

struct Chunk<T> {
    /// A bit for each slot with a value.
    used: u64,
    slots: [Option<T>; CHUNK],
}

/// Values in numbered slots; see the module.
pub struct Slots<T> {
    chunks: List<Box<Chunk<T>>>,
    /// A bit for each chunk in which all slots have values.
    full: u64,
    length: usize,
}

/// The reason why a value has no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoSlot {
    /// There are [`CAPACITY`] values.
    Full,
    /// There is no memory for another chunk.
    OutOfMemory,
}

impl From<OutOfMemory> for NoSlot {
    fn from(_: OutOfMemory) -> Self {
        Self::OutOfMemory
    }
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Slots<T> {
    /// No values; allocates nothing.
    #[must_use]
    pub const fn new() -> Self {
        Self { chunks: List::new(), full: 0, length: 0 }
    }

    /// Number of values.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no values.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The number that the next [`put`](Self::put) uses, with memory for it.
    ///
    /// # Errors
    /// See [`NoSlot`].
    pub fn reserve(&mut self) -> Result<usize, NoSlot> {
        let chunk = self.full.trailing_ones() as usize;
        if chunk >= CHUNK {
            return Err(NoSlot::Full);
        }
        if chunk == self.chunks.len() {
            let slots = core::array::from_fn(|_| None);
            self.chunks.try_push(try_box(Chunk { used: 0, slots })?)?;
        }
        Ok(chunk * CHUNK + self.chunks[chunk].used.trailing_ones() as usize)
    }

    /// Puts `value` into the lowest free slot, and returns the slot's number.
    ///
    /// # Errors
    /// See [`NoSlot`]; the value is dropped. Never directly after [`reserve`](Self::reserve).
    pub fn put(&mut self, value: T) -> Result<usize, NoSlot> {
        let number = self.reserve()?;
        let chunk = &mut self.chunks[number / CHUNK];
        chunk.slots[number % CHUNK] = Some(value);
        chunk.used |= 1 << (number % CHUNK);
        if chunk.used == u64::MAX {
            self.full |= 1 << (number / CHUNK);
        }
        self.length += 1;
        Ok(number)
    }

    /// The value in slot `number`.
    #[must_use]
    pub fn get(&self, number: usize) -> Option<&T> {
        self.chunks.get(number / CHUNK)?.slots[number % CHUNK].as_ref()
    }

    /// The value in slot `number`, to be changed.
    pub fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.chunks.get_mut(number / CHUNK)?.slots[number % CHUNK].as_mut()
    }

    /// Takes the value out of slot `number`, which is free then.
    pub fn take(&mut self, number: usize) -> Option<T> {
        let chunk = self.chunks.get_mut(number / CHUNK)?;
        let value = chunk.slots[number % CHUNK].take()?;
        chunk.used &= !(1 << (number % CHUNK));
        self.full &= !(1 << (number / CHUNK));
        self.length -= 1;
        Some(value)
    }

    /// The value with the lowest number from `number` on, and its number.
    #[must_use]
    pub fn at_or_after(&self, number: usize) -> Option<(usize, &T)> {
        let mut rest = u64::MAX << (number % CHUNK);
        for (index, chunk) in self.chunks.iter().enumerate().skip(number / CHUNK) {
            let used = chunk.used & rest;
            if used != 0 {
                let slot = used.trailing_zeros() as usize;
                return Some((index * CHUNK + slot, chunk.slots[slot].as_ref()?));
            }
            rest = u64::MAX;
        }
        None
    }

    /// The value that [`pop`](Self::pop) takes out next.
    #[must_use]
    pub fn last(&self) -> Option<&T> {
        let chunk = self.chunks.iter().rev().find(|chunk| chunk.used != 0)?;
        chunk.slots[chunk.used.checked_ilog2()? as usize].as_ref()
    }

    /// Takes out any value, and frees the memory of chunks without values at the end. `None` if
    /// there is none.
    pub fn pop(&mut self) -> Option<T> {
        while let Some(last) = self.chunks.last() {
            if let Some(slot) = last.used.checked_ilog2() {
                return self.take((self.chunks.len() - 1) * CHUNK + slot as usize);
            }
            self.chunks.pop();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_is_full_at_its_capacity() {
        let mut slots = Slots::new();
        for number in 0..CAPACITY {
            assert_eq!(slots.put(number), Ok(number));
        }
        assert_eq!(slots.put(0), Err(NoSlot::Full));
        assert_eq!(slots.take(CAPACITY - 1), Some(CAPACITY - 1));
        assert_eq!(slots.put(7), Ok(CAPACITY - 1));
    }

    proptest! {
        #[test]
        fn a_value_gets_the_lowest_free_number_and_keeps_it(
            steps in prop::collection::vec((0..6u8, 0..300usize), 0..800),
        ) {
            let (mut slots, mut model) = (Slots::new(), BTreeMap::new());
            for (step, (what, number)) in steps.into_iter().enumerate() {
                match what {
                    0..=2 => {
                        let lowest = (0..).find(|at| !model.contains_key(at)).unwrap();
                        prop_assert_eq!(slots.reserve(), Ok(lowest));
                        prop_assert_eq!(slots.put(step), Ok(lowest));
                        model.insert(lowest, step);
                    }
                    3 => prop_assert_eq!(slots.take(number), model.remove(&number)),
                    4 => prop_assert_eq!(
                        slots.at_or_after(number),
                        model.range(number..).next().map(|(&at, value)| (at, value))
                    ),
                    _ => prop_assert_eq!(slots.get(number), model.get(&number)),
                }
                prop_assert_eq!(slots.len(), model.len());
                prop_assert_eq!(slots.last(), model.last_key_value().map(|(_, value)| value));
            }
            while let Some(value) = slots.pop() {
                let last = model.pop_last();
                prop_assert_eq!(Some(value), last.map(|(_, value)| value));
            }
            prop_assert!(model.is_empty() && slots.is_empty());
        }
    }
}
