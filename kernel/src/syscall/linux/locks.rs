//! Locks of files: `flock`, and the commands of `fcntl` for ranges.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::linux::file_lock::{self, FileLock, whole};
use cops_fallible::try_box;

use super::super::arguments::Arguments;
use super::super::{Reply, submit};
use crate::arch::SyscallFrame;
use crate::call::{FileLockCall, LockAction, Operation, Part};
use crate::fs::file_locks::Kind;
use crate::mm::{self, Access, PinnedBuffer};
use crate::process::VirtualCpu;

/// `flock(fd, operation)`.
///
/// # Errors
/// `EBADF`, `EINVAL`, `ENOMEM`.
pub fn lock_whole(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    let (file, operation) = (args.file(0)?, args.number(1));
    let waits = operation & whole::NON_BLOCKING == 0;
    let action = match operation & !whole::NON_BLOCKING {
        whole::SHARED => LockAction::Set { kind: Kind::Shared, waits },
        whole::EXCLUSIVE => LockAction::Set { kind: Kind::Exclusive, waits },
        whole::UNLOCK => LockAction::Unset,
        _ => return Err(Errno::EINVAL),
    };
    begin(cpu, frame, FileLockCall::new(file, None, Part::Whole, action))
}

/// `fcntl(fd, command, *mut flock)`; `None`: it is another command.
///
/// # Errors
/// `EBADF`, also for a file that is not open for this; `EFAULT`, `EINVAL`, `ENOMEM`.
pub fn lock_range(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Option<Reply>, Errno> {
    let command = args.number(1);
    let (asks, waits) = match command {
        file_lock::GET | file_lock::GET_OF_FILE => (true, false),
        file_lock::SET | file_lock::SET_OF_FILE => (false, false),
        file_lock::SET_AND_WAIT | file_lock::SET_OF_FILE_AND_WAIT => (false, true),
        _ => return Ok(None),
    };
    let is_of_file = command >= file_lock::GET_OF_FILE;
    let (file, space) = (args.file(0)?, &cpu.process.space);
    let range = args.structure(2, FileLock::BYTES)?;
    let mut bytes = [0; FileLock::BYTES];
    space.copy_in(range, &mut bytes)?;
    let lock = FileLock::from_bytes(&bytes);
    let kind = match lock.kind {
        file_lock::READ => Some(Kind::Shared),
        file_lock::WRITE => Some(Kind::Exclusive),
        file_lock::UNLOCK if !asks => None,
        _ => return Err(Errno::EINVAL),
    };
    if is_of_file && lock.process != 0 {
        return Err(Errno::EINVAL);
    }
    let action = match kind {
        Some(kind) if asks => {
            mm::admit()?;
            LockAction::Ask { kind, into: PinnedBuffer::new(space, range, Access::Write)? }
        }
        Some(Kind::Shared) if !file.is_readable() => return Err(Errno::EBADF),
        Some(Kind::Exclusive) if !file.is_writable() => return Err(Errno::EBADF),
        Some(kind) => LockAction::Set { kind, waits },
        None => LockAction::Unset,
    };
    let part = Part::Range { whence: lock.whence, start: lock.start, length: lock.length };
    let descriptor = if is_of_file { None } else { Some(args.descriptor(0)) };
    begin(cpu, frame, FileLockCall::new(file, descriptor, part, action)).map(Some)
}

/// Most calls do not wait, and need no memory of their own.
fn begin(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    mut call: FileLockCall,
) -> Result<Reply, Errno> {
    if let Some(result) = call.attempt(&cpu.process) {
        return Ok(result.into());
    }
    mm::admit()?;
    call.begin_waiting(cpu.process.family)?;
    Ok(submit(cpu, frame, Operation::FileLock(try_box(call)?)))
}
