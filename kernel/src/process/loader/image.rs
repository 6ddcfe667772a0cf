//! A program in memory, before a process runs it: its segments, what it shares with the kernel, and
//! a stack with its arguments, all made in portions in an address space that nothing uses yet.

use cops_abi::Errno;

use super::super::{Personality, SharedAreas};
use super::elf::{Program, Segments};
use super::stack::{self, Arguments, ProgramFacts, Start};
use crate::mm;

/// A program that is being loaded.
pub struct Image {
    program: Program,
    arguments: Arguments,
    /// Where the program headers are in memory, once that is known.
    headers: usize,
    stage: Stage,
}

/// What exists of the program.
enum Stage {
    /// Segments that are being mapped and filled.
    Mapping(Segments),
    /// All segments, and the first so many of the shared areas.
    Sharing(Personality, usize),
    /// Everything but the stack.
    Mapped(Personality),
    /// An empty stack too, which has this top.
    WithStack(Personality, usize),
    /// Everything, or nothing after a portion that failed.
    Ended,
}

impl Image {
    /// The program at `path`, which is to be started with `arguments`.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `ENOEXEC` for a file that is not a program for this machine, `ENOMEM`.
    pub fn new(path: &str, arguments: Arguments) -> Result<Self, Errno> {
        mm::admit()?;
        let program = Program::find(path)?;
        let stage = Stage::Mapping(Segments::default());
        Ok(Self { program, arguments, headers: 0, stage })
    }

    /// The path of the program.
    pub fn name(&self) -> &'static str {
        self.program.name
    }

    /// Executes a portion of some microseconds, in the space of `areas`. `None` if there is more to
    /// do; otherwise how the program begins.
    ///
    /// # Errors
    /// `ENOMEM`, `ENOEXEC`, also for a program for another ABI version.
    pub fn resume(
        &mut self,
        areas: &SharedAreas<'_>,
    ) -> Result<Option<(Start, Personality)>, Errno> {
        self.stage = match core::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Mapping(mut segments) => {
                if segments.map_some(&self.program, areas.space)? {
                    Stage::Mapping(segments)
                } else {
                    self.headers = segments.headers();
                    let personality = segments.personality(&self.program)?;
                    if personality.is_linux() {
                        areas.map_linux()?;
                        Stage::Mapped(personality)
                    } else {
                        Stage::Sharing(personality, 0)
                    }
                }
            }
            Stage::Sharing(personality, count) => {
                if areas.map(count)? {
                    Stage::Sharing(personality, count + 1)
                } else {
                    Stage::Mapped(personality)
                }
            }
            Stage::Mapped(personality) => {
                let top = stack::make(areas.space, &personality)?;
                Stage::WithStack(personality, top)
            }
            Stage::WithStack(personality, top) => {
                let program = ProgramFacts {
                    name: self.program.name,
                    entry: self.program.entry(),
                    headers: self.headers,
                    header_count_and_bytes: self.program.header_count_and_bytes(),
                    is_traced: areas.trace_pages.is_some(),
                    is_linux: personality.is_linux(),
                };
                let start = stack::fill(areas.space, top, &program, &self.arguments)?;
                return Ok(Some((start, personality)));
            }
            Stage::Ended => return Err(Errno::ENOEXEC),
        };
        Ok(None)
    }
}
