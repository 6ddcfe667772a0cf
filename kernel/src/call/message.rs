//! One datagram on its way between a program's memory and a socket.
//!
//! A datagram is moved as a whole, in one attempt on the socket. Its bytes may be in many places of
//! the program's memory. Then they are gathered before it is sent, or scattered after it was
//! received, a few pieces in a portion, and the copy in between is charged to the caller's family.
//! As on Linux, a datagram that was received is gone if its place turns out not to be the
//! program's.
#![forbid(unsafe_code)]

use core::net::SocketAddr;

use cops_abi::Errno;
use cops_abi::linux::message_header as header;
use cops_abi::socket::{self, ADDRESS_BYTES_MAX, encode};

use super::long::PART_ENTRIES;
use super::pieces::Pieces;
use crate::mm::quota::{Amounts, Charge, Kind};
use crate::mm::{Access, AddressSpace, PinnedBuffer, UserRange};
use crate::net::{DATAGRAM_BYTES_MAX, Datagrams, Received};
use crate::process::Process;
use crate::sched::Waiting;

/// Maximum length of a socket address in a call.
const NAME_BYTES_MAX: usize = 128;

/// A datagram that is sent or received.
pub(super) struct Message {
    /// The program's memory that is left to gather from, or to scatter to.
    pub pieces: Pieces,
    /// Where it is sent to; `None`: to the peer.
    target: Option<SocketAddr>,
    /// Where the address of its sender is stored.
    pub name: Option<NamePlace>,
    room: Option<Room>,
    /// Number of bytes gathered or scattered.
    done: usize,
    /// What was received, until the call has stored it.
    pub received: Option<Received>,
}

/// Where an address is stored that was received.
pub struct NamePlace {
    /// The space for it.
    pub address: usize,
    /// The word with the size of that space, which is replaced with the size of the address.
    pub length_at: usize,
}

/// The bytes of a datagram in one place.
struct Room {
    buffer: PinnedBuffer,
    /// If it is a copy: the memory for it.
    charge: Option<Charge>,
}

/// The socket address of `bytes` bytes at `address`.
///
/// # Errors
/// `EINVAL` if it is too long, or too short for its family; `EAFNOSUPPORT`, `EFAULT`.
pub fn socket_address(
    space: &AddressSpace,
    address: usize,
    bytes: usize,
) -> Result<SocketAddr, Errno> {
    if bytes > NAME_BYTES_MAX {
        return Err(Errno::EINVAL);
    }
    let mut room = [0; ADDRESS_BYTES_MAX];
    let room = &mut room[..bytes.min(ADDRESS_BYTES_MAX)];
    space.copy_in(range(address, room.len())?, room)?;
    socket::decode(room)
}

/// This range of the program's memory.
pub(super) fn range(address: usize, bytes: usize) -> Result<UserRange, Errno> {
    UserRange::new(address, bytes).ok_or(Errno::EFAULT)
}

impl NamePlace {
    /// Stores `address`, cut to the space for it, and its size; no address has the size 0.
    pub(super) fn store(
        &self,
        space: &AddressSpace,
        address: Option<SocketAddr>,
    ) -> Result<(), Errno> {
        let mut word = [0; 4];
        let length_at = range(self.length_at, word.len())?;
        space.copy_in(length_at, &mut word)?;
        let room = usize::try_from(i32::from_le_bytes(word)).map_err(|_| Errno::EINVAL)?;
        let mut bytes = [0; ADDRESS_BYTES_MAX];
        let length = address.map_or(0, |address| encode(address, &mut bytes));
        let stored = &bytes[..length.min(room)];
        space.copy_out(range(self.address, stored.len())?, stored)?;
        Ok(space.copy_out(length_at, &(length as u32).to_le_bytes())?)
    }
}

impl Room {
    /// Room for a copy of `bytes` bytes.
    fn for_copy(process: &Process, bytes: usize) -> Result<Self, Errno> {
        let charge = Charge::new(process.family, &Amounts::of(Kind::Memory, bytes as u64))?;
        Ok(Self { buffer: PinnedBuffer::gathered(bytes)?, charge: Some(charge) })
    }

    fn is_copy(&self) -> bool {
        self.charge.is_some()
    }
}

impl Message {
    /// The bytes of `pieces`, or those that they get.
    pub fn new(pieces: Pieces, target: Option<SocketAddr>, name: Option<NamePlace>) -> Self {
        Self { pieces, target, name, room: None, done: 0, received: None }
    }

