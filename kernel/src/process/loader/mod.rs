//! Loading programs: from an ELF file in the root image to a process with its first virtual CPU in
//! the run queue.
//!
//! Loading is done in portions, and [`Stage`] says what exists after each. What is read from the
//! file is in [`elf`]; the first stack and the arguments on it are in [`stack`].
#![forbid(unsafe_code)]

mod elf;
mod stack;

pub use stack::Arguments;

use alloc::boxed::Box;
use alloc::sync::Arc;

use cops_abi::{Errno, Priority};
use cops_executor::yield_now;

use super::number::{Number, Unstarted};
use super::{Parts, Personality, Process, reaper};
use crate::fs::{self, ConsoleMode};
use crate::mm;
use elf::{Program, Segments};
use stack::{ProgramFacts, Start};

/// Starts the program at `path` with `arguments` as the first process.
///
/// # Errors
/// As for [`Loading::new`] and [`Loading::resume`].
pub async fn start_program(
    path: &str,
    arguments: Arguments,
    ceiling: Priority,
) -> Result<Arc<Process>, Errno> {
    let mut loading = Loading::new(path, arguments, ceiling, None)?;
    loop {
        if let Some(process) = loading.resume(None)? {
            return Ok(process);
        }
        yield_now().await;
    }
}

/// A program that is being loaded. Dropping it frees everything.
pub struct Loading {
    program: Program,
    arguments: Arguments,
    ceiling: Priority,
    /// The mode in which the program gets the console, before its first instruction.
    console: Option<ConsoleMode>,
    /// Where the program headers are in memory, once that is known.
    headers: usize,
    stage: Stage,
}

/// What exists of the process. Each stage has what the next portion needs.
#[derive(Default)]
enum Stage {
    /// Nothing, also after the last portion and after a portion that failed.
    #[default]
    Nothing,
    /// Its number.
    Numbered(Number),
    /// Its memory, where segments of the program are being mapped and filled.
    Mapping(Number, Box<Parts>, Segments),
    /// Its memory with the program, where the first so many of the shared areas are mapped.
    Sharing(Number, Box<Parts>, usize),
    /// Its memory, complete.
    Mapped(Number, Box<Parts>, Personality),
    /// The process, without a stack.
    Created(Unstarted),
    /// The process, with an empty stack that has this top.
    WithStack(Unstarted, usize),
    /// The process, with its arguments on the stack.
    Complete(Unstarted, Start),
}

impl Loading {
    /// Examines the program at `path`, which is to be started with `arguments` and this `ceiling`,
    /// and in the foreground of the console if its parent hands that over with `console`.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `ENOEXEC` for a file that is not a program for this machine, `ENOMEM`.
    pub fn new(
        path: &str,
        arguments: Arguments,
        ceiling: Priority,
        console: Option<ConsoleMode>,
    ) -> Result<Self, Errno> {
        mm::admit()?;
        let program = Program::find(path)?;
        Ok(Self { program, arguments, ceiling, console, headers: 0, stage: Stage::Nothing })
    }

    /// Executes a portion of some microseconds. `None` if there is more to do; otherwise the
    /// process, which is a child of `parent` and runs.
    ///
    /// # Errors
    /// `ENOMEM`, `ENOEXEC`, also for a program for another ABI version, `EAGAIN` if there are too
    /// many processes.
    pub fn resume(&mut self, parent: Option<&Process>) -> Result<Option<Arc<Process>>, Errno> {
        let step = self.step(parent);
        if let (Err(_), Some(parent)) = (&step, parent) {
            // Another virtual CPU of the parent may already be waiting for it.
            parent.child_ended.wake_all();
        }
        step
    }

    fn step(&mut self, parent: Option<&Process>) -> Result<Option<Arc<Process>>, Errno> {
        self.stage = match core::mem::take(&mut self.stage) {
            // Before the long work, which would otherwise be useless. Everything is charged to the
            // new process.
            Stage::Nothing => Stage::Numbered(Number::reserve(parent)?),
            Stage::Numbered(number) => {
                let parts = Parts::allocate(number.family)?;
                Stage::Mapping(number, parts, Segments::default())
            }
            Stage::Mapping(number, parts, mut segments) => {
                if segments.map_some(&self.program, &parts.space)? {
                    Stage::Mapping(number, parts, segments)
                } else {
                    self.headers = segments.headers();
                    match segments.personality(&self.program)? {
                        Personality::Native => Stage::Sharing(number, parts, 0),
                        // It sees none of the shared areas.
                        linux => Stage::Mapped(number, parts, linux),
                    }
                }
            }
            Stage::Sharing(number, parts, count) => {
                if parts.map_shared(count)? {
                    Stage::Sharing(number, parts, count + 1)
                } else {
                    Stage::Mapped(number, parts, Personality::Native)
                }
            }
            Stage::Mapped(number, parts, personality) => {
                let what = (self.program.name, personality);
                let process = Process::new(number.id, parent, self.ceiling, false, what, *parts)?;
                Stage::Created(Unstarted { number, process })
            }
            Stage::Created(unstarted) => {
                let top = stack::make(&unstarted.process)?;
                Stage::WithStack(unstarted, top)
            }
            Stage::WithStack(unstarted, top) => {
                let program = ProgramFacts {
                    entry: self.program.entry(),
                    headers: self.headers,
                    header_count_and_bytes: self.program.header_count_and_bytes(),
                };
                let start = stack::fill(&unstarted.process, top, &program, &self.arguments)?;
                Stage::Complete(unstarted, start)
            }
            Stage::Complete(unstarted, start) => {
                return self.start(unstarted, start, parent).map(Some);
            }
        };
        Ok(None)
    }

    fn start(
        &self,
        unstarted: Unstarted,
        start: Start,
        parent: Option<&Process>,
    ) -> Result<Arc<Process>, Errno> {
        unstarted.start(parent, |process| {
            if let (Some(mode), Some(parent)) = (self.console, parent) {
                fs::hand_over_console(parent.id, process.id, mode)?;
            }
            process.add_cpu(start.entry, Some(start.stack_pointer)).map(drop)
        })
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        // If the parent ended before loading was complete.
        self.stage = Stage::Nothing;
        // For what the address space has not freed at once. The space may also have been dropped
        // earlier, by a failed step.
        if mm::any_abandoned() {
            reaper::look();
        }
    }
}
