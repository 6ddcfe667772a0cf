//! Short messages that are sent with one write.

use crate::as_bytes;

/// Messages one behind the other, in room for `WORDS` words.
#[derive(Debug)]
pub struct Batch<const WORDS: usize> {
    words: [u64; WORDS],
    filled: usize,
}

impl<const WORDS: usize> Batch<WORDS> {
    /// A batch without a message.
    #[must_use]
    pub const fn new() -> Self {
        Self { words: [0; WORDS], filled: 0 }
    }

    /// Copies the words of a message behind those that are there. Returns whether there was room;
    /// if not, nothing was copied.
    #[must_use]
    pub fn append(&mut self, message: &[u64]) -> bool {
        let rest = self.words.get_mut(self.filled..).unwrap_or_default();
        let Some(place) = rest.get_mut(..message.len()) else { return false };
        place.copy_from_slice(message);
        self.filled += message.len();
        true
    }

    /// The bytes of all messages, for the wire.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        as_bytes(self.words.get(..self.filled).unwrap_or_default())
    }
}

impl<const WORDS: usize> Default for Batch<WORDS> {
    fn default() -> Self {
        Self::new()
    }
}
