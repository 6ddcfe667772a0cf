//! What the loader reads from a program's file, and the mapping of its segments, in portions: some
//! headers, or one page, at a time.
//!
//! The headers are copied once and examined in the copy. A file with program headers of
//! more than 64 KiB is not a program, as on Linux. Nothing in the file is trusted.

use cops_abi::{Errno, note, tutorial};
use cops_algorithms::script::HEAD_BYTES;
use cops_fallible::List;
use elf::abi::{EI_NIDENT, ET_EXEC, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD, PT_NOTE};
use elf::endian::LittleEndian;
use elf::file::{Class, FileHeader, parse_ident};
use elf::note::{Note, NoteIterator};
use elf::segment::{ProgramHeader, SegmentTable};

use super::super::{Personality, PersonalityKind, Portion};
use super::asking::Asking;
use super::executable::Executable;
use crate::arch;
use crate::mm::{AddressSpace, MapError, Rights, Source, View, layout};

/// Number of headers that one portion examines; a note ends the portion.
const PORTION_SEGMENTS: usize = 16;

/// Maximum size of a program's headers in bytes, as on Linux.
const HEADER_BYTES_MAX: usize = 64 * 1024;
/// Bytes of the headers that one portion reads.
const PORTION_BYTES: usize = 4096;

/// Maximum number of bytes examined in a segment of notes.
const NOTE_BYTES_MAX: usize = 1024;

/// Size of a program header, which is the same in all programs for this machine.
const HEADER_BYTES: usize = 56;

/// A file that is an ELF program for this machine.
pub struct Program {
    file: Executable,
    header: FileHeader<LittleEndian>,
    /// The program headers, as far as they have been read. A copy, because the file may be written
    /// meanwhile.
    headers: List<u8>,
}

impl Program {
    /// The program in `file`, which begins with `head`.
    ///
    /// # Errors
    /// `ENOEXEC` for a file that is not a program for this machine.
    pub fn new(file: Executable, head: &[u8; HEAD_BYTES]) -> Result<Self, Errno> {
        let parse = || {
            let ident = parse_ident::<LittleEndian>(head).ok()?;
            FileHeader::parse_tail(ident, head.get(EI_NIDENT..)?).ok()
        };
        let header = parse().ok_or(Errno::ENOEXEC)?;
        let is_program = header.class == Class::ELF64
            && header.e_machine == arch::ELF_MACHINE
            && header.e_type == ET_EXEC
            && usize::from(header.e_phentsize) == HEADER_BYTES
            && header.e_phnum > 0
            && usize::from(header.e_phnum) * HEADER_BYTES <= HEADER_BYTES_MAX
            && header.e_phoff <= file.len() as u64;
        if is_program {
            Ok(Self { file, header, headers: List::new() })
        } else {
            Err(Errno::ENOEXEC)
        }
    }

    /// Reads some of the program headers.
    ///
    /// # Errors
    /// As for [`Executable::bytes`].
    pub fn read_headers(&mut self, asking: &mut Asking) -> Result<Portion<()>, Errno> {
        let done = self.headers.len();
        let left = usize::from(self.header.e_phnum) * HEADER_BYTES - done;
        let count = left.min(PORTION_BYTES);
        let bytes = self.file.bytes(self.header.e_phoff as usize + done, count, asking)?;
        let Some(bytes) = bytes else { return Ok(Portion::Waits) };
        self.headers.try_extend_from_slice(bytes)?;
        Ok(if left > count { Portion::More } else { Portion::Done(()) })
    }

    /// Memory for what has been read of the program headers.
    pub fn header_bytes(&self) -> usize {
        self.headers.capacity()
    }

