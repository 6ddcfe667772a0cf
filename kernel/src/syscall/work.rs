//! Calls that compute for long: done in portions of some microseconds, between which others have their turn.
//!
//! After a portion the virtual CPU goes back to its call instruction, as if it had not made the call yet, and what has
//! been done is kept for when it comes again. So it can be preempted there, has its time charged, and ends with its process
//! as anywhere else; the program notices nothing.
//! May touch: address spaces, the loader.
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::ops::Range;

use cops_abi::Errno;
use cops_abi::errno::CallResult;

use super::spawn::Spawning;
use crate::arch::SyscallFrame;
use crate::mm::quota::Family;
use crate::mm::{MapError, Rights};
use crate::task::{Process, ProcessId, VirtualCpu, children};
use crate::trace;

/// What is left to do.
pub enum Work {
    /// Unmap this.
    Unmap(Range<usize>),
    /// Give this these rights.
    Protect(Range<usize>, Rights),
    /// Load a program and start it.
    Spawn(Box<Spawning>),
    /// Make processes of this family, from this number on, no more urgent than this.
    Lower { family: Family, level: u8, next: ProcessId },
    /// Make the trace's rings, and switch tracing on.
    Trace(trace::Making),
}

/// Work that has been interrupted, and the call that asked for it.
pub struct Unfinished {
    frame: SyscallFrame,
    work: Work,
}

/// Does a portion of the work that `frame` asks for; `begin` says what that is if it has not been begun yet.
/// `None`: there is more to do.
///
/// Another such call of the same virtual CPU, which only a handler of its interrupts can make in between, has it
/// begin anew.
pub fn go_on(
    cpu: &VirtualCpu,
    frame: &SyscallFrame,
    begin: impl FnOnce(&Arc<Process>) -> Result<Work, Errno>,
) -> Option<CallResult> {
    let begun = cpu.unfinished.lock().take().filter(|unfinished| unfinished.frame == *frame);
    let mut work = match begun.map_or_else(|| begin(&cpu.process), |unfinished| Ok(unfinished.work)) {
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
            Work::Protect(rest, rights) => advance(rest, |range| process.space.protect_some(range, *rights)),
            Work::Spawn(spawning) => spawning.go_on(process),
            Work::Lower { family, level, next } => match children::lower_some(*family, *level, *next) {
                Some(more) => {
                    *next = more;
                    None
                }
                None => Some(Ok(0)),
            },
            Work::Trace(making) => match making.go_on() {
                Ok(true) => None,
                Ok(false) => Some(Ok(trace::switch_prepared(true).into())),
                Err(error) => Some(Err(error)),
            },
        }
    }
}

/// Does a portion of what `step` does to `rest`, which becomes what is left.
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
