//! Descriptors: duplicates, flags, and requests to devices.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::{control, ioctl, open};

use super::arguments::Arguments;
use super::{Reply, terminal};
use crate::arch::SyscallFrame;
use crate::fs::{Descriptor, File};
use crate::process::{Process, VirtualCpu};

/// `dup(fd)`.
#[inline(never)]
pub fn duplicate(process: &Process, file: Arc<File>) -> CallResult {
    process.files.lock().insert(file, false).map(|file| file.0)
}

/// `dup3(fd, new fd, flags)`.
#[inline(never)]
pub fn duplicate_at(
    process: &Process,
    from: Descriptor,
    to: Descriptor,
    flags: usize,
) -> CallResult {
    if from == to {
        return Err(Errno::EINVAL);
    }
    let closes = flags & open::CLOSE_ON_EXEC as usize != 0;
    let mut files = process.files.lock();
    let file = files.get(from)?;
    let before = files.insert_at(to, file, closes)?;
    drop(files);
    if let Some(before) = before {
        process.close(before);
    }
    Ok(to.0)
}

/// `fcntl(fd, command, argument)`.
#[inline(never)]
pub fn control(
    process: &Process,
    descriptor: Descriptor,
    command: usize,
    argument: usize,
) -> CallResult {
    let mut files = process.files.lock();
    let file = files.get(descriptor)?;
    match command {
        control::DUPLICATE | control::DUPLICATE_CLOSE_ON_EXEC => {
            let closes = command == control::DUPLICATE_CLOSE_ON_EXEC;
            files.insert_from(Descriptor(argument), file, closes).map(|file| file.0)
        }
        control::GET_DESCRIPTOR_FLAGS => Ok(files.closes_on_exec(descriptor)?.into()),
        control::SET_DESCRIPTOR_FLAGS => {
            files.set_close_on_exec(descriptor, argument & control::CLOSE_ON_EXEC != 0)?;
            Ok(0)
        }
        control::GET_FLAGS => Ok(file.flags() as usize),
        control::SET_FLAGS => {
            file.set_flags(argument as u32);
            Ok(0)
        }
        _ => Err(Errno::EINVAL),
    }
}

/// `ioctl(fd, request, argument)`, of which the argument, number 2, depends on the request.
#[inline(never)]
pub fn request(
    cpu: &VirtualCpu,
    frame: &SyscallFrame,
    descriptor: Descriptor,
    request: usize,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    let process = &cpu.process;
    let file = process.files.lock().get(descriptor)?;
    if file.is_terminal() && request == ioctl::LEAVE_TERMINAL {
        return Ok(terminal::leave(cpu, frame));
    }
    if file.reads_console() && request == ioctl::UNREAD_BYTES {
        return terminal::store_unread(cpu, args);
    }
    control_device(cpu, descriptor, &file, request, args).map(|result| Reply::Done(Ok(result)))
}

fn control_device(
    cpu: &VirtualCpu,
    descriptor: Descriptor,
    file: &File,
    request: usize,
    args: &Arguments<'_>,
) -> CallResult {
    let process = &cpu.process;
    let put = |bytes: &[u8]| {
        process.space.copy_out(args.structure(2, bytes.len())?, bytes)?;
        Ok(0)
    };
    match request {
        ioctl::UNREAD_BYTES => put(&(file.unread_bytes()? as u32).to_le_bytes()),
        ioctl::SET_NON_BLOCKING => {
            let mut on = [0; 4];
            process.space.copy_in(args.structure(2, on.len())?, &mut on)?;
            let others = file.flags() & !open::NON_BLOCKING;
            file.set_flags(if on == [0; 4] { others } else { others | open::NON_BLOCKING });
            Ok(0)
        }
        ioctl::CLEAR_CLOSE_ON_EXEC | ioctl::SET_CLOSE_ON_EXEC => {
            let closes = request == ioctl::SET_CLOSE_ON_EXEC;
            process.files.lock().set_close_on_exec(descriptor, closes)?;
            Ok(0)
        }
        _ if !file.is_terminal() => Err(Errno::ENOTTY),
        _ => terminal::request(cpu, request, args),
    }
}
