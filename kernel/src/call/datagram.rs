//! Sends and receives of datagrams: `sendto`, `recvfrom`, `sendmsg` and their relatives, and
//! `readv` and `writev` of a UDP socket.
//!
//! A datagram is moved as a whole, in one attempt on the socket. Its bytes may be in many places of
//! the program's memory. Then they are gathered before it is sent, or scattered after it was
//! received, a few pieces in a portion, and the copy in between is charged to the caller's family.
//! As on Linux, a datagram that was received is gone if its place turns out not to be the
//! program's.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::SocketAddr;

use cops_abi::errno::CallResult;
use cops_abi::linux::{message, message_header as header};
use cops_abi::socket::{self, ADDRESS_BYTES_MAX};
use cops_abi::{Errno, socket::encode};
use cops_fallible::try_box;

use super::long::{FEW_ENTRIES, PART_ENTRIES};
use super::pieces::Pieces;
use crate::arch;
use crate::fs::{File, Object};
use crate::mm::quota::{Amounts, Charge, Kind};
use crate::mm::{self, Access, AddressSpace, PinnedBuffer, UserRange};
use crate::net::{DATAGRAM_BYTES_MAX, Datagrams, Received};
use crate::process::Process;
use crate::sched::Waiting;

/// A call that sends or receives a datagram, or several of them.
pub struct DatagramCall {
    /// A UDP socket.
    file: Arc<File>,
    direction: Waiting,
    options: DatagramOptions,
    /// The headers of `sendmsg` and its relatives.
    headers: Option<Headers>,
    message: Message,
    /// Whether the last attempt has done a portion, and there is more to do.
    is_portion_over: bool,
}

/// What the flags of a call ask for.
#[derive(Clone, Copy, Default)]
pub struct DatagramOptions {
    /// What is received can be received again.
    pub peeks: bool,
    /// The result of a receive is the length of the datagram, not that of its part that was stored.
    pub reports_length: bool,
    /// It fails with `EAGAIN` rather than wait.
    pub is_non_blocking: bool,
    /// Only for the first of several messages it waits.
    pub waits_for_one: bool,
}

