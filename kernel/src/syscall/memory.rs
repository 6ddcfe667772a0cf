//! Memory of a process: mappings.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::linux::map_flags as more_flags;
use cops_abi::syscall::{map_flags, sync_flags};
use cops_algorithms::user_range::own_pages;
use cops_fallible::try_box;

use super::Reply;
use super::arguments::Arguments;
use crate::arch::SyscallFrame;
use crate::call::{MapCall, Operation, PathCall, SyncMemory, Then};
use crate::drivers::random;
use crate::fs::{self, Device, File, Object, SharedMemory};
use crate::mm::layout::{LAZY_AREA, MAP_AREA, PAGE_BYTES, page_up};
use crate::mm::quota::{Charge, Family};
use crate::mm::{self, Place, Replacement, Rights, Source, UserRange, View};
use crate::process::resumable::{self, Resumable};
use crate::process::{Process, VirtualCpu};

/// `mmap(address, length, protection, flags, fd, offset)`.
///
/// Charged here, so that a later access cannot fail because of the quota; frames are allocated on
/// first access.
pub fn map(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    const KIND: usize = map_flags::SHARED | map_flags::PRIVATE;
    const LAZY: usize = more_flags::NORESERVE | more_flags::STACK | more_flags::GROWSDOWN;
    const FIXED: usize = more_flags::FIXED | more_flags::FIXED_NOREPLACE;
    const KNOWN: usize = KIND | map_flags::ANONYMOUS | LAZY | FIXED | more_flags::WITHOUT_EFFECT;
    let (address, length) = (args.number(0), args.number(1));
    let (flags, offset) = (args.flags(3, KNOWN)?, args.number(5));
    if !offset.is_multiple_of(PAGE_BYTES) {
        return Err(Errno::EINVAL);
    }
    let file = if flags & map_flags::ANONYMOUS != 0 { None } else { Some(args.file(4)?) };
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    // As on Linux: more addresses than there are.
    page_up(length).ok_or(Errno::ENOMEM)?;
    let rights = args.rights(2)?;
    let is_lazy = flags & LAZY != 0;
    let part = Part { payer: cpu.process.family, offset, length, rights, is_lazy };
    let source = || match (flags & KIND, &file) {
        (map_flags::PRIVATE, None) => Ok(Source::Anonymous),
        (map_flags::PRIVATE, Some(file)) => part.of_file(file, false),
        (map_flags::SHARED, None) => part.of_shared_memory(),
        (map_flags::SHARED, Some(file)) => part.of_file(file, true),
        _ => Err(Errno::EINVAL),
    };
    mm::admit()?;
    let mut place = place(address, length, flags, is_lazy || rights == Rights::NONE)?;
    if let Some(file) = &file
        && let Object::Served(served) = &file.object
    {
        let is_shared = match flags & KIND {
            map_flags::SHARED => true,
            map_flags::PRIVATE => false,
            _ => return Err(Errno::EINVAL),
        };
        let call = part.of_served_file(file, is_shared, place)?;
        let call = PathCall::of_node(served.node().clone(), Then::Map(try_box(call)?));
        return Ok(super::submit(cpu, frame, Operation::Path(try_box(call)?)));
    }
    if let Place::Replace(place) = place {
        let replace = |_: &_| Ok(Resumable::Replace { place, rights, source: source()? });
        return Ok(resumable::resume(cpu, frame, replace).into());
    }
    let mapped = place.map(&cpu.process.space, rights, &source()?)?;
    Ok(mapped.map(Ok).into())
}

/// `msync(address, length, flags)`: returns when what was written to mappings of files that a
/// process serves survives a loss of power. Other files that can be mapped are in memory. With
/// `MS_ASYNC` nothing is done, as on Linux.
pub fn sync(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    let process = &cpu.process;
    use sync_flags::*;
    let flags = args.flags(2, ASYNC | INVALIDATE | SYNC)?;
    if flags & (ASYNC | SYNC) == ASYNC | SYNC || !args.number(0).is_multiple_of(PAGE_BYTES) {
        return Err(Errno::EINVAL);
    }
    if args.number(1) == 0 {
        return Ok(Reply::Done(Ok(0)));
    }
    let range = own_pages(args.number(0), args.number(1)).ok_or(Errno::ENOMEM)?;
    if process.space.has_gap_in_portion(&range) {
        return Err(Errno::ENOMEM);
    }
    if flags & SYNC == 0 || !process.space.shares_memory() {
        return Ok(Reply::Done(Ok(0)));
    }
    let memory = Then::SynchroniseMemory(try_box(SyncMemory::new(range))?);
    let call = PathCall::of_node(fs::root_directory().clone(), memory);
    Ok(super::submit(cpu, frame, Operation::Path(try_box(call)?)))
}

