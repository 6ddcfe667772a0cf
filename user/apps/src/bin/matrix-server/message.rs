//! A message in memory, and how much memory all messages together may take.
//!
//! Clients that send and never read could otherwise use up the machine: with full queues, one of them holds more than
//! a megabyte. The client whose request is over the limit is disconnected; the others notice nothing.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops::abi::layout::PAGE_BYTES;
use matrix_message::{HEADER_WORDS, Header, Operation, Side, as_bytes, as_bytes_mut, perform};

/// Bytes that messages may still take.
static BYTES_LEFT: AtomicUsize = AtomicUsize::new(0);

/// Allows messages half of the memory that is free now.
pub fn limit_memory() -> cops::io::Result<()> {
    let free_bytes = cops::memory::statistics()?.frames_free as usize * PAGE_BYTES;
    BYTES_LEFT.store(free_bytes / 2, Relaxed);
    Ok(())
}

/// Memory for a message of so many bytes, as far as the limit is concerned.
struct Share(usize);

impl Share {
    fn take(bytes: usize) -> Option<Self> {
        BYTES_LEFT.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(bytes)).ok().map(|_| Self(bytes))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        BYTES_LEFT.fetch_add(self.0, Relaxed);
    }
}

/// Header and elements in one piece, as on the wire.
pub struct Message {
    header: Header,
    words: Vec<u64>,
    _share: Share,
}

impl Message {
    /// A message of zeroes behind this header; `None` if that is more than there is memory for.
    pub fn new(header: Header) -> Option<Self> {
        let share = Share::take(header.side.message_bytes())?;
        let count = header.side.message_words();
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.resize(count, 0);
        let mut message = Self { header, words, _share: share };
        message.set_header(header);
        Some(message)
    }

    fn set_header(&mut self, header: Header) {
        self.header = header;
        let (place, _) = self.words.split_at_mut(HEADER_WORDS);
        as_bytes_mut(place).copy_from_slice(&header.encode());
    }

    fn side(&self) -> Side {
        self.header.side
    }

    /// Takes the words out, for reading into.
    pub fn take_words(&mut self) -> Vec<u64> {
        core::mem::take(&mut self.words)
    }

    /// Puts them back.
    pub fn put_words(&mut self, words: Vec<u64>) {
        self.words = words;
    }

    /// What goes over the wire.
    pub fn bytes(&self) -> &[u8] {
        as_bytes(&self.words)
    }

    /// The answer to this request; `None` if there is no memory for it.
    pub fn answer(mut self) -> Option<Self> {
        let header = self.header.answer();
        if header.operation == Operation::Echo {
            self.set_header(header);
            return Some(self);
        }
        let mut answer = Self::new(header)?;
        let elements = self.words.get(HEADER_WORDS..)?;
        perform(header.operation, self.side(), elements, answer.words.get_mut(HEADER_WORDS..)?).ok()?;
        Some(answer)
    }
}
