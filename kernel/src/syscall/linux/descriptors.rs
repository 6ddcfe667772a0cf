//! `close_range`, `memfd_create`, `fallocate` and `sync_file_range`.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::open;
use cops_abi::linux::{close_range, memory_file, sync_range};
use cops_fallible::try_arc;

use super::super::arguments::Arguments;
use super::super::{Reply, file, submit};
use crate::arch::SyscallFrame;
use crate::fs::{self, File, Object};
use crate::mm;
use crate::process::resumable::{self, Resumable};
use crate::process::{Process, VirtualCpu};

/// `close_range(first, last, flags)`, in portions. The threads of a process have one table, so only
/// a process with one thread can have `CLOSE_RANGE_UNSHARE`.
///
/// # Errors
/// `EINVAL`.
pub fn close_range(
    cpu: &VirtualCpu,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    // The numbers are `unsigned int`.
    let (first, last) = (args.number(0) as u32 as usize, args.number(1) as u32 as usize);
    let flags = args.flags(2, close_range::UNSHARE | close_range::CLOSE_ON_EXEC)?;
    let has_threads = cpu.process.has_had_threads();
    if first > last || flags & close_range::UNSHARE != 0 && has_threads {
        return Err(Errno::EINVAL);
    }
    let marks = flags & close_range::CLOSE_ON_EXEC != 0;
    let close = |_: &_| Ok(Resumable::CloseFiles { next: first, last, marks });
    Ok(resumable::resume(cpu, frame, close).into())
}

/// `memfd_create(name, flags)`: a file in memory without a name. The process pays for the file and
/// for what is written to it.
///
/// # Errors
/// `EINVAL` for a long name and for other flags, those for seals among them; `EFAULT`, `EMFILE`,
/// `ENOMEM`, `ENOSPC` if the quota is used up.
pub fn make_memory_file(process: &Process, args: &Arguments<'_>) -> CallResult {
    let flags = args.flags(1, memory_file::CLOSE_ON_EXEC | memory_file::EXECUTABLE)?;
    let name = process.space.copy_in_string(args.number(0), memory_file::NAME_BYTES);
    // The name has no use here.
    drop(name.map_err(|error| match error {
        Errno::ENAMETOOLONG => Errno::EINVAL,
        other => other,
    })?);
    mm::admit()?;
    let node = fs::make_nameless(process.family)?;
    let file = try_arc(File::of_node(node, open::READ_WRITE, process.family)?)?;
    let closes = flags & memory_file::CLOSE_ON_EXEC != 0;
    process.files.lock().insert(file, closes).map(|file| file.0)
}

/// `fallocate(fd, mode, offset, length)`: no file system can reserve a range. That is not `ENOSYS`,
/// for which `posix_fallocate` fails; now it writes to each block instead.
///
/// # Errors
/// `EOPNOTSUPP`; before, `EBADF` for a file that is not open for writing, `EINVAL` for a range that
/// is none, `ESPIPE` for a pipe and `ENODEV` for anything else that is no file.
pub fn reserve_range(args: &Arguments<'_>) -> CallResult {
    let file = args.file(0)?;
    let (offset, length) = (args.signed(2), args.signed(3));
    if offset < 0 || length <= 0 {
        return Err(Errno::EINVAL);
    }
    if !file.is_writable() {
        return Err(Errno::EBADF);
    }
    Err(match &file.object {
        Object::PipeReader(_) | Object::PipeWriter(_) => Errno::ESPIPE,
        Object::Node { .. } | Object::Served(_) if offset.checked_add(length).is_none() => {
            Errno::EFBIG
        }
        Object::Node { .. } | Object::Served(_) => Errno::EOPNOTSUPP,
        _ => Errno::ENODEV,
    })
}

/// `sync_file_range(fd, offset, length, flags)`: `fdatasync`, whatever the range is.
///
/// # Errors
/// `EINVAL` for other flags and a range that is none; `ESPIPE` for what is no file; those of
/// `fdatasync`.
pub fn synchronise_range(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    let file = args.file(0)?;
    let flags =
        args.flags(3, sync_range::WAIT_BEFORE | sync_range::WRITE | sync_range::WAIT_AFTER)?;
    let (offset, length) = (args.signed(1), args.signed(2));
    if offset < 0 || offset.checked_add(length).is_none_or(|end| end < offset) {
        return Err(Errno::EINVAL);
    }
    let synchronise = file::synchronise(&file).map_err(|error| match error {
        Errno::EINVAL => Errno::ESPIPE,
        other => other,
    })?;
    Ok(if flags == 0 { Reply::Done(Ok(0)) } else { submit(cpu, frame, synchronise) })
}
