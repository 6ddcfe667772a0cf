//! A byte queue of fixed size.

/// A first-in, first-out queue of at most `N` bytes. `N` is a power of two.
pub struct Ring<const N: usize> {
    bytes: [u8; N],
    /// Number of bytes ever removed and ever appended, modulo 2^64.
    head: usize,
    tail: usize,
}

impl<const N: usize> Default for Ring<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Ring<N> {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        assert!(N.is_power_of_two());
        Self { bytes: [0; N], head: 0, tail: 0 }
    }

    /// Whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Free space, in bytes.
    #[must_use]
    pub fn room(&self) -> usize {
        N - self.tail.wrapping_sub(self.head)
    }

    /// Appends a byte. Returns false if the queue is full.
    pub fn push(&mut self, byte: u8) -> bool {
        if self.room() == 0 {
            return false;
        }
        self.bytes[self.tail % N] = byte;
        self.tail = self.tail.wrapping_add(1);
        true
    }

    /// Removes the oldest byte.
    pub fn pop(&mut self) -> Option<u8> {
        if self.is_empty() {
            return None;
        }
        let byte = self.bytes[self.head % N];
        self.head = self.head.wrapping_add(1);
        Some(byte)
    }

    /// Number of bytes ever appended.
    #[must_use]
    pub fn appended(&self) -> usize {
        self.tail
    }

    /// Number of bytes ever removed.
    #[must_use]
    pub fn removed(&self) -> usize {
        self.head
    }

    /// Drops the oldest `count` bytes, or all if there are fewer.
    pub fn skip(&mut self, count: usize) {
        let left = self.tail.wrapping_sub(self.head);
        self.head = self.head.wrapping_add(count.min(left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_out_in_order_around_the_end() {
        let mut ring = Ring::<4>::new();
        for round in 0..10u8 {
            assert!((0..4).all(|offset| ring.push(round + offset)) && !ring.push(9));
            assert_eq!(
                [ring.pop(), ring.pop(), ring.pop()],
                [round, round + 1, round + 2].map(Some)
            );
            assert_eq!((ring.pop(), ring.pop(), ring.room()), (Some(round + 3), None, 4));
            ring.push(0);
            ring.skip(1);
        }
    }

    #[test]
    fn skips_bytes() {
        let mut ring = Ring::<8>::new();
        b"ab\x03cd".iter().for_each(|&byte| assert!(ring.push(byte)));
        ring.skip(3);
        assert_eq!((ring.pop(), ring.removed(), ring.appended()), (Some(b'c'), 4, 5));
        ring.skip(100);
        assert_eq!((ring.pop(), ring.is_empty(), ring.removed()), (None, true, 5));
    }
}
