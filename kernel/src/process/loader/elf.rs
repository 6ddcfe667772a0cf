//! What the loader reads from a program's file, and the mapping of its segments, in portions: some
//! headers, or one page, at a time.
//!
//! A file with program headers of more than 64 KiB is not a program, as on Linux. Nothing in the
//! file is trusted.

use cops_abi::{Errno, note};
use elf::ElfBytes;
use elf::abi::{ET_EXEC, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD, PT_NOTE};
use elf::endian::LittleEndian;
use elf::note::{Note, NoteIterator};
use elf::segment::{ProgramHeader, SegmentTable};

use super::super::Personality;
use crate::arch;
use crate::fs::{Node, root};
use crate::log;
use crate::mm::{AddressSpace, MapError, Rights, layout};

/// Number of headers that one portion examines; a note ends the portion.
const PORTION_SEGMENTS: usize = 16;

/// Maximum size of a program's headers in bytes, as on Linux.
const HEADER_BYTES_MAX: usize = 64 * 1024;

/// The entry point of programs for the tutorial's kernel. Linux programs begin elsewhere.
const TUTORIAL_ENTRY: usize = 0x1_0000;

/// Maximum number of bytes examined in a segment of notes.
const NOTE_BYTES_MAX: usize = 1024;

/// A file of the root image that is an ELF program for this machine.
pub struct Program {
    /// Its path.
    pub name: &'static str,
    file: ElfBytes<'static, LittleEndian>,
    headers: SegmentTable<'static, LittleEndian>,
}

impl Program {
    /// The program at `path`.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `ENOEXEC` for a file that is not a program for this machine.
    pub fn find(path: &str) -> Result<Self, Errno> {
        if path.is_empty() {
            return Err(Errno::ENOENT);
        }
        let Node::File(entry) = root().look_up(path)? else { return Err(Errno::EISDIR) };
        let file = ElfBytes::minimal_parse(entry.data).map_err(|_| Errno::ENOEXEC)?;
        let headers = file.segments().ok_or(Errno::ENOEXEC)?;
        let is_program = file.ehdr.e_machine == arch::ELF_MACHINE
            && file.ehdr.e_type == ET_EXEC
            && headers.len() * usize::from(file.ehdr.e_phentsize) <= HEADER_BYTES_MAX;
        if !is_program {
            return Err(Errno::ENOEXEC);
        }
        Ok(Self { name: &entry.path, file, headers })
    }

    /// The address at which it begins, which may be any.
    pub fn entry(&self) -> usize {
        self.file.ehdr.e_entry as usize
    }

    /// Maps a segment; returns what has to be copied there.
    fn map(&self, header: &ProgramHeader, space: &AddressSpace) -> Result<Option<Piece>, Errno> {
        let bytes = self.file.segment_data(header).map_err(|_| Errno::ENOEXEC)?;
        let (start, length) = (header.p_vaddr as usize, header.p_memsz as usize);
        if length == 0 && bytes.is_empty() {
            return Ok(None);
        }
        let end = start.checked_add(length).ok_or(Errno::ENOEXEC)?;
        let rights = Rights {
            read: header.p_flags & PF_R != 0,
            write: header.p_flags & PF_W != 0,
            execute: header.p_flags & PF_X != 0,
        };
        let is_within = layout::USER_START <= start && end <= layout::MAP_START;
        if !is_within || bytes.len() > length || rights.write && rights.execute {
            return Err(Errno::ENOEXEC);
        }
        let first_page = start - start % layout::PAGE_BYTES;
        let pages = first_page..end.next_multiple_of(layout::PAGE_BYTES);
        space.map_anonymous(pages, rights).map_err(errno)?;
        Ok((!bytes.is_empty()).then_some(Piece { address: start, bytes }))
    }

    /// If a note in this segment is COPS's: whether it names this kernel's ABI version.
    fn native_note(&self, header: &ProgramHeader) -> Option<bool> {
        let data = self.file.segment_data(header).ok()?;
        let data = &data[..data.len().min(NOTE_BYTES_MAX)];
        let align = (header.p_align as usize).clamp(4, 8);
        let mut notes = NoteIterator::new(LittleEndian, self.file.ehdr.class, align, data);
        notes.find_map(|note| match note {
            Note::Unknown(any) => {
                let is_ours = any.n_type == u64::from(note::TYPE_ABI_VERSION)
                    && any.name.strip_suffix(&[0]).unwrap_or(any.name) == &note::NAME[..4];
                is_ours.then(|| any.desc == note::ABI_VERSION.to_le_bytes())
            }
            _ => None,
        })
    }

    /// Where a segment has the program headers in memory, if it does.
    fn headers_in(&self, header: &ProgramHeader) -> Option<usize> {
        let offset = self.file.ehdr.e_phoff.checked_sub(header.p_offset)?;
        (offset < header.p_filesz).then(|| header.p_vaddr.wrapping_add(offset) as usize)
    }

    /// Number and size of the program headers.
    pub fn header_count_and_bytes(&self) -> (usize, usize) {
        (self.headers.len(), self.file.ehdr.e_phentsize.into())
    }
}

/// Bytes of the root image that have to be copied into a program's memory.
struct Piece {
    address: usize,
    bytes: &'static [u8],
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
    /// be copied or a note. Returns whether there is more to do.
    ///
    /// # Errors
    /// `ENOMEM`, `ENOEXEC`.
    pub fn map_some(&mut self, program: &Program, space: &AddressSpace) -> Result<bool, Errno> {
        if let Some(piece) = &mut self.piece {
            let done = space.fill_page(piece.address, piece.bytes).map_err(errno)?;
            piece.address += done;
            piece.bytes = &piece.bytes[done..];
            if piece.bytes.is_empty() {
                self.piece = None;
            }
            return Ok(true);
        }
        for _ in 0..PORTION_SEGMENTS {
            if self.headers_done >= program.headers.len() {
                return Ok(false);
            }
            let header = program.headers.get(self.headers_done).map_err(|_| Errno::ENOEXEC)?;
            self.headers_done += 1;
            match header.p_type {
                PT_LOAD => {
                    self.piece = program.map(&header, space)?;
                    self.end = self.end.max((header.p_vaddr + header.p_memsz) as usize);
                    self.headers = program.headers_in(&header).unwrap_or(self.headers);
                }
                PT_NOTE => self.native = self.native.or(program.native_note(&header)),
                PT_INTERP => return Err(Errno::ENOEXEC),
                _ => {}
            }
            if self.piece.is_some() || header.p_type == PT_NOTE {
                break;
            }
        }
        Ok(true)
    }

    /// The personality for the program, of which all segments are mapped (decision 27).
    ///
    /// # Errors
    /// `ENOEXEC` for a program of another version of this kernel's ABI, and for one of the
    /// tutorial's kernel, which is logged.
    pub fn personality(&self, program: &Program) -> Result<Personality, Errno> {
        match self.native {
            Some(true) => Ok(Personality::native()),
            Some(false) => Err(Errno::ENOEXEC),
            None if program.entry() == TUTORIAL_ENTRY => {
                let name = program.name;
                log::warn!("{name}: programs for the tutorial's kernel are not supported");
                Err(Errno::ENOEXEC)
            }
            None => {
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