    fn table(&self) -> SegmentTable<'_, LittleEndian> {
        SegmentTable::new(LittleEndian, Class::ELF64, &self.headers)
    }

    /// The address at which it begins, which may be any.
    pub fn entry(&self) -> usize {
        self.header.e_entry as usize
    }

    /// Maps a segment; returns what has to be copied there. Pages of a file that never changes are
    /// mapped from it: whole ones, and the last one of a segment that the program cannot write to,
    /// where other bytes of the file follow, as on Linux.
    fn map(&self, header: &ProgramHeader, space: &AddressSpace) -> Result<Option<Piece>, Errno> {
        let (start, length) = (header.p_vaddr as usize, header.p_memsz as usize);
        let (offset, bytes) = (header.p_offset as usize, header.p_filesz as usize);
        if offset.checked_add(bytes).is_none_or(|end| end > self.file.len()) {
            return Err(Errno::ENOEXEC);
        }
        if length == 0 && bytes == 0 {
            return Ok(None);
        }
        let end = start.checked_add(length).ok_or(Errno::ENOEXEC)?;
        let rights = Rights {
            // What may be written may be read, as on Linux.
            read: header.p_flags & (PF_R | PF_W) != 0,
            write: header.p_flags & PF_W != 0,
            execute: header.p_flags & PF_X != 0,
        };
        let is_within = layout::USER_START <= start && end <= layout::MAP_START;
        if !is_within || bytes > length || rights.write && rights.execute {
            return Err(Errno::ENOEXEC);
        }
        let first_page = start - start % layout::PAGE_BYTES;
        let pages = first_page..end.next_multiple_of(layout::PAGE_BYTES);
        let mut piece = Piece { address: start, offset, bytes };
        let is_constant = !rights.write && bytes == length;
        let whole_end = layout::page_down(start + bytes);
        let unchanging = first_page..if is_constant { pages.end } else { whole_end };
        if let Some(object) = self.file.unchanging_object()?
            && offset % layout::PAGE_BYTES == start % layout::PAGE_BYTES
            && !unchanging.is_empty()
        {
            let first = (offset / layout::PAGE_BYTES) as u64;
            let view = View { object, first, payer: None, may_write: true };
            space.map(unchanging.clone(), rights, &Source::Private(view)).map_err(errno)?;
            let rest = unchanging.end..pages.end;
            if !rest.is_empty() {
                space.map_anonymous(rest, rights).map_err(errno)?;
            }
            piece.advance((unchanging.end - start).min(bytes));
        } else {
            space.map_anonymous(pages, rights).map_err(errno)?;
        }
        Ok((piece.bytes > 0).then_some(piece))
    }

    /// Copies a page of `piece`, or what there is for it. `None`: it has to wait.
    fn copy_some(
        &mut self,
        piece: &mut Piece,
        space: &AddressSpace,
        asking: &mut Asking,
    ) -> Result<Option<()>, Errno> {
        let in_page = layout::PAGE_BYTES - piece.address % layout::PAGE_BYTES;
        let bytes = self.file.bytes(piece.offset, piece.bytes.min(in_page), asking)?;
        let Some(bytes) = bytes else { return Ok(None) };
        let done = space.fill_page(piece.address, bytes).map_err(errno)?;
        piece.advance(done);
        Ok(Some(()))
    }

    /// If a note in this segment is COPS's: whether it names this kernel's ABI version. `None`: it
    /// has to wait.
    ///
    /// # Errors
    /// As for [`Executable::bytes`], but a file that ends before has no note.
    fn native_note(
        &mut self,
        header: &ProgramHeader,
        asking: &mut Asking,
    ) -> Result<Option<Option<bool>>, Errno> {
        let count = (header.p_filesz as usize).min(NOTE_BYTES_MAX);
        let data = match self.file.bytes(header.p_offset as usize, count, asking) {
            Ok(Some(data)) => data,
            Ok(None) => return Ok(None),
            Err(Errno::ENOEXEC) => return Ok(Some(None)),
            Err(error) => return Err(error),
        };
        let align = (header.p_align as usize).clamp(4, 8);
        let mut notes = NoteIterator::new(LittleEndian, Class::ELF64, align, data);
        Ok(Some(notes.find_map(|note| match note {
            Note::Unknown(any) => {
                let is_ours = any.n_type == u64::from(note::TYPE_ABI_VERSION)
                    && any.name.strip_suffix(&[0]).unwrap_or(any.name) == &note::NAME[..4];
                is_ours.then(|| any.desc == note::ABI_VERSION.to_le_bytes())
            }
            _ => None,
        })))
    }

    /// Where a segment has the program headers in memory, if it does.
    fn headers_in(&self, header: &ProgramHeader) -> Option<usize> {
        let offset = self.header.e_phoff.checked_sub(header.p_offset)?;
        (offset < header.p_filesz).then(|| header.p_vaddr.wrapping_add(offset) as usize)
    }

    /// Number and size of the program headers.
    pub fn header_count_and_bytes(&self) -> (usize, usize) {
        (self.header.e_phnum.into(), HEADER_BYTES)
    }
}

