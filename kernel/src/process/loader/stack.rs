//! A program's arguments, and the stack of its first virtual CPU, where it finds them.

use core::iter::once;

use cops_abi::syscall::{ARGUMENT_BYTES_MAX, ARGUMENTS_MAX};
use cops_abi::{Errno, auxv, layout};
use cops_algorithms::script::Interpreter;
use cops_fallible::{List, OutOfMemory};

use super::super::{Personality, Strings};
use crate::arch;
use crate::drivers::random;
use crate::mm::quota::{Family, Kept};
use crate::mm::{AddressSpace, Rights, UserRange};

/// A program's arguments and environment: strings one after another, each with its terminating
/// zero.
#[derive(Default)]
pub struct Arguments {
    bytes: List<u8>,
    /// Where each string begins.
    starts: List<u32>,
    /// How many of the strings are arguments, once that is known; the others are the environment.
    count: Option<usize>,
    /// For the load that they belong to.
    kept: Kept,
}

/// What every load keeps: paths, what was read of the file, and what is left to do.
const LOAD_BYTES: usize = 16 << 10;

impl Arguments {
    /// Charges to `payer` what a load keeps with these arguments and `more` bytes.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn charge(&mut self, payer: Family, more: usize) -> Result<(), OutOfMemory> {
        let starts = self.starts.capacity() * size_of::<u32>();
        self.kept.at_least(payer, LOAD_BYTES + self.bytes.capacity() + starts + more)
    }

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

    /// The number of strings.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// The number of arguments.
    fn count(&self) -> usize {
        self.count.unwrap_or(self.len())
    }

    /// Those of the interpreter of a script at `path` that was to be started with these: its name
    /// and its argument, the path, and what follows the first of these.
    ///
    /// # Errors
    /// `E2BIG`, `ENOMEM`.
    pub fn interpreted(
        &mut self,
        interpreter: &Interpreter<'_>,
        path: &str,
    ) -> Result<Self, Errno> {
        let first = [Some(interpreter.path), interpreter.argument, Some(path.as_bytes())];
        let mut all = Self::of_words(first.into_iter().flatten())?;
        let dropped = self.count().min(1);
        all.count = Some(all.len() + self.count() - dropped);
        let begin = self.starts.get(dropped).map_or(self.bytes.len(), |&start| start as usize);
        let rest = self.starts.get(dropped..).unwrap_or_default();
        if all.bytes.len() + self.bytes.len() - begin > ARGUMENT_BYTES_MAX
            || all.len() + rest.len() > ARGUMENTS_MAX
        {
            return Err(Errno::E2BIG);
        }
        let shift = all.bytes.len() as u32;
        for &start in rest {
            all.starts.try_push(start - begin as u32 + shift)?;
        }
        all.bytes.try_extend_from_slice(&self.bytes[begin..])?;
        all.kept = core::mem::take(&mut self.kept);
        Ok(all)
    }

    /// What follows is the environment.
    pub fn end_arguments(&mut self) {
        self.count = Some(self.len());
    }

    /// Total size of the strings with their zeros.
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }

    /// Begins another string.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn begin(&mut self) -> Result<(), Errno> {
        Ok(self.starts.try_push(self.bytes.len() as u32)?)
    }

    /// Appends to the last string. At its end the terminating zero is appended too.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn append(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        Ok(self.bytes.try_extend_from_slice(bytes)?)
    }
}

/// What a program learns about itself from the auxiliary vector.
pub struct ProgramFacts<'a> {
    /// The path by which it was started; that of a script for its interpreter.
    pub path: &'a str,
    /// Where it begins.
    pub entry: usize,
    /// Where its program headers are; 0 if they are not in memory.
    pub headers: usize,
    /// Their number, and the size of one.
    pub header_count_and_bytes: (usize, usize),
    /// Whether its process has trace pages.
    pub is_traced: bool,
    /// Whether it is for this kernel.
    pub is_native: bool,
}

/// The beginning of a program.
#[derive(Clone, Copy)]
pub struct Start {
    pub entry: usize,
    pub stack_pointer: usize,
    pub argument_count: usize,
    /// Where the arguments and the environment are.
    pub strings: Strings,
}

