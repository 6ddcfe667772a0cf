//! Loading programs: from an ELF file in the root image to a process with its first virtual CPU in
//! the run queue.
//!
//! Loading is done in portions: some headers, or one page, at a time. A file with program headers
//! of more than 64 KiB is not a program, as on Linux.
//!
//! Nothing in the file is trusted.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::iter::once;
use core::sync::atomic::Ordering::Relaxed;

use cops_abi::{Errno, Priority, auxv, layout, note};
use cops_executor::yield_now;
use cops_fallible::List;
use elf::ElfBytes;
use elf::abi::{ET_EXEC, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD, PT_NOTE};
use elf::endian::LittleEndian;
use elf::note::NoteIterator;
use elf::segment::{ProgramHeader, SegmentTable};

use super::{Pages, Process, ProcessId, children, reaper};
use crate::arch;
use crate::drivers::random;
use crate::fs::{self, ConsoleMode, FileTable, Node, root};
use crate::mm::{self, AddressSpace, Rights, UserRange};

/// Number of headers that one portion examines; a note ends the portion.
const PORTION_SEGMENTS: usize = 16;

/// Maximum size of a program's headers in bytes, as on Linux.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of bytes examined in a segment of notes.
const NOTE_BYTES_MAX: usize = 1024;

/// A program's arguments: strings one after another, each with its terminating zero.
#[derive(Default)]
pub struct Arguments {
    bytes: List<u8>,
    /// Where each argument begins.
    starts: List<u32>,
}

impl Arguments {
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Total size of the arguments with their zeros.
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Begins another argument.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn begin(&mut self) -> Result<(), Errno> {
        Ok(self.starts.try_push(self.bytes.len() as u32)?)
    }

    /// Appends to the last argument. At its end the terminating zero is appended too.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        Ok(self.bytes.try_extend_from_slice(bytes)?)
    }
}

type File<'a> = ElfBytes<'a, LittleEndian>;
type Segments = SegmentTable<'static, LittleEndian>;

/// Starts the program at `path` with `arguments` as the first process.
///
/// # Errors
/// As for [`Loading::new`] and [`Loading::resume`].
pub async fn start_program(
    path: &str,
    arguments: Arguments,
    ceiling: Priority,
    files: FileTable,
) -> Result<Arc<Process>, Errno> {
    let mut loading = Loading::new(path, arguments, 0, ceiling, files)?;
    loop {
        if let Some(started) = loading.resume(None) {
            return started;
        }
        yield_now().await;
    }
}

/// `words` as a program's arguments.
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

/// Bytes of the root image that have to be copied into a program's memory.
struct Piece {
    address: usize,
    bytes: &'static [u8],
}

/// A program that is being loaded. Dropping it frees everything.
pub struct Loading {
    /// The number reserved for the process; 0 before that, and once the process uses it or it is
    /// freed.
    id: ProcessId,
    /// The process that starts it.
    parent: ProcessId,
    name: &'static str,
    arguments: Arguments,
    ceiling: Priority,
    /// The mode in which the program gets the console, before its first instruction.
    console: Option<ConsoleMode>,
    /// The contents of the file.
    bytes: &'static [u8],
    /// Number of headers that have been processed.
    segments_done: usize,
    /// What still has to be copied of the last segment.
    piece: Option<Piece>,
    /// Set if a note says that this is a program for this kernel.
    is_native: bool,
    /// The files, until there is memory.
    files: Option<FileTable>,
    /// The memory and the files, until they are passed to the process.
    parts: Option<(AddressSpace, FileTable)>,
    /// The frames that the process shares with the kernel, until they are passed to it.
    pages: Option<Pages>,
    process: Option<Arc<Process>>,
    /// The top of the stack, once the process has one.
    stack_top: Option<usize>,
    /// Where its first virtual CPU begins, once its arguments are on the stack.
    start: Option<Start>,
}

/// The beginning of a program.
#[derive(Clone, Copy)]
struct Start {
    entry: usize,
    stack_pointer: usize,
}