/// Bytes of the file that have to be copied into a program's memory.
struct Piece {
    address: usize,
    /// Where they are in the file, and their number.
    offset: usize,
    bytes: usize,
}

impl Piece {
    /// So many bytes are done.
    fn advance(&mut self, done: usize) {
        self.address += done;
        self.offset += done;
        self.bytes -= done;
    }
}

/// How far the segments of a program are mapped.
#[derive(Default)]
pub struct Segments {
    /// Number of headers that have been processed.
    headers_done: usize,
    /// What still has to be copied of the last segment.
    piece: Option<Piece>,
    /// What COPS's note says, if there is one: whether the program is for this kernel.
    native: Option<bool>,
    /// One past the last address of any segment.
    end: usize,
    /// Where the program headers are in memory; 0 if they are not.
    headers: usize,
}

impl Segments {
    /// Copies a page, or maps the segments of the next headers, up to the first one with bytes to
    /// be copied or a note.
    ///
    /// # Errors
    /// `ENOMEM`, `ENOEXEC`; as for [`Executable::bytes`].
    pub fn map_some(
        &mut self,
        program: &mut Program,
        space: &AddressSpace,
        asking: &mut Asking,
    ) -> Result<Portion<()>, Errno> {
        if let Some(piece) = &mut self.piece {
            if program.copy_some(piece, space, asking)?.is_none() {
                return Ok(Portion::Waits);
            }
            if piece.bytes == 0 {
                self.piece = None;
            }
            return Ok(Portion::More);
        }
        for _ in 0..PORTION_SEGMENTS {
            if self.headers_done >= program.table().len() {
                return Ok(Portion::Done(()));
            }
            let header = program.table().get(self.headers_done).map_err(|_| Errno::ENOEXEC)?;
            match header.p_type {
                PT_LOAD => {
                    self.piece = program.map(&header, space)?;
                    self.end = self.end.max((header.p_vaddr + header.p_memsz) as usize);
                    self.headers = program.headers_in(&header).unwrap_or(self.headers);
                }
                PT_NOTE => match program.native_note(&header, asking)? {
                    Some(note) => self.native = self.native.or(note),
                    None => return Ok(Portion::Waits),
                },
                PT_INTERP => return Err(Errno::ENOEXEC),
                _ => {}
            }
            self.headers_done += 1;
            if self.piece.is_some() || header.p_type == PT_NOTE {
                break;
            }
        }
        Ok(Portion::More)
    }

    /// The personality for the program, of which all segments are mapped: the one that is forced,
    /// or the one that its file is for (decision 27).
    ///
    /// # Errors
    /// `ENOEXEC` for a program of another version of this kernel's ABI, `ENOMEM`.
    pub fn personality(
        &self,
        program: &Program,
        forced: Option<PersonalityKind>,
    ) -> Result<Personality, Errno> {
        let kind = match (forced, self.native) {
            (Some(kind), _) => kind,
            (None, Some(true)) => PersonalityKind::Native,
            (None, Some(false)) => return Err(Errno::ENOEXEC),
            (None, None) if program.entry() == tutorial::ENTRY => PersonalityKind::Tutorial,
            (None, None) => PersonalityKind::Linux,
        };
        match kind {
            PersonalityKind::Native => Ok(Personality::native()),
            PersonalityKind::Tutorial => Ok(Personality::tutorial()),
            PersonalityKind::Linux => {
                let end = layout::page_up(self.end).ok_or(Errno::ENOEXEC)?;
                Personality::linux(end)
            }
        }
    }

    /// Where the program headers are in memory; 0 if they are not.
    pub fn headers(&self) -> usize {
        self.headers
    }
}

/// The error code for a program that cannot be mapped.
fn errno(error: MapError) -> Errno {
    match error {
        MapError::OutOfMemory => Errno::ENOMEM,
        _ => Errno::ENOEXEC,
    }
}
