//! System calls with long computations: executed in portions of some microseconds, between which
//! other coroutines and virtual CPUs may run.
//!
//! After a portion the virtual CPU returns to its call instruction as if it had not made the call
//! yet, and the progress is kept for the repeated call. There it can be preempted, is charged for
//! its time, and can end with its process as anywhere else. The program does not notice any of
//! this.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;

use cops_abi::errno::CallResult;
use cops_abi::{Errno, Priority};

use super::{Process, ProcessId, VirtualCpu, children};
use crate::arch::SyscallFrame;
use crate::mm::quota::Family;
use crate::mm::{MapError, Rights};
use crate::trace;

/// Work of a system call that only that call knows.
pub trait InPortions: Send {
    /// Executes a portion on behalf of `process`. `None` if there is more to do.
    fn go_on(&mut self, process: &Arc<Process>) -> Option<CallResult>;
}

/// The remaining work.
pub enum Work {
    /// Unmap this range.
    Unmap(Range<usize>),
    /// Give these rights to this range.
    Protect(Range<usize>, Rights),
    /// Load a program and start it.
    Spawn(Box<dyn InPortions>),
    /// Lower the ceilings of the processes of this family, from this number on, to this level.
    Lower { family: Family, level: Priority, next: ProcessId },
    /// Allocate the trace's rings, and switch tracing on.
    Trace(trace::Making),
}

/// Interrupted work, and the call that requested it.
pub struct Unfinished {
    frame: SyscallFrame,
    work: Work,
}

/// Executes a portion of the work that `frame` requests; `begin` creates the work if it has not
/// begun yet. `None` if there is more to do.
///
/// If the same virtual CPU makes another such call in between, which only a handler of its
/// interrupts can do, the work begins again from the start.
pub fn go_on(
    cpu: &VirtualCpu,
    frame: &SyscallFrame,
    begin: impl FnOnce(&Arc<Process>) -> Result<Work, Errno>,
) -> Option<CallResult> {
    let begun = cpu.unfinished.lock().take().filter(|unfinished| unfinished.frame == *frame);
    let mut work = match begun.map_or_else(|| begin(&cpu.process), |unfinished| Ok(unfinished.work))
    {
        Ok(work) => work,
        Err(error) => return Some(Err(error)),
    };
    let result = work.go_on(&cpu.process);
    if result.is_none() {
        *cpu.unfinished.lock() = Some(Unfinished { frame: *frame, work });
    }
    result
}

impl Work {
    fn go_on(&mut self, process: &Arc<Process>) -> Option<CallResult> {
        match self {
            Work::Unmap(rest) => advance(rest, |range| process.space.unmap_some(range)),
            Work::Protect(rest, rights) => {
                advance(rest, |range| process.space.protect_some(range, *rights))
            }
            Work::Spawn(spawning) => spawning.go_on(process),
            Work::Lower { family, level, next } => {
                match children::lower_some(*family, *level, *next) {
                    Some(more) => {
                        *next = more;
                        None
                    }
                    None => Some(Ok(0)),
                }
            }
            Work::Trace(making) => match making.go_on() {
                Ok(true) => None,
                Ok(false) => Some(Ok(trace::switch_prepared(true).into())),
                Err(error) => Some(Err(error)),
            },
        }
    }
}

/// Applies `step` to `rest`, which becomes what is left.
fn advance(
    rest: &mut Range<usize>,
    step: impl FnOnce(&Range<usize>) -> Result<Option<Range<usize>>, MapError>,
) -> Option<CallResult> {
    match step(rest) {
        Ok(Some(left)) => {
            *rest = left;
            None
        }
        Ok(None) => Some(Ok(0)),
        Err(error) => Some(Err(error.into())),
    }
}