/// Maps the stack of the first virtual CPU of a program and allocates its first page. Returns its
/// top.
///
/// # Errors
/// `ENOMEM`.
pub fn make(space: &AddressSpace, personality: &Personality) -> Result<usize, Errno> {
    let is_linux = personality.is_linux();
    let bytes = if is_linux { layout::LINUX_STACK_BYTES } else { layout::STACK_BYTES };
    let top = layout::STACK_TOP;
    space.map_anonymous(top - bytes..top, Rights::READ_WRITE)?;
    store(space, top - size_of::<usize>(), &[0; size_of::<usize>()])?;
    Ok(top)
}

/// Builds the same stack as Linux, from `top` down: argument count, arguments, environment,
/// auxiliary vector. The path of the program follows the arguments.
///
/// # Errors
/// `ENOMEM`.
pub fn fill(
    space: &AddressSpace,
    top: usize,
    program: &ProgramFacts<'_>,
    arguments: &Arguments,
) -> Result<Start, Errno> {
    let mut chance = [0; 16];
    random::fill(&mut chance);
    let path_bytes = program.path.len() + 1;
    let strings_bytes = arguments.byte_count() + path_bytes;
    let strings_start = (top - strings_bytes - chance.len()) & !15;
    let path_start = strings_start + arguments.byte_count();
    let random_start = path_start + path_bytes;
    let vector = if program.is_native {
        native_vector(program, random_start)?
    } else {
        linux_vector(program, path_start, random_start)?
    };
    let place = |&start: &u32| strings_start + start as usize;
    let (first, environment) = arguments.starts.split_at(arguments.count());
    let words = once(first.len())
        .chain(first.iter().map(place))
        .chain([0])
        .chain(environment.iter().map(place))
        .chain([0])
        .chain(vector.iter().flat_map(|&(key, value)| [key, value]));
    let mut bytes =
        List::try_with_capacity((3 + arguments.len() + 2 * vector.len()) * size_of::<usize>())?;
    for word in words {
        bytes.try_extend_from_slice(&word.to_le_bytes())?;
    }
    let stack_pointer = (strings_start - bytes.len()) & !15;
    store(space, strings_start, &arguments.bytes)?;
    store(space, path_start, program.path.as_bytes())?;
    store(space, random_start, &chance)?;
    store(space, stack_pointer, &bytes)?;
    let strings = Strings {
        arguments: strings_start,
        environment: environment.first().map_or(path_start, place),
        end: path_start,
    };
    Ok(Start { entry: program.entry, stack_pointer, argument_count: first.len(), strings })
}

/// The auxiliary vector of a native program.
fn native_vector(
    program: &ProgramFacts<'_>,
    random_start: usize,
) -> Result<List<(usize, usize)>, Errno> {
    let trace_pages = if program.is_traced { layout::TRACE_PAGES } else { 0 };
    Ok(List::try_from_slice(&[
        (auxv::AT_PAGESZ, layout::PAGE_BYTES),
        (auxv::AT_ENTRY, program.entry),
        (auxv::AT_RANDOM, random_start),
        (auxv::AT_SYSINFO_EHDR, layout::VDSO),
        (auxv::AT_COPS_PROCESS_PAGE, layout::PROCESS_PAGE),
        (auxv::AT_COPS_RING, layout::RING_PAGES),
        (auxv::AT_COPS_SYSTEM_PAGE, layout::SYSTEM_PAGE),
        (auxv::AT_COPS_TRACE, trace_pages),
        (auxv::AT_NULL, 0),
    ])?)
}

/// The auxiliary vector of a Linux program. The vDSO is not in it: it is not Linux's. Programs of
/// the tutorial do not read it.
fn linux_vector(
    program: &ProgramFacts<'_>,
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
fn store(space: &AddressSpace, address: usize, bytes: &[u8]) -> Result<(), Errno> {
    let place = UserRange::new(address, bytes.len()).ok_or(Errno::ENOMEM)?;
    space.copy_out(place, bytes).map_err(|_| Errno::ENOMEM)
}
