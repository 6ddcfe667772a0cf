//! Files and pipes.
#![forbid(unsafe_code)]

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::syscall::{AT_FDCWD, PATH_BYTES_MAX};
use cops_fallible::try_arc;

use crate::call::Operation;
use crate::fs::{self, ConsoleRead, File};
use crate::mm::{self, Access, UserRange};
use crate::process::Process;

/// `openat(directory, path, flags)`: the root image is read-only and the working directory is the
/// root.
pub fn open(process: &Process, directory: isize, path: usize, flags: usize) -> CallResult {
    const ACCESS_MODE: usize = 3;
    const CREATE: usize = 0o100;
    let path = UserRange::copy_in_string(&process.space, path, PATH_BYTES_MAX - 1)?;
    if directory != AT_FDCWD && !path.starts_with('/') {
        return Err(Errno::EBADF);
    }
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    mm::admit()?;
    let file = match File::open(&path) {
        Ok(_) if flags & ACCESS_MODE != 0 => return Err(Errno::EROFS),
        Err(Errno::ENOENT) if flags & CREATE != 0 => return Err(Errno::EROFS),
        file => file?,
    };
    process.files.lock().insert(try_arc(file)?)
}

/// `close(fd)`.
pub fn close(process: &Process, file: usize) -> CallResult {
    let file = process.files.lock().remove(file)?;
    // Without the table's lock: closing a socket or a pipe wakes waiting calls.
    drop(file);
    Ok(0)
}

/// `pipe2(*mut [i32; 2], flags)`.
pub fn pipe(process: &Process, address: usize, flags: usize) -> CallResult {
    if flags != 0 {
        return Err(Errno::EINVAL);
    }
    mm::admit()?;
    // Check the address for the numbers before they exist, so that an invalid address leaves
    // nothing open.
    let place = UserRange::new(address, 8).pin(&process.space, Access::Write)?;
    let (reader, writer) = fs::pipe(process.family)?;
    let (reader, writer) = (try_arc(File::PipeReader(reader))?, try_arc(File::PipeWriter(writer))?);
    let mut files = process.files.lock();
    files.reserve(2)?;
    let reader = files.insert(reader)?;
    let writer = files.insert(writer)?;
    place.write_at(0, &(reader as u32).to_le_bytes());
    place.write_at(4, &(writer as u32).to_le_bytes());
    Ok(0)
}

/// `getdents64(fd, buffer, length)`.
pub fn list(process: &Process, file: usize, address: usize, length: usize) -> CallResult {
    let file = process.files.lock().get(file)?;
    let mut bytes = [0; 1024];
    let length = length.min(bytes.len());
    let place = UserRange::new(address, length).pin(&process.space, Access::Write)?;
    let count = file.list(&mut bytes[..length])?;
    place.write_at(0, &bytes[..count]);
    Ok(count)
}

/// `lseek(fd, offset, whence)`.
pub fn seek(process: &Process, file: usize, offset: isize, whence: usize) -> CallResult {
    process.files.lock().get(file)?.seek(offset, whence)
}

/// `read(fd, buffer, length)`.
pub fn read(process: &Process, file: usize, address: usize, length: usize) -> Result<Operation, Errno> {
    let file = process.files.lock().get(file)?;
    let buffer = UserRange::new(address, length).pin(&process.space, Access::Write)?;
    Ok(match &*file {
        File::ConsoleInput => Operation::ReadConsole { read: ConsoleRead::new(buffer) },
        _ => Operation::Read { file, buffer },
    })
}

/// `write(fd, buffer, length)`.
pub fn write(process: &Process, file: usize, address: usize, length: usize) -> Result<Operation, Errno> {
    let file = process.files.lock().get(file)?;
    let buffer = UserRange::new(address, length).pin(&process.space, Access::Read)?;
    Ok(Operation::Write { file, buffer })
}
