//! Starting a process: collecting its arguments and its environment, then loading its program, both
//! in portions.
//!
//! If other virtual CPUs change the arguments at the same time, the new program may see the old or
//! the new ones.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::syscall::{ARGUMENT_BYTES_MAX, ARGUMENTS_MAX};
use cops_abi::{Errno, Priority};
use cops_algorithms::terminal::Settings;
use cops_fallible::Text;

use super::{Arguments, Loading, Portion, Process, ProcessId};
use crate::fs::{File, SharedAsk};
use crate::mm::{STRING_PIECE_BYTES, UserRange};

/// Number of pieces of arguments that one portion copies.
const PORTION_PIECES: usize = 2;

/// A process that is being started.
#[allow(clippy::large_enum_variant, reason = "a call has one, and boxes it")]
pub enum Spawning {
    /// Its arguments are being collected.
    Collecting(Start),
    /// Its program is being loaded.
    Loading(Loading),
}

/// The files of a new process, and its place among others.
#[derive(Default)]
pub struct Place {
    /// Its standard streams; `None`: the console.
    pub files: [Option<Arc<File>>; 3],
    /// Its group; 0: a new one. `None`: that of its parent.
    pub group: Option<ProcessId>,
    /// Its group gets into the foreground of the terminal with these settings.
    pub foreground: Option<Settings>,
}

/// What is to be started.
pub struct Start {
    path: Text,
    ceiling: Priority,
    place: Place,
    request: Request,
}

/// The arguments and the environment collected so far.
pub struct Request {
    /// Address of the pointer to the next string.
    next: usize,
    /// Address of the rest of a string that has been copied in part.
    rest: Option<usize>,
    /// Address of the pointers to the environment, until they are next.
    environment: Option<usize>,
    arguments: Arguments,
}

impl Spawning {
    /// For `spawn_process(path, argv, ceiling, options, envp)`: `request` collects the arguments,
    /// and `ceiling` is the child's.
    pub fn new(path: Text, request: Request, ceiling: Priority, place: Place) -> Self {
        Self::Collecting(Start { path, ceiling, place, request })
    }

    /// What a portion waits for that has ended with [`Portion::Waits`].
    pub fn awaited(&self) -> Option<SharedAsk> {
        match self {
            Self::Loading(loading) => loading.awaited(),
            Self::Collecting(_) => None,
        }
    }

    /// Executes a portion on behalf of `process`. The result is the number of the new process.
    ///
    /// # Errors
    /// `EFAULT`, `E2BIG`; as for [`Loading::resume`].
    pub fn resume(&mut self, process: &Process) -> Result<Portion<usize>, Errno> {
        match self {
            Self::Loading(loading) => Ok(match loading.resume(Some(process))? {
                Portion::Done(child) => Portion::Done(child.id as usize),
                Portion::More => Portion::More,
                Portion::Waits => Portion::Waits,
            }),
            Self::Collecting(start) => {
                if !start.request.collect(process)? {
                    let arguments = start.request.take_arguments();
                    let path = core::mem::take(&mut start.path);
                    let working = process.files.lock().working();
                    let (ceiling, place) = (start.ceiling, core::mem::take(&mut start.place));
                    *self = Self::Loading(Loading::new(
                        path,
                        working,
                        arguments,
                        ceiling,
                        place,
                        Some(process),
                    )?);
                }
                Ok(Portion::More)
            }
        }
    }
}

impl Request {
    /// Nothing yet: `argv` and `envp` are the addresses of the pointers to the arguments and to the
    /// environment. Where an address is 0, there are none.
    pub fn new(argv: usize, envp: usize) -> Self {
        let (environment, arguments) = (Some(envp), Arguments::default());
        Self { next: argv, rest: None, environment, arguments }
    }

    /// What has been collected.
    pub(super) fn take_arguments(&mut self) -> Arguments {
        core::mem::take(&mut self.arguments)
    }

    /// Collects some of the strings. Returns whether there may be more.
    ///
    /// # Errors
    /// `EFAULT`, `E2BIG`, `ENOMEM`.
    pub(super) fn collect(&mut self, process: &Process) -> Result<bool, Errno> {
        let has_more = self.collect_some(process)?;
        self.arguments.charge(process.family, 0)?;
        Ok(has_more)
    }

    fn collect_some(&mut self, process: &Process) -> Result<bool, Errno> {
        for _ in 0..PORTION_PIECES {
            let at = match self.rest {
                Some(at) => at,
                None => {
                    let pointer = if self.next == 0 { 0 } else { self.next_pointer(process)? };
                    if pointer == 0 {
                        let Some(environment) = self.environment.take() else { return Ok(false) };
                        if self.arguments.len() == 0 && process.personality.is_linux() {
                            // As on Linux, so that every program has an argument.
                            self.arguments.begin()?;
                            self.arguments.append(&[0])?;
                        }
                        self.arguments.end_arguments();
                        if environment == 0 {
                            return Ok(false);
                        }
                        self.next = environment;
                        continue;
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

    /// The pointer to the next string; 0 behind the last one.
    fn next_pointer(&self, process: &Process) -> Result<usize, Errno> {
        let mut pointer = [0; size_of::<usize>()];
        let place = UserRange::new(self.next, pointer.len()).ok_or(Errno::EFAULT)?;
        process.space.copy_in(place, &mut pointer)?;
        Ok(usize::from_le_bytes(pointer))
    }

    /// Copies a piece of a string at `at`. Returns the address of the rest, `None` at the end.
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
