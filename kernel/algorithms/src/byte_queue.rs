//! A bounded queue of bytes in chunks that are allocated as it fills and freed as it drains.
//!
//! No chunk is larger than a frame, so fragmented memory is sufficient. An empty queue keeps at
//! most a small chunk, so that short messages need no allocation.

use core::mem::MaybeUninit;

use cops_fallible::{List, OutOfMemory};

/// Capacity of a queue in bytes: that of a pipe on Linux.
pub const CAPACITY_BYTES: usize = 65_536;
/// Size of a chunk: one frame.
const CHUNK_BYTES: usize = 4096;
/// Size of an empty queue's first chunk, if the appended bytes fit into it.
const SMALL_BYTES: usize = 512;
/// Maximum number of chunks: the first may be almost empty.
const CHUNKS_MAX: usize = CAPACITY_BYTES / CHUNK_BYTES + 1;

/// What permits the memory for chunks.
pub trait Budget {
    /// Takes `bytes` from the budget.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    fn grow(&mut self, bytes: usize) -> Result<(), OutOfMemory>;

    /// Gives `bytes` back.
    fn shrink(&mut self, bytes: usize);
}

/// A queue of bytes. Its chunks are filled one after another, each to its capacity.
#[derive(Debug)]
pub struct ByteQueue<B> {
    /// A ring of chunks. Those in use begin at `first`.
    chunks: [List<u8>; CHUNKS_MAX],
    first: usize,
    /// Number of chunks in use. An empty queue may keep one.
    used: usize,
    /// Number of bytes of the first chunk that have been taken.
    taken: usize,
    length: usize,
    budget: B,
}

impl<B: Budget> ByteQueue<B> {
    /// An empty queue without chunks.
    pub const fn new(budget: B) -> Self {
        let chunks = [const { List::new() }; CHUNKS_MAX];
        Self { chunks, first: 0, used: 0, taken: 0, length: 0, budget }
    }