impl Loading {
    /// Examines the program at `path`, which is to be started with `arguments` as a child of
    /// `parent` and with this `ceiling`.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `ENOEXEC` for a file that is not a program for this machine, `ENOMEM`.
    pub fn new(
        path: &str,
        arguments: Arguments,
        parent: ProcessId,
        ceiling: Priority,
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
        parse(program.data)?;
        Ok(Self {
            id: 0,
            parent,
            name: &program.path,
            arguments,
            ceiling,
            console: None,
            bytes: program.data,
            segments_done: 0,
            piece: None,
            is_native: false,
            files: Some(files),
            parts: None,
            pages: None,
            process: None,
            stack_top: None,
            start: None,
        })
    }

    /// Makes the process start in the foreground of the console, which its parent hands over.
    pub fn in_foreground(mut self, mode: Option<ConsoleMode>) -> Self {
        self.console = mode;
        self
    }

    /// Executes a portion of some microseconds. `None` if there is more to do; otherwise the
    /// process, which is a child of `parent` and runs.
    ///
    /// # Errors
    /// `ENOMEM`, `ENOEXEC`, also for a program for another ABI version, `EAGAIN` if there are too
    /// many processes.
    pub fn resume(&mut self, parent: Option<&Process>) -> Option<Result<Arc<Process>, Errno>> {
        let started = match self.start {
            Some(start) => self.start(start),
            None => match self.load_some(parent) {
                Ok(()) => return None,
                Err(error) => Err(error),
            },
        };
        match started {
            Ok(_) => self.id = 0,
            Err(_) => {
                self.release_number();
                // Another virtual CPU of the parent may already be waiting for it.
                parent.inspect(|parent| parent.child_ended.wake_all());
            }
        }
        Some(started)
    }

    fn release_number(&mut self) {
        let id = core::mem::take(&mut self.id);
        if id != 0 {
            children::release(id);
            fs::release_console(id);
        }
    }

    fn load_some(&mut self, parent: Option<&Process>) -> Result<(), Errno> {
        if let Some(process) = &self.process {
            match self.stack_top {
                None => self.stack_top = Some(make_stack(process)?),
                Some(top) => self.start = Some(self.fill_stack(process, top)?),
            }
            return Ok(());
        }
        if self.files.is_some() {
            return self.prepare();
        }
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
        // Programs for the tutorial's kernel and for Linux are not supported yet. It would be wrong
        // to run them as native ones.
        if !self.is_native {
            return Err(Errno::ENOEXEC);
        }
        let Some(pages) = &mut self.pages else {
            self.pages = Some(Pages::allocate()?);
            return Ok(());
        };
        if let Some((space, _)) = &self.parts
            && pages.map_some(space)?
        {
            return Ok(());
        }
        let (Some((space, files)), Some(pages)) = (self.parts.take(), self.pages.take()) else {
            return Err(Errno::ENOMEM);
        };
        self.process =
            Some(Process::new(self.id, parent, self.ceiling, self.name, space, files, pages)?);
        Ok(())
    }

    /// Maps the segments of the next headers, up to the first one with bytes to be copied or a
    /// note. Returns whether there was a header.
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

    /// Reserves a number, then makes the memory. Before the long work, which would otherwise be
    /// useless. Everything is charged to the new process.
    fn prepare(&mut self) -> Result<(), Errno> {
        if self.id == 0 {
            self.id = children::reserve(self.parent)?;
            return Ok(());
        }
        let family = children::family(self.id).ok_or(Errno::ESRCH)?;
        if let Some(mut files) = self.files.take() {
            files.charge_to(family)?;
            self.parts = Some((AddressSpace::new(family)?, files));
        }
        Ok(())
    }

