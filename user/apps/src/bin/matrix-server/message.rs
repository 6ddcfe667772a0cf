//! A message in memory, and how much memory all messages together may take.
//!
//! Clients that send and never read could otherwise use up the machine: with full queues, one of them holds more than
//! a megabyte. The client whose request is over the limit is disconnected; the others notice nothing.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops::abi::layout::PAGE_BYTES;
use matrix_message::{Direction, HEADER_WORDS, Header, Operation, as_bytes, as_bytes_mut, perform};

/// Bytes that messages may still take.
static BYTES_LEFT: AtomicUsize = AtomicUsize::new(0);

/// Allows messages half of the memory that is free now.
pub fn limit_memory() -> cops::io::Result<()> {
    let free_bytes = cops::memory::statistics()?.frames_free as usize * PAGE_BYTES;
    BYTES_LEFT.store(free_bytes / 2, Relaxed);
    Ok(())
}

/// Memory for a message of so many bytes, as far as the limit is concerned.
struct Share(u32);

impl Share {
    fn take(bytes: u32) -> Option<Self> {
        let take = |left: usize| left.checked_sub(bytes as usize);
        BYTES_LEFT.fetch_update(Relaxed, Relaxed, take).ok().map(|_| Self(bytes))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        BYTES_LEFT.fetch_add(self.0 as usize, Relaxed);
    }
}

/// Header and elements in one piece, as on the wire.
pub struct Message {
    words: Box<[u64]>,
    _share: Share,
}

const _: () = assert!(size_of::<Message>() == 24, "queues hold several for each connection");

impl Message {
    /// A message of zeroes behind this header; `None` if that is more than there is memory for.
    pub fn new(header: Header) -> Option<Self> {
        let share = Share::take(u32::try_from(header.side.message_bytes()).ok()?)?;
        let count = header.side.message_words();
        let mut words = Vec::new();
        words.try_reserve_exact(count).ok()?;
        words.resize(count, 0);
        let mut message = Self { words: words.into_boxed_slice(), _share: share };
        message.set_header(header);
        Some(message)
    }

    fn set_header(&mut self, header: Header) {
        let (place, _) = self.words.split_at_mut(HEADER_WORDS);
        as_bytes_mut(place).copy_from_slice(&header.encode());
    }

    /// Takes the memory out, for reading into.
    pub fn take_words(&mut self) -> Box<[u64]> {
        core::mem::take(&mut self.words)
    }

    /// Puts it back.
    pub fn put_words(&mut self, words: Box<[u64]>) {
        self.words = words;
    }

    /// What goes over the wire.
    pub fn bytes(&self) -> &[u8] {
        as_bytes(&self.words)
    }

    /// The same, to be filled in.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        as_bytes_mut(&mut self.words)
    }

    /// The answer to this request; `None` if there is no memory for it.
    pub fn answer(mut self) -> Option<Self> {
        let request = Header::parse(self.bytes(), Direction::Request).ok()??;
        if request.operation == Operation::Echo {
            self.set_header(request.answer());
            return Some(self);
        }
        let mut answer = Self::new(request.answer())?;
        let elements = self.words.get(HEADER_WORDS..)?;
        perform(request.operation, request.side, elements, answer.words.get_mut(HEADER_WORDS..)?).ok()?;
        Some(answer)
    }
}
