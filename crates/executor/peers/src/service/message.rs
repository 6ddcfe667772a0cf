//! What client and server say to each other: messages of fixed length, little endian.
//!
//! A connection begins with one byte, its class. Then come requests, which are answered in order.

/// Two classes of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Little work, wanted soon.
    Interactive,
    /// Much work, wanted some day.
    Batch,
}

impl Class {
    /// The first byte of a connection.
    pub fn to_byte(self) -> u8 {
        self as u8
    }

    /// The class that a connection says it is of.
    pub fn from_byte(byte: u8) -> Option<Class> {
        [Class::Interactive, Class::Batch].into_iter().find(|class| class.to_byte() == byte)
    }
}

/// Bytes of a request.
pub const REQUEST_BYTES: usize = 24;
/// Bytes of an answer.
pub const ANSWER_BYTES: usize = 24;

/// Work to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Comes back with the answer.
    pub tag: u64,
    /// What to compute from.
    pub seed: u64,
    /// Rounds of work in each slice.
    pub rounds: u32,
    /// Slices; the server yields after each but the last.
    pub slices: u32,
}

/// Work done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The request's.
    pub tag: u64,
    /// The request's.
    pub seed: u64,
    /// What was computed.
    pub checksum: u64,
}

fn u64_at(bytes: &[u8; 24], at: usize) -> u64 {
    u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]))
}

fn join(first: u64, second: u64, third: u64) -> [u8; 24] {
    let words = [first.to_le_bytes(), second.to_le_bytes(), third.to_le_bytes()];
    std::array::from_fn(|index| words[index / 8][index % 8])
}

impl Request {
    /// As sent.
    pub fn to_bytes(self) -> [u8; REQUEST_BYTES] {
        join(self.tag, self.seed, u64::from(self.rounds) | u64::from(self.slices) << 32)
    }

    /// As received.
    pub fn from_bytes(bytes: &[u8; REQUEST_BYTES]) -> Request {
        let work = u64_at(bytes, 16);
        Request {
            tag: u64_at(bytes, 0),
            seed: u64_at(bytes, 8),
            rounds: work as u32,
            slices: (work >> 32) as u32,
        }
    }
}

impl Answer {
    /// As sent.
    pub fn to_bytes(self) -> [u8; ANSWER_BYTES] {
        join(self.tag, self.seed, self.checksum)
    }

    /// As received.
    pub fn from_bytes(bytes: &[u8; ANSWER_BYTES]) -> Answer {
        Answer { tag: u64_at(bytes, 0), seed: u64_at(bytes, 8), checksum: u64_at(bytes, 16) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_through() {
        let request = Request {
            tag: u64::MAX - 1,
            seed: 0x0102_0304_0506_0708,
            rounds: 77,
            slices: u32::MAX,
        };
        assert_eq!(Request::from_bytes(&request.to_bytes()), request);
        let answer = Answer { tag: 1 << 63, seed: 2, checksum: u64::MAX };
        assert_eq!(Answer::from_bytes(&answer.to_bytes()), answer);
        assert_eq!(Class::from_byte(Class::Batch.to_byte()), Some(Class::Batch));
        assert_eq!(Class::from_byte(2), None);
    }
}
