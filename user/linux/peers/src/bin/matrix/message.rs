//! Messages of a connection, for every model: what has arrived, and the answer to it.

use matrix_message::{Direction, HEADER_WORDS, Header, Malformed, as_bytes_mut, perform};

/// Words of a new buffer: a request of 15 x 15 arrives with one read.
const FIRST_WORDS: usize = 256;

/// The bytes that a connection has received and not answered.
pub struct Incoming {
    words: Vec<u64>,
    /// In bytes.
    filled: usize,
}

impl Incoming {
    pub fn new() -> Self {
        Self { words: vec![0; FIRST_WORDS], filled: 0 }
    }

    /// Where the next bytes belong. Never empty after [`Self::message`] has returned `None`.
    pub fn space(&mut self) -> &mut [u8] {
        &mut as_bytes_mut(&mut self.words)[self.filled..]
    }

    /// `count` bytes have arrived in [`Self::space`].
    pub fn received(&mut self, count: usize) {
        self.filled += count;
    }

    /// The header of the first message, once all of it has arrived. Makes room for the rest of it
    /// otherwise.
    ///
    /// # Errors
    /// If the bytes are no request. The connection must be closed.
    pub fn message(&mut self) -> Result<Option<Header>, Malformed> {
        let bytes = &as_bytes_mut(&mut self.words)[..self.filled];
        let Some(header) = Header::parse(bytes, Direction::Request)? else { return Ok(None) };
        if self.filled >= header.side.message_bytes() {
            return Ok(Some(header));
        }
        if self.words.len() < header.side.message_words() {
            self.words.resize(header.side.message_words(), 0);
        }
        Ok(None)
    }

    /// The elements of the message with this header, which [`Self::message`] has returned.
    pub fn elements(&self, header: Header) -> &[u64] {
        &self.words[HEADER_WORDS..header.side.message_words()]
    }

    /// Removes the first message.
    pub fn remove(&mut self, header: Header) {
        let bytes = header.side.message_bytes();
        as_bytes_mut(&mut self.words).copy_within(bytes..self.filled, 0);
        self.filled -= bytes;
    }
}

/// Appends the answer to a request.
pub fn answer(header: Header, elements: &[u64], answers: &mut Vec<u64>) {
    let begin = answers.len();
    answers.resize(begin + header.side.message_words(), 0);
    let (head, product) = answers[begin..].split_at_mut(HEADER_WORDS);
    as_bytes_mut(head).copy_from_slice(&header.answer().encode());
    perform(header.operation, header.side, elements, product).expect("sizes are those of the side");
}
