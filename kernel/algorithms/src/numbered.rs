//! Values with small numbers, which are used again: what a process has mapped from files.
//!
//! The values are in chunks, so that nothing large is allocated in one piece or copied. A number is
//! found by a search from the first chunk with room.

use alloc::boxed::Box;

use cops_fallible::{List, OutOfMemory, try_box};

/// Values of a chunk.
const CHUNK: usize = 32;
/// Maximum number of chunks: every number fits into 16 bits.
const CHUNKS_MAX: usize = (u16::MAX as usize + 1) / CHUNK;

struct Chunk<T> {
    /// A bit for each value.
    used: u32,
    values: [Option<T>; CHUNK],
}

/// Values by number; see the module.
pub struct Numbered<T> {
    chunks: List<Option<Box<Chunk<T>>>>,
    /// All chunks before this one are full.
    first_with_room: usize,
    allocated: usize,
    length: usize,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Numbered<T> {
    /// Memory for a chunk.
    pub const CHUNK_BYTES: usize = size_of::<Chunk<T>>();

    /// No values.
    #[must_use]
    pub const fn new() -> Self {
        Self { chunks: List::new(), first_with_room: 0, allocated: 0, length: 0 }
    }

    /// Whether there are no values.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Memory that it takes.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.allocated * Self::CHUNK_BYTES
    }

    /// Adds a value. Returns its number, which no other value has.
    ///
    /// # Errors
    /// [`OutOfMemory`], also if all numbers are in use; the value is dropped.
    pub fn insert(&mut self, value: T) -> Result<u16, OutOfMemory> {
        let is_full = |chunk: &Option<Box<Chunk<T>>>| {
            chunk.as_ref().is_some_and(|chunk| chunk.used == u32::MAX)
        };
        while self.chunks.get(self.first_with_room).is_some_and(is_full) {
            self.first_with_room += 1;
        }
        let index = self.first_with_room;
        if index == CHUNKS_MAX {
            return Err(OutOfMemory);
        }
        if index == self.chunks.len() {
            self.chunks.try_push(None)?;
        }
        if self.chunks[index].is_none() {
            self.chunks[index] = Some(try_box(Chunk { used: 0, values: [const { None }; CHUNK] })?);
            self.allocated += 1;
        }
        let Some(chunk) = self.chunks[index].as_deref_mut() else { return Err(OutOfMemory) };
        let place = chunk.used.trailing_ones() as usize;
        chunk.used |= 1 << place;
        chunk.values[place] = Some(value);
        self.length += 1;
        Ok((index * CHUNK + place) as u16)
    }

    /// The value with this number.
    #[must_use]
    pub fn get(&self, number: u16) -> Option<&T> {
        let (index, place) = (usize::from(number) / CHUNK, usize::from(number) % CHUNK);
        self.chunks.get(index)?.as_deref()?.values[place].as_ref()
    }

    /// The value with this number, to be changed.
    pub fn get_mut(&mut self, number: u16) -> Option<&mut T> {
        let (index, place) = (usize::from(number) / CHUNK, usize::from(number) % CHUNK);
        self.chunks.get_mut(index)?.as_deref_mut()?.values[place].as_mut()
    }

    /// Removes the value with this number.
    pub fn remove(&mut self, number: u16) -> Option<T> {
        let (index, place) = (usize::from(number) / CHUNK, usize::from(number) % CHUNK);
        let slot = self.chunks.get_mut(index)?;
        let chunk = slot.as_deref_mut()?;
        let value = chunk.values[place].take()?;
        chunk.used &= !(1 << place);
        if chunk.used == 0 {
            *slot = None;
            self.allocated -= 1;
        }
        self.length -= 1;
        self.first_with_room = self.first_with_room.min(index);
        Some(value)
    }

    /// Removes some value; `None` if there is none. Skips at most so many numbers as there are
    /// chunks: for a caller that removes all values, one at a time.
    pub fn pop(&mut self) -> Option<T> {
        loop {
            let index = self.chunks.len().checked_sub(1)?;
            match self.chunks[index].as_deref() {
                Some(chunk) => {
                    let place = chunk.used.trailing_zeros() as usize;
                    return self.remove((index * CHUNK + place) as u16);
                }
                None => drop(self.chunks.pop()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    proptest! {
        #[test]
        fn it_does_what_a_map_does(steps in prop::collection::vec((0..3u8, any::<u16>()), 1..400)) {
            let (mut numbered, mut model) = (Numbered::new(), BTreeMap::new());
            for (value, (what, other)) in steps.into_iter().enumerate() {
                let number = model.keys().nth(usize::from(other) % model.len().max(1)).copied();
                match (what, number) {
                    (0 | 1, _) => {
                        let number = numbered.insert(value).unwrap();
                        // The lowest number that is free.
                        prop_assert_eq!(usize::from(number), (0..).find(|n| !model.contains_key(&(*n as u16))).unwrap());
                        prop_assert_eq!(model.insert(number, value), None);
                    }
                    (_, Some(number)) => prop_assert_eq!(numbered.remove(number), model.remove(&number)),
                    _ => prop_assert_eq!(numbered.pop(), None),
                }
                // The lowest numbers are used, so none is higher than the number of steps.
                let found: Vec<_> = (0..400).filter_map(|number| Some((number, *numbered.get(number)?))).collect();
                let expected: Vec<_> = model.iter().map(|(number, value)| (*number, *value)).collect();
                prop_assert_eq!(found, expected);
                prop_assert_eq!(numbered.is_empty(), model.is_empty());
                prop_assert_eq!(numbered.get(other), model.get(&other));
            }
            let count = core::iter::from_fn(|| numbered.pop()).count();
            prop_assert_eq!((count, numbered.bytes()), (model.len(), 0));
        }
    }

    #[test]
    fn all_numbers_can_be_in_use() {
        let mut numbered = Numbered::new();
        for value in 0..=u16::MAX {
            assert_eq!(numbered.insert(value), Ok(value));
        }
        assert_eq!(numbered.insert(0), Err(OutOfMemory));
        assert_eq!(numbered.remove(40_000), Some(40_000));
        assert_eq!(numbered.insert(7), Ok(40_000));
        assert_eq!(numbered.remove(u16::MAX), Some(u16::MAX));
        assert_eq!(numbered.insert(8), Ok(u16::MAX));
    }
}
