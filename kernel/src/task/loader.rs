//! Programs: from an ELF file in the root image to a process whose first virtual CPU is in the run queue.
//!
//! Loading goes in portions: some headers, or a page, at a time. A file whose program headers take more than 64 KiB is no
//! program, as on Linux.
//!
//! May touch: the root image, `mm`, processes. Everything in the file is an allegation.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::iter::once;
use core::sync::atomic::Ordering::Relaxed;

use cops_abi::{Errno, auxv, layout, note};
use cops_executor::yield_now;
use cops_fallible::List;
use elf::ElfBytes;
use elf::abi::{EM_RISCV, ET_EXEC, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD, PT_NOTE};
use elf::endian::LittleEndian;
use elf::note::NoteIterator;
use elf::segment::{ProgramHeader, SegmentTable};

use super::process::{Process, ProcessId};
use super::{children, random, reaper};
use crate::fs::{self, ConsoleMode, FileTable, Node, root};
use crate::mm::{self, AddressSpace, Rights, UserRange};

/// Headers that are looked at before others have their turn; one of a note ends the portion.
const PORTION_SEGMENTS: usize = 16;

/// Bytes of program headers that a program may have, as on Linux.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// Bytes of a segment of notes that are looked at.
const NOTE_BYTES_MAX: usize = 1024;

/// What a program is started with: strings one behind the other, each with its zero.
#[derive(Default)]
pub struct Arguments {
    bytes: List<u8>,
    /// Where each of them begins.
    starts: List<u32>,
}

impl Arguments {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Bytes of all, with their zeros.
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Begins another one.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn begin(&mut self) -> Result<(), Errno> {
        Ok(self.starts.try_push(self.bytes.len() as u32)?)
    }

    /// Appends to the last one. Its zero is appended as well, at its end.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        Ok(self.bytes.try_extend_from_slice(bytes)?)
    }
}

type File<'a> = ElfBytes<'a, LittleEndian>;
type Segments = SegmentTable<'static, LittleEndian>;

/// Starts the program at `path` with `arguments`, for the first process.
///
/// # Errors
/// As [`Loading::new`] and [`Loading::go_on`].
pub async fn start_program(
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
        yield_now().await;
    }
}

