//! A program in memory, before a process runs it: its segments, what it shares with the kernel, and
//! a stack with its arguments, all made in portions in an address space that nothing uses yet.

use alloc::boxed::Box;

use cops_abi::Errno;

use super::super::{Name, Personality, PersonalityKind, Portion, Program, SharedAreas};
use super::asking::Asking;
use super::elf::{Program as Elf, Segments};
use super::executable::Executable;
use super::find::Search;
use super::stack::{self, Arguments, ProgramFacts, Start};
use crate::fs::{NodeRef, SharedAsk};
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
    /// Its requests to servers of file systems.
    asking: Asking,
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
    /// The path to its file, or to the interpreter of the last script, is being walked.
    Searching(Search, Named),
    /// It has been found at the last path, and its beginning is being read.
    Opening(Executable, Named, Text),
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

/// How a file was named.
struct Named {
    /// The path that is walked, or was.
    path: Text,
    /// The number of scripts so far.
    depth: usize,
}

impl Image {
    /// The program at `path`, which is to be started with `arguments`. Relative paths begin in
    /// directory `working`. `asking` has the requests that this needs.
    ///
    /// # Errors
    /// `ENOENT` for an empty path, `ENOMEM`.
    pub fn new(
        path: Text,
        working: NodeRef,
        arguments: Arguments,
        asking: Asking,
    ) -> Result<Self, Errno> {
        mm::admit()?;
        let search = Search::new(&working, &path)?;
        let named = Named { path: Text::try_from_str(&path)?, depth: 0 };
        let (stage, forced, program, headers) = (Stage::Searching(search, named), None, None, 0);
        Ok(Self { path, working, arguments, forced, program, asking, headers, stage })
    }

    /// What a portion waits for that has ended with [`Portion::Waits`].
    pub fn awaited(&self) -> Option<SharedAsk> {
        self.asking.awaited()
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

    /// Executes a portion of the search for the program. [`Self::resume`] follows when it is done.
    ///
    /// # Errors
    /// As for `open`; `EACCES` for a file without the permission, `ENOEXEC` for one that is not a
    /// program for this machine, `ELOOP`, `E2BIG`, `ENOMEM`.
    pub fn find_some(&mut self) -> Result<Portion<()>, Errno> {
        if let Stage::Reading(program) = &mut self.stage {
            let portion = program.read_headers(&mut self.asking)?;
            if let Some(payer) = self.asking.payer() {
                self.arguments.charge(payer, program.header_bytes())?;
            }
            return Ok(portion);
        }
        if let Stage::Searching(search, named) = &mut self.stage {
            let (node, path) = match search.resume(&mut self.asking)? {
                Portion::Done(found) => found,
                Portion::More => return Ok(Portion::More),
                Portion::Waits => return Ok(Portion::Waits),
            };
            let named = Named { path: core::mem::take(&mut named.path), ..*named };
            self.stage = Stage::Opening(Executable::new(node), named, path);
        }
        let Stage::Opening(file, ..) = &mut self.stage else { return Ok(Portion::Done(())) };
        let Some(head) = file.head(&mut self.asking)? else { return Ok(Portion::Waits) };
        let Stage::Opening(file, named, path) = core::mem::replace(&mut self.stage, Stage::Ended)
        else {
            return Err(Errno::ENOEXEC);
        };
        if script::is_script(&head) {
            self.stage = self.interpret(&head, &named)?;
            return Ok(Portion::More);
        }
        let is_image = file.is_image();
        self.program = Some((file.node().clone(), path));
        let mut program = try_box(Elf::new(file, &head)?)?;
        // What is in memory already is not worth a portion of its own.
        let portion =
            if is_image { program.read_headers(&mut self.asking)? } else { Portion::More };
        self.stage = Stage::Reading(program);
        Ok(portion)
    }

    /// The search for the interpreter of a script that begins with `head`.
    fn interpret(
        &mut self,
        head: &[u8; script::HEAD_BYTES],
        named: &Named,
    ) -> Result<Stage, Errno> {
        let interpreter = script::interpreter(head).ok_or(Errno::ENOEXEC)?;
        if named.depth >= DEPTH_MAX {
            return Err(Errno::ELOOP);
        }
        self.arguments = self.arguments.interpreted(&interpreter, &named.path)?;
        // All names are text, so no file has this one.
        let next = core::str::from_utf8(interpreter.path).map_err(|_| Errno::ENOENT)?;
        let search = Search::new(&self.working, next)?;
        let named = Named { path: Text::try_from_str(next)?, depth: named.depth + 1 };
        Ok(Stage::Searching(search, named))
    }

    /// Executes a portion of some microseconds, in the space of `areas`. When it is done, returns
    /// how the program begins.
    ///
    /// # Errors
    /// `ENOMEM`, `ENOEXEC`, also for a program for another ABI version; what the server of its file
    /// replies.
    pub fn resume(
        &mut self,
        areas: &SharedAreas<'_>,
    ) -> Result<Portion<(Start, Personality)>, Errno> {
        self.stage = match core::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Reading(program) => return self.map_some(program, Segments::default(), areas),
            Stage::Mapping(program, segments) => return self.map_some(program, segments, areas),
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
                return Ok(Portion::Done((start, personality)));
            }
            // Not before `find_some` has found the program.
            Stage::Searching(..) | Stage::Opening(..) | Stage::Ended => {
                return Err(Errno::ENOEXEC);
            }
        };
        Ok(Portion::More)
    }

    fn map_some<T>(
        &mut self,
        mut program: Box<Elf>,
        mut segments: Segments,
        areas: &SharedAreas<'_>,
    ) -> Result<Portion<T>, Errno> {
        let portion = segments.map_some(&mut program, areas.space, &mut self.asking)?;
        let Portion::Done(()) = portion else {
            self.stage = Stage::Mapping(program, segments);
            return Ok(if let Portion::Waits = portion { Portion::Waits } else { Portion::More });
        };
        self.headers = segments.headers();
        let personality = segments.personality(&program, self.forced)?;
        self.stage = match personality.kind() {
            PersonalityKind::Native => Stage::Sharing(program, personality, 0),
            PersonalityKind::Linux => {
                areas.map_linux()?;
                Stage::Mapped(program, personality)
            }
            PersonalityKind::Tutorial => Stage::Mapped(program, personality),
        };
        Ok(Portion::More)
    }
}
