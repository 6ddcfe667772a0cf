//! Processes: start, end, wait.
#![forbid(unsafe_code)]

use core::sync::atomic::Ordering::*;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::syscall::{WAIT_ALL, WCONTINUED, WNOHANG, WUNTRACED};
use cops_fallible::{Text, try_box};

use super::Reply;
use super::arguments::{Fork, NewThread};
use crate::arch::{SyscallFrame, UserContext};
use crate::call::Operation;
use crate::fs::{self, ConsoleMode};
use crate::mm::{self, Access, PinnedBuffer, UserRange};
use crate::process::resumable::{self, Resumable};
use crate::process::signals::sent_by;
use crate::process::spawn::Request;
use crate::process::{
    Begun, Executing, Forking, Outcome, Process, ProcessId, Releasing, Thread, VirtualCpu,
    WaitStatus, children,
};

/// Size of the status that `wait4` stores.
pub const STATUS_BYTES: usize = 4;

/// Size of Linux's `rusage`.
pub const USAGE_BYTES: usize = 144;
/// Options of `wait4`. No child stops, so those for stopped children change nothing.
pub const WAIT_OPTIONS: usize = WNOHANG | WUNTRACED | WCONTINUED | WAIT_ALL;

/// `exit(code)`. A thread releases its robust mutexes first, in portions.
pub fn exit_cpu(cpu: &VirtualCpu, frame: &SyscallFrame, code: u8) -> Reply {
    if let Some(thread) = cpu.as_thread() {
        let released = resumable::resume(cpu, frame, |process| {
            Ok(Resumable::Release(Releasing::new(process, thread)))
        });
        if released.is_none() {
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
    // It begins with the level of its creator.
    let priority = process.current_priority(cpu);
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

/// `kill(pid, signal)`: every signal except 0 ends a native program; a Linux program may handle it.
/// The process must be the caller's own or a descendant's.
pub fn kill(caller: &Process, id: ProcessId, signal: u8) -> CallResult {
    let process = children::find(id).ok_or(Errno::ESRCH)?;
    caller.check_authority_over(&process)?;
    if signal != 0 {
        process.signal(sent_by(caller.id, signal));
    }
    Ok(0)
}

/// `clone(flags, stack, ..)` of a process: starts a copy of it.
pub fn fork(
    cpu: &VirtualCpu,
    frame: &SyscallFrame,
    context: &mut UserContext,
    request: &Fork,
) -> Result<Option<usize>, Errno> {
    if cpu.index != 0 && cpu.process.personality.is_native() {
        // The child has a virtual CPU 0 only, and the library knows on which one it runs.
        return Err(Errno::EINVAL);
    }
    let child = resumable::resume(cpu, frame, |_| {
        context.save_floating_point();
        let copy =
            context.copy(frame.coroutine != 0, request.stack_pointer, request.thread_pointer);
        let (signals, number) = (cpu.signals.copy(), request.child_number);
        let forking = Forking::new(copy, signals, number, request.clear_at_end)?;
        Ok(Resumable::Fork(try_box(forking)?))
    });
    let child = child.transpose()?;
    if let (Some(child), Some(place)) = (child, request.parent_number) {
        // As on Linux, a bad address does not undo the start.
        let _ = cpu.process.space.copy_out(place, &(child as u32).to_le_bytes());
    }
    Ok(child)
}

/// `execve(path, argv, envp)`.
pub fn execute(
    cpu: &VirtualCpu,
    frame: &SyscallFrame,
    context: &mut UserContext,
    path: impl FnOnce() -> Result<Text, Errno>,
    request: Request,
) -> Result<Reply, Errno> {
    let begin = |_: &_| Ok(try_box(Executing::new(path()?, request))?);
    Ok(match resumable::execute(cpu, frame, begin).transpose()? {
        None => Reply::Again,
        Some(Begun::Here(program)) => {
            *context = program;
            // In the place of a result, the new program finds its argument.
            Reply::Done(Ok(context.argument()))
        }
        Some(Begun::ByNumber0) => Reply::Outcome(Outcome::Sleep),
    })
}

/// `console(pid or 0, mode)`.
pub fn hand_over_console(process: &Process, id: ProcessId, mode: ConsoleMode) -> CallResult {
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
        fs::release_console(id);
        return Err(Errno::ESRCH);
    }
    Ok(0)
}

/// `getppid()`.
pub fn parent(process: &Process) -> CallResult {
    Ok(process.parent.load(Relaxed) as usize)
}

/// `wait4(pid, *mut i32, options, *mut rusage or 0)`; what the child has used is reported as 0.
pub fn wait(
    process: &Process,
    child: Option<ProcessId>,
    status: Option<UserRange>,
    options: usize,
    usage: Option<UserRange>,
) -> Result<Operation, Errno> {
    if let Some(usage) = usage {
        process.space.copy_out(usage, &[0; USAGE_BYTES])?;
    }
    let pin = |range| PinnedBuffer::new(&process.space, range, Access::Write);
    let status = status.map(pin).transpose()?;
    Ok(Operation::WaitChild { child, status, no_hang: options & WNOHANG != 0 })
}
