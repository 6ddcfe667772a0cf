//! A program in memory, before a process runs it: its segments, what it shares with the kernel, and
//! a stack with its arguments, all made in portions in an address space that nothing uses yet.

use alloc::boxed::Box;

use cops_abi::Errno;

use super::super::{Name, Personality, PersonalityKind, ProcessId, Program, SharedAreas};
use super::elf::{Program as Elf, Segments};
use super::find::{Executable, Search};
use super::stack::{self, Arguments, ProgramFacts, Start};
use crate::fs::NodeRef;
use crate::mm;
use cops_algorithms::script::{self, DEPTH_MAX};
use cops_fallible::{Text, try_box};

/// A program that is being loaded.
pub struct Image {
    /// The path that was asked for.
    path: Text,
    /// Where relative paths begin.
    working: NodeRef,
    arguments: Arguments,
    /// The personality that the program gets whatever its file says, if there is one.
    forced: Option<PersonalityKind>,
    /// Its file, once that is found.
    program: Option<File>,
    /// The process that asks for it; 0: the kernel.
    caller: ProcessId,
    /// Where the program headers are in memory, once that is known.
    headers: usize,
    stage: Stage,
}

/// Where paths begin that name programs by processes that execute them.
const IN_PROC: &str = "/proc/";

/// The file of a program, and the path at which it was found.
type File = (NodeRef, Text);

/// What exists of the program. It is moved in each portion, so what is large is boxed.
enum Stage {
    /// The path to its file, or to the interpreter of the script that the other path names, is
    /// being walked; the number of scripts so far.
    Searching(Search, Text, usize),
    /// Its headers are being read.
    Reading(Box<Elf>),
    /// Segments that are being mapped and filled.
    Mapping(Box<Elf>, Segments),
    /// All segments, and the first so many of the shared areas.
    Sharing(Box<Elf>, Personality, usize),
    /// Everything but the stack.
    Mapped(Box<Elf>, Personality),
    /// An empty stack too, which has this top.
    WithStack(Box<Elf>, Personality, usize),
    /// Everything, or nothing after a portion that failed.
    Ended,
}

impl Image {
    /// The program at `path`, which is to be started with `arguments`. Relative paths begin in
    /// directory `working`. Process `caller` asks for it; 0 is the kernel.
    ///
    /// # Errors
    /// `ENOENT` for an empty path, `ENOMEM`.
    pub fn new(
        path: Text,
        working: NodeRef,
        arguments: Arguments,
        caller: ProcessId,
    ) -> Result<Self, Errno> {
        mm::admit()?;
        let search = Search::new(&working, &path, caller)?;
        let stage = Stage::Searching(search, Text::try_from_str(&path)?, 0);
        let (forced, program, headers) = (None, None, 0);
        Ok(Self { path, working, arguments, forced, program, caller, headers, stage })
    }

    /// The program gets this personality, whatever its file says.
    pub fn force(&mut self, kind: PersonalityKind) {
        self.forced = Some(kind);
    }

    /// The program, which begins so. For the process that has loaded it, once.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn take_program(&mut self, start: &Start) -> Result<Program, Errno> {
        let (node, path) = self.program.take().ok_or(Errno::ENOEXEC)?;
        // A link in `/proc` says nothing about the program, but busybox knows its command by it.
        let is_link = self.path.starts_with(IN_PROC) && !path.is_empty();
        let name = Name::of_path(if is_link { &path } else { &self.path });
        let command = Name::of_path(self.path.rsplit('/').next().unwrap_or_default());
        let program = Program::new((name, command), node, path)?;
        Ok(Program { strings: start.strings, ..program })
    }

    /// The directory in which relative paths begin.
    pub fn working(&self) -> &NodeRef {
        &self.working
    }

    /// Executes a portion of the search for the program. Returns whether there is more to do before
    /// [`Self::resume`].
    ///
    /// # Errors
    /// As for `open`; `EACCES` for a file without the permission, `ENOEXEC` for one that is not a
    /// program for this machine, `ELOOP`, `E2BIG`, `ENOMEM`.
    pub fn find_some(&mut self) -> Result<bool, Errno> {
        let (stage, has_more) = match core::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Searching(mut search, path, depth) => match search.resume()? {
                None => (Stage::Searching(search, path, depth), true),
                Some((node, found_at)) => {
                    let mut file = Executable::new(node.clone())?;
                    let head = file.head()?;
                    if script::is_script(&head) {
                        (self.interpret(&head, &path, depth)?, true)
                    } else {
                        let is_image = file.is_image();
                        self.program = Some((node, found_at));
                        let mut program = try_box(Elf::new(file, &head)?)?;
                        // What is in memory already is not worth a portion of its own.
                        let has_more = !is_image || program.read_headers()?;
                        (Stage::Reading(program), has_more)
                    }
                }
            },
            Stage::Reading(mut program) => {
                let has_more = program.read_headers()?;
                (Stage::Reading(program), has_more)
            }
            later => (later, false),
        };
        self.stage = stage;
        Ok(has_more)
    }

    /// The search for the interpreter of the script at `path`, which begins with `head`.
    fn interpret(
        &mut self,
        head: &[u8; script::HEAD_BYTES],
        path: &str,
        depth: usize,
    ) -> Result<Stage, Errno> {
        let interpreter = script::interpreter(head).ok_or(Errno::ENOEXEC)?;
        if depth >= DEPTH_MAX {
            return Err(Errno::ELOOP);
        }
        self.arguments = self.arguments.interpreted(&interpreter, path)?;
        // All names are text, so no file has this one.
        let next = core::str::from_utf8(interpreter.path).map_err(|_| Errno::ENOENT)?;
        let search = Search::new(&self.working, next, self.caller)?;
        Ok(Stage::Searching(search, Text::try_from_str(next)?, depth + 1))
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
            Stage::Reading(program) => self.map_some(program, Segments::default(), areas)?,
            Stage::Mapping(program, segments) => self.map_some(program, segments, areas)?,
            Stage::Sharing(program, personality, count) => {
                if areas.map(count)? {
                    Stage::Sharing(program, personality, count + 1)
                } else {
                    Stage::Mapped(program, personality)
                }
            }
            Stage::Mapped(program, personality) => {
                let top = stack::make(areas.space, &personality)?;
                Stage::WithStack(program, personality, top)
            }
            Stage::WithStack(program, personality, top) => {
                let program = ProgramFacts {
                    path: &self.path,
                    entry: program.entry(),
                    headers: self.headers,
                    header_count_and_bytes: program.header_count_and_bytes(),
                    is_traced: areas.trace_pages.is_some(),
                    is_native: personality.is_native(),
                };
                let start = stack::fill(areas.space, top, &program, &self.arguments)?;
                return Ok(Some((start, personality)));
            }
            // Not before `find_some` has found the program.
            Stage::Searching(..) | Stage::Ended => return Err(Errno::ENOEXEC),
        };
        Ok(None)
    }

    fn map_some(
        &mut self,
        mut program: Box<Elf>,
        mut segments: Segments,
        areas: &SharedAreas<'_>,
    ) -> Result<Stage, Errno> {
        if segments.map_some(&mut program, areas.space)? {
            return Ok(Stage::Mapping(program, segments));
        }
        self.headers = segments.headers();
        let personality = segments.personality(&program, self.forced)?;
        Ok(match personality.kind() {
            PersonalityKind::Native => Stage::Sharing(program, personality, 0),
            PersonalityKind::Linux => {
                areas.map_linux()?;
                Stage::Mapped(program, personality)
            }
            PersonalityKind::Tutorial => Stage::Mapped(program, personality),
        })
    }
}
