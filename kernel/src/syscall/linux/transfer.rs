//! Reads and writes of Linux programs. Natively a call moves what one attempt can move; here a
//! write moves everything, and a read as much as there is (decision 41). The short ones, which are
//! most, are the native calls.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::linux::{self as number, MSG_NOSIGNAL, message, message_header as header};
use cops_abi::served::DATA_BYTES_MAX;
use cops_abi::syscall::BUFFERS_MAX;
use cops_fallible::try_box;

use super::super::arguments::{Arguments, Clock};
use super::super::{self as native, Reply, file, network, submit, terminal, time};
use super::socket;
use crate::arch::SyscallFrame;
use crate::call::{
    DatagramCall, LongRequest, LongTransfer, Operation, PART_ENTRIES, Pieces, Receive,
};
use crate::drivers::{console, random};
use crate::fs::{Device, File, Object, PIPE_ATOMIC_BYTES};
use crate::mm::{self, Access, PinnedBuffer, UserRange};
use crate::process::{Process, VirtualCpu};
use crate::sched::Waiting;

/// Flags of a receive.
const RECEIVE_FLAGS: usize =
    message::PEEK | message::WAIT_ALL | message::DONT_WAIT | MSG_NOSIGNAL | message::CLOSE_ON_EXEC;
/// Flags of a send.
const SEND_FLAGS: usize = message::DONT_ROUTE | message::DONT_WAIT | MSG_NOSIGNAL | message::MORE;

/// How a write of this length can be done.
enum Way {
    /// One attempt moves everything, or nothing.
    Native,
    /// One attempt moves everything, nothing, or a part.
    Try,
    /// In parts.
    Long,
}

fn way_to_write(file: &File, length: usize) -> Way {
    match file.object {
        Object::Socket(_) | Object::Paired(_) if length <= DATA_BYTES_MAX => Way::Try,
        Object::PipeWriter(_) if length <= PIPE_ATOMIC_BYTES => Way::Native,
        Object::PipeWriter(_) | Object::Socket(_) | Object::Paired(_) => Way::Long,
        Object::ConsoleOutput | Object::ConsoleError | Object::Console => {
            if length <= console::PART_BYTES { Way::Native } else { Way::Long }
        }
        _ if length <= DATA_BYTES_MAX => Way::Native,
        Object::Node { .. } | Object::Served(_) | Object::Disk { .. } | Object::Device { .. } => {
            Way::Long
        }
        _ => Way::Native,
    }
}

fn is_long_read(file: &File, length: usize) -> bool {
    match file.object {
        // One attempt has a few random numbers only.
        Object::Device { device: Device::Random, .. } => length > random::BYTES_MAX,
        Object::Node { .. }
        | Object::Served(_)
        | Object::Disk { .. }
        | Object::Device { .. }
        | Object::PipeReader(_)
        | Object::Socket(_)
        | Object::Paired(_) => length > DATA_BYTES_MAX,
        _ => false,
    }
}

/// `read(fd, buffer, length)`.
///
/// # Errors
/// `EBADF`, `EFAULT`, `ENOMEM`.
pub fn read(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    let (file, range) = (args.file(0)?, args.range(1)?);
    if is_long_read(&file, range.len()) {
        let pieces = Pieces::of_range(range);
        return submit_long(cpu, frame, LongRequest::new(file, pieces, None, Waiting::ToRead), 0);
    }
    Ok(submit(cpu, frame, file::read(&cpu.process, file, range)?))
}

/// `write(fd, buffer, length)`.
///
/// # Errors
/// As [`read`], and those of the terminal.
pub fn write(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    let (file, range) = (args.file(0)?, args.range(1)?);
    let way = way_to_write(&file, range.len());
    if let Way::Native = way {
        return native::write(cpu, frame, file, range);
    }
    if file.is_terminal() {
        terminal::check_write(cpu)?;
    }
    let request = LongRequest::new(file, Pieces::of_range(range), None, Waiting::ToWrite);
    match way {
        Way::Try => try_to_write(cpu, frame, request),
        _ => submit_long(cpu, frame, request, 0),
    }
}

