//! A program's arguments, and the stack of its first virtual CPU, where it finds them.

use core::iter::once;

use cops_abi::{Errno, auxv, layout};
use cops_fallible::List;

use super::super::Process;
use crate::arch;
use crate::drivers::random;
use crate::mm::UserRange;

/// A program's arguments: strings one after another, each with its terminating zero.
#[derive(Default)]
pub struct Arguments {
    bytes: List<u8>,
    /// Where each argument begins.
    starts: List<u32>,
}

impl Arguments {
    /// Those in `words`.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn of_words<'a>(words: impl Iterator<Item = &'a [u8]>) -> Result<Self, Errno> {
        let mut arguments = Self::default();
        for word in words {
            arguments.begin()?;
            arguments.append(word)?;
            arguments.append(&[0])?;
        }
        Ok(arguments)
    }

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

/// What a program learns about itself from the auxiliary vector.
pub struct ProgramFacts {
    /// Where it begins.
    pub entry: usize,
    /// Where its program headers are; 0 if they are not in memory.
    pub headers: usize,
    /// Their number, and the size of one.
    pub header_count_and_bytes: (usize, usize),
}

/// The beginning of a program.
#[derive(Clone, Copy)]
pub struct Start {
    pub entry: usize,
    pub stack_pointer: usize,
}

/// Maps the stack of the first virtual CPU of `process` and allocates its first page. Returns its
/// top.
///
/// # Errors
/// `ENOMEM`.
pub fn make(process: &Process) -> Result<usize, Errno> {
    let is_linux = process.personality.is_linux();
    let bytes = if is_linux { layout::LINUX_STACK_BYTES } else { layout::STACK_BYTES };
    let top = process.map_stack(0, bytes)?;
    store(process, top - size_of::<usize>(), &[0; size_of::<usize>()])?;
    Ok(top)
}

/// Builds the same stack as Linux, from `top` down: argument count, arguments, environment (empty),
/// auxiliary vector. The path of the program follows the arguments.
///
/// # Errors
/// `ENOMEM`.
pub fn fill(
    process: &Process,
    top: usize,
    program: &ProgramFacts,
    arguments: &Arguments,
) -> Result<Start, Errno> {
    let mut chance = [0; 16];
    random::fill(&mut chance);
    let path_bytes = process.name.len() + 1;
    let strings_bytes = arguments.byte_count() + path_bytes;
    let strings_start = (top - strings_bytes - chance.len()) & !15;
    let path_start = strings_start + arguments.byte_count();
    let random_start = path_start + path_bytes;
    let vector = if process.personality.is_linux() {
        linux_vector(program, path_start, random_start)?
    } else {
        native_vector(process, program.entry, random_start)?
    };
    let words = once(arguments.len())
        .chain(arguments.starts.iter().map(|&start| strings_start + start as usize))
        .chain([0, 0])
        .chain(vector.iter().flat_map(|&(key, value)| [key, value]));
    let mut bytes =
        List::try_with_capacity((3 + arguments.len() + 2 * vector.len()) * size_of::<usize>())?;
    for word in words {
        bytes.try_extend_from_slice(&word.to_le_bytes())?;
    }
    let stack_pointer = (strings_start - bytes.len()) & !15;
    store(process, strings_start, &arguments.bytes)?;
    store(process, path_start, process.name.as_bytes())?;
    store(process, random_start, &chance)?;
    store(process, stack_pointer, &bytes)?;
    Ok(Start { entry: program.entry, stack_pointer })
}

/// The auxiliary vector of a native program.
fn native_vector(
    process: &Process,
    entry: usize,
    random_start: usize,
) -> Result<List<(usize, usize)>, Errno> {
    let trace_pages = if process.trace_pages.is_some() { layout::TRACE_PAGES } else { 0 };
    Ok(List::try_from_slice(&[
        (auxv::AT_PAGESZ, layout::PAGE_BYTES),
        (auxv::AT_ENTRY, entry),
        (auxv::AT_RANDOM, random_start),
        (auxv::AT_SYSINFO_EHDR, layout::VDSO),
        (auxv::AT_COPS_PROCESS_PAGE, layout::PROCESS_PAGE),
        (auxv::AT_COPS_RING, layout::RING_PAGES),
        (auxv::AT_COPS_SYSTEM_PAGE, layout::SYSTEM_PAGE),
        (auxv::AT_COPS_TRACE, trace_pages),
        (auxv::AT_NULL, 0),
    ])?)
}

/// The auxiliary vector of a Linux program. The vDSO is not in it: it is not Linux's.
fn linux_vector(
    program: &ProgramFacts,
    path_start: usize,
    random_start: usize,
) -> Result<List<(usize, usize)>, Errno> {
    /// What every Linux says.
    const CLOCK_TICKS: usize = 100;
    let (header_count, header_bytes) = program.header_count_and_bytes;
    Ok(List::try_from_slice(&[
        (auxv::AT_PHDR, program.headers),
        (auxv::AT_PHENT, header_bytes),
        (auxv::AT_PHNUM, header_count),
        (auxv::AT_PAGESZ, layout::PAGE_BYTES),
        (auxv::AT_BASE, 0),
        (auxv::AT_FLAGS, 0),
        (auxv::AT_ENTRY, program.entry),
        (auxv::AT_UID, 0),
        (auxv::AT_EUID, 0),
        (auxv::AT_GID, 0),
        (auxv::AT_EGID, 0),
        (auxv::AT_SECURE, 0),
        (auxv::AT_HWCAP, arch::HARDWARE_CAPABILITIES),
        (auxv::AT_CLKTCK, CLOCK_TICKS),
        (auxv::AT_RANDOM, random_start),
        (auxv::AT_EXECFN, path_start),
        (auxv::AT_NULL, 0),
    ])?)
}

/// Writes to the stack.
fn store(process: &Process, address: usize, bytes: &[u8]) -> Result<(), Errno> {
    let place = UserRange::new(address, bytes.len()).ok_or(Errno::ENOMEM)?;
    process.space.copy_out(place, bytes).map_err(|_| Errno::ENOMEM)
}