    /// Number of bytes in the queue.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.length
    }

    /// Whether there are no bytes.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The last chunk if it has room, otherwise a new one, for `wanted` bytes.
    fn chunk_with_room(&mut self, wanted: usize) -> Result<&mut List<u8>, OutOfMemory> {
        let last = (self.first + self.used + CHUNKS_MAX - 1) % CHUNKS_MAX;
        let has_room = self.used > 0 && self.chunks[last].len() < self.chunks[last].capacity();
        if has_room {
            return Ok(&mut self.chunks[last]);
        }
        if self.used == CHUNKS_MAX {
            return Err(OutOfMemory);
        }
        let bytes = if self.used == 0 && wanted <= SMALL_BYTES { SMALL_BYTES } else { CHUNK_BYTES };
        let next = (self.first + self.used) % CHUNKS_MAX;
        self.budget.grow(bytes)?;
        match List::try_with_capacity(bytes) {
            Ok(chunk) => self.chunks[next] = chunk,
            Err(error) => {
                self.budget.shrink(bytes);
                return Err(error);
            }
        }
        self.used += 1;
        Ok(&mut self.chunks[next])
    }

    /// Appends at most `count` bytes, as many as capacity and budget permit; returns the number.
    /// `read(at, room)` copies bytes from number `at` on to the begin of `room`, and returns those
    /// that it has copied, at least one.
    ///
    /// # Panics
    /// If `read` returns other memory than `room`.
    pub fn append(
        &mut self,
        count: usize,
        mut read: impl for<'a> FnMut(usize, &'a mut [MaybeUninit<u8>]) -> &'a mut [u8],
    ) -> usize {
        let count = count.min(CAPACITY_BYTES - self.length);
        let mut done = 0;
        while done < count {
            let Ok(chunk) = self.chunk_with_room(count - done) else { break };
            let part = (count - done).min(chunk.capacity() - chunk.len());
            match chunk.try_extend_with(part, |room| read(done, room)) {
                Ok(0) | Err(_) => break,
                Ok(copied) => done += copied,
            }
        }
        self.length += done;
        done
    }

    /// Removes the first bytes, at most `count`; returns the number. `write(at, bytes)` copies the
    /// bytes from number `at` on.
    pub fn take(&mut self, count: usize, mut write: impl FnMut(usize, &[u8])) -> usize {
        let count = count.min(self.length);
        let mut done = 0;
        while done < count {
            let chunk = &mut self.chunks[self.first];
            let part = (count - done).min(chunk.len() - self.taken);
            write(done, &chunk[self.taken..self.taken + part]);
            self.taken += part;
            done += part;
            if self.taken == chunk.len() {
                self.drop_first();
            }
        }
        self.length -= done;
        done
    }

    /// As [`Self::take`], of bytes that stay.
    pub fn look(&self, count: usize, mut write: impl FnMut(usize, &[u8])) -> usize {
        let count = count.min(self.length);
        let (mut done, mut index, mut taken) = (0, self.first, self.taken);
        while done < count {
            let chunk = &self.chunks[index];
            let part = (count - done).min(chunk.len() - taken);
            write(done, &chunk[taken..taken + part]);
            done += part;
            taken = 0;
            index = (index + 1) % CHUNKS_MAX;
        }
        done
    }

    /// Frees or reuses the first chunk, from which everything has been taken.
    fn drop_first(&mut self) {
        self.taken = 0;
        let chunk = &mut self.chunks[self.first];
        if self.used == 1 && chunk.capacity() < CHUNK_BYTES {
            chunk.clear();
            return;
        }
        // A chunk's capacity exceeds the requested one only by the allocator's rounding; the budget
        // gave one of the two sizes.
        let bytes = if chunk.capacity() < CHUNK_BYTES { SMALL_BYTES } else { CHUNK_BYTES };
        *chunk = List::new();
        self.budget.shrink(bytes);
        self.first = (self.first + 1) % CHUNKS_MAX;
        self.used -= 1;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::vec::Vec;

    /// A budget of so many bytes.
    #[derive(Debug)]
    struct Left(usize);

    impl Budget for Left {
        fn grow(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
            self.0 = self.0.checked_sub(bytes).ok_or(OutOfMemory)?;
            Ok(())
        }

        fn shrink(&mut self, bytes: usize) {
            self.0 += bytes;
        }
    }

    fn append(queue: &mut ByteQueue<Left>, from: &[u8]) -> usize {
        queue.append(from.len(), |at, room| {
            let length = room.len();
            room.write_copy_of_slice(&from[at..at + length])
        })
    }

    fn take(queue: &mut ByteQueue<Left>, count: usize) -> Vec<u8> {
        let mut taken = Vec::new();
        let done = queue.take(count, |at, bytes| {
            assert_eq!(at, taken.len());
            taken.extend_from_slice(bytes);
        });
        assert_eq!(done, taken.len());
        taken
    }

    proptest! {
        #[test]
        fn bytes_come_out_in_order_and_memory_comes_back(
            budget in prop_oneof![Just(usize::MAX), 0..80_000usize],
            steps in prop::collection::vec((any::<bool>(), prop_oneof![0..600usize, 0..70_000usize]), 1..40),
        ) {
            let (mut queue, mut model) = (ByteQueue::new(Left(budget)), VecDeque::new());
            let mut next = 0u8;
            for (appends, count) in steps {
                if appends {
                    let bytes: Vec<u8> = (0..count).map(|_| { next = next.wrapping_mul(5).wrapping_add(3); next }).collect();
                    let done = append(&mut queue, &bytes);
                    prop_assert!(done <= count.min(CAPACITY_BYTES - model.len()));
                    if budget == usize::MAX {
                        prop_assert_eq!(done, count.min(CAPACITY_BYTES - model.len()));
                    }
                    model.extend(&bytes[..done]);
                } else {
                    let mut seen = Vec::new();
                    let looked = queue.look(count, |at, bytes| {
                        assert_eq!(at, seen.len());
                        seen.extend_from_slice(bytes);
                    });
                    prop_assert_eq!(looked, seen.len());
                    let expected: Vec<u8> = model.drain(..count.min(model.len())).collect();
                    prop_assert_eq!(&seen, &expected);
                    prop_assert_eq!(take(&mut queue, count), expected);
                }
                prop_assert_eq!(queue.len(), model.len());
            }
            take(&mut queue, usize::MAX);
            // An empty queue keeps at most a small chunk.
            prop_assert!(budget - queue.budget.0 <= SMALL_BYTES);
        }
    }

    #[test]
    fn short_messages_use_one_small_chunk() {
        let mut queue = ByteQueue::new(Left(SMALL_BYTES));
        for _ in 0..1000 {
            assert_eq!(append(&mut queue, &[7; SMALL_BYTES]), SMALL_BYTES);
            assert_eq!(take(&mut queue, SMALL_BYTES), [7; SMALL_BYTES]);
        }
        assert_eq!(append(&mut queue, &[7; SMALL_BYTES + 1]), SMALL_BYTES);
    }
}
