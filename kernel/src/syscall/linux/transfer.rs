//! Reads and writes of Linux programs. Natively a call moves what one attempt can move; here a
//! write moves everything, and a read as much as there is (decision 41). The short ones, which are
//! most, are the native calls.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::linux::{MSG_NOSIGNAL, message};
use cops_abi::served::DATA_BYTES_MAX;
use cops_fallible::try_box;

use super::super::arguments::Arguments;
use super::super::{Reply, file, submit, terminal};
use super::socket;
use crate::arch::SyscallFrame;
use crate::call::{LongRequest, LongTransfer, Operation, Receive};
use crate::drivers::{console, random};
use crate::fs::{Device, File, Object, PIPE_ATOMIC_BYTES};
use crate::mm::{self, Access, PinnedBuffer};
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
        return submit_long(cpu, frame, LongRequest::new(file, range, None, Waiting::ToRead), 0);
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
        return Ok(submit(cpu, frame, file::write(cpu, file, range)?));
    }
    if file.is_terminal() {
        terminal::check_write(cpu)?;
    }
    let request = LongRequest::new(file, range, None, Waiting::ToWrite);
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
        return submit_long(cpu, frame, LongRequest::new(file, range, Some(offset), direction), 0);
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
    let buffer = PinnedBuffer::new(&cpu.process.space, request.range, Access::Read)?;
    let done = match request.file.attempt_write(&buffer) {
        None => 0,
        Some(Ok(count)) if 0 < count && count < request.range.len() => count,
        Some(result) => return Ok(result.into()),
    };
    if done > 0 && request.is_non_blocking {
        return Ok(Reply::Done(Ok(done)));
    }
    request.range = request.range.after(done);
    // What has been written is the result if there is no memory for the rest.
    submit_long(cpu, frame, request, done).or_else(|error| match done {
        0 => Err(error),
        _ => Ok(Reply::Done(Ok(done))),
    })
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
    let mut request = LongRequest::new(file, args.range(1)?, None, Waiting::ToWrite);
    request.is_non_blocking |= flags & message::DONT_WAIT != 0;
    if request.range.len() > DATA_BYTES_MAX {
        submit_long(cpu, frame, request, 0)
    } else {
        try_to_write(cpu, frame, request)
    }
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
    let peeks = flags & message::PEEK != 0;
    let is_non_blocking = flags & message::DONT_WAIT != 0;
    let waits_for_all = flags & message::WAIT_ALL != 0;
    if !peeks && (waits_for_all || range.len() > DATA_BYTES_MAX) {
        let mut request = LongRequest::new(file, range, None, Waiting::ToRead);
        request.is_non_blocking |= is_non_blocking;
        request.waits_for_all = waits_for_all;
        return submit_long(cpu, frame, request, 0);
    }
    mm::admit()?;
    let buffer = PinnedBuffer::new(&process.space, range, Access::Write)?;
    let receive = try_box(Receive { file, buffer, peeks, is_non_blocking })?;
    Ok(submit(cpu, frame, Operation::Receive(receive)))
}
