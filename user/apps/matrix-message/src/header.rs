//! The frame header: fields, validation, encoding. All rules about single bytes of the format are
//! here.

use core::fmt;

use crate::{ELEMENT_BYTES, HEADER_BYTES, HEADER_WORDS, MAX_SIDE, as_bytes};

/// Number of header bytes that the length word counts.
const HEADER_BYTES_COUNTED: u32 = 12;
/// Set in the operation byte of an answer.
const ANSWER_BIT: u8 = 0x80;

/// What the server does with the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Operation {
    /// Square the matrix of `u64`, wrapping.
    MultiplyU64 = 0,
    /// Square the matrix of `f64`. Each element is summed in ascending order of `k`, without fused
    /// operations, so two correct peers agree in every bit.
    MultiplyF64 = 1,
    /// Return the elements unchanged.
    Echo = 2,
}

impl Operation {
    const fn from_wire(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::MultiplyU64),
            1 => Some(Self::MultiplyF64),
            2 => Some(Self::Echo),
            _ => None,
        }
    }
}

/// The direction of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Client to server.
    Request,
    /// Server to client: bit 7 of the operation is set.
    Answer,
}

/// Number of rows (and columns) of a matrix: 1 to [`MAX_SIDE`], so every size derived from it is
/// small and cannot overflow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Side(u16);

impl Side {
    /// `None` unless `side` is in 1 to [`MAX_SIDE`].
    #[must_use]
    pub const fn new(side: u16) -> Option<Self> {
        if side >= 1 && side <= MAX_SIDE { Some(Self(side)) } else { None }
    }

    /// Rows.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Elements: `n²`, at most 16,384.
    #[must_use]
    pub const fn elements(self) -> usize {
        self.0 as usize * self.0 as usize
    }

    /// Bytes of the elements.
    #[must_use]
    pub const fn body_bytes(self) -> usize {
        self.elements() * ELEMENT_BYTES
    }

    /// Bytes of the whole message, header included.
    #[must_use]
    pub const fn message_bytes(self) -> usize {
        HEADER_BYTES + self.body_bytes()
    }

    /// Words of the whole message, header included.
    #[must_use]
    pub const fn message_words(self) -> usize {
        HEADER_WORDS + self.elements()
    }

    /// The value of the length word.
    const fn wire_length(self) -> u32 {
        HEADER_BYTES_COUNTED + self.body_bytes() as u32
    }

    /// The side of the messages with this length word, if there is one.
    fn from_wire_length(length: u32) -> Option<Self> {
        let body_bytes = length.checked_sub(HEADER_BYTES_COUNTED)?;
        let side = u16::try_from((body_bytes / ELEMENT_BYTES as u32).isqrt()).ok()?;
        Self::new(side).filter(|side| side.wire_length() == length)
    }
}

/// A valid header. It can represent valid values only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Header {
    /// Priority class. The server reads it from the first request of a connection and gives the
    /// connection that priority; the client repeats it in every request.
    pub class: u8,
    /// What to do with the elements.
    pub operation: Operation,
    /// Request or answer.
    pub direction: Direction,
    /// Rows of the matrix that follows.
    pub side: Side,
    /// Chosen by the client, echoed by the server.
    pub sequence: u32,
}

/// The reason why a frame is invalid. The connection must be closed, because the stream has no mark
/// by which to find the next frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Malformed {
    /// Not `12 + 8 n²` for any `n` from 1 to 128.
    Length {
        /// The length word.
        found: u32,
    },
    /// Not 0, 1 or 2 (bit 7 aside).
    Operation {
        /// The whole operation byte.
        found: u8,
    },
    /// An answer where a request was expected, or the reverse.
    Direction {
        /// The direction that the frame claims.
        found: Direction,
    },
    /// `n` is not in 1 to 128.
    Side {
        /// The field `n`.
        found: u16,
    },
    /// Length word and `n` are both valid, but do not match.
    LengthOfSide {
        /// The length word.
        length: u32,
        /// The field `n`.
        side: Side,
    },
    /// The last header word is not zero.
    Reserved {
        /// That word.
        found: u32,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Length { found } => {
                write!(formatter, "length {found} is not 12 + 8 n² for n in 1..=128")
            }
            Self::Operation { found } => write!(formatter, "operation {found:#04x} is unknown"),
            Self::Direction { found: Direction::Request } => {
                formatter.write_str("a request instead of an answer")
            }
            Self::Direction { found: Direction::Answer } => {
                formatter.write_str("an answer instead of a request")
            }
            Self::Side { found } => write!(formatter, "n = {found} is not in 1..=128"),
            Self::LengthOfSide { length, side } => {
                write!(formatter, "length {length} does not belong to n = {}", side.get())
            }
            Self::Reserved { found } => {
                write!(formatter, "reserved word is {found:#010x} instead of zero")
            }
        }
    }
}

