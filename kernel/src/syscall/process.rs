//! Processes: start, end, wait.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::sync::atomic::Ordering::*;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::syscall::{ARGUMENT_BYTES_MAX, ARGUMENTS_MAX, PATH_BYTES_MAX, WNOHANG, wait_status};
use cops_fallible::{List, try_box};

use super::work::Work;
use super::{Outcome, Reply, scheduling};
use crate::call::Operation;
use crate::fs::{self, FileTable};
use crate::mm::{Access, UserRange};
use crate::task::{Loading, Process, VirtualCpu, children};

/// `exit(code)`.
pub fn exit_cpu(cpu: &VirtualCpu, code: usize) -> Reply {
    cpu.process.end_cpu(cpu, code as u8);
    Reply::Outcome(Outcome::Sleep)
}

/// `exit_group(code)`.
pub fn exit(cpu: &VirtualCpu, code: usize) -> Reply {
    cpu.process.end(wait_status::exited(code as u8));
    Reply::Outcome(Outcome::Yield)
}

/// `kill(pid, signal)`: there are no handlers, so every signal but 0 ends the process, which is the caller's own or a
/// descendant's.
pub fn kill(caller: &Process, id: usize, signal: usize) -> CallResult {
    const SIGNALS: usize = 64;
    if signal > SIGNALS {
        return Err(Errno::EINVAL);
    }
    let id = u32::try_from(id).map_err(|_| Errno::ESRCH)?;
    let process = children::find(id).ok_or(Errno::ESRCH)?;
    caller.check_authority_over(&process)?;
    if signal != 0 {
        process.end(wait_status::signalled(signal as u8));
    }
    Ok(0)
}

/// `console(pid or 0, mode)`.
pub fn hand_over_console(process: &Process, id: usize, mode: usize) -> CallResult {
    let mode = fs::console_mode(mode)?;
    let id = u32::try_from(id).map_err(|_| Errno::ESRCH)?;
    if id == 0 || id == process.id {
        return fs::hand_over_console(process.id, process.id, mode).map(|()| 0);
    }
    let child = children::find(id).ok_or(Errno::ESRCH)?;
    if child.parent.load(Relaxed) != process.id {
        return Err(Errno::EPERM);
    }
    fs::hand_over_console(process.id, id, mode)?;
    // The end of a process gives up its seat. If that came first, there is a seat now that belongs to nothing.
    if children::find(id).is_none() {
        fs::leave_console(id);
        return Err(Errno::ESRCH);
    }
    Ok(0)
}

/// `getppid()`.
pub fn parent(process: &Process) -> CallResult {
    Ok(process.parent.load(Relaxed) as usize)
}

/// `wait4(pid, *mut i32, options, 0)`.
pub fn wait(
    process: &Process,
    id: isize,
    status: usize,
    options: usize,
    usage: usize,
) -> Result<Operation, Errno> {
    let child = match id {
        -1 => None,
        1.. => Some(u32::try_from(id).map_err(|_| Errno::ECHILD)?),
        // Process groups do not exist.
        _ => return Err(Errno::EINVAL),
    };
    if options & !WNOHANG != 0 || usage != 0 {
        return Err(Errno::EINVAL);
    }
    let status = match status {
        0 => None,
        address => {
            let place = UserRange::new(address, 4).pin(&process.space, Access::Write)?;
            Some(place)
        }
    };
    Ok(Operation::WaitChild { child, status, no_hang: options & WNOHANG != 0 })
}

/// `spawn_process(path, argv, ceiling, console)`.
pub fn spawn(
    process: &Arc<Process>,
    path: usize,
    argv: usize,
    ceiling: usize,
    console: usize,
) -> Result<Work, Errno> {
    let console = console.checked_sub(1).map(fs::console_mode).transpose()?;
    let ceiling = match ceiling.checked_sub(1) {
        None => process.ceiling.level(),
        Some(level) => scheduling::ceiling_for_child(process, level)?,
    };
    let path = UserRange::copy_in_string(&process.space, path, PATH_BYTES_MAX - 1)?;
    let mut arguments = List::new();
    let mut bytes_left = ARGUMENT_BYTES_MAX;
    for index in 0.. {
        let place = argv.checked_add(index * size_of::<usize>()).ok_or(Errno::EFAULT)?;
        let mut pointer = [0; size_of::<usize>()];
        UserRange::new(place, pointer.len()).copy_in(&process.space, &mut pointer)?;
        let pointer = usize::from_le_bytes(pointer);
        if pointer == 0 {
            break;
        }
        if index >= ARGUMENTS_MAX {
            return Err(Errno::E2BIG);
        }
        // The zero at the end counts.
        let room = bytes_left.checked_sub(1).ok_or(Errno::E2BIG)?;
        let argument = match UserRange::copy_in_string(&process.space, pointer, room) {
            Err(Errno::ENAMETOOLONG) => return Err(Errno::E2BIG),
            argument => argument?,
        };
        bytes_left -= argument.len() + 1;
        arguments.try_push(argument.into_bytes())?;
    }
    let loading = Loading::new(&path, arguments, process.id, ceiling, FileTable::with_console()?)?
        .in_foreground(console);
    Ok(Work::Spawn(try_box(loading)?))
}
