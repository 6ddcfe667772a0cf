//! A message in memory, and the limits of messages and of their queues, which are the same in all
//! models.
//!
//! Without a limit, clients that send and never read could exhaust the memory: with full queues,
//! one of them holds more than a megabyte. A client that makes a request over the limit is
//! disconnected; others are not affected.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops::abi::layout::PAGE_BYTES;
use cops::time::Duration;
use matrix_message::{
    Direction, ELEMENT_BYTES, HEADER_BYTES, HEADER_WORDS, Header, Operation, as_bytes,
    as_bytes_mut, perform,
};

/// Maximum number of requests, and of answers, that wait in a connection.
pub const QUEUE_MESSAGES: usize = 4;

/// How long a client may take to receive one answer, which has at most 131 kilobytes.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Length of the shortest message: one element. No read at the beginning of a message requests
/// more, so none takes a byte of the next message.
pub const SHORTEST_BYTES: usize = HEADER_BYTES + ELEMENT_BYTES;

/// Number of bytes that messages may still allocate.
static BYTES_LEFT: AtomicUsize = AtomicUsize::new(0);

/// Sets the limit to half of the memory that is free now.
pub fn limit_memory() -> cops::io::Result<()> {
    let free_bytes = cops::memory::statistics()?.frames_free as usize * PAGE_BYTES;
    BYTES_LEFT.store(free_bytes / 2, Relaxed);
    Ok(())
}

/// Permission to allocate a message of this many bytes.
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

/// Header and elements in one allocation, as on the wire.
pub struct Message {
    words: Box<[u64]>,
    _share: Share,
}

const _: () = assert!(size_of::<Message>() == 24, "queues hold several for each connection");

impl Message {
    /// A message of zeros after this header; `None` if it is over the limit or there is no memory.
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

    /// Takes the memory out, for reading into it.
    pub fn take_words(&mut self) -> Box<[u64]> {
        core::mem::take(&mut self.words)
    }

    /// Returns the memory to the message.
    pub fn put_words(&mut self, words: Box<[u64]>) {
        self.words = words;
    }

    /// The bytes for the wire.
    pub fn bytes(&self) -> &[u8] {
        as_bytes(&self.words)
    }

    /// The same bytes, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        as_bytes_mut(&mut self.words)
    }

    /// Makes the answer to this request; `None` if there is no memory for it.
    pub fn answer(mut self) -> Option<Self> {
        let request = Header::parse(self.bytes(), Direction::Request).ok()??;
        if request.operation == Operation::Echo {
            self.set_header(request.answer());
            return Some(self);
        }
        let mut answer = Self::new(request.answer())?;
        let elements = self.words.get(HEADER_WORDS..)?;
        perform(request.operation, request.side, elements, answer.words.get_mut(HEADER_WORDS..)?)
            .ok()?;
        Some(answer)
    }
}