impl core::error::Error for Malformed {}

impl Header {
    /// Parses the beginning of a frame of which `received` has arrived. Does not read beyond the
    /// header.
    ///
    /// `Ok(None)` means that fewer than [`HEADER_BYTES`] have arrived, and that those are valid.
    /// Each field is checked as soon as it is complete, so a peer that announces 4 GiB is rejected
    /// after four bytes. Never panics.
    ///
    /// # Errors
    ///
    /// The first field, in wire order, that is invalid for this direction.
    pub fn parse(received: &[u8], expected: Direction) -> Result<Option<Self>, Malformed> {
        let Some(length) = field(received, 0).map(u32::from_le_bytes) else { return Ok(None) };
        // Without a root in the usual case: the field `n` is there, and it matches.
        let side_of_length = field(received, 6)
            .and_then(|side| Side::new(u16::from_le_bytes(side)))
            .filter(|side| side.wire_length() == length)
            .or_else(|| Side::from_wire_length(length))
            .ok_or(Malformed::Length { found: length })?;

        let Some(class) = field(received, 4).map(|[byte]: [u8; 1]| byte) else { return Ok(None) };

        let Some(operation) = field(received, 5).map(|[byte]: [u8; 1]| byte) else {
            return Ok(None);
        };
        let direction =
            if operation & ANSWER_BIT == 0 { Direction::Request } else { Direction::Answer };
        let operation = Operation::from_wire(operation & !ANSWER_BIT)
            .ok_or(Malformed::Operation { found: operation })?;
        if direction != expected {
            return Err(Malformed::Direction { found: direction });
        }

        let Some(side) = field(received, 6).map(u16::from_le_bytes) else { return Ok(None) };
        let side = Side::new(side).ok_or(Malformed::Side { found: side })?;
        if side != side_of_length {
            return Err(Malformed::LengthOfSide { length, side });
        }

        let Some(sequence) = field(received, 8).map(u32::from_le_bytes) else { return Ok(None) };

        let Some(reserved) = field(received, 12).map(u32::from_le_bytes) else { return Ok(None) };
        if reserved != 0 {
            return Err(Malformed::Reserved { found: reserved });
        }
        Ok(Some(Self { class, operation, direction, side, sequence }))
    }

    /// The header on the wire.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes.copy_from_slice(as_bytes(&self.words()));
        bytes
    }

    /// The header on the wire, as words of a message.
    #[must_use]
    #[inline]
    pub fn words(&self) -> [u64; HEADER_WORDS] {
        let direction_bit = if self.direction == Direction::Answer { ANSWER_BIT } else { 0 };
        let first = u64::from(self.side.wire_length())
            | u64::from(self.class) << 32
            | u64::from(self.operation as u8 | direction_bit) << 40
            | u64::from(self.side.get()) << 48;
        [first.to_le(), u64::from(self.sequence).to_le()]
    }

    /// The header of the answer to this request.
    #[must_use]
    pub const fn answer(self) -> Self {
        Self { direction: Direction::Answer, ..self }
    }
}

/// The `N` bytes from `offset`, if they have arrived.
fn field<const N: usize>(received: &[u8], offset: usize) -> Option<[u8; N]> {
    received.get(offset..)?.first_chunk().copied()
}
