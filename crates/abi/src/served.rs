//! The protocol between the kernel and a process that serves a file system (docs/abi.md, section
//! 11).
//!
//! A server reads requests from a descriptor of `/dev/fs` and writes replies to it. A read returns
//! one request: a [`Request`], then its names or data. A write is one reply: a [`Reply`], then its
//! data. Numbers of operations are those of Linux's FUSE where that has the operation.
//!
//! A server that does not answer is given at most [`UNANSWERED_MAX`] requests, and a few more that
//! are more urgent than those: a request of level L is given if fewer than [`UNANSWERED_MAX`] are
//! unanswered, or fewer than [`UNANSWERED_URGENT_MAX`] of level L and more urgent levels. So
//! unimportant requests never keep an urgent one from the server. Only a reply makes room, also if
//! its call has been cancelled.

use crate::Priority;
use crate::file::{Fields, Status};

/// The version of the protocol, in each request and each reply.
pub const VERSION: u16 = 2;
/// Number of unanswered requests up to which a server is given any request.
pub const UNANSWERED_MAX: usize = 1024;
/// With [`UNANSWERED_MAX`] unanswered requests or more, a request is given if fewer than this
/// number of them were given with its level, or a more urgent one.
pub const UNANSWERED_URGENT_MAX: usize = 16;
/// A server never has more unanswered requests than this.
pub const UNANSWERED_BOUND: usize =
    UNANSWERED_MAX + Priority::COUNT as usize * UNANSWERED_URGENT_MAX;
/// Maximum number of bytes that one request reads or writes.
pub const DATA_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of bytes that a request with [`TAKES_PLACES`] reads.
pub const PLACED_BYTES_MAX: usize = 64 * 1024;
/// Maximum number of places in one reply.
pub const PLACES_MAX: usize = 16;
/// Size of a server's buffer for requests and replies that has room for any of them, if it begins
/// at a page: whole pages.
pub const BUFFER_BYTES: usize = 20 * 1024;
/// Minimum size of a server's buffer for requests. With less than [`BUFFER_BYTES`], a request to
/// write is cut to what fits.
pub const BUFFER_BYTES_MIN: usize = 8 * 1024;
/// Maximum number of pairs in one [`operation::FORGET`].
pub const FORGET_MAX: usize = 32;
/// Places in a directory below this one are the kernel's: a server's first one is this.
pub const FIRST_PLACE: u64 = 3;

/// Operations.
pub mod operation {
    /// Look `name` up in directory `node` -> the node's status. The name may be `..`.
    pub const LOOK_UP: u16 = 1;
    /// The status of `node`. With flag [`ASKS_FOR_SOLID`](super::ASKS_FOR_SOLID) -> `value`: bytes
    /// of the file, from the beginning on, that can be written without more space on the disk.
    pub const GET_STATUS: u16 = 3;
    /// Change the status: `flags` say what, see [`change`](super::change). The mode in `first`, the
    /// length in `second`; seconds and nanoseconds of two times in the data.
    pub const SET_STATUS: u16 = 4;
    /// The path to which a symbolic link leads -> data.
    pub const READ_LINK: u16 = 5;
    /// Create a symbolic link `name` in directory `node` to the path in `second_name` -> status.
    pub const MAKE_LINK: u16 = 6;
    /// Create directory `name` in directory `node` with the mode in `first` -> status.
    pub const MAKE_DIRECTORY: u16 = 9;
    /// Remove `name`, which is no directory, from directory `node`.
    pub const UNLINK: u16 = 10;
    /// Remove the empty directory `name` from directory `node`.
    pub const REMOVE_DIRECTORY: u16 = 11;
    /// Give the node in `first` one more name in directory `node`.
    pub const LINK: u16 = 13;
    /// Read at most `second` bytes of `node` at position `first` -> data. With flag
    /// [`TAKES_PLACES`](super::TAKES_PLACES) the reply may be one of
    /// [`read_value`](super::read_value).
    pub const READ: u16 = 15;
    /// Write the data to `node` at position `first`, or at the end with flag
    /// [`AT_END`](super::AT_END) -> `value`: bytes, `place`: where they end. With flag
    /// [`WRITTEN_AT`](super::WRITTEN_AT), the file was written at the time in `second`, in
    /// nanoseconds since 1970.
    pub const WRITE: u16 = 16;
    /// Use and size of the file system -> data: type, blocks of 4096 bytes, free blocks.
    pub const USAGE: u16 = 17;
    /// Make what was written to `node` durable.
    pub const SYNCHRONISE: u16 = 20;
    /// List directory `node` from behind place `first`, at most `second` bytes -> data: records as
    /// `getdents64` returns them, without `.` and `..`.
    pub const LIST: u16 = 28;
    /// Create file `name` in directory `node` with the mode in `first`; `EEXIST` if there is
    /// something -> status.
    pub const CREATE: u16 = 35;
    /// The data are pairs of a node and a number of replies that named it, which do not count any
    /// longer. Their number is in `first`. The reply is empty, and makes room for further requests.
    pub const FORGET: u16 = 42;
    /// Give `name` in directory `node` the name `second_name` in the directory in `first`; with
    /// flag [`NO_REPLACE`](super::NO_REPLACE), `EEXIST` if there is something. Atomic.
    pub const RENAME: u16 = 45;
    /// Make all that was written to the file system durable.
    pub const SYNCHRONISE_ALL: u16 = 50;
    /// The directory that directory `node` is in -> its status, and as data the name of `node`.
    pub const PLACE: u16 = 4096;
    /// The unanswered request `id` has become as urgent as `priority`: so should be what the server
    /// does for it. There is no reply. The request may have been answered in the meantime.
    pub const RAISE: u16 = 4097;
}

