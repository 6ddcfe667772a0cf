//! What was typed and has not been read.

use super::INPUT_BYTES;
use crate::ring::Ring;

/// A queue of bytes, in which a byte of a given value is found in a constant number of steps: when
/// the settings change, 4,096 bytes may have to be looked through for the keys of signals.
pub struct Input {
    bytes: Ring<INPUT_BYTES>,
    /// For each value, the number of bytes that had ever arrived after its last one; 0: none has.
    ends: [usize; 256],
}

impl Input {
    /// No input.
    pub const fn new() -> Self {
        Self { bytes: Ring::new(), ends: [0; 256] }
    }

    /// Adds a byte. It is lost if there is no room.
    pub fn push(&mut self, byte: u8) {
        if self.bytes.push(byte)
            && let Some(end) = self.ends.get_mut(usize::from(byte))
        {
            *end = self.bytes.appended();
        }
    }

    /// Removes the oldest byte.
    pub fn pop(&mut self) -> Option<u8> {
        self.bytes.pop()
    }

    /// Number of bytes up to the last one with this value; 0 if there is none.
    pub fn count_through(&self, byte: u8) -> usize {
        let end = self.ends.get(usize::from(byte)).copied().unwrap_or(0);
        end.saturating_sub(self.bytes.removed())
    }

    /// Drops the oldest `count` bytes, or all if there are fewer.
    pub fn skip(&mut self, count: usize) {
        self.bytes.skip(count);
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        INPUT_BYTES - self.bytes.room()
    }

    /// Number of bytes for which there is room.
    pub fn room(&self) -> usize {
        self.bytes.room()
    }
}
