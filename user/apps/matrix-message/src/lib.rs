//! The wire format of the matrix service, shared by the server in the guest and all clients on the
//! host: the frame header, its validation, and squaring a matrix in wire representation. Clients
//! also share the [`workload`], which is the only part that allocates. The crate does no I/O and
//! contains no `unsafe` code.
//!
//! One message, little endian, the same in both directions:
//!
//! | offset | type  | field |
//! | ---: | ----- | ----- |
//! | 0  | `u32` | length of what follows: `12 + 8 n²` |
//! | 4  | `u8`  | priority class of the connection |
//! | 5  | `u8`  | operation: 0 = `u64` wrapping, 1 = `f64`, 2 = echo; an answer has bit 7 set |
//! | 6  | `u16` | `n`, 1 to 128 |
//! | 8  | `u32` | sequence number, echoed in the answer |
//! | 12 | `u32` | zero |
//! | 16 | `n²` × 8 bytes | elements, row major |
//!
//! # Words
//!
//! The header consists of two words of eight bytes and every element is one word, so a whole
//! message is a `[u64]`. Programs store messages in this form and convert them to bytes for I/O
//! ([`as_bytes`], [`as_bytes_mut`]). So the elements are aligned, and a multiplication needs no
//! copy into another representation. (Byte buffers were rejected: RISC-V without fast unaligned
//! loads would assemble every element from eight loads.)
//!
//! # Receiving
//!
//! ```
//! use matrix_message::{Direction, HEADER_WORDS, Header, Malformed, Operation, Side};
//!
//! let request = Header {
//!     class: 3,
//!     operation: Operation::MultiplyU64,
//!     direction: Direction::Request,
//!     side: Side::new(15).unwrap(),
//!     sequence: 42,
//! };
//! let bytes = request.encode();
//! // Not complete, but valid so far: read on.
//! assert_eq!(Header::parse(&bytes[..9], Direction::Request), Ok(None));
//! assert_eq!(Header::parse(&bytes, Direction::Request), Ok(Some(request)));
//! // An invalid field is rejected as soon as it is complete, here after four bytes.
//! assert_eq!(
//!     Header::parse(&[0xff; 4], Direction::Request),
//!     Err(Malformed::Length { found: u32::MAX }),
//! );
//! // The body follows: this many words. The answer has this header.
//! assert_eq!(request.side.message_words(), HEADER_WORDS + 15 * 15);
//! assert_eq!(request.answer().sequence, 42);
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

extern crate alloc;

mod batch;
mod header;
mod multiply;
pub mod schedule;
pub mod workload;

pub use batch::Batch;
pub use header::{Direction, Header, Malformed, Operation, Side};
pub use multiply::{SizeMismatch, multiply_square, perform, perform_in_place};

/// Bytes of a frame before its elements, the length word included.
pub const HEADER_BYTES: usize = 16;
/// [`HEADER_BYTES`] in words of eight bytes.
pub const HEADER_WORDS: usize = HEADER_BYTES / ELEMENT_BYTES;
/// Bytes of one element, whatever the operation.
pub const ELEMENT_BYTES: usize = 8;
/// Largest number of rows and columns.
pub const MAX_SIDE: u16 = 128;
/// How long, in seconds, a server waits at most for the rest of a request that is longer than
/// [`SHORT_BYTES`], and for a client that takes nothing of an answer. Then it ends the connection:
/// otherwise a few hundred clients could keep the memory of large messages for ever.
pub const PATIENCE_SECONDS: u64 = 20;
/// Bytes of a message that costs no more memory than the connection that it comes through.
pub const SHORT_BYTES: usize = 4096;
/// Bytes of the largest message, header included.
pub const MAX_MESSAGE_BYTES: usize =
    HEADER_BYTES + ELEMENT_BYTES * (MAX_SIDE as usize) * (MAX_SIDE as usize);

const _: () =
    assert!(HEADER_BYTES.is_multiple_of(ELEMENT_BYTES), "elements are aligned when the message is");

/// The wire bytes of a message, or of a part of one, stored as words.
#[must_use]
pub fn as_bytes(words: &[u64]) -> &[u8] {
    bytemuck::cast_slice(words)
}

/// Like [`as_bytes`], but mutable, for reading into.
#[must_use]
pub fn as_bytes_mut(words: &mut [u64]) -> &mut [u8] {
    bytemuck::cast_slice_mut(words)
}
