//! Files and pipes.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::mem::MaybeUninit;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::open;
use cops_abi::syscall::TRY_WRITE_BYTES_MAX;
use cops_fallible::{List, try_arc, try_box};

use super::arguments::UserBuffers;
use super::terminal;
use crate::call::{DatagramCall, DatagramOptions, Operation, PathCall, Pieces, StandingRead, Then};
use crate::disk::{DiskTransfer, Work};
use crate::fs::{self, Ask, ConsoleRead, Descriptor, File, Object};
use crate::mm::{self, Access, PinnedBuffer, UserRange};
use crate::process::{Process, VirtualCpu};
use crate::sched::Waiting;

/// Size of the two numbers that `pipe2` stores.
pub const PIPE_BYTES: usize = 8;

/// The flags of `pipe2`.
pub const PIPE_FLAGS: usize = (open::CLOSE_ON_EXEC | open::NON_BLOCKING) as usize;

/// `close(fd)`.
pub fn close(process: &Process, file: Descriptor) -> CallResult {
    let file = process.files.lock().remove(file)?;
    process.close(file);
    Ok(0)
}

/// `pipe2(*mut [i32; 2], flags)`, or with two words for the numbers.
#[inline(never)]
pub fn pipe(process: &Process, numbers: UserRange, flags: usize) -> CallResult {
    mm::admit()?;
    // Check the address for the numbers before they exist, so that an invalid address leaves
    // nothing open.
    let numbers = PinnedBuffer::new(&process.space, numbers, Access::Write)?;
    let (reader, writer) = fs::pipe(process.family)?;
    let flags = flags as u32;
    let reader = try_arc(File::new(Object::PipeReader(reader), open::READ_ONLY | flags))?;
    let writer = try_arc(File::new(Object::PipeWriter(writer), open::WRITE_ONLY | flags))?;
    let closes = flags & open::CLOSE_ON_EXEC != 0;
    let mut files = process.files.lock();
    files.reserve(2)?;
    files.pay_for(&reader)?;
    files.pay_for(&writer)?;
    let reader = files.insert(reader, closes)?;
    let writer = files.insert(writer, closes)?;
    // Each has half of the memory.
    let bytes = numbers.len() / 2;
    numbers.write_at(0, &reader.0.to_le_bytes()[..bytes]);
    numbers.write_at(bytes, &writer.0.to_le_bytes()[..bytes]);
    Ok(0)
}

/// `read(fd, buffer, length)`.
pub fn read(process: &Process, file: Arc<File>, buffer: UserRange) -> Result<Operation, Errno> {
    let buffer = PinnedBuffer::new(&process.space, buffer, Access::Write)?;
    if file.reads_console() {
        terminal::check_read(process)?;
        let read = ConsoleRead::new(buffer, file.is_non_blocking());
        return Ok(Operation::ReadConsole { read });
    }
    Operation::transfer(file, buffer, None, Waiting::ToRead)
}

/// `read_standing(fd, block, bytes)`.
#[inline(never)]
pub fn read_standing(
    process: &Process,
    file: Arc<File>,
    block: UserRange,
) -> Result<Operation, Errno> {
    let block = PinnedBuffer::new(&process.space, block, Access::Write)?;
    Ok(Operation::Standing(try_box(StandingRead::new(file, block)?)?))
}

/// `write(fd, buffer, length)` of a few bytes into a connection or a pipe that has room for some.
///
/// These are most writes of most servers. Their bytes are copied twice, which takes fewer
/// instructions than what a call needs that may have to wait: its buffer pinned, and an operation
/// that owns both. `None` if it has to be such a call; then nothing has happened.
#[inline]
pub fn write_at_once(process: &Process, file: &File, buffer: UserRange) -> Option<CallResult> {
    let mut bytes = [const { MaybeUninit::uninit() }; TRY_WRITE_BYTES_MAX];
    file.attempt_write_copy(|| process.space.copy_in_at_once(buffer, &mut bytes))
}

/// `write(fd, buffer, length)`.
pub fn write(cpu: &VirtualCpu, file: Arc<File>, buffer: UserRange) -> Result<Operation, Errno> {
    let buffer = PinnedBuffer::new(&cpu.process.space, buffer, Access::Read)?;
    if let Object::ConsoleOutput | Object::ConsoleError | Object::Console = file.object {
        terminal::check_write(cpu)?;
    }
    Operation::transfer(file, buffer, None, Waiting::ToWrite)
}

/// Maximum number of buffers that one `readv` fills.
pub const BUFFERS_PER_READ: usize = 8;
/// Maximum number of buffers that one `writev` gathers, and of their bytes.
pub const BUFFERS_PER_WRITE: usize = 32;
const GATHERED_BYTES_MAX: usize = 8 * 1024;

