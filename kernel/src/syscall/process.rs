//! Processes: start, end, wait.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::sync::atomic::Ordering::*;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::linux::waitid;
use cops_abi::syscall::{WAIT_ALL, WCONTINUED, WNOHANG, WUNTRACED};
use cops_algorithms::kin::Which;
use cops_fallible::{Text, try_box};

use super::arguments::{Fork, NewThread};
use super::{Reply, wait_for_answer};
use crate::arch::{SyscallFrame, UserContext};
use crate::call::{ChildWait, Operation, USAGE_BYTES};
use crate::fs::terminal;
use crate::mm::{self, Access, Copying, PinnedBuffer, UserRange};
use crate::process::resumable::{self, Resumable};
use crate::process::signals::sent_by;
use crate::process::spawn::Request;
use crate::process::{
    Begun, Executing, Forking, Outcome, PersonalityKind, Portion, Process, ProcessId, Releasing,
    Signalling, Target, Thread, VirtualCpu, WaitStatus, children,
};

/// Size of the status that `wait4` stores.
pub const STATUS_BYTES: usize = 4;

/// Options of `wait4`.
pub const WAIT_OPTIONS: usize = WNOHANG | WUNTRACED | WCONTINUED | WAIT_ALL;
/// Options of `waitid`.
pub const WAITID_OPTIONS: usize = WAIT_OPTIONS | waitid::EXITED | waitid::NO_WAIT;

/// `exit(code)`. A thread releases its robust mutexes first, in portions.
pub fn exit_cpu(cpu: &VirtualCpu, frame: &SyscallFrame, code: u8) -> Reply {
    if let Some(thread) = cpu.as_thread() {
        let released = resumable::resume(cpu, frame, |process| {
            Ok(Resumable::Release(Releasing::new(process, thread)))
        });
        if released.is_none() {
            return Reply::Again;
        }
        // Once. Then locks with priority inheritance, robust or not, one in each portion.
        thread.robust_list.store(0, Relaxed);
        if cpu.process.leave_a_lock(cpu) {
            return Reply::Again;
        }
        cpu.process.clear_at_end(thread);
    }
    cpu.process.end_cpu(cpu, code);
    Reply::Outcome(Outcome::Sleep)
}

/// `clone(flags, stack, ..)` of a thread. Returns its id.
pub fn start_thread(
    cpu: &VirtualCpu,
    frame: &SyscallFrame,
    context: &mut UserContext,
    request: &NewThread,
) -> CallResult {
    mm::admit()?;
    let process = &cpu.process;
    // It begins with the level of its creator, but inherits nothing.
    let priority = match cpu.as_thread() {
        Some(thread) => process.ceiling.cap(thread.base_priority()),
        None => process.current_priority(cpu),
    };
    let thread = Thread::new(priority, request.clear_at_end);
    let id = thread.id;
    // Before it runs. As on Linux, a bad address does not prevent the start.
    for place in request.numbers.into_iter().flatten() {
        let _ = process.space.copy_out(place, &id.to_le_bytes());
    }
    context.save_floating_point();
    let is_asynchronous = frame.coroutine != 0;
    let copy = context.copy(is_asynchronous, request.stack_pointer, request.thread_pointer);
    process.add_thread(copy, thread, cpu.signals.of_new_thread())?;
    Ok(id as usize)
}

/// `exit_group(code)`.
pub fn exit(cpu: &VirtualCpu, code: u8) -> Reply {
    cpu.process.end(WaitStatus::exited(code));
    Reply::Outcome(Outcome::Yield)
}

/// `kill(pid, signal)`. The process must be the caller's own or a descendant's; of many processes,
/// those that are not get nothing.
pub fn kill(
    cpu: &VirtualCpu,
    frame: &SyscallFrame,
    to: Result<ProcessId, Target>,
    signal: u8,
) -> Reply {
    match to {
        Ok(id) => kill_one(&cpu.process, id, signal).into(),
        Err(target) => resumable::resume(cpu, frame, |_| {
            Ok(Resumable::Signal(Signalling::new(target, signal)))
        })
        .into(),
    }
}

/// `kill(pid, signal)` of one process.
pub fn kill_one(caller: &Process, id: ProcessId, signal: u8) -> CallResult {
    let Some(process) = children::find(id) else {
        // As on Linux, one that has ended and was not waited for takes every signal. A native
        // program learns that it has ended.
        if caller.personality.is_native() {
            return Err(Errno::ESRCH);
        }
        return children::kinship(id).map(|_| 0);
    };
    caller.check_authority_over(&process)?;
    if signal != 0 {
        process.signal(sent_by(caller.id, signal));
    }
    Ok(0)
}

/// `setpgid(pid, group)`.
pub fn set_group(process: &Process, id: usize, group: usize) -> CallResult {
    let id = if id as i32 == 0 { process.id as i32 } else { id as i32 };
    let group = if group as i32 == 0 { id } else { group as i32 };
    let group = ProcessId::try_from(group).map_err(|_| Errno::EINVAL)?;
    let id = ProcessId::try_from(id).map_err(|_| Errno::ESRCH)?;
    children::set_group(process.id, id, group)?;
    // A read of the process may wait for the foreground, or be in it no more.
    terminal::wake_readers();
    Ok(0)
}

