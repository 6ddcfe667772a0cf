//! Processes: start, end, wait.
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::*;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::syscall::{WNOHANG, wait_status};

use super::{Outcome, Reply};
use crate::call::Operation;
use crate::fs;
use crate::mm::{Access, UserRange};
use crate::process::{Process, VirtualCpu, children};

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

/// `kill(pid, signal)`: there are no handlers, so every signal except 0 ends the process, which
/// must be the caller's own or a descendant's.
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
    // A process that ends gives up its seat. If it had already ended, the seat just taken belongs
    // to no process.
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
        // There are no process groups.
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
