//! Signals of Linux programs: what is to be done with them, which are blocked, and sending them to
//! a thread.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::linux::{MINSIGSTKSZ, SS_DISABLE, SS_ONSTACK, mask_change, signal_code};
use cops_abi::syscall as native;
use cops_algorithms::signals::{Action, FORCED, Information, Set};

use super::super::arguments::{Arguments, Clock};
use super::super::{Reply, submit, time};
use crate::arch::{SyscallFrame, UserContext};
use crate::call::Operation;
use crate::mm::UserRange;
use crate::process::signals::sent_to_thread;
use crate::process::{Linux, Process, ProcessId, VirtualCpu, children};

/// Size of a set of signals.
const SET_BYTES: usize = 8;
/// Size of what a program tells about a signal that it sends: the beginning of a `siginfo`.
const TOLD_BYTES: usize = 32;
/// Size of an action: handler, flags, mask.
const ACTION_BYTES: usize = 24;
/// Size of the description of a stack: address, flags, size.
const STACK_BYTES: usize = 24;

/// The words at `place`.
///
/// # Errors
/// `EFAULT`.
pub fn words<const COUNT: usize>(
    process: &Process,
    place: UserRange,
) -> Result<[u64; COUNT], Errno> {
    let mut words = [[0; 8]; COUNT];
    process.space.copy_in(place, words.as_flattened_mut())?;
    Ok(words.map(u64::from_le_bytes))
}

fn store<const COUNT: usize>(
    process: &Process,
    place: UserRange,
    words: [u64; COUNT],
) -> Result<(), Errno> {
    let bytes = words.map(u64::to_le_bytes);
    Ok(process.space.copy_out(place, bytes.as_flattened())?)
}

/// The size of a set, which a program passes with it; `EINVAL` for another one.
fn check_set_bytes(args: &Arguments<'_>, index: usize) -> Result<(), Errno> {
    if args.number(index) == SET_BYTES { Ok(()) } else { Err(Errno::EINVAL) }
}

/// The set at the address in an argument.
fn set(process: &Process, args: &Arguments<'_>, index: usize) -> Result<Set, Errno> {
    let [set] = words(process, args.structure(index, SET_BYTES)?)?;
    Ok(set)
}

/// `rt_sigaction(signal, *const action or 0, *mut action or 0, 8)`.
pub fn action(cpu: &VirtualCpu, linux: &Linux, args: &Arguments<'_>) -> CallResult {
    let process = &cpu.process;
    check_set_bytes(args, 3)?;
    let signal = args.signal(0)?;
    if signal == 0 {
        return Err(Errno::EINVAL);
    }
    let old_place = args.optional_structure(2, ACTION_BYTES)?;
    let new = match args.optional_structure(1, ACTION_BYTES)? {
        Some(place) => {
            let [handler, flags, mask] = words(process, place)?;
            Some(Action { handler: handler as usize, flags: flags as usize, mask })
        }
        None => None,
    };
    let old = match new {
        Some(new) => process.set_action(cpu, linux, signal, new)?,
        None => {
            let signals = linux.signals.lock();
            signals.as_ref().ok_or(Errno::ENOSYS)?.dispositions.get(signal)
        }
    };
    if let Some(place) = old_place {
        store(process, place, [old.handler as u64, old.flags as u64, old.mask])?;
    }
    Ok(0)
}

/// `rt_sigprocmask(how, *const set or 0, *mut set or 0, 8)`.
pub fn change_mask(cpu: &VirtualCpu, args: &Arguments<'_>) -> CallResult {
    check_set_bytes(args, 3)?;
    let process = &cpu.process;
    let old = cpu.signals.mask();
    if args.number(1) != 0 {
        let set = set(process, args, 1)?;
        let new = match args.number(0) {
            mask_change::BLOCK => old | set,
            mask_change::UNBLOCK => old & !set,
            mask_change::SET => set,
            _ => return Err(Errno::EINVAL),
        };
        process.pass_on(cpu, cpu.signals.set_mask(new));
    }
    if let Some(place) = args.optional_structure(2, SET_BYTES)? {
        store(process, place, [old])?;
    }
    Ok(0)
}

/// `rt_sigpending(*mut set, at most 8)`: stores as many bytes of the set.
pub fn pending(cpu: &VirtualCpu, linux: &Linux, args: &Arguments<'_>) -> CallResult {
    let bytes = Some(args.number(1)).filter(|&bytes| bytes <= SET_BYTES).ok_or(Errno::EINVAL)?;
    let of_process = linux.signals.lock().as_ref().map_or(0, |signals| signals.pending.set());
    let blocked = (of_process | cpu.signals.pending()) & cpu.signals.mask();
    let place = args.structure(0, bytes)?;
    cpu.process.space.copy_out(place, &blocked.to_le_bytes()[..bytes])?;
    Ok(0)
}

/// `rt_sigsuspend(*const set, 8)`: waits for ever, and a handler ends that.
pub fn suspend(cpu: &VirtualCpu, args: &Arguments<'_>) -> Result<Operation, Errno> {
    check_set_bytes(args, 1)?;
    let given_up = cpu.signals.suspend_with(set(&cpu.process, args, 0)?);
    cpu.process.pass_on(cpu, given_up);
    Ok(Operation::sleep_until(u64::MAX))
}