/// `setsid()`.
pub fn begin_session(process: &Process) -> CallResult {
    children::begin_session(process.id)?;
    terminal::wake_readers();
    Ok(process.id as usize)
}

/// `clone(flags, stack, ..)` of a process: starts a copy of it.
pub fn fork(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    context: &mut UserContext,
    request: &Fork,
) -> Result<Reply, Errno> {
    // The records that a native program's library has in its pages are not for two processes.
    let is_linux = cpu.process.personality.kind() == PersonalityKind::Linux;
    let copying = if request.borrows && is_linux { Copying::Lend } else { Copying::Copy };
    if cpu.index != 0 && cpu.process.personality.is_native() {
        // The child has a virtual CPU 0 only, and the library knows on which one it runs.
        return Err(Errno::EINVAL);
    }
    let forked = resumable::fork(cpu, frame, |_| {
        context.save_floating_point();
        let copy =
            context.copy(frame.coroutine != 0, request.stack_pointer, request.thread_pointer);
        let (signals, number) = (cpu.signals.copy(), request.child_number);
        if copying == Copying::Lend {
            cpu.process.space.prepare_to_lend(context.stack_pointer());
        }
        let clear_at_end = request.clear_at_end;
        let forking = Forking::new(cpu, copy, signals, number, clear_at_end, copying)?;
        Ok(try_box(forking)?)
    });
    let (child, lending) = match forked {
        Ok(Some(forked)) => forked,
        Ok(None) | Err(Errno::ERESTARTSYS) => return Ok(Reply::Again),
        Err(error) => return Err(error),
    };
    if let Some(place) = request.parent_number {
        // As on Linux, a bad address does not undo the start.
        let _ = cpu.process.space.copy_out(place, &child.to_le_bytes());
    }
    let Some(lending) = lending else { return Ok(Reply::Done(Ok(child as usize))) };
    let reply = super::submit(cpu, frame, Operation::Lent(lending));
    if let Reply::Done(Err(_)) = reply {
        // Another virtual CPU may already be waiting for the child, which is not started.
        cpu.process.child_ended.wake_all();
    }
    Ok(reply)
}

/// `execve(path, argv, envp)`.
pub fn execute(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    context: &mut UserContext,
    path: impl FnOnce() -> Result<Text, Errno>,
    request: Request,
) -> Result<Reply, Errno> {
    let begin = |_: &_| Ok(try_box(Executing::new(path()?, request))?);
    Ok(match resumable::execute(cpu, frame, context, begin)? {
        Portion::More => Reply::Again,
        Portion::Waits => wait_for_answer(cpu, context),
        // In the place of a result, the new program finds its argument.
        Portion::Done(Begun::Here) => Reply::Done(Ok(context.argument())),
        Portion::Done(Begun::ByNumber0) => Reply::Outcome(Outcome::Sleep),
    })
}

/// `getppid()`.
pub fn parent(process: &Process) -> CallResult {
    Ok(process.parent.load(Relaxed) as usize)
}

/// `wait4(pid, *mut i32, options, *mut rusage or 0)`.
pub fn wait(
    process: &Process,
    which: Which,
    status: Option<UserRange>,
    options: usize,
    usage: Option<UserRange>,
) -> Result<Operation, Errno> {
    let into = places(process, status, usage)?;
    let has = |option| options & option != 0;
    let wanted = ChildWait::set_of(true, has(WUNTRACED), has(WCONTINUED))?;
    let no_hang = has(WNOHANG);
    let (keeps, is_information) = (false, false);
    let wait = ChildWait { which, wanted, no_hang, keeps, into, usage, is_information };
    Ok(Operation::WaitChild(try_box(wait)?))
}

/// `waitid(which, id, *mut siginfo or 0, options, *mut rusage or 0)`.
pub fn wait_for_information(
    process: &Process,
    (kind, id): (usize, usize),
    information: Option<UserRange>,
    options: usize,
    usage: Option<UserRange>,
) -> Result<Operation, Errno> {
    let has = |option| options & option != 0;
    let wanted = ChildWait::set_of(has(waitid::EXITED), has(WUNTRACED), has(WCONTINUED))?;
    let number = ProcessId::try_from(id as i32).map_err(|_| Errno::EINVAL);
    let which = match kind {
        waitid::ALL => Which::Any,
        waitid::PROCESS => Which::Child(number.ok().filter(|&id| id > 0).ok_or(Errno::EINVAL)?),
        waitid::GROUP => match number? {
            0 => Which::Group(process.group.load(Relaxed)),
            group => Which::Group(group),
        },
        _ => return Err(Errno::EINVAL),
    };
    let into = places(process, information, usage)?;
    let (no_hang, keeps) = (has(WNOHANG), has(waitid::NO_WAIT));
    let is_information = true;
    let wait = ChildWait { which, wanted, no_hang, keeps, into, usage, is_information };
    Ok(Operation::WaitChild(try_box(wait)?))
}

/// Checks where the usage will be, by storing an empty one, and pins where the status will be.
fn places(
    process: &Process,
    status: Option<UserRange>,
    usage: Option<UserRange>,
) -> Result<Option<PinnedBuffer>, Errno> {
    if let Some(usage) = usage {
        process.space.copy_out(usage, &[0; USAGE_BYTES])?;
    }
    let pin = |range| PinnedBuffer::new(&process.space, range, Access::Write);
    Ok(status.map(pin).transpose()?)
}