/// Where something is to be mapped. Without one of the flags `FIXED` and `FIXED_NOREPLACE`, the
/// address is a hint.
fn place(address: usize, length: usize, flags: usize, is_lazy: bool) -> Result<Place, Errno> {
    let range = own_pages(address, length);
    let fixed = || range.clone().ok_or_else(|| error_of_fixed(address, length));
    if flags & more_flags::FIXED_NOREPLACE != 0 {
        return Ok(Place::Free(fixed()?));
    }
    if flags & more_flags::FIXED != 0 {
        return Ok(Place::Replace(Replacement::of(fixed()?)));
    }
    let area = if is_lazy { LAZY_AREA } else { MAP_AREA };
    Ok(Place::Anywhere { hint: range.filter(|_| address != 0), area, length })
}

/// Why nothing can be mapped at `address`: as on Linux, no program has so many addresses there, or
/// it is not that of a page. Or the kernel has mapped something there.
fn error_of_fixed(address: usize, length: usize) -> Errno {
    if UserRange::new(address, length).is_none() { Errno::ENOMEM } else { Errno::EINVAL }
}

/// What is to be mapped.
struct Part {
    payer: Family,
    offset: usize,
    length: usize,
    rights: Rights,
    is_lazy: bool,
}

impl Part {
    /// Memory that this process shares with its copies.
    fn of_shared_memory(&self) -> Result<Source, Errno> {
        if self.rights.execute {
            return Err(Errno::EACCES);
        }
        let length = page_up(self.length).ok_or(Errno::ENOMEM)?;
        let object = SharedMemory::new(length, self.payer, self.is_lazy)?;
        let payer = Some(Charge::shared_standing(self.payer)?);
        Ok(Source::Shared(View { object, first: 0, payer, may_write: true }))
    }

    /// Checks whether that part of `file` may be mapped so.
    fn check(&self, file: &File, is_shared: bool) -> Result<(), Errno> {
        // A position in a file is signed.
        let end = self.offset.checked_add(self.length).filter(|&end| isize::try_from(end).is_ok());
        end.ok_or(Errno::EOVERFLOW)?;
        if !file.is_readable() || is_shared && self.rights.write && !file.is_writable() {
            return Err(Errno::EACCES);
        }
        Ok(())
    }

    /// A part of a file that a process serves.
    fn of_served_file(&self, file: &File, is_shared: bool, place: Place) -> Result<MapCall, Errno> {
        self.check(file, is_shared)?;
        // What another process can write is never executed.
        if is_shared && self.rights.execute {
            return Err(Errno::EACCES);
        }
        let first = (self.offset / PAGE_BYTES) as u64;
        let pages = first..first + self.length.div_ceil(PAGE_BYTES) as u64;
        let may_write = !is_shared || file.is_writable();
        Ok(MapCall::new(place, self.rights, pages, is_shared, may_write))
    }

    /// A part of a file.
    fn of_file(&self, file: &File, is_shared: bool) -> Result<Source, Errno> {
        self.check(file, is_shared)?;
        let may_write = file.is_writable();
        match &file.object {
            Object::Device { device: Device::Zero, .. } if is_shared => self.of_shared_memory(),
            Object::Device { device: Device::Zero, .. } => Ok(Source::Anonymous),
            Object::Node { node, payer, .. } => {
                let first = (self.offset / PAGE_BYTES) as u64;
                // Copies of what never changes cannot be told from it.
                if !is_shared || node.image().is_some() {
                    let (object, may_write) = (node.clone().object()?, !is_shared);
                    return Ok(Source::Private(View { object, first, payer: None, may_write }));
                }
                // What another process can write is never executed.
                if self.rights.execute {
                    return Err(Errno::EACCES);
                }
                let payer = Some(Charge::shared_standing(payer.family())?);
                let object = node.clone().shared_object()?;
                Ok(Source::Shared(View { object, first, payer, may_write }))
            }
            _ => Err(Errno::ENODEV),
        }
    }
}

/// The flags of Linux's `getrandom`, which change nothing here.
///
/// # Errors
/// `EINVAL` for others, and for two that exclude each other.
pub fn check_random_flags(flags: usize) -> Result<(), Errno> {
    const NONBLOCK: usize = 1;
    const RANDOM: usize = 2;
    const INSECURE: usize = 4;
    let is_known = flags & !(NONBLOCK | RANDOM | INSECURE) == 0;
    let are_both = flags & (RANDOM | INSECURE) == RANDOM | INSECURE;
    if is_known && !are_both { Ok(()) } else { Err(Errno::EINVAL) }
}

/// `getrandom(buffer, length, flags)`; of the buffer at most [`random::BYTES_MAX`] bytes.
pub fn random(process: &Process, buffer: UserRange) -> CallResult {
    let mut bytes = [0; random::BYTES_MAX];
    let bytes = &mut bytes[..buffer.len().min(random::BYTES_MAX)];
    random::fill(bytes);
    process.space.copy_out(buffer, bytes)?;
    Ok(bytes.len())
}