/// One message.
struct Message {
    /// The program's memory that is left to gather from, or to scatter to.
    pieces: Pieces,
    /// Where it is sent to; `None`: to the peer.
    target: Option<SocketAddr>,
    /// Where the address of its sender is stored.
    name: Option<NamePlace>,
    room: Option<Room>,
    /// Number of bytes gathered or scattered.
    done: usize,
    received: Option<Received>,
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

/// Headers in the program's memory, which are read one after the other.
struct Headers {
    /// The next one, or that of which the message is being moved.
    at: usize,
    /// Whether that has been read.
    is_read: bool,
    /// `None`: there is one. Otherwise they are entries of an array, and this is how many of them
    /// there are behind this one.
    behind: Option<usize>,
    /// How many messages have been moved.
    done: usize,
    /// No other message is begun from then on.
    deadline_ticks: Option<u64>,
}

/// Maximum length of a socket address in a call.
const NAME_BYTES_MAX: usize = 128;

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

fn range(address: usize, bytes: usize) -> Result<UserRange, Errno> {
    UserRange::new(address, bytes).ok_or(Errno::EFAULT)
}

impl NamePlace {
    /// Stores `address`, cut to the space for it, and its size; no address has the size 0.
    fn store(&self, space: &AddressSpace, address: Option<SocketAddr>) -> Result<(), Errno> {
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
    fn new(pieces: Pieces, target: Option<SocketAddr>, name: Option<NamePlace>) -> Self {
        Self { pieces, target, name, room: None, done: 0, received: None }
    }

    /// The message of the header at `address`.
    fn read(space: &AddressSpace, address: usize, direction: Waiting) -> Result<Self, Errno> {
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
    fn send(
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
    fn receive(
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

impl DatagramCall {
    fn new(
        file: Arc<File>,
        direction: Waiting,
        message: Message,
        headers: Option<Headers>,
        options: DatagramOptions,
    ) -> Result<Box<Self>, Errno> {
        mm::admit()?;
        let call = Self { file, direction, options, headers, message, is_portion_over: false };
        Ok(try_box(call)?)
    }

    /// Sends the bytes of `pieces` to `target`, or to the peer of the socket `file`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn send(
        file: Arc<File>,
        pieces: Pieces,
        target: Option<SocketAddr>,
        options: DatagramOptions,
    ) -> Result<Box<Self>, Errno> {
        Self::new(file, Waiting::ToWrite, Message::new(pieces, target, None), None, options)
    }

    /// Receives a datagram into `pieces`, and the address of its sender at `name`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn receive(
        file: Arc<File>,
        pieces: Pieces,
        name: Option<NamePlace>,
        options: DatagramOptions,
    ) -> Result<Box<Self>, Errno> {
        Self::new(file, Waiting::ToRead, Message::new(pieces, None, name), None, options)
    }

    /// The message of the header at `address`, or, if there is a `count`, those of an array of so
    /// many headers. After `deadline_ticks` none is begun.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn of_headers(
        file: Arc<File>,
        direction: Waiting,
        address: usize,
        count: Option<usize>,
        deadline_ticks: Option<u64>,
        options: DatagramOptions,
    ) -> Result<Box<Self>, Errno> {
        let behind = count.map(|count| count.saturating_sub(1));
        let headers = Headers { at: address, is_read: false, behind, done: 0, deadline_ticks };
        let message = Message::new(Pieces::of_range(range(0, 0)?), None, None);
        Self::new(file, direction, message, Some(headers), options)
    }

    /// The number of the operation for measurements.
    pub fn number(&self) -> u32 {
        if self.direction == Waiting::ToRead { 1 } else { 2 }
    }

    /// The file and the direction.
    pub fn file(&self) -> (&File, Waiting) {
        (&self.file, self.direction)
    }

    /// The number of messages that have been moved, if it moves several and has moved some: the
    /// result of the call if it is cut short.
    pub fn done(&self) -> Option<usize> {
        self.headers.as_ref().map(|headers| headers.done).filter(|&done| done > 0)
    }

    /// Whether a signal ends it. Not while what was received is on its way: it would be lost.
    pub fn is_interruptible(&self) -> bool {
        self.message.received.is_none()
    }

    /// Whether the call fails if it would have to wait now.
    pub fn is_non_blocking(&self) -> bool {
        !self.is_portion_over && (self.options.is_non_blocking || self.file.is_non_blocking())
    }

    /// Whether only a portion is over: the next one is to follow, without an event.
    pub fn is_portion_over(&self) -> bool {
        self.is_portion_over
    }

    /// Does a portion; `None` if there is more to do, or it has to wait.
    #[inline(never)]
    pub fn attempt(&mut self, process: &Process) -> Option<CallResult> {
        self.is_portion_over = false;
        let result = self.attempt_message(process).and_then(|moved| match moved {
            Some(count) => self.finish_message(process, count),
            None => Ok(None),
        });
        match (result, self.done()) {
            (Ok(Some(count)), _) => Some(Ok(count)),
            // The next call finds the error, or waits.
            (Err(_), Some(done)) => Some(Ok(done)),
            (Err(error), None) => Some(Err(error)),
            (Ok(None), Some(done)) if self.is_non_blocking() => Some(Ok(done)),
            (Ok(None), _) => None,
        }
    }

    /// Moves the message; `None` if that is not all, or it has to wait.
    fn attempt_message(&mut self, process: &Process) -> Result<Option<usize>, Errno> {
        let Self { file, direction, options, headers, message, is_portion_over } = self;
        let Object::Datagrams(socket) = &file.object else { return Err(Errno::ENOTSOCK) };
        if let Some(headers) = headers.as_mut().filter(|headers| !headers.is_read) {
            *message = Message::read(&process.space, headers.at, *direction)?;
            headers.is_read = true;
            if message.pieces.entry_count() > FEW_ENTRIES {
                *is_portion_over = true;
                return Ok(None);
            }
        }
        if *direction == Waiting::ToWrite {
            return message.send(process, socket, is_portion_over);
        }
        let received = message.receive(process, socket, options.peeks, is_portion_over)?;
        let Some(Received { copied, length, sender }) = received else { return Ok(None) };
        if let Some(name) = &message.name {
            name.store(&process.space, sender)?;
        }
        if let Some(headers) = headers {
            let flags = if copied < length { message::TRUNCATED as u32 } else { 0 };
            // No control data.
            store(process, headers.at + header::CONTROL_BYTES, &[0; 8])?;
            store(process, headers.at + header::FLAGS, &flags.to_le_bytes())?;
        }
        Ok(Some(if options.reports_length { length } else { copied }))
    }

    /// A message of `count` bytes has been moved. Returns the result of the call, if it was the
    /// last one.
    fn finish_message(&mut self, process: &Process, count: usize) -> Result<Option<usize>, Errno> {
        self.message.received = None;
        let Some(headers) = &mut self.headers else { return Ok(Some(count)) };
        let Some(behind) = &mut headers.behind else { return Ok(Some(count)) };
        store(process, headers.at + header::BYTES, &(count as u32).to_le_bytes())?;
        headers.done += 1;
        let is_over = headers.deadline_ticks.is_some_and(|ticks| arch::now_ticks() >= ticks);
        if *behind == 0 || is_over {
            return Ok(Some(headers.done));
        }
        *behind -= 1;
        headers.at += header::ENTRY_BYTES;
        headers.is_read = false;
        self.options.is_non_blocking |= self.options.waits_for_one;
        self.is_portion_over = true;
        Ok(None)
    }
}

fn store(process: &Process, address: usize, bytes: &[u8]) -> Result<(), Errno> {
    Ok(process.space.copy_out(range(address, bytes.len())?, bytes)?)
}
