//! Programs: from an ELF file in the root image to a process whose first virtual CPU is in the run queue.
//!
//! May touch: the root image, `mm`, processes. Everything in the file is an allegation.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::iter::once;
use core::sync::atomic::Ordering::Relaxed;

use cops_abi::{Errno, auxv, layout, note};
use cops_fallible::List;
use elf::ElfBytes;
use elf::abi::{EM_RISCV, ET_EXEC, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD, PT_NOTE};
use elf::endian::LittleEndian;

use super::process::{Process, ProcessId};
use super::{children, random};
use crate::fs::{self, ConsoleMode, FileTable, Node, root};
use crate::mm::{self, AddressSpace, Rights, UserRange};

/// Pages of a program that are copied before others have their turn.
const PORTION_PAGES: usize = 1;

/// What a program is started with.
pub type Arguments = List<List<u8>>;

type File<'a> = ElfBytes<'a, LittleEndian>;

/// Starts the program at `path` with `arguments`, in one go: for the first one.
///
/// # Errors
/// As [`Loading::new`] and [`Loading::go_on`].
pub fn start_program(
    path: &str,
    arguments: Arguments,
    ceiling: u8,
    files: FileTable,
) -> Result<Arc<Process>, Errno> {
    let mut loading = Loading::new(path, arguments, 0, ceiling, files)?;
    loop {
        if let Some(started) = loading.go_on(None) {
            return started;
        }
    }
}

/// `words` as the arguments of a program.
///
/// # Errors
/// `ENOMEM`.
pub fn arguments<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Arguments, Errno> {
    let mut arguments = List::new();
    for word in words {
        arguments.try_push(List::try_from_slice(word)?)?;
    }
    Ok(arguments)
}

/// Bytes of the root image on their way into a program's memory.
struct Piece {
    address: usize,
    bytes: &'static [u8],
}

/// A program that is being loaded. Dropping it gives everything back.
pub struct Loading {
    /// The number of the process to be; 0 once that has it, or has it no more.
    id: ProcessId,
    name: &'static str,
    arguments: Arguments,
    ceiling: u8,
    /// The form in which it is to have the console, from its first instruction on.
    console: Option<ConsoleMode>,
    entry: usize,
    /// What has still to be copied, last piece first.
    pieces: List<Piece>,
    /// The memory and the files, until the process has them.
    parts: Option<(AddressSpace, FileTable)>,
    process: Option<Arc<Process>>,
}

impl Loading {
    /// Looks at the program at `path`, which is to be started with `arguments` as a child of `parent` and never be more
    /// urgent than `ceiling`.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `ENOEXEC` for a file that is no program of this machine and ABI version, `ENOMEM`, `EAGAIN` if
    /// there are too many processes.
    pub fn new(
        path: &str,
        arguments: Arguments,
        parent: ProcessId,
        ceiling: u8,
        files: FileTable,
    ) -> Result<Self, Errno> {
        mm::admit()?;
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let program = match root().look_up(path)? {
            Node::File(entry) => entry,
            Node::Directory(_) => return Err(Errno::EISDIR),
        };
        let space = AddressSpace::new()?;
        let mut pieces = List::new();
        let entry = load(&space, program.data, &mut pieces)?;
        let name = &*program.path;
        // Before the long work, which would be in vain.
        let id = children::reserve(parent)?;
        Ok(Self {
            id,
            name,
            arguments,
            ceiling,
            console: None,
            entry,
            pieces,
            parts: Some((space, files)),
            process: None,
        })
    }

    /// Has the process begin in the foreground of the console, which its parent hands over.
    pub fn in_foreground(mut self, mode: Option<ConsoleMode>) -> Self {
        self.console = mode;
        self
    }

    /// Does a portion of the work, some microseconds of it. `None`: there is more to do; otherwise the process, which
    /// is a child of `parent` and runs.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn go_on(&mut self, parent: Option<&Process>) -> Option<Result<Arc<Process>, Errno>> {
        let started = match self.process.take() {
            Some(process) => start(process, self.entry, &self.arguments, self.console),
            None => match self.load_some(parent) {
                Ok(()) => return None,
                Err(error) => Err(error),
            },
        };
        match started {
            Ok(_) => self.id = 0,
            Err(_) => {
                self.give_back();
                // Somebody may be waiting for it already.
                parent.inspect(|parent| parent.child_ended.wake_all());
            }
        }
        Some(started)
    }

    fn give_back(&mut self) {
        let id = core::mem::take(&mut self.id);
        if id != 0 {
            children::give_back(id);
            fs::leave_console(id);
        }
    }

    fn load_some(&mut self, parent: Option<&Process>) -> Result<(), Errno> {
        if let Some((space, _)) = self.parts.as_ref().filter(|_| !self.pieces.is_empty()) {
            for _ in 0..PORTION_PAGES {
                let Some(piece) = self.pieces.last_mut() else { break };
                let done = space.fill_page(piece.address, piece.bytes).map_err(errno)?;
                piece.address += done;
                piece.bytes = &piece.bytes[done..];
                if piece.bytes.is_empty() {
                    self.pieces.pop();
                }
            }
            return Ok(());
        }
        let (space, files) = self.parts.take().ok_or(Errno::ENOMEM)?;
        self.process = Some(Process::new(self.id, parent, self.ceiling, self.name, space, files)?);
        Ok(())
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        // If the parent ended before it was done.
        self.give_back();
    }
}

