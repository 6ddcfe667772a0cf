//! Starting a process: collecting its arguments, then loading its program, both in portions.
//!
//! If other virtual CPUs change the arguments at the same time, the new process may see the old or
//! the new ones.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::errno::CallResult;
use cops_abi::syscall::{ARGUMENT_BYTES_MAX, ARGUMENTS_MAX};
use cops_abi::{Errno, Priority};
use cops_fallible::Text;

use super::{Arguments, Loading, Process};
use crate::fs::ConsoleMode;
use crate::mm::{STRING_PIECE_BYTES, UserRange};

/// Number of pieces of arguments that one portion copies.
const PORTION_PIECES: usize = 2;

/// A process that is being started.
pub enum Spawning {
    /// Its arguments are being collected.
    Collecting(Request),
    /// Its program is being loaded.
    Loading(Loading),
}

/// What is to be started, with the arguments collected so far.
pub struct Request {
    path: Text,
    ceiling: Priority,
    console: Option<ConsoleMode>,
    /// Address of the pointer to the next argument.
    next: usize,
    /// Address of the rest of an argument that has been copied in part.
    rest: Option<usize>,
    arguments: Arguments,
}

impl Spawning {
    /// For `spawn_process(path, argv, ceiling, console)`: `argv` is the address of the pointers to
    /// the arguments, `ceiling` the child's.
    pub fn new(path: Text, argv: usize, ceiling: Priority, console: Option<ConsoleMode>) -> Self {
        let arguments = Arguments::default();
        Self::Collecting(Request { path, ceiling, console, next: argv, rest: None, arguments })
    }

    /// Executes a portion on behalf of `process`. `None` if there is more to do; the result is the
    /// number of the new process.
    pub fn resume(&mut self, process: &Arc<Process>) -> Option<CallResult> {
        self.step(process).transpose()
    }

    fn step(&mut self, process: &Process) -> Result<Option<usize>, Errno> {
        match self {
            Self::Loading(loading) => {
                Ok(loading.resume(Some(process))?.map(|child| child.id as usize))
            }
            Self::Collecting(request) => {
                if !request.collect(process)? {
                    let arguments = core::mem::take(&mut request.arguments);
                    let Request { path, ceiling, console, .. } = request;
                    *self = Self::Loading(Loading::new(path, arguments, *ceiling, *console)?);
                }
                Ok(None)
            }
        }
    }
}

impl Request {
    /// Collects some of the arguments. Returns whether there may be more.
    fn collect(&mut self, process: &Process) -> Result<bool, Errno> {
        for _ in 0..PORTION_PIECES {
            let at = match self.rest {
                Some(at) => at,
                None => {
                    let mut pointer = [0; size_of::<usize>()];
                    let place = UserRange::new(self.next, pointer.len()).ok_or(Errno::EFAULT)?;
                    process.space.copy_in(place, &mut pointer)?;
                    let pointer = usize::from_le_bytes(pointer);
                    if pointer == 0 {
                        return Ok(false);
                    }
                    if self.arguments.len() >= ARGUMENTS_MAX {
                        return Err(Errno::E2BIG);
                    }
                    self.next = self.next.checked_add(size_of::<usize>()).ok_or(Errno::EFAULT)?;
                    self.arguments.begin()?;
                    pointer
                }
            };
            self.rest = self.take_piece(process, at)?;
        }
        Ok(true)
    }

    /// Copies a piece of an argument at `at`. Returns the address of the rest, `None` at the end.
    fn take_piece(&mut self, process: &Process, at: usize) -> Result<Option<usize>, Errno> {
        let mut piece = [0; STRING_PIECE_BYTES];
        let (piece, is_last) = process.space.copy_in_piece(at, &mut piece)?;
        let bytes = piece.len() + usize::from(is_last);
        if self.arguments.byte_count() + bytes > ARGUMENT_BYTES_MAX {
            return Err(Errno::E2BIG);
        }
        self.arguments.append(piece)?;
        if is_last {
            self.arguments.append(&[0])?;
            return Ok(None);
        }
        at.checked_add(bytes).map(Some).ok_or(Errno::EFAULT)
    }
}
