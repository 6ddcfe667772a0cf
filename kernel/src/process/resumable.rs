//! Resumable system calls: long computations, executed in portions of some microseconds, between
//! which other coroutines and virtual CPUs may run.
//!
//! After a portion the virtual CPU returns to its call instruction as if it had not made the call
//! yet, and the progress is kept for the repeated call. There it can be preempted, is charged for
//! its time, and can end with its process as anywhere else. The program does not notice any of
//! this.
//!
//! The start of a program may have to wait for the server of a file system ([`Portion::Waits`]).
//! Then the virtual CPU sleeps before it repeats the call (decision 49).
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;

use cops_abi::errno::CallResult;
use cops_abi::syscall::signal;
use cops_abi::{Errno, Priority};

use super::fork::Forked;
use super::spawn::Spawning;
use super::undelivered::calls;
use super::{
    Begun, Executing, Forking, Lending, Process, ProcessId, Releasing, Signalling, Sweeping,
    VirtualCpu, children, groups,
};
use crate::arch::{SyscallFrame, UserContext};
use crate::fs::SharedAsk;
use crate::mm::quota::Family;
use crate::mm::{MapError, Move, Replacement, Rights, Source};
use crate::trace;

/// A resumable call, with what is left of it.
pub enum Resumable {
    /// Unmap this range.
    Unmap(Range<usize>),
    /// Unmap this range, which a Linux program's `brk` or `mremap` frees, and return this address.
    Shrink(Range<usize>, usize),
    /// Map this there, in place of what is mapped there; the result is the address.
    Replace { place: Replacement, rights: Rights, source: Source },
    /// Wake or move waiters on a futex.
    Sweep(Sweeping),
    /// Release the robust mutexes of a thread that is ending.
    Release(Option<Releasing>),
    /// Move a mapping to other addresses.
    Move(Box<Move>),
    /// Free the pages of this range, and fail if something in it is not mapped.
    Discard { rest: Range<usize>, has_gap: bool },
    /// Give these rights to this range.
    Protect(Range<usize>, Rights),
    /// Load a program and start it, with [`spawn`].
    Spawn(Box<Spawning>),
    /// Replace the program of the process, with [`execute`].
    Exec(Box<Executing>),
    /// Start a copy of the process.
    Fork(Box<Forking>),
    /// Move the virtual CPUs of this process forward, from this number on, because its ceiling has
    /// become more urgent; then lower the ceilings of the processes of this family, from this
    /// number on, to this level; then renew the priorities of their calls in flight, from this cell
    /// on.
    Lower {
        raised: Option<(ProcessId, usize)>,
        family: Family,
        priority: Priority,
        next: Option<ProcessId>,
        cell: usize,
    },
    /// Send a signal to many processes.
    Signal(Signalling),
    /// Send this signal and the next one, if it is `SIGHUP`, to a group that has lost its terminal:
    /// to its members from this number on.
    HangUp { group: ProcessId, signal: u8, next: ProcessId },
    /// Close the files with these numbers, or let `execve` do that.
    CloseFiles { next: usize, last: usize, marks: bool },
    /// Allocate the trace's rings, and switch tracing on.
    Trace(trace::Making),
}

/// The outcome of a portion.
pub enum Portion<T> {
    /// That was the last one.
    Done(T),
    /// There is more to do.
    More,
    /// It is to be repeated when a server has replied to a request that it has prepared.
    Waits,
}

/// A resumable call between two portions, and the registers that requested it.
pub struct Unfinished {
    frame: SyscallFrame,
    call: Resumable,
}

/// Whether `cpu` has begun the work that `frame` requests, and it is not complete.
pub fn is_unfinished(cpu: &VirtualCpu, frame: &SyscallFrame) -> bool {
    cpu.unfinished.lock().as_ref().is_some_and(|unfinished| unfinished.frame == *frame)
}

/// Whether `cpu` is at the instruction of a call between two portions of it, and no handler may
/// come between them: if the handler makes another such call, this one begins anew, and what its
/// first portions have done cannot be done twice. Another thread may have mapped something where
/// `munmap` has been; a signal has been sent; addresses have been reserved. Or the handler would
/// wait for a virtual CPU that is held for this call, or handle a signal that the child gets too.
pub fn comes_first(cpu: &VirtualCpu) -> bool {
    cpu.unfinished.lock().as_ref().is_some_and(|unfinished| match &unfinished.call {
        // What they have made until then is dropped, or is the same the second time. A load may
        // wait for a server, and a library starts programs while urgent coroutines come and go.
        Resumable::Spawn(_)
        | Resumable::Exec(_)
        | Resumable::Lower { .. }
        | Resumable::Trace(_) => false,
        _ => true,
    })
}