/// `rt_sigtimedwait(*const set, *mut siginfo or 0, *const timespec or 0, 8)`: takes a signal, which
/// the thread blocks, without calling a handler.
///
/// # Errors
/// `EAGAIN` if none has come in time; `EINVAL`, `EFAULT`.
pub fn wait_for_signal(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    check_set_bytes(args, 3)?;
    let process = &cpu.process;
    let signals = set(process, args, 0)? & !FORCED;
    let deadline_ticks = match args.optional_structure(2, time::TIMESPEC_BYTES)? {
        Some(duration) => time::deadline_ticks(process, Clock::Monotonic, 0, duration)?,
        None => u64::MAX,
    };
    if let Some(information) = process.take_signal_or_wait(cpu, signals)? {
        process.tell(args.number(1), &information)?;
        return Ok(Reply::Done(Ok(information.signal.into())));
    }
    let sleep = Operation::Sleep { deadline_ticks, timer: None, error: Some(Errno::EAGAIN) };
    Ok(submit(cpu, frame, sleep))
}

/// What a program wants another one to know about a signal that it sends.
///
/// # Errors
/// `EFAULT`; `EPERM` if it claims that the kernel or `kill` has sent it, and the receiver is
/// another process.
fn information(
    process: &Process,
    receiver: ProcessId,
    signal: u8,
    place: UserRange,
) -> Result<Information, Errno> {
    let [_, code, pid, value] = words(process, place)?;
    let code = code as i32;
    if (code >= 0 || code == signal_code::THREAD) && receiver != process.id {
        return Err(Errno::EPERM);
    }
    Ok(Information { signal, code, fields: [pid, value] })
}

/// `rt_sigqueueinfo(pid, signal, *const siginfo)`.
///
/// # Errors
/// `EAGAIN` if too many signals wait; `ESRCH`, `EPERM`, `EINVAL`, `EFAULT`.
pub fn queue(caller: &Process, args: &Arguments<'_>) -> CallResult {
    let (id, signal) = (args.process_id(0)?, args.signal(1)?);
    let information = information(caller, id, signal, args.structure(2, TOLD_BYTES)?)?;
    let Some(receiver) = children::find(id) else { return children::kinship(id).map(|_| 0) };
    caller.check_authority_over(&receiver)?;
    if signal != 0 {
        receiver.queue_signal(information)?;
    }
    Ok(0)
}

/// The signals that `ppoll`, `pselect6` or `epoll_pwait` blocks while it waits; `None`: as before.
pub fn mask_of_wait(
    process: &Process,
    call: usize,
    args: &Arguments<'_>,
) -> Result<Option<Set>, Errno> {
    let (place, bytes) = match call {
        native::PPOLL => (args.number(3), args.number(4)),
        native::EPOLL_PWAIT => (args.number(4), args.number(5)),
        native::PSELECT6 => match args.optional_structure(5, 16)? {
            Some(pair) => {
                let [place, bytes] = words(process, pair)?;
                (place as usize, bytes as usize)
            }
            None => return Ok(None),
        },
        _ => return Ok(None),
    };
    if place == 0 {
        return Ok(None);
    }
    if bytes != SET_BYTES {
        return Err(Errno::EINVAL);
    }
    let [set] = words(process, UserRange::new(place, SET_BYTES).ok_or(Errno::EFAULT)?)?;
    Ok(Some(set))
}

/// `sigaltstack(*const stack or 0, *mut stack or 0)`.
pub fn alternate_stack(
    cpu: &VirtualCpu,
    context: &UserContext,
    args: &Arguments<'_>,
) -> CallResult {
    let process = &cpu.process;
    let new = match args.optional_structure(0, STACK_BYTES)? {
        Some(place) => Some(words::<3>(process, place)?),
        None => None,
    };
    let mut state = cpu.signals.lock();
    let old = state.describe_stack(context.stack_pointer());
    if let Some([start, flags, bytes]) = new {
        if state.is_on_stack(context.stack_pointer()) {
            return Err(Errno::EPERM);
        }
        // The upper half of the word is padding.
        state.stack = match flags & u64::from(u32::MAX) {
            SS_DISABLE => (0, 0),
            0 | SS_ONSTACK if (bytes as usize) < MINSIGSTKSZ => return Err(Errno::ENOMEM),
            0 | SS_ONSTACK => (start as usize, bytes as usize),
            _ => return Err(Errno::EINVAL),
        };
    }
    drop(state);
    if let Some(place) = args.optional_structure(1, STACK_BYTES)? {
        store(process, place, old)?;
    }
    Ok(0)
}

/// `tkill(thread, signal)` and `tgkill(process, thread, signal)`: to a thread of the caller's
/// process.
///
/// # Errors
/// `EINVAL` for a number that is 0 or negative, `ESRCH` for others that are not those of a thread.
pub fn signal_thread(
    process: &Arc<Process>,
    group: Option<usize>,
    thread: usize,
    signal: u8,
) -> CallResult {
    let number = |id: usize| u32::try_from(id as i32).ok().filter(|&id| id > 0);
    let thread = number(thread).ok_or(Errno::EINVAL)?;
    if let Some(group) = group
        && number(group).ok_or(Errno::EINVAL)? != process.id
    {
        return Err(Errno::ESRCH);
    }
    let thread = process.thread(thread).ok_or(Errno::ESRCH)?;
    if signal != 0 {
        process.signal_cpu(&thread, sent_to_thread(process.id, signal))?;
    }
    Ok(0)
}