/// `pread64(fd, buffer, length, offset)` and `pwrite64`.
///
/// # Errors
/// As [`read`]; `EINVAL` for a negative offset, `ESPIPE` for a file without positions.
pub fn transfer_at(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
    direction: Waiting,
) -> Result<Reply, Errno> {
    let (file, range, offset) = (args.file(0)?, args.range(1)?, args.offset(3)?);
    if range.len() > DATA_BYTES_MAX {
        let request = LongRequest::new(file, Pieces::of_range(range), Some(offset), direction);
        return submit_long(cpu, frame, request, 0);
    }
    Ok(submit(cpu, frame, file::transfer_at(&cpu.process, file, range, offset, direction)?))
}

fn submit_long(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    request: LongRequest,
    done: usize,
) -> Result<Reply, Errno> {
    mm::admit()?;
    let transfer = try_box(LongTransfer::new(request, done))?;
    Ok(submit(cpu, frame, Operation::Long(transfer)))
}

/// A write to a socket. Most have room for everything.
fn try_to_write(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    mut request: LongRequest,
) -> Result<Reply, Errno> {
    if request.begins_later() {
        return submit_long(cpu, frame, request, 0);
    }
    let space = &cpu.process.space;
    let length = request.pieces.len();
    let buffer = match request.gather(space)? {
        Some((buffer, _)) => buffer,
        None if length == 0 => PinnedBuffer::gathered(0)?,
        None => return submit_long(cpu, frame, request, 0),
    };
    let done = match request.file.attempt_write(&buffer) {
        None => 0,
        Some(Ok(count)) if 0 < count && count < length => count,
        Some(result) => return Ok(result.into()),
    };
    if done > 0 && request.is_non_blocking {
        return Ok(Reply::Done(Ok(done)));
    }
    drop(buffer);
    if request.pieces.advance(space, done, PART_ENTRIES).is_err() {
        return Ok(Reply::Done(Ok(done)));
    }
    // What has been written is the result if there is no memory for the rest.
    submit_long(cpu, frame, request, done).or_else(|error| match done {
        0 => Err(error),
        _ => Ok(Reply::Done(Ok(done))),
    })
}

/// Whether the first argument is a UDP socket.
pub fn is_datagrams(args: &Arguments<'_>) -> bool {
    args.file(0).is_ok_and(|file| matches!(file.object, Object::Datagrams(_)))
}

/// A call with the header of a message, or, if there is a `count`, with an array of so many, on a
/// UDP socket.
fn move_datagrams(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
    direction: Waiting,
    flags: usize,
    count: Option<usize>,
) -> Result<Reply, Errno> {
    let socket = args.udp_socket(0)?;
    let options = match direction {
        Waiting::ToRead => network::receive_options(flags)?,
        Waiting::ToWrite => network::send_options(flags)?,
    };
    // Also if no message turns out to have an address.
    let family = cpu.process.family;
    if direction == Waiting::ToWrite && socket.datagrams()?.ensure_bound(family)?.is_none() {
        return Ok(Reply::Again);
    }
    let deadline_ticks = match (direction, count) {
        (Waiting::ToRead, Some(_)) => time_limit(&cpu.process, args)?,
        _ => None,
    };
    let (file, at) = (socket.into_file(), args.number(1));
    let call = DatagramCall::of_headers(file, direction, at, count, deadline_ticks, options)?;
    Ok(submit(cpu, frame, Operation::Datagram(call)))
}

/// When `recvmmsg` is to begin no other message.
fn time_limit(process: &Process, args: &Arguments<'_>) -> Result<Option<u64>, Errno> {
    let Some(place) = args.optional_structure(4, time::TIMESPEC_BYTES)? else { return Ok(None) };
    time::deadline_ticks(process, Clock::Monotonic, 0, place).map(Some)
}

/// `sendmmsg(fd, *mut mmsghdr, count, flags)` and `recvmmsg(.., *const timespec or 0)`, of UDP
/// sockets.
///
/// # Errors
/// `EOPNOTSUPP` for another socket; those of `sendmsg` and `recvmsg` for the first message.
pub fn move_messages(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    if !is_datagrams(args) {
        return socket::socket(args).and(Err(Errno::EOPNOTSUPP));
    }
    let direction =
        if frame.number == number::SENDMMSG { Waiting::ToWrite } else { Waiting::ToRead };
    // As on Linux, of more messages the first ones are moved.
    let count = (args.number(2) as u32 as usize).min(BUFFERS_MAX);
    if count == 0 {
        return Ok(Reply::Done(Ok(0)));
    }
    move_datagrams(cpu, frame, args, direction, args.number(3), Some(count))
}

