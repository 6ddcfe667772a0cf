//! Programs: from an ELF file in the root image to a process whose first virtual CPU is in the run queue.
//!
//! May touch: the root image, `mm`, processes. Everything in the file is an allegation.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use alloc::vec::Vec;

use cops_abi::{Errno, auxv, layout, note};
use elf::ElfBytes;
use elf::abi::{EM_RISCV, ET_EXEC, PF_R, PF_W, PF_X, PT_INTERP, PT_LOAD, PT_NOTE};
use elf::endian::LittleEndian;

use super::process::Process;
use super::{children, random};
use crate::fs::{FileTable, Node, root};
use crate::mm::{self, AddressSpace, Rights, UserRange};

type File<'a> = ElfBytes<'a, LittleEndian>;

/// Starts the program at `path` with `arguments` as a child of `parent`, never more urgent than `ceiling`.
///
/// # Errors
/// `ENOENT`, `EISDIR`, `ENOEXEC` for a file that is no program of this machine and ABI version, `E2BIG`, `ENOMEM`, `EAGAIN`.
pub fn start_program(
    path: &str,
    arguments: &[Vec<u8>],
    parent: Option<&Process>,
    ceiling: u8,
    files: FileTable,
) -> Result<Arc<Process>, Errno> {
    mm::admit()?;
    if path.is_empty() {
        return Err(Errno::ENOENT);
    }
    let program = match root().look_up(path)? {
        Node::File(entry) => entry,
        Node::Directory(_) => return Err(Errno::EISDIR),
    };
    let space = AddressSpace::new()?;
    let entry = load(&space, program.data)?;
    let id = children::reserve(parent.map_or(0, |parent| parent.id))?;
    Process::new(id, parent, ceiling, program.path.clone(), space, files)
        .and_then(|process| start(process, entry, arguments))
        .inspect_err(|_| children::give_back(id))
}

fn start(process: Arc<Process>, entry: usize, arguments: &[Vec<u8>]) -> Result<Arc<Process>, Errno> {
    let stack_top = process.map_stack(0)?;
    let trace_pages = if process.is_traced() { layout::TRACE_PAGES } else { 0 };
    let stack_pointer = fill_stack(&process.space, stack_top, entry, trace_pages, arguments)?;
    children::enter(&process);
    process.add_cpu(entry, Some(stack_pointer))?;
    Ok(process)
}

/// Maps the segments of the program and returns its entry point.
fn load(space: &AddressSpace, bytes: &[u8]) -> Result<usize, Errno> {
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
        return Ok(());
    }
    let end = start.checked_add(length).filter(|&end| end <= layout::MAP_START).ok_or(Errno::ENOEXEC)?;
    if start < layout::USER_START || data.len() > length || rights.write && rights.execute {
        return Err(Errno::ENOEXEC);
    }
    let first_page = start - start % layout::PAGE_BYTES;
    let range = first_page..end.next_multiple_of(layout::PAGE_BYTES);
    space.map_data(range, rights, start - first_page, data).map_err(|error| match error {
        mm::MapError::OutOfMemory => Errno::ENOMEM,
        _ => Errno::ENOEXEC,
    })
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
    arguments: &[Vec<u8>],
) -> Result<usize, Errno> {
    let mut strings: Vec<u8> = Vec::new();
    let mut offsets = Vec::new();
    for argument in arguments {
        offsets.push(strings.len());
        strings.extend_from_slice(argument);
        strings.push(0);
    }
    let random_offset = strings.len();
    strings.extend_from_slice(&random::bytes());
    let strings_start = (top - strings.len()) & !15;
    let mut words = alloc::vec![arguments.len()];
    words.extend(offsets.iter().map(|offset| strings_start + offset));
    words.extend([0, 0]);
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
    words.extend(vector.into_iter().flat_map(|(key, value)| [key, value]));
    let stack_pointer = (strings_start - words.len() * size_of::<usize>()) & !15;
    let words: Vec<u8> = words.into_iter().flat_map(usize::to_le_bytes).collect();
    let store = |address, bytes: &[u8]| UserRange::new(address, bytes.len()).copy_out(space, bytes);
    store(strings_start, &strings).map_err(|_| Errno::ENOMEM)?;
    store(stack_pointer, &words).map_err(|_| Errno::ENOMEM)?;
    Ok(stack_pointer)
}
