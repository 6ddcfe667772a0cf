//! Bytes in order that grow by need: the buffers of a connection on the fast path.

use cops_fallible::{List, OutOfMemory};
use smoltcp::socket::tcp::SocketBuffer;

/// The smallest room that is allocated: a short message.
pub(crate) const BYTES_MIN: usize = 256;

/// A queue of bytes, contiguous in memory. It allocates what is needed and keeps it until
/// [`release`](Self::release).
#[derive(Debug, Default)]
pub(crate) struct ByteQueue {
    /// The bytes from `start` to `end` are in the queue; the others are of no meaning.
    bytes: List<u8>,
    start: usize,
    end: usize,
}

impl ByteQueue {
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The bytes in the queue.
    pub(crate) fn as_slice(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or(&[])
    }

    /// Removes the first `count` bytes, or all if there are fewer.
    pub(crate) fn consume(&mut self, count: usize) {
        if count >= self.len() {
            (self.start, self.end) = (0, 0);
        } else {
            self.start += count;
        }
    }

    /// Whether `more` bytes can be appended as it is.
    #[inline]
    pub(crate) fn has_room(&self, more: usize) -> bool {
        more <= self.bytes.len() - self.end
    }

    /// Room for `more` bytes.
    fn room(&mut self, more: usize) -> Result<&mut [u8], OutOfMemory> {
        if !self.has_room(more) {
            self.grow(more)?;
        }
        Ok(&mut self.bytes[self.end..self.end + more])
    }

    /// How much memory it needs besides what it has, for `more` bytes.
    pub(crate) fn missing(&self, more: usize) -> usize {
        let bytes = (self.len() + more).next_power_of_two().max(BYTES_MIN);
        bytes.saturating_sub(self.bytes.len())
    }

    /// Makes room for `more` bytes.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the bytes in the queue are as they were.
    #[inline(never)]
    pub(crate) fn grow(&mut self, more: usize) -> Result<(), OutOfMemory> {
        let (length, missing) = (self.len(), self.missing(more));
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, length);
        }
        self.bytes.try_resize(self.bytes.len() + missing, 0)
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the queue is as it was.
    #[inline]
    pub(crate) fn try_append(&mut self, bytes: &[u8]) -> Result<(), OutOfMemory> {
        self.room(bytes.len())?.copy_from_slice(bytes);
        self.end += bytes.len();
        Ok(())
    }

    /// Appends at most `room` bytes. `fill` writes them into the memory that it gets, and returns
    /// their number and a result.
    ///
    /// # Errors
    /// [`OutOfMemory`], and then `fill` was not called.
    pub(crate) fn try_append_with<R>(
        &mut self,
        room: usize,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Result<(usize, R), OutOfMemory> {
        let (count, result) = fill(self.room(room)?);
        let count = count.min(room);
        self.end += count;
        Ok((count, result))
    }

    /// Frees the memory of an empty queue. Returns how many bytes that was.
    pub(crate) fn release(&mut self) -> usize {
        if self.is_empty() { core::mem::take(self).bytes.len() } else { 0 }
    }

    /// The same bytes in the same memory, as smoltcp has them.
    pub(crate) fn into_buffer(self) -> SocketBuffer<'static> {
        let mut buffer = SocketBuffer::new(self.bytes.into_vec());
        buffer.enqueue_unallocated(self.end);
        buffer.dequeue_allocated(self.start);
        buffer
    }

    /// Whether it has memory.
    pub(crate) fn has_memory(&self) -> bool {
        !self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a deque.
        #[test]
        fn bytes_leave_in_the_order_in_which_they_came(
            steps in prop::collection::vec((0..700usize, 0..700usize, any::<u8>()), 0..100),
        ) {
            let (mut queue, mut model) = (ByteQueue::default(), VecDeque::new());
            for (append, consume, fill) in steps {
                let bytes = std::vec![fill; append];
                if fill % 2 == 0 {
                    queue.try_append(&bytes).unwrap();
                } else {
                    let filled = queue.try_append_with(append + 9, |room| {
                        room[..append].copy_from_slice(&bytes);
                        (append, 'x')
                    });
                    prop_assert_eq!(filled, Ok((append, 'x')));
                }
                model.extend(bytes);
                prop_assert_eq!(queue.as_slice(), model.make_contiguous() as &[u8]);
                queue.consume(consume);
                model.drain(..consume.min(model.len()));
                prop_assert_eq!(queue.as_slice(), model.make_contiguous() as &[u8]);
                queue.release();
                prop_assert_eq!(queue.is_empty(), model.is_empty());
                prop_assert!(queue.has_memory() || model.is_empty());
            }
        }
    }
}
