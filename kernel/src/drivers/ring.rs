//! A byte queue of fixed size.

/// First in, first out. `N` is a power of two.
pub struct Ring<const N: usize> {
    bytes: [u8; N],
    /// Bytes ever taken and ever put, modulo 2^64.
    head: usize,
    tail: usize,
}

impl<const N: usize> Ring<N> {
    pub const fn new() -> Self {
        assert!(N.is_power_of_two());
        Self { bytes: [0; N], head: 0, tail: 0 }
    }

    pub fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Room left, in bytes.
    pub fn room(&self) -> usize {
        N - self.tail.wrapping_sub(self.head)
    }

    /// Appends a byte; false if there is no room.
    pub fn push(&mut self, byte: u8) -> bool {
        if self.room() == 0 {
            return false;
        }
        self.bytes[self.tail % N] = byte;
        self.tail = self.tail.wrapping_add(1);
        true
    }

    /// Takes the oldest byte.
    pub fn pop(&mut self) -> Option<u8> {
        if self.is_empty() {
            return None;
        }
        let byte = self.bytes[self.head % N];
        self.head = self.head.wrapping_add(1);
        Some(byte)
    }
}