/// What [`operation::SET_STATUS`] changes. Without any, it fails if nothing can be changed.
pub mod change {
    /// The permissions.
    pub const PERMISSIONS: u32 = 1;
    /// The length.
    pub const LENGTH: u32 = 2;
    /// When it was last read.
    pub const ACCESSED: u32 = 4;
    /// When it was last written.
    pub const MODIFIED: u32 = 8;
}

/// Flag of [`operation::GET_STATUS`]: the kernel is about to keep writes.
pub const ASKS_FOR_SOLID: u32 = 1;
/// Flag of [`operation::WRITE`].
pub const AT_END: u32 = 1;
/// Flag of [`operation::WRITE`]: the kernel has kept it.
pub const WRITTEN_AT: u32 = 2;
/// Flag of [`operation::READ`]: the kernel can read the disk of the file system itself.
pub const TAKES_PLACES: u32 = 1;

/// The `value` of a reply to [`operation::READ`]; 0: the data are all that was asked for, or the
/// file ends behind them.
pub mod read_value {
    /// The data are 1 to [`PLACES_MAX`](super::PLACES_MAX) [`Place`](super::Place)s, in the order
    /// of the file. Together they are all that was asked for, or the file ends behind them.
    pub const PLACES: u64 = 1;
    /// The data are the beginning of what was asked for, and the file does not end there.
    pub const MORE: u64 = 2;
}

/// A place on the disk, in a reply with [`read_value::PLACES`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    /// Where it begins, in bytes.
    pub position: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Place {
    /// Its size.
    pub const BYTES: usize = 16;

    /// As bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut fields = Fields::new(&mut bytes);
        fields.word(self.position);
        fields.word(self.bytes);
        bytes
    }

    /// Reads the fields of [`Self::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        Self { position: word(bytes, 0), bytes: word(bytes, 8) }
    }
}

/// Flag of [`operation::RENAME`].
pub const NO_REPLACE: u32 = 1;

/// What the reply to a request repeats: the number of the request, 0 for [`operation::FORGET`], and
/// the level at which it was given to the server.
#[must_use]
pub const fn id_of(number: u64, priority: Priority) -> u64 {
    number * Priority::COUNT as u64 + priority.level() as u64
}

/// The number and the level in an [`id_of`].
#[must_use]
pub const fn number_and_level(id: u64) -> (u64, Priority) {
    let levels = Priority::COUNT as u64;
    (id / levels, Priority::saturating((id % levels) as u32))
}

/// The beginning of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Size of the whole request in bytes.
    pub length: u32,
    /// One of [`operation`].
    pub operation: u16,
    /// The number by which the reply refers to it: [`id_of`]. Never used again, except those of
    /// [`operation::FORGET`].
    pub id: u64,
    /// The node that it concerns.
    pub node: u64,
    /// The level of the call when the request was given to the server.
    pub priority: u32,
    /// They depend on the operation.
    pub flags: u32,
    /// It depends on the operation.
    pub first: u64,
    /// It depends on the operation.
    pub second: u64,
    /// Length of the name that follows.
    pub name_bytes: u32,
    /// Length of the name or path that follows it.
    pub second_name_bytes: u32,
}

impl Request {
    /// Its size.
    pub const BYTES: usize = 64;

    /// As bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut fields = Fields::new(&mut bytes);
        fields.half(self.length);
        fields.half(u32::from(VERSION) | u32::from(self.operation) << 16);
        fields.word(self.id);
        fields.word(self.node);
        fields.half(self.priority);
        fields.half(self.flags);
        fields.word(self.first);
        fields.word(self.second);
        fields.half(self.name_bytes);
        fields.half(self.second_name_bytes);
        bytes
    }

    /// Reads the fields of [`Self::to_bytes`]; `None` for another version.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let half = |at| half(bytes, at);
        let word = |at| word(bytes, at);
        (half(4) as u16 == VERSION).then(|| Self {
            length: half(0),
            operation: (half(4) >> 16) as u16,
            id: word(8),
            node: word(16),
            priority: half(24),
            flags: half(28),
            first: word(32),
            second: word(40),
            name_bytes: half(48),
            second_name_bytes: half(52),
        })
    }
}