fn start(
    process: Arc<Process>,
    entry: usize,
    arguments: &Arguments,
    console: Option<ConsoleMode>,
) -> Result<Arc<Process>, Errno> {
    let stack_top = process.map_stack(0)?;
    let trace_pages = if process.is_traced() { layout::TRACE_PAGES } else { 0 };
    let stack_pointer = fill_stack(&process.space, stack_top, entry, trace_pages, arguments)?;
    children::enter(&process);
    if let Some(mode) = console {
        fs::hand_over_console(process.parent.load(Relaxed), process.id, mode)?;
    }
    process.add_cpu(entry, Some(stack_pointer))?;
    Ok(process)
}

/// Maps the segments of the program and returns its entry point; what is to be put there is added to `pieces`.
fn load(space: &AddressSpace, bytes: &'static [u8], pieces: &mut List<Piece>) -> Result<usize, Errno> {
    let file = File::minimal_parse(bytes).map_err(|_| Errno::ENOEXEC)?;
    if file.ehdr.e_machine != EM_RISCV || file.ehdr.e_type != ET_EXEC {
        return Err(Errno::ENOEXEC);
    }
    let segments = file.segments().ok_or(Errno::ENOEXEC)?;
    let mut native = false;
    for segment in segments.iter() {
        match segment.p_type {
            PT_LOAD => {
                let data = file.segment_data(&segment).map_err(|_| Errno::ENOEXEC)?;
                let start = usize::try_from(segment.p_vaddr).map_err(|_| Errno::ENOEXEC)?;
                let length = usize::try_from(segment.p_memsz).map_err(|_| Errno::ENOEXEC)?;
                let rights = Rights {
                    read: segment.p_flags & PF_R != 0,
                    write: segment.p_flags & PF_W != 0,
                    execute: segment.p_flags & PF_X != 0,
                };
                load_segment(space, start, length, rights, data)?;
                if !data.is_empty() {
                    pieces.try_push(Piece { address: start, bytes: data })?;
                }
            }
            PT_NOTE => native |= has_native_note(&file, &segment),
            PT_INTERP => return Err(Errno::ENOEXEC),
            _ => {}
        }
    }
    // The tutorial's and Linux's personalities are a later matter; running such a program as a native one would be wrong.
    if !native {
        return Err(Errno::ENOEXEC);
    }
    usize::try_from(file.ehdr.e_entry).map_err(|_| Errno::ENOEXEC)
}

fn load_segment(
    space: &AddressSpace,
    start: usize,
    length: usize,
    rights: Rights,
    data: &[u8],
) -> Result<(), Errno> {
    if length == 0 {
        return if data.is_empty() { Ok(()) } else { Err(Errno::ENOEXEC) };
    }
    let end = start.checked_add(length).filter(|&end| end <= layout::MAP_START).ok_or(Errno::ENOEXEC)?;
    if start < layout::USER_START || data.len() > length || rights.write && rights.execute {
        return Err(Errno::ENOEXEC);
    }
    let first_page = start - start % layout::PAGE_BYTES;
    let range = first_page..end.next_multiple_of(layout::PAGE_BYTES);
    space.map_anonymous(range, rights).map_err(errno)
}

/// What is wrong with a program that cannot be mapped.
fn errno(error: mm::MapError) -> Errno {
    match error {
        mm::MapError::OutOfMemory => Errno::ENOMEM,
        _ => Errno::ENOEXEC,
    }
}

/// Whether a note of this segment says that the program speaks this kernel's ABI version.
fn has_native_note(file: &File, segment: &elf::segment::ProgramHeader) -> bool {
    let Ok(mut notes) = file.segment_data_as_notes(segment) else { return false };
    notes.any(|found| match found {
        elf::note::Note::Unknown(any) => {
            any.n_type == u64::from(note::TYPE_ABI_VERSION)
                && any.name.strip_suffix(&[0]).unwrap_or(any.name) == &note::NAME[..4]
                && any.desc == note::ABI_VERSION.to_le_bytes()
        }
        _ => false,
    })
}

/// Lays out what Linux lays out: argument count, arguments, environment (empty), auxiliary vector; returns the stack pointer.
fn fill_stack(
    space: &AddressSpace,
    top: usize,
    entry: usize,
    trace_pages: usize,
    arguments: &Arguments,
) -> Result<usize, Errno> {
    let mut strings = List::new();
    let mut offsets = List::new();
    for argument in arguments {
        offsets.try_push(strings.len())?;
        strings.try_extend_from_slice(argument)?;
        strings.try_push(0)?;
    }
    let random_offset = strings.len();
    strings.try_extend_from_slice(&random::bytes())?;
    let strings_start = (top - strings.len()) & !15;
    let vector = [
        (auxv::AT_PAGESZ, layout::PAGE_BYTES),
        (auxv::AT_ENTRY, entry),
        (auxv::AT_RANDOM, strings_start + random_offset),
        (auxv::AT_SYSINFO_EHDR, layout::VDSO),
        (auxv::AT_COPS_PROCESS_PAGE, layout::PROCESS_PAGE),
        (auxv::AT_COPS_RING, layout::RING_PAGES),
        (auxv::AT_COPS_SYSTEM_PAGE, layout::SYSTEM_PAGE),
        (auxv::AT_COPS_TRACE, trace_pages),
        (auxv::AT_NULL, 0),
    ];
    let words = once(arguments.len())
        .chain(offsets.iter().map(|offset| strings_start + offset))
        .chain([0, 0])
        .chain(vector.into_iter().flat_map(|(key, value)| [key, value]));
    let words = List::try_from_iter(words.flat_map(usize::to_le_bytes))?;
    let stack_pointer = (strings_start - words.len()) & !15;
    let store = |address, bytes: &[u8]| UserRange::new(address, bytes.len()).copy_out(space, bytes);
    store(strings_start, &strings).map_err(|_| Errno::ENOMEM)?;
    store(stack_pointer, &words).map_err(|_| Errno::ENOMEM)?;
    Ok(stack_pointer)
}