/// `sendto(fd, buffer, length, flags, _, _)`. A stream has one peer, so an address is ignored.
///
/// # Errors
/// `EOPNOTSUPP` for unknown flags; those of a write.
pub fn send(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    let (file, flags) = (socket::socket(args)?, args.number(3));
    if flags & !SEND_FLAGS != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    send_pieces(cpu, frame, file, Pieces::of_range(args.range(1)?), flags)
}

fn send_pieces(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    file: Arc<File>,
    pieces: Pieces,
    flags: usize,
) -> Result<Reply, Errno> {
    let mut request = LongRequest::new(file, pieces, None, Waiting::ToWrite);
    request.is_non_blocking |= flags & message::DONT_WAIT != 0;
    if request.pieces.len() > DATA_BYTES_MAX {
        submit_long(cpu, frame, request, 0)
    } else {
        try_to_write(cpu, frame, request)
    }
}

/// `readv`, `writev`, `preadv` and `pwritev(fd, *const iovec, count, offset)`.
///
/// # Errors
/// Those of [`read()`] and [`write()`], or of [`transfer_at`]; `EINVAL` for more than 1,024
/// buffers.
pub fn transfer_buffers(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
    offset: Option<u64>,
    direction: Waiting,
) -> Result<Reply, Errno> {
    let (file, buffers) = (args.file(0)?, args.buffers(1)?);
    let fits = match direction {
        Waiting::ToRead => file::BUFFERS_PER_READ,
        Waiting::ToWrite => file::BUFFERS_PER_WRITE,
    };
    // More buffers than one attempt moves are as good as more bytes.
    let least = if buffers.count > fits { DATA_BYTES_MAX + 1 } else { 0 };
    let length = buffers.length.max(least);
    let way = match direction {
        Waiting::ToRead if is_long_read(&file, length) => Way::Long,
        Waiting::ToRead => Way::Native,
        Waiting::ToWrite => way_to_write(&file, length),
    };
    if buffers.length == 0 || matches!(way, Way::Native) {
        let operation = match direction {
            Waiting::ToRead => file::read_buffers(&cpu.process, file, &buffers, offset)?,
            Waiting::ToWrite => file::write_buffers(cpu, file, &buffers, offset)?,
        };
        return Ok(submit(cpu, frame, operation));
    }
    if direction == Waiting::ToWrite && file.is_terminal() {
        terminal::check_write(cpu)?;
    }
    let pieces = Pieces::of_buffers(buffers.entries, buffers.length);
    let request = LongRequest::new(file, pieces, offset, direction);
    match way {
        Way::Try if offset.is_none() => try_to_write(cpu, frame, request),
        _ => submit_long(cpu, frame, request, 0),
    }
}

/// What `sendmsg` and `recvmsg` are given.
struct Message {
    /// Where it is.
    address: usize,
    pieces: Pieces,
    /// Whether there is room for, or an address of, a peer.
    has_name: bool,
    /// Bytes of control data, or of room for them.
    control_bytes: usize,
}

impl Message {
    fn new(args: &Arguments<'_>) -> Result<Self, Errno> {
        let place = args.structure(1, header::BYTES)?;
        let mut words = [[0; 8]; header::BYTES / 8];
        args.space().copy_in(place, words.as_flattened_mut())?;
        let [name, _, entries, count, _, control_bytes, _] = words.map(usize::from_le_bytes);
        if count > BUFFERS_MAX {
            return Err(Errno::EMSGSIZE);
        }
        let buffers = args.buffers_at(entries, count)?;
        let pieces = Pieces::of_buffers(buffers.entries, buffers.length);
        Ok(Self { address: place.address(), pieces, has_name: name != 0, control_bytes })
    }