/// The beginning of a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// Size of the whole reply in bytes.
    pub length: u32,
    /// The request's number.
    pub id: u64,
    /// 0, or the number of an error.
    pub error: u32,
    /// It depends on the operation.
    pub value: u64,
    /// It depends on the operation.
    pub place: u64,
    /// The status of a node, if the operation has one.
    pub status: Status,
}

impl Reply {
    /// Its size.
    pub const BYTES: usize = 40 + Status::BYTES;

    /// As bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let mut fields = Fields::new(&mut bytes);
        fields.half(self.length);
        fields.half(VERSION.into());
        fields.word(self.id);
        fields.half(self.error);
        fields.half(0);
        fields.word(self.value);
        fields.word(self.place);
        if let Some(rest) = bytes.last_chunk_mut() {
            *rest = self.status.to_bytes();
        }
        bytes
    }

    /// Reads the fields of [`Self::to_bytes`]; `None` for another version.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let half = |at| half(bytes, at);
        let word = |at| word(bytes, at);
        let status = bytes.last_chunk().map(Status::from_bytes).unwrap_or_default();
        (half(4) == VERSION.into()).then(|| Self {
            length: half(0),
            id: word(8),
            error: half(16),
            value: word(24),
            place: word(32),
            status,
        })
    }
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |half| u32::from_le_bytes(*half))
}

const _: () = assert!(Request::BYTES + DATA_BYTES_MAX <= BUFFER_BYTES);
const _: () = assert!(Reply::BYTES + DATA_BYTES_MAX <= BUFFER_BYTES);
const _: () = assert!(Reply::BYTES == 168);
const _: () = assert!(UNANSWERED_BOUND == 2048);
const _: () = assert!(
    Request::BYTES + crate::syscall::NAME_BYTES_MAX + crate::syscall::PATH_BYTES_MAX
        <= BUFFER_BYTES_MIN
);
const _: () = assert!(Request::BYTES + 16 * FORGET_MAX <= BUFFER_BYTES_MIN);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{Time, mode};

    #[test]
    fn a_request_has_the_layout_of_the_document() {
        let request = Request {
            length: 0x0102,
            operation: operation::RENAME,
            id: 3,
            node: 4,
            priority: 5,
            flags: 6,
            first: 7,
            second: 8,
            name_bytes: 9,
            second_name_bytes: 10,
        };
        let bytes = request.to_bytes();
        assert_eq!(bytes[..8], [2, 1, 0, 0, 2, 0, 45, 0]);
        for (at, value) in [(8, 3), (16, 4), (32, 7), (40, 8), (56, 0)] {
            assert_eq!(word(&bytes, at), value, "at {at}");
        }
        for (at, value) in [(24, 5), (28, 6), (48, 9), (52, 10)] {
            assert_eq!(half(&bytes, at), value, "at {at}");
        }
        assert_eq!(Request::from_bytes(&bytes), Some(request));
        let mut other = bytes;
        other[4] = 1;
        assert_eq!(Request::from_bytes(&other), None);
    }

    #[test]
    fn a_place_has_the_layout_of_the_document() {
        let place = Place { position: 0x0102, bytes: 3 };
        let bytes = place.to_bytes();
        assert_eq!(bytes, [2, 1, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Place::from_bytes(&bytes), place);
    }

    #[test]
    fn an_id_has_a_number_and_a_level() {
        assert_eq!(id_of(0, Priority::MOST_URGENT), 0);
        for (number, level) in [(0, 63), (1, 0), (7, 32), (1 << 50, 5)] {
            let level = Priority::saturating(level);
            assert_eq!(number_and_level(id_of(number, level)), (number, level));
        }
    }

    #[test]
    fn a_reply_has_the_layout_of_the_document() {
        let status = Status {
            number: 9,
            size: 77,
            modified: Time { seconds: 5, nanoseconds: 6 },
            ..Status::new(mode::REGULAR, 0o644)
        };
        let reply = Reply { length: 168, id: 3, error: 2, value: 4, place: 5, status };
        let bytes = reply.to_bytes();
        assert_eq!(bytes[..8], [168, 0, 0, 0, 2, 0, 0, 0]);
        for (at, value) in [(8, 3), (16, 2), (24, 4), (32, 5), (48, 9), (88, 77)] {
            assert_eq!(word(&bytes, at), value, "at {at}");
        }
        assert_eq!(Reply::from_bytes(&bytes), Some(reply));
        for at in [4, 6] {
            let mut other = bytes;
            other[at] ^= 1;
            assert_eq!(Reply::from_bytes(&other), None);
        }
    }
}