    fn fill_stack(&self, process: &Process, stack_top: usize) -> Result<Start, Errno> {
        let entry =
            usize::try_from(parse(self.bytes)?.0.ehdr.e_entry).map_err(|_| Errno::ENOEXEC)?;
        let trace_pages = if process.is_traced() { layout::TRACE_PAGES } else { 0 };
        let stack_pointer =
            fill_stack(&process.space, stack_top, entry, trace_pages, &self.arguments)?;
        Ok(Start { entry, stack_pointer })
    }

    fn start(&mut self, start: Start) -> Result<Arc<Process>, Errno> {
        let process = self.process.take().ok_or(Errno::ENOMEM)?;
        children::insert(&process);
        if let Some(mode) = self.console {
            fs::hand_over_console(process.parent.load(Relaxed), process.id, mode)?;
        }
        process.add_cpu(start.entry, Some(start.stack_pointer))?;
        Ok(process)
    }
}

impl Drop for Loading {
    fn drop(&mut self) {
        // If the parent ended before loading was complete.
        self.release_number();
        drop(self.process.take());
        drop(self.parts.take());
        // For what the address space has not freed at once. The space may also have been dropped
        // earlier, by a failed step.
        if mm::any_abandoned() {
            reaper::look();
        }
    }
}

/// Maps the stack of the first virtual CPU of `process` and allocates its first page. Returns its
/// top.
fn make_stack(process: &Process) -> Result<usize, Errno> {
    let top = process.map_stack(0)?;
    let first =
        UserRange::new(top - size_of::<usize>(), size_of::<usize>()).ok_or(Errno::ENOMEM)?;
    process.space.copy_out(first, &[0; size_of::<usize>()]).map_err(|_| Errno::ENOMEM)?;
    Ok(top)
}

/// The file as an ELF program for this machine, and its program headers.
fn parse(bytes: &'static [u8]) -> Result<(File<'static>, Segments), Errno> {
    let file = File::minimal_parse(bytes).map_err(|_| Errno::ENOEXEC)?;
    if file.ehdr.e_machine != arch::ELF_MACHINE || file.ehdr.e_type != ET_EXEC {
        return Err(Errno::ENOEXEC);
    }
    let segments = file.segments().ok_or(Errno::ENOEXEC)?;
    if segments.len() * usize::from(file.ehdr.e_phentsize) > HEADER_BYTES_MAX {
        return Err(Errno::ENOEXEC);
    }
    Ok((file, segments))
}

/// Maps a segment of the program; returns what has to be copied there.
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
    let end =
        start.checked_add(length).filter(|&end| end <= layout::MAP_START).ok_or(Errno::ENOEXEC)?;
    if start < layout::USER_START || data.len() > length || rights.write && rights.execute {
        return Err(Errno::ENOEXEC);
    }
    let first_page = start - start % layout::PAGE_BYTES;
    let range = first_page..end.next_multiple_of(layout::PAGE_BYTES);
    space.map_anonymous(range, rights).map_err(errno)
}

/// The error code for a program that cannot be mapped.
fn errno(error: mm::MapError) -> Errno {
    match error {
        mm::MapError::OutOfMemory => Errno::ENOMEM,
        _ => Errno::ENOEXEC,
    }
}

/// Whether a note in this segment says that the program uses this kernel's ABI version.
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

/// Builds the same stack as Linux: argument count, arguments, environment (empty), auxiliary
/// vector. Returns the stack pointer.
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
    let mut bytes =
        List::try_with_capacity((3 + arguments.len() + 2 * vector.len()) * size_of::<usize>())?;
    for word in words {
        bytes.try_extend_from_slice(&word.to_le_bytes())?;
    }
    let stack_pointer = (strings_start - bytes.len()) & !15;
    let store = |address, bytes: &[u8]| {
        let place = UserRange::new(address, bytes.len()).ok_or(Errno::ENOMEM)?;
        space.copy_out(place, bytes).map_err(|_| Errno::ENOMEM)
    };
    store(strings_start, &arguments.bytes)?;
    store(random_start, &chance)?;
    store(stack_pointer, &bytes)?;
    Ok(stack_pointer)
}