    /// Stores a number of four bytes at this offset of the header.
    fn store(&self, args: &Arguments<'_>, offset: usize, number: u32) -> Result<(), Errno> {
        let place = UserRange::new(self.address + offset, socket::NUMBER_BYTES);
        Ok(args.space().copy_out(place.ok_or(Errno::EFAULT)?, &number.to_le_bytes())?)
    }
}

/// `sendmsg(fd, *const msghdr, flags)`. A stream has one peer, so an address is ignored.
///
/// # Errors
/// `EOPNOTSUPP` for unknown flags, and for control data; those of a write.
pub fn send_message(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    if is_datagrams(args) {
        return move_datagrams(cpu, frame, args, Waiting::ToWrite, args.number(2), None);
    }
    let (file, flags) = (socket::socket(args)?, args.number(2));
    let message = Message::new(args)?;
    if flags & !SEND_FLAGS != 0 || message.control_bytes != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    send_pieces(cpu, frame, file, message.pieces, flags)
}

/// `recvmsg(fd, *mut msghdr, flags)`. A stream has one peer, and none is reported; there are never
/// control data.
///
/// # Errors
/// `EOPNOTSUPP` for unknown flags; those of a read.
pub fn receive_message(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    if is_datagrams(args) {
        return move_datagrams(cpu, frame, args, Waiting::ToRead, args.number(2), None);
    }
    let (file, flags) = (socket::socket(args)?, args.number(2));
    if flags & !RECEIVE_FLAGS != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let message = Message::new(args)?;
    if message.has_name {
        message.store(args, header::NAME_BYTES, 0)?;
    }
    message.store(args, header::CONTROL_BYTES, 0)?;
    message.store(args, header::CONTROL_BYTES + socket::NUMBER_BYTES, 0)?;
    message.store(args, header::FLAGS, 0)?;
    if flags & message::PEEK != 0 {
        // Of the first buffer.
        let mut pieces = message.pieces;
        let first = pieces.take(args.space(), usize::MAX, &mut { PART_ENTRIES })?;
        let nothing = UserRange::new(0, 0).ok_or(Errno::EFAULT)?;
        return receive_once(cpu, frame, file, first.unwrap_or(nothing), flags);
    }
    let mut request = LongRequest::new(file, message.pieces, None, Waiting::ToRead);
    request.is_non_blocking |= flags & message::DONT_WAIT != 0;
    request.waits_for_all = flags & message::WAIT_ALL != 0;
    submit_long(cpu, frame, request, 0)
}

/// `recvfrom(fd, buffer, length, flags, _, *mut u32 or 0)`. A stream has one peer, and none is
/// reported.
///
/// # Errors
/// `EOPNOTSUPP` for unknown flags; those of a read.
pub fn receive(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    let (file, flags) = (socket::socket(args)?, args.number(3));
    if flags & !RECEIVE_FLAGS != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let process: &Process = &cpu.process;
    if args.number(4) != 0
        && let Some(length) = args.optional_structure(5, socket::NUMBER_BYTES)?
    {
        process.space.copy_out(length, &[0; socket::NUMBER_BYTES])?;
    }
    let range = args.range(1)?;
    let waits_for_all = flags & message::WAIT_ALL != 0;
    if flags & message::PEEK == 0 && (waits_for_all || range.len() > DATA_BYTES_MAX) {
        let mut request = LongRequest::new(file, Pieces::of_range(range), None, Waiting::ToRead);
        request.is_non_blocking |= flags & message::DONT_WAIT != 0;
        request.waits_for_all = waits_for_all;
        return submit_long(cpu, frame, request, 0);
    }
    receive_once(cpu, frame, file, range, flags)
}

/// Receives what one attempt can move.
fn receive_once(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    file: Arc<File>,
    range: UserRange,
    flags: usize,
) -> Result<Reply, Errno> {
    mm::admit()?;
    let buffer = PinnedBuffer::new(&cpu.process.space, range, Access::Write)?;
    let peeks = flags & message::PEEK != 0;
    let is_non_blocking = flags & message::DONT_WAIT != 0;
    let receive = try_box(Receive { file, buffer, peeks, is_non_blocking })?;
    Ok(submit(cpu, frame, Operation::Receive(receive)))
}