/// `words` as the arguments of a program.
///
/// # Errors
/// `ENOMEM`.
pub fn arguments<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Arguments, Errno> {
    let mut arguments = Arguments::default();
    for word in words {
        arguments.begin()?;
        arguments.append(word)?;
        arguments.append(&[0])?;
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
    /// The file.
    bytes: &'static [u8],
    /// Headers that have been looked at.
    segments_done: usize,
    /// What has still to be copied of the last segment.
    piece: Option<Piece>,
    /// A note says that it is a program for this kernel.
    is_native: bool,
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
        mut files: FileTable,
    ) -> Result<Self, Errno> {
        mm::admit()?;
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let program = match root().look_up(path)? {
            Node::File(entry) => entry,
            Node::Directory(_) => return Err(Errno::EISDIR),
        };
        parse(program.data)?;
        // Before the long work, which would be in vain; everything is charged to the process to be.
        let id = children::reserve(parent)?;
        // Gives the number back if anything fails.
        let mut loading = Self {
            id,
            name: &program.path,
            arguments,
            ceiling,
            console: None,
            bytes: program.data,
            segments_done: 0,
            piece: None,
            is_native: false,
            parts: None,
            process: None,
        };
        let family = children::family(id).ok_or(Errno::ESRCH)?;
        files.charge_to(family)?;
        loading.parts = Some((AddressSpace::new(family)?, files));
        Ok(loading)
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
    /// `ENOMEM`, `ENOEXEC`.
    pub fn go_on(&mut self, parent: Option<&Process>) -> Option<Result<Arc<Process>, Errno>> {
        let started = match self.process.take() {
            Some(process) => self.start(process),
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
        if let (Some(piece), Some((space, _))) = (&mut self.piece, &self.parts) {
            let done = space.fill_page(piece.address, piece.bytes).map_err(errno)?;
            piece.address += done;
            piece.bytes = &piece.bytes[done..];
            if piece.bytes.is_empty() {
                self.piece = None;
            }
            return Ok(());
        }
        if self.map_some()? {
            return Ok(());
        }
        // The tutorial's and Linux's personalities are a later matter; running such a program as a native one would be wrong.
        if !self.is_native {
            return Err(Errno::ENOEXEC);
        }
        let (space, files) = self.parts.take().ok_or(Errno::ENOMEM)?;
        self.process = Some(Process::new(self.id, parent, self.ceiling, self.name, space, files)?);
        Ok(())
    }

    /// Maps what the next headers say, up to the first from which bytes are to be copied, or a note. Returns whether
    /// there was a header.
    fn map_some(&mut self) -> Result<bool, Errno> {
        let Some((space, _)) = &self.parts else { return Ok(false) };
        let (file, segments) = parse(self.bytes)?;
        for count in 0..PORTION_SEGMENTS {
            if self.segments_done >= segments.len() {
                return Ok(count > 0);
            }
            let segment = segments.get(self.segments_done).map_err(|_| Errno::ENOEXEC)?;
            self.segments_done += 1;
            match segment.p_type {
                PT_LOAD => self.piece = map_segment(space, &file, &segment)?,
                PT_NOTE => self.is_native |= has_native_note(&file, &segment),
                PT_INTERP => return Err(Errno::ENOEXEC),
                _ => {}
            }
            if self.piece.is_some() || segment.p_type == PT_NOTE {
                return Ok(true);
            }
        }
        Ok(true)
    }

    fn start(&self, process: Arc<Process>) -> Result<Arc<Process>, Errno> {
        let entry = usize::try_from(parse(self.bytes)?.0.ehdr.e_entry).map_err(|_| Errno::ENOEXEC)?;
        let stack_top = process.map_stack(0)?;
        let trace_pages = if process.is_traced() { layout::TRACE_PAGES } else { 0 };
        let stack_pointer = fill_stack(&process.space, stack_top, entry, trace_pages, &self.arguments)?;
        children::enter(&process);
        if let Some(mode) = self.console {
            fs::hand_over_console(process.parent.load(Relaxed), process.id, mode)?;
        }
        process.add_cpu(entry, Some(stack_pointer))?;
        Ok(process)
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        // If the parent ended before it was done.
        self.give_back();
        drop(self.process.take());
        drop(self.parts.take());
        // What the address space has not freed at once. The space may also have been dropped before, by what failed.
        reaper::look();
    }
}

/// The file as an ELF program of this machine, and its program headers.
fn parse(bytes: &'static [u8]) -> Result<(File<'static>, Segments), Errno> {
    let file = File::minimal_parse(bytes).map_err(|_| Errno::ENOEXEC)?;
    if file.ehdr.e_machine != EM_RISCV || file.ehdr.e_type != ET_EXEC {
        return Err(Errno::ENOEXEC);
    }
    let segments = file.segments().ok_or(Errno::ENOEXEC)?;
    if segments.len() * usize::from(file.ehdr.e_phentsize) > HEADER_BYTES_MAX {
        return Err(Errno::ENOEXEC);
    }
    Ok((file, segments))
}

/// Maps a segment of the program; returns what is to be put there.
fn map_segment(
    space: &AddressSpace,
    file: &File<'static>,
    segment: &ProgramHeader,
) -> Result<Option<Piece>, Errno> {
    let data = file.segment_data(segment).map_err(|_| Errno::ENOEXEC)?;
    let start = usize::try_from(segment.p_vaddr).map_err(|_| Errno::ENOEXEC)?;
    let length = usize::try_from(segment.p_memsz).map_err(|_| Errno::ENOEXEC)?;
    let rights = Rights {
        read: segment.p_flags & PF_R != 0,
        write: segment.p_flags & PF_W != 0,
        execute: segment.p_flags & PF_X != 0,
    };
    load_segment(space, start, length, rights, data)?;
    Ok((!data.is_empty()).then_some(Piece { address: start, bytes: data }))
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
fn has_native_note(file: &File<'static>, segment: &ProgramHeader) -> bool {
    let Ok(data) = file.segment_data(segment) else { return false };
    let data = &data[..data.len().min(NOTE_BYTES_MAX)];
    let align = usize::try_from(segment.p_align).unwrap_or(0).clamp(4, 8);
    NoteIterator::new(LittleEndian, file.ehdr.class, align, data).any(|found| match found {
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
    let mut chance = [0; 16];
    random::fill(&mut chance);
    let strings_start = (top - arguments.byte_count() - chance.len()) & !15;
    let random_start = strings_start + arguments.byte_count();
    let vector = [
        (auxv::AT_PAGESZ, layout::PAGE_BYTES),
        (auxv::AT_ENTRY, entry),
        (auxv::AT_RANDOM, random_start),
        (auxv::AT_SYSINFO_EHDR, layout::VDSO),
        (auxv::AT_COPS_PROCESS_PAGE, layout::PROCESS_PAGE),
        (auxv::AT_COPS_RING, layout::RING_PAGES),
        (auxv::AT_COPS_SYSTEM_PAGE, layout::SYSTEM_PAGE),
        (auxv::AT_COPS_TRACE, trace_pages),
        (auxv::AT_NULL, 0),
    ];
    let words = once(arguments.len())
        .chain(arguments.starts.iter().map(|&start| strings_start + start as usize))
        .chain([0, 0])
        .chain(vector.into_iter().flat_map(|(key, value)| [key, value]));
    let mut bytes = List::try_with_capacity((3 + arguments.len() + 2 * vector.len()) * size_of::<usize>())?;
    for word in words {
        bytes.try_extend_from_slice(&word.to_le_bytes())?;
    }
    let stack_pointer = (strings_start - bytes.len()) & !15;
    let store = |address, bytes: &[u8]| UserRange::new(address, bytes.len()).copy_out(space, bytes);
    store(strings_start, &arguments.bytes).map_err(|_| Errno::ENOMEM)?;
    store(random_start, &chance).map_err(|_| Errno::ENOMEM)?;
    store(stack_pointer, &bytes).map_err(|_| Errno::ENOMEM)?;
    Ok(stack_pointer)
}
