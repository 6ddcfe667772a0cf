//! Files and pipes.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_fallible::{Text, try_arc};

use super::arguments::Directory;
use crate::call::Operation;
use crate::fs::{self, ConsoleRead, Descriptor, File};
use crate::mm::{self, Access, PinnedBuffer, UserRange};
use crate::process::Process;

/// Maximum number of bytes that one `getdents64` stores.
pub const LIST_BYTES_MAX: usize = 1024;
/// Size of the two numbers that `pipe2` stores.
pub const PIPE_BYTES: usize = 8;

/// `openat(directory, path, flags)`: the root image is read-only and the working directory is the
/// root.
pub fn open(process: &Process, directory: Directory, path: &Text, flags: usize) -> CallResult {
    const ACCESS_MODE: usize = 3;
    const CREATE: usize = 0o100;
    if matches!(directory, Directory::Other) && !path.starts_with('/') {
        return Err(Errno::EBADF);
    }
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    mm::admit()?;
    let file = match File::open(path) {
        Ok(_) if flags & ACCESS_MODE != 0 => return Err(Errno::EROFS),
        Err(Errno::ENOENT) if flags & CREATE != 0 => return Err(Errno::EROFS),
        file => file?,
    };
    process.files.lock().insert(try_arc(file)?).map(|file| file.0)
}

/// `close(fd)`.
pub fn close(process: &Process, file: Descriptor) -> CallResult {
    let file = process.files.lock().remove(file)?;
    // Without the table's lock: closing a socket or a pipe wakes waiting calls.
    drop(file);
    Ok(0)
}

/// `pipe2(*mut [i32; 2], flags)`.
pub fn pipe(process: &Process, numbers: UserRange) -> CallResult {
    mm::admit()?;
    // Check the address for the numbers before they exist, so that an invalid address leaves
    // nothing open.
    let numbers = PinnedBuffer::new(&process.space, numbers, Access::Write)?;
    let (reader, writer) = fs::pipe(process.family)?;
    let (reader, writer) = (try_arc(File::PipeReader(reader))?, try_arc(File::PipeWriter(writer))?);
    let mut files = process.files.lock();
    files.reserve(2)?;
    let reader = files.insert(reader)?;
    let writer = files.insert(writer)?;
    numbers.write_at(0, &(reader.0 as u32).to_le_bytes());
    numbers.write_at(4, &(writer.0 as u32).to_le_bytes());
    Ok(0)
}

/// `getdents64(fd, buffer, length)`; of the buffer at most [`LIST_BYTES_MAX`] bytes.
pub fn list(process: &Process, file: &File, buffer: UserRange) -> CallResult {
    let mut bytes = [0; LIST_BYTES_MAX];
    let bytes = &mut bytes[..buffer.len().min(LIST_BYTES_MAX)];
    let buffer = PinnedBuffer::new(&process.space, buffer, Access::Write)?;
    let count = file.list(bytes)?;
    buffer.write_at(0, &bytes[..count]);
    Ok(count)
}

/// `read(fd, buffer, length)`.
pub fn read(process: &Process, file: Arc<File>, buffer: UserRange) -> Result<Operation, Errno> {
    let buffer = PinnedBuffer::new(&process.space, buffer, Access::Write)?;
    Ok(match &*file {
        File::ConsoleInput => Operation::ReadConsole { read: ConsoleRead::new(buffer) },
        _ => Operation::Read { file, buffer },
    })
}

/// `write(fd, buffer, length)`.
pub fn write(process: &Process, file: Arc<File>, buffer: UserRange) -> Result<Operation, Errno> {
    let buffer = PinnedBuffer::new(&process.space, buffer, Access::Read)?;
    Ok(Operation::Write { file, buffer })
}