    /// The message of the header at `address`.
    pub fn read(space: &AddressSpace, address: usize, direction: Waiting) -> Result<Self, Errno> {
        let mut words = [[0; 8]; header::BYTES / 8];
        space.copy_in(range(address, header::BYTES)?, words.as_flattened_mut())?;
        let [name, name_bytes, entries, count, _, control_bytes, _] =
            words.map(usize::from_le_bytes);
        let name_bytes =
            usize::try_from(name_bytes as i32).map_err(|_| Errno::EINVAL)?.min(NAME_BYTES_MAX);
        let pieces = Pieces::of_array(space, entries, count)?;
        if direction == Waiting::ToRead {
            let length_at = address + header::NAME_BYTES;
            let place = (name != 0).then_some(NamePlace { address: name, length_at });
            return Ok(Self::new(pieces, None, place));
        }
        if control_bytes != 0 {
            return Err(Errno::EOPNOTSUPP);
        }
        let has_name = name != 0 && name_bytes != 0;
        let target = has_name.then(|| socket_address(space, name, name_bytes)).transpose()?;
        Ok(Self::new(pieces, target, None))
    }

    /// Brings the bytes to one place, at most some entries of them. Returns whether that is all.
    fn gather(&mut self, process: &Process) -> Result<bool, Errno> {
        let mut entries = PART_ENTRIES;
        while !self.pieces.is_empty() {
            let left = self.pieces.len();
            let Some(piece) = self.pieces.take(&process.space, left, &mut entries)? else {
                return Ok(self.pieces.is_empty());
            };
            let part = PinnedBuffer::new(&process.space, piece, Access::Read)?;
            if self.room.is_none() && piece.len() == left {
                self.room = Some(Room { buffer: part, charge: None });
                continue;
            }
            let room = match &mut self.room {
                Some(room) => room,
                none => none.insert(Room::for_copy(process, left)?),
            };
            room.buffer.copy_from(self.done, (&part, 0), part.len());
            self.done += part.len();
        }
        Ok(true)
    }

    /// Sends the datagram; `None` if that is not all, or there is no room for it yet.
    pub fn send(
        &mut self,
        process: &Process,
        socket: &Datagrams,
        is_portion_over: &mut bool,
    ) -> Result<Option<usize>, Errno> {
        if self.room.is_none() && self.pieces.len() > DATAGRAM_BYTES_MAX {
            return Err(Errno::EMSGSIZE);
        }
        *is_portion_over = !self.gather(process)?;
        if *is_portion_over {
            return Ok(None);
        }
        let room = match &mut self.room {
            Some(room) => room,
            none => none.insert(Room { buffer: PinnedBuffer::gathered(0)?, charge: None }),
        };
        socket.attempt_send(&room.buffer, self.target).transpose()
    }

    /// Makes room for a datagram: in the program's memory, if it is in one piece. Returns whether
    /// there is some.
    fn make_room(&mut self, process: &Process) -> Result<bool, Errno> {
        if self.room.is_some() {
            return Ok(true);
        }
        let most = self.pieces.len().min(DATAGRAM_BYTES_MAX);
        let mut behind = self.pieces;
        let buffer = match behind.take(&process.space, most, &mut { PART_ENTRIES })? {
            Some(piece) if piece.len() == most => {
                PinnedBuffer::new(&process.space, piece, Access::Write)?
            }
            Some(_) => {
                self.room = Some(Room::for_copy(process, most)?);
                return Ok(true);
            }
            None if most == 0 || behind.is_empty() => PinnedBuffer::gathered(0)?,
            None => {
                self.pieces = behind;
                return Ok(false);
            }
        };
        self.room = Some(Room { buffer, charge: None });
        Ok(true)
    }

    /// Receives a datagram; `None` if that is not all, or there is none yet.
    pub fn receive(
        &mut self,
        process: &Process,
        socket: &Datagrams,
        peeks: bool,
        is_portion_over: &mut bool,
    ) -> Result<Option<Received>, Errno> {
        if self.received.is_none() {
            *is_portion_over = !self.make_room(process)?;
            let Some(room) = self.room.as_ref().filter(|_| !*is_portion_over) else {
                return Ok(None);
            };
            match socket.attempt_receive(&room.buffer, peeks) {
                Some(received) => self.received = Some(received?),
                None => return Ok(None),
            }
        }
        let Some(received) = self.received else { return Ok(None) };
        *is_portion_over = !self.scatter(process, received.copied)?;
        Ok((!*is_portion_over).then_some(received))
    }

    /// Copies what was received to its places, at most some entries of them. Returns whether that
    /// is all.
    fn scatter(&mut self, process: &Process, bytes: usize) -> Result<bool, Errno> {
        let Some(room) = self.room.as_ref().filter(|room| room.is_copy()) else {
            return Ok(true);
        };
        let mut entries = PART_ENTRIES;
        while self.done < bytes {
            let left = bytes - self.done;
            let Some(piece) = self.pieces.take(&process.space, left, &mut entries)? else {
                // If the program has changed the array, there are no more places.
                return Ok(self.pieces.is_empty());
            };
            let part = PinnedBuffer::new(&process.space, piece, Access::Write)?;
            part.copy_from(0, (&room.buffer, self.done), part.len());
            self.done += part.len();
        }
        Ok(true)
    }
}