/// Executes a portion of the work that `frame` requests; `begin` creates the work if it has not
/// begun yet. `None` if there is more to do.
///
/// If the same virtual CPU makes another such call in between, which only a handler of its
/// interrupts can do ([`comes_first`]), the work begins again from the start.
pub fn resume(
    cpu: &VirtualCpu,
    frame: &SyscallFrame,
    begin: impl FnOnce(&Arc<Process>) -> Result<Resumable, Errno>,
) -> Option<CallResult> {
    advance_call(cpu, frame, begin, |call| call.resume(cpu), Option::is_some)
        .unwrap_or_else(|error| Some(Err(error)))
}

/// Like [`resume`], for [`Resumable::Spawn`], which may have to wait.
///
/// # Errors
/// Those of `begin` and of [`Spawning::resume`].
pub fn spawn(
    cpu: &VirtualCpu,
    frame: &SyscallFrame,
    begin: impl FnOnce(&Arc<Process>) -> Result<Box<Spawning>, Errno>,
) -> Result<Portion<usize>, Errno> {
    let begin = |process: &_| begin(process).map(Resumable::Spawn);
    let resume = |call: &mut _| match call {
        Resumable::Spawn(spawning) => spawning.resume(&cpu.process),
        // Another call has another number, which is in the frame.
        _ => Err(Errno::EINVAL),
    };
    advance_call(cpu, frame, begin, resume, is_over)?
}

/// Like [`spawn`], for [`Resumable::Exec`]. The result says how the new program begins, of which
/// `context` may get the registers.
///
/// # Errors
/// Those of `begin` and of [`Executing::resume`].
pub fn execute(
    cpu: &VirtualCpu,
    frame: &SyscallFrame,
    context: &mut UserContext,
    begin: impl FnOnce(&Arc<Process>) -> Result<Box<Executing>, Errno>,
) -> Result<Portion<Begun>, Errno> {
    let begin = |process: &_| begin(process).map(Resumable::Exec);
    let resume = |call: &mut _| match call {
        Resumable::Exec(executing) => executing.resume(cpu, context),
        _ => Err(Errno::EINVAL),
    };
    advance_call(cpu, frame, begin, resume, is_over)?
}

/// Like [`resume`], for [`Resumable::Fork`]. The result is the number of the child and, if it is to
/// borrow the memory, what starts it. `Ok(None)` if there is more to do.
///
/// # Errors
/// Those of `begin` and of [`Forking::resume`].
pub fn fork(
    cpu: &VirtualCpu,
    frame: &SyscallFrame,
    begin: impl FnOnce(&Arc<Process>) -> Result<Box<Forking>, Errno>,
) -> Result<Option<(ProcessId, Option<Lending>)>, Errno> {
    let begin = |process: &_| begin(process).map(Resumable::Fork);
    let resume = |call: &mut Resumable| {
        let Resumable::Fork(forking) = call else { return Some(Err(Errno::EINVAL)) };
        Some(forking.resume(cpu)?.map(|forked| match forked {
            Forked::Started(child) => (child, None),
            Forked::Ready(child) => {
                let whole = core::mem::replace(call, Resumable::Release(None));
                let Resumable::Fork(forking) = whole else { return (child, None) };
                (child, Some(Lending::new(child, forking)))
            }
        }))
    };
    advance_call(cpu, frame, begin, resume, Option::is_some)?.transpose()
}

fn is_over<T>(result: &Result<Portion<T>, Errno>) -> bool {
    !matches!(result, Ok(Portion::More | Portion::Waits))
}

/// What the call of `cpu` waits for of which the last portion has ended with [`Portion::Waits`].
pub fn awaited(cpu: &VirtualCpu) -> Option<SharedAsk> {
    match &cpu.unfinished.lock().as_ref()?.call {
        Resumable::Spawn(spawning) => spawning.awaited(),
        Resumable::Exec(executing) => executing.awaited(),
        _ => None,
    }
}

/// The wake or move of other processes' waiters that `cpu`, which has ended, was in the middle of.
pub(super) fn take_sweep(cpu: &VirtualCpu) -> Option<Sweeping> {
    let taken = cpu.unfinished.lock().take_if(|unfinished| match &unfinished.call {
        Resumable::Sweep(sweeping) => sweeping.is_shared(),
        _ => false,
    });
    match taken?.call {
        Resumable::Sweep(sweeping) => Some(sweeping),
        _ => None,
    }
}