/// `readv(fd, *const iovec, count)`, and `preadv` with an offset.
#[inline(never)]
pub fn read_buffers(
    process: &Process,
    file: Arc<File>,
    from: &UserBuffers,
    offset: Option<u64>,
) -> Result<Operation, Errno> {
    mm::admit()?;
    if let Some(call) = datagram(&file, from, offset, Waiting::ToRead)? {
        return Ok(call);
    }
    let mut buffers = List::new();
    for range in from.ranges.iter().take(BUFFERS_PER_READ) {
        buffers.try_push(PinnedBuffer::new(&process.space, *range, Access::Write)?)?;
    }
    if file.reads_console() && offset.is_none() {
        terminal::check_read(process)?;
        let buffer = match buffers.into_iter().next() {
            Some(buffer) => buffer,
            None => PinnedBuffer::gathered(0)?,
        };
        let read = ConsoleRead::new(buffer, file.is_non_blocking());
        return Ok(Operation::ReadConsole { read });
    }
    Operation::transfer_of_buffers(file, buffers, offset, Waiting::ToRead)
}

/// `writev(fd, *const iovec, count)`, and `pwritev` with an offset.
#[inline(never)]
pub fn write_buffers(
    cpu: &VirtualCpu,
    file: Arc<File>,
    from: &UserBuffers,
    offset: Option<u64>,
) -> Result<Operation, Errno> {
    mm::admit()?;
    if let Some(call) = datagram(&file, from, offset, Waiting::ToWrite)? {
        return Ok(call);
    }
    let process = &cpu.process;
    if file.is_terminal() {
        terminal::check_write(cpu)?;
    }
    let ranges = || from.ranges.iter().take(BUFFERS_PER_WRITE);
    let bytes: usize = ranges().map(|range| range.len().min(GATHERED_BYTES_MAX)).sum();
    let gathered = PinnedBuffer::gathered(bytes.min(GATHERED_BYTES_MAX))?;
    let mut done = 0;
    for range in ranges() {
        let range = range.prefix(gathered.len() - done);
        let buffer = PinnedBuffer::new(&process.space, range, Access::Read)?;
        gathered.copy_from(done, (&buffer, 0), buffer.len());
        done += buffer.len();
    }
    let mut buffers = List::new();
    buffers.try_push(gathered)?;
    Operation::transfer_of_buffers(file, buffers, offset, Waiting::ToWrite)
}

/// The operation of `readv` or `writev`, if `file` is a UDP socket and there are bytes: all
/// buffers together are one datagram.
fn datagram(
    file: &Arc<File>,
    buffers: &UserBuffers,
    offset: Option<u64>,
    direction: Waiting,
) -> Result<Option<Operation>, Errno> {
    if !matches!(file.object, Object::Datagrams(_)) || offset.is_some() || buffers.length == 0 {
        return Ok(None);
    }
    let pieces = Pieces::of_buffers(buffers.entries, buffers.length);
    let (file, options) = (file.clone(), DatagramOptions::default());
    let call = match direction {
        Waiting::ToRead => DatagramCall::receive(file, pieces, None, options),
        Waiting::ToWrite => DatagramCall::send(file, pieces, None, options),
    };
    call.map(Operation::Datagram).map(Some)
}

/// `pread64(fd, buffer, length, offset)` and `pwrite64`.
#[inline(never)]
pub fn transfer_at(
    process: &Process,
    file: Arc<File>,
    range: UserRange,
    offset: u64,
    direction: Waiting,
) -> Result<Operation, Errno> {
    mm::admit()?;
    let access = if direction == Waiting::ToRead { Access::Write } else { Access::Read };
    let buffer = PinnedBuffer::new(&process.space, range, access)?;
    Operation::transfer(file, buffer, Some(offset), direction)
}

/// `lseek(fd, offset, whence)`: a call that is completed, or one that waits for the server of the
/// file, or for another call that uses its position.
///
/// # Errors
/// `ENOMEM`.
pub fn seek(
    file: Arc<File>,
    offset: isize,
    whence: usize,
) -> Result<Result<CallResult, Operation>, Errno> {
    let is_asked = file.served().is_some() && whence == 2;
    let attempt = || file.attempt_seek(offset, whence, &mut Ask::default());
    if let Some(sought) = if is_asked { None } else { attempt() } {
        return Ok(Ok(sought));
    }
    let call = PathCall::of_node(file.node()?.clone(), Then::Seek { file, offset, whence });
    Ok(Err(Operation::Path(try_box(call)?)))
}

/// `fsync(fd)`, of the disk or of a file.
///
/// # Errors
/// `EINVAL` for a pipe, a socket or the console, as on Linux.
#[inline(never)]
pub fn synchronise(file: &File) -> Result<Operation, Errno> {
    if let Object::Disk { .. } = file.object {
        return Ok(Operation::Disk(try_box(DiskTransfer::new(Work::Flush)?)?));
    }
    let call = PathCall::of_node(file.node()?.clone(), Then::Synchronise);
    Ok(Operation::Path(try_box(call)?))
}
