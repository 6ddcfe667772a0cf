//! A message in memory, and the limits of messages and of their queues, which are the same in all
//! models.
//!
//! Without a limit, clients that send and never read could exhaust the memory: with full queues,
//! one of them holds more than a megabyte. A client that makes a request over the limit is
//! disconnected; others are not affected. Nor can clients use up the limit for long by requests of
//! which they never send the rest.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cops::abi::layout::PAGE_BYTES;
use cops::memory::zeroed_words;
use cops::time::Duration;
use matrix_message::{
    ELEMENT_BYTES, HEADER_WORDS, Header, PATIENCE_SECONDS, SHORT_BYTES, Side, as_bytes,
    as_bytes_mut, perform, perform_in_place,
};

/// Maximum number of requests, and of answers, that wait in a connection.
pub const QUEUE_MESSAGES: usize = 4;

/// How long a client may take to receive one answer, or to send the rest of a large request: at
/// most 131 kilobytes.
pub const PATIENCE: Duration = Duration::from_secs(PATIENCE_SECONDS);

/// Length of the shortest message: one element. No read at the beginning of a message requests
/// more, so none takes a byte of the next message.
pub const SHORTEST_WORDS: usize = HEADER_WORDS + 1;
/// The same in bytes.
pub const SHORTEST_BYTES: usize = SHORTEST_WORDS * ELEMENT_BYTES;

/// Number of bytes that messages may still allocate.
static BYTES_LEFT: AtomicUsize = AtomicUsize::new(0);

/// Sets the limit to half of the memory that is free now.
pub fn limit_memory() -> cops::io::Result<()> {
    let free_bytes = cops::memory::statistics()?.frames_free as usize * PAGE_BYTES;
    BYTES_LEFT.store(free_bytes / 2, Relaxed);
    Ok(())
}

/// Takes the bytes of a message of this size from the limit. Returns whether it has so many.
fn take_share(side: Side) -> bool {
    let take = |left: usize| left.checked_sub(side.message_bytes());
    BYTES_LEFT.fetch_update(Relaxed, Relaxed, take).is_ok()
}

/// Header and elements in one allocation, as on the wire.
pub struct Message {
    words: Box<[u64]>,
    /// As in `words`. Its size is what the message has taken from the limit.
    header: Header,
}

const _: () = assert!(size_of::<Message>() == 32, "queues hold several for each connection");

impl Message {
    /// A message that begins with these words, of which the first are this header, and zeros after
    /// them; `None` if it is over the limit or there is no memory.
    pub fn beginning_with(words: &[u64; SHORTEST_WORDS], header: Header) -> Option<Self> {
        let mut message = Self::zeroed(header)?;
        *message.words.first_chunk_mut()? = *words;
        Some(message)
    }

    /// A message of zeros, without its header on the wire.
    fn zeroed(header: Header) -> Option<Self> {
        if !take_share(header.side) {
            return None;
        }
        let mut message = Self { words: Box::default(), header };
        // If there is no memory, the message returns what it has taken.
        message.words = zeroed_words(header.side.message_words())?;
        Some(message)
    }

    fn set_header(&mut self, header: Header) {
        self.header = header;
        if let Some(place) = self.words.first_chunk_mut() {
            *place = header.words();
        }
    }

    /// Whether the rest of it is not waited for without end.
    pub fn is_large(&self) -> bool {
        self.header.side.message_bytes() > SHORT_BYTES
    }

    /// The priority class of its connection.
    pub fn class(&self) -> u8 {
        self.header.class
    }

    /// Takes the memory out, for reading into it.
    pub fn take_words(&mut self) -> Box<[u64]> {
        core::mem::take(&mut self.words)
    }

    /// Returns the memory to the message.
    pub fn put_words(&mut self, words: Box<[u64]>) {
        self.words = words;
    }

    /// The words for the wire.
    pub fn words(&self) -> &[u64] {
        &self.words
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
    ///
    /// Apart from the coroutine, which would keep what the multiplication needs in memory.
    #[inline(never)]
    pub fn answer(mut self) -> Option<Self> {
        let request = self.header;
        // Another block would cost more than the product of a small matrix.
        if perform_in_place(request.operation, self.words.get_mut(HEADER_WORDS..)?) {
            self.set_header(request.answer());
            return Some(self);
        }
        self.answer_in_another_block()
    }

    /// As [`Self::answer`]. Apart: the product of large matrices saves all registers, also those of
    /// floating point, and a thread that has used these makes its switches more expensive.
    #[inline(never)]
    fn answer_in_another_block(self) -> Option<Self> {
        let request = self.header;
        let mut answer = Self::zeroed(request.answer())?;
        answer.set_header(request.answer());
        let elements = self.words.get(HEADER_WORDS..)?;
        perform(request.operation, request.side, elements, answer.words.get_mut(HEADER_WORDS..)?)
            .ok()?;
        Some(answer)
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        BYTES_LEFT.fetch_add(self.header.side.message_bytes(), Relaxed);
    }
}
