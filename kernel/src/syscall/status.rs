//! What is known of a file: `stat` and its relatives.
#![forbid(unsafe_code)]

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::{Status, at, open};
use cops_fallible::Text;

use super::arguments::Directory;
use crate::fs::{Descriptor, File};
use crate::mm::{self, UserRange};
use crate::process::Process;

/// Flags of `newfstatat`.
pub const STATUS_FLAGS: usize = at::NO_FOLLOW | at::NO_AUTOMOUNT | at::EMPTY_PATH;
/// Flags of `statx`.
pub const EXTENDED_FLAGS: usize = STATUS_FLAGS | at::SYNCHRONISATION;
/// Flags of `faccessat2`.
pub const ACCESS_FLAGS: usize = at::NO_FOLLOW | at::EFFECTIVE | at::EMPTY_PATH;
/// Modes of `faccessat`: to execute, write and read.
pub const ACCESS_MODES: usize = 7;
const ACCESS_WRITE: usize = 2;

/// `fstat(fd, *mut stat)`.
pub fn of_file(process: &Process, file: &File, into: UserRange) -> CallResult {
    process.space.copy_out(into, &file.status().to_bytes())?;
    Ok(0)
}

/// The status of what a directory and a path name.
fn named(
    process: &Process,
    (descriptor, directory): (Descriptor, Directory),
    path: &Text,
    flags: usize,
) -> Result<Status, Errno> {
    mm::admit()?;
    let is_relative = !path.starts_with('/');
    match directory {
        Directory::Other if path.is_empty() && flags & at::EMPTY_PATH != 0 => {
            Ok(process.files.lock().get(descriptor)?.status())
        }
        Directory::Other if is_relative => {
            process.files.lock().get(descriptor)?;
            Err(Errno::ENOTDIR)
        }
        _ if path.is_empty() && flags & at::EMPTY_PATH == 0 => Err(Errno::ENOENT),
        _ => Ok(File::open(path, open::READ_ONLY)?.status()),
    }
}

/// `newfstatat(directory, path, *mut stat, flags)`.
pub fn of_path(
    process: &Process,
    directory: (Descriptor, Directory),
    path: &Text,
    into: UserRange,
    flags: usize,
) -> CallResult {
    let status = named(process, directory, path, flags)?;
    process.space.copy_out(into, &status.to_bytes())?;
    Ok(0)
}

/// `statx(directory, path, flags, mask, *mut statx)`: all that is known, whatever the mask is.
pub fn extended(
    process: &Process,
    directory: (Descriptor, Directory),
    path: &Text,
    flags: usize,
    into: UserRange,
) -> CallResult {
    let status = named(process, directory, path, flags)?;
    process.space.copy_out(into, &status.to_extended_bytes())?;
    Ok(0)
}

/// `faccessat(directory, path, mode)` and `faccessat2`. The only user may do everything, except
/// write to the root image.
pub fn access(
    process: &Process,
    directory: (Descriptor, Directory),
    path: &Text,
    mode: usize,
    flags: usize,
) -> CallResult {
    named(process, directory, path, flags)?;
    if mode & ACCESS_WRITE != 0 { Err(Errno::EROFS) } else { Ok(0) }
}
