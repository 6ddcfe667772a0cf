//! The bytes of requests and replies.

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::ops::Range;

use cops_abi::Errno;
use cops_abi::file::mode;
use cops_abi::layout::PAGE_BYTES;
use cops_abi::served::{BUFFER_BYTES, Reply, Request};
use cops_abi::syscall::NAME_BYTES_MAX;

/// Memory for a request or a reply with data: it begins at a page.
#[derive(Debug)]
pub(super) struct Buffer {
    /// A page longer than necessary.
    bytes: Vec<u8>,
}

impl Buffer {
    /// New memory.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn new() -> Result<Self, Errno> {
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(BUFFER_BYTES + PAGE_BYTES).map_err(|_| Errno::ENOMEM)?;
        bytes.resize(BUFFER_BYTES + PAGE_BYTES, 0);
        Ok(Self { bytes })
    }

    /// The memory with the bytes of it that begin at a page.
    pub(super) fn into_parts(self) -> (Vec<u8>, Range<usize>) {
        let range = self.range();
        (self.bytes, range)
    }

    /// The reverse of [`Self::into_parts`].
    pub(super) fn from_parts(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }

    fn range(&self) -> Range<usize> {
        let start = self.bytes.as_ptr().addr().wrapping_neg() % PAGE_BYTES;
        start..start + BUFFER_BYTES
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(self.range()).unwrap_or_default()
    }

    /// The bytes, to be changed.
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        let range = self.range();
        self.bytes.get_mut(range).unwrap_or_default()
    }
}

/// A request without its data.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) header: Request,
    pub(super) name: String,
    pub(super) second_name: String,
    /// Where the data are in the buffer.
    pub(super) data: Range<usize>,
}

impl Asked {
    /// Reads the request of `count` bytes in `bytes`.
    pub(super) fn parse(bytes: &[u8], count: usize) -> Option<Self> {
        let bytes = bytes.get(..count)?;
        let header = Request::from_bytes(bytes.first_chunk()?)?;
        let name_end = Request::BYTES + header.name_bytes as usize;
        let data_start = name_end + header.second_name_bytes as usize;
        let text = |range| Some(core::str::from_utf8(bytes.get(range)?).ok()?.to_string());
        Some(Self {
            header,
            name: text(Request::BYTES..name_end)?,
            second_name: text(name_end..data_start)?,
            data: data_start..count,
        })
    }
}

/// The bytes of a reply without data of its own memory: the header, and then `data`.
pub(super) fn reply(mut header: Reply, data: &[u8]) -> Result<Vec<u8>, Errno> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(Reply::BYTES + data.len()).map_err(|_| Errno::ENOMEM)?;
    header.length = (Reply::BYTES + data.len()) as u32;
    bytes.extend_from_slice(&header.to_bytes());
    bytes.extend_from_slice(data);
    Ok(bytes)
}

/// The entries of a directory that one request gets.
#[derive(Debug)]
pub struct Entries {
    /// Records as `getdents64` returns them.
    bytes: Vec<u8>,
    room: usize,
    last_place: Option<u64>,
    /// Whether an entry had no room.
    is_full: bool,
}

/// Bytes of a record before the name.
const RECORD_BYTES: usize = 19;

impl Entries {
    /// The size with which [`FileSystem::place`](super::FileSystem::place) searches.
    pub(super) const BYTES_MAX: usize = 4096;

    /// An empty list with room for so many bytes of records.
    pub(super) fn new(room: usize) -> Self {
        Self { bytes: Vec::new(), room, last_place: None, is_full: false }
    }

    /// Adds an entry: the listing goes on behind `place`, which is at least
    /// [`FIRST_PLACE`](cops_abi::served::FIRST_PLACE); `kind` is one of [`mode`]. Returns false if
    /// there is no room for it; the listing ends here then.
    pub fn push(&mut self, place: u64, node: u64, kind: u32, name: &str) -> bool {
        let length = (RECORD_BYTES + name.len() + 1).next_multiple_of(8);
        let is_too_long = name.len() > NAME_BYTES_MAX || self.bytes.len() + length > self.room;
        if self.is_full || is_too_long || self.bytes.try_reserve(length).is_err() {
            self.is_full = true;
            return false;
        }
        let end = self.bytes.len() + length;
        self.bytes.extend_from_slice(&node.to_le_bytes());
        self.bytes.extend_from_slice(&place.to_le_bytes());
        self.bytes.extend_from_slice(&(length as u16).to_le_bytes());
        self.bytes.push(((kind & mode::TYPE) >> 12) as u8);
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.resize(end, 0);
        self.last_place = Some(place);
        true
    }

    /// The place of the last entry.
    pub(super) fn last_place(&self) -> Option<u64> {
        self.last_place
    }

    /// The records.
    ///
    /// # Errors
    /// `EINVAL` if there is an entry, but no room for any.
    pub(super) fn records(&self) -> Result<&[u8], Errno> {
        if self.is_full && self.bytes.is_empty() { Err(Errno::EINVAL) } else { Ok(&self.bytes) }
    }

    /// The name of `node`, if it is in the list.
    pub(super) fn name_of(&self, node: u64) -> Option<String> {
        let mut rest = self.bytes.as_slice();
        while let Some(number) = rest.first_chunk() {
            let length = usize::from(u16::from_le_bytes(*rest.get(16..)?.first_chunk()?));
            let record = rest.get(..length)?;
            if u64::from_le_bytes(*number) == node {
                let name = record.get(RECORD_BYTES..)?.split(|&byte| byte == 0).next()?;
                return core::str::from_utf8(name).ok().map(ToString::to_string);
            }
            rest = rest.get(length..)?;
        }
        None
    }
}