/// The call of `cpu` has failed between two portions.
pub fn abandon(cpu: &VirtualCpu) {
    let unfinished = cpu.unfinished.lock().take();
    drop(unfinished);
    // Another virtual CPU may already be waiting for the child that it has begun to start.
    cpu.process.child_ended.wake_all();
}

/// Executes a portion with `resume`; `is_over` says whether it was the last one.
fn advance_call<R>(
    cpu: &VirtualCpu,
    frame: &SyscallFrame,
    begin: impl FnOnce(&Arc<Process>) -> Result<Resumable, Errno>,
    resume: impl FnOnce(&mut Resumable) -> R,
    is_over: impl FnOnce(&R) -> bool,
) -> Result<R, Errno> {
    // In its place: moving it out and back costs more than some portions do.
    let mut place = cpu.unfinished.lock();
    if let Some(unfinished) = place.as_mut().filter(|unfinished| unfinished.frame == *frame) {
        let result = resume(&mut unfinished.call);
        if is_over(&result) {
            *place = None;
        }
        return Ok(result);
    }
    *place = None;
    drop(place);
    let mut call = begin(&cpu.process)?;
    let result = resume(&mut call);
    if !is_over(&result) {
        *cpu.unfinished.lock() = Some(Unfinished { frame: *frame, call });
    }
    Ok(result)
}

impl Resumable {
    fn resume(&mut self, cpu: &VirtualCpu) -> Option<CallResult> {
        let process = &cpu.process;
        match self {
            Resumable::Unmap(rest) => {
                let left = process.space.unmap_some(rest);
                advance(rest, left)
            }
            Resumable::Shrink(rest, result) => {
                let left = process.space.unmap_some(rest);
                advance(rest, left).map(|done| done.map(|_| *result))
            }
            Resumable::Replace { place, rights, source } => {
                let mapped = place.map_some(&process.space, *rights, source);
                mapped.map_err(Errno::from).transpose()
            }
            Resumable::Move(call) => match process.space.move_some(call) {
                Ok(moved) => moved.map(Ok),
                Err(MapError::NotMapped) => Some(Err(Errno::EFAULT)),
                Err(error) => Some(Err(error.into())),
            },
            Resumable::Sweep(sweeping) => sweeping.resume(process),
            Resumable::Release(releasing) => {
                let has_more = releasing.as_mut().is_some_and(|list| list.release_some(process));
                if has_more { None } else { Some(Ok(0)) }
            }
            Resumable::Discard { rest, has_gap } => {
                *has_gap |= process.space.has_gap_in_portion(rest);
                let left = process.space.discard_some(rest);
                let done = advance(rest, left)?;
                Some(if *has_gap { done.and(Err(Errno::ENOMEM)) } else { done })
            }
            Resumable::Protect(rest, rights) => {
                let left = process.space.protect_some(rest, *rights);
                advance(rest, left)
            }
            // They have other results, which `fork`, `spawn` and `execute` take.
            Resumable::Fork(_) | Resumable::Spawn(_) | Resumable::Exec(_) => {
                Some(Err(Errno::EINVAL))
            }
            Resumable::Lower { raised, family, priority, next, cell } => {
                if let Some((id, from)) = raised {
                    let left = children::find(*id).and_then(|process| process.raise_some(*from));
                    if let Some(left) = left {
                        *from = left;
                        return None;
                    }
                    *raised = None;
                }
                if let Some(from) = next {
                    *next = children::lower_some(*family, *priority, *from);
                    return None;
                }
                // After all ceilings: a call that is made from now on finds its own.
                let left = calls().renew_some(*family, *cell);
                advance(cell, Ok(left))
            }
            Resumable::Signal(signalling) => signalling.resume(process),
            Resumable::HangUp { group, signal, next } => {
                match groups::signal_some(*group, *signal, *next) {
                    Some(more) => *next = more,
                    None if *signal == signal::SIGHUP => (*signal, *next) = (signal::SIGCONT, 0),
                    None => return Some(Ok(0)),
                }
                None
            }
            Resumable::CloseFiles { next, last, marks } => {
                let left = process.close_some(*next, *last, *marks);
                advance(next, Ok(left))
            }
            Resumable::Trace(making) => match making.resume() {
                Ok(true) => None,
                Ok(false) => Some(Ok(trace::switch_prepared(true).into())),
                Err(error) => Some(Err(error)),
            },
        }
    }
}

/// Replaces `rest` by what is left of it; the result if nothing is left.
fn advance<T>(rest: &mut T, left: Result<Option<T>, MapError>) -> Option<CallResult> {
    match left {
        Ok(Some(left)) => {
            *rest = left;
            None
        }
        Ok(None) => Some(Ok(0)),
        Err(error) => Some(Err(error.into())),
    }
}
