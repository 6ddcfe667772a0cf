//! Memory of Linux programs: the heap of `brk`, mappings at given addresses, `mremap`, `madvise`.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::linux::{advice, map_flags as more_flags, remap_flags};
use cops_abi::syscall::map_flags;
use cops_algorithms::user_range::own_pages;

use super::super::Reply;
use super::super::arguments::Arguments;
use crate::arch::SyscallFrame;
use crate::mm::layout::{LAZY_AREA, MAP_AREA, MAP_START, page_up};
use crate::mm::{self, MapError, Rights};
use crate::process::resumable::{self, Replacing, Resumable};
use crate::process::{Linux, VirtualCpu};

/// `brk(end)`: moves the end of the heap. Returns its end, which is unchanged if it cannot be
/// moved.
pub fn set_break(
    cpu: &Arc<VirtualCpu>,
    linux: &Linux,
    frame: &SyscallFrame,
    wanted: usize,
) -> Reply {
    let mut freed = None;
    if !resumable::is_unfinished(cpu, frame) {
        let mut heap = linux.heap.lock();
        let (Some(before), Some(after)) = (page_up(heap.end), page_up(wanted)) else {
            return Reply::Done(Ok(heap.end));
        };
        if wanted < heap.start || after > MAP_START {
            return Reply::Done(Ok(heap.end));
        }
        if after > before
            && (mm::admit().is_err()
                || cpu.process.space.map_anonymous(before..after, Rights::READ_WRITE).is_err())
        {
            return Reply::Done(Ok(heap.end));
        }
        heap.end = wanted;
        if after >= before {
            return Reply::Done(Ok(wanted));
        }
        freed = Some(after..before);
    }
    let begin = |_: &_| freed.map(|range| Resumable::Shrink(range, wanted)).ok_or(Errno::ENOMEM);
    resumable::resume(cpu, frame, begin).into()
}

/// `mmap(address, length, protection, flags, -1, 0)`: private memory without a file.
pub fn map(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    const KIND: usize = map_flags::PRIVATE | map_flags::ANONYMOUS;
    const LAZY: usize = more_flags::NORESERVE | more_flags::STACK | more_flags::GROWSDOWN;
    const FIXED: usize = more_flags::FIXED | more_flags::FIXED_NOREPLACE;
    let (address, length) = (args.number(0), args.number(1));
    let flags = args.flags(3, KIND | LAZY | FIXED | more_flags::WITHOUT_EFFECT)?;
    if flags & KIND != KIND || length == 0 {
        return Err(Errno::EINVAL);
    }
    let rights = args.rights(2)?;
    let space = &cpu.process.space;
    mm::admit()?;
    if flags & more_flags::FIXED_NOREPLACE != 0 {
        let range = own_pages(address, length).ok_or(Errno::EINVAL)?;
        space.map_anonymous(range, rights)?;
        return Ok(Reply::Done(Ok(address)));
    }
    if flags & more_flags::FIXED != 0 {
        let replace = |_: &_| {
            let range = own_pages(address, length).ok_or(Errno::EINVAL)?;
            Ok(Resumable::Replace(Replacing::new(range, rights)))
        };
        return Ok(resumable::resume(cpu, frame, replace).into());
    }
    // The address is a hint: it is used if all of it is free.
    if address != 0
        && let Some(range) = own_pages(address, length)
        && space.map_anonymous(range, rights).is_ok()
    {
        return Ok(Reply::Done(Ok(address)));
    }
    let length = page_up(length).ok_or(Errno::ENOMEM)?;
    let is_lazy = flags & LAZY != 0 || rights == Rights::NONE;
    let area = if is_lazy { LAZY_AREA } else { MAP_AREA };
    Ok(Reply::Done(Ok(space.map_anonymous_anywhere(area, length, rights)?)))
}

/// `mremap(address, length, new length, flags)`: shrinks a mapping, or extends it where the
/// addresses behind it are free. `ENOMEM` if they are not.
pub fn remap(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    let (address, length, new_length) = (args.number(0), args.number(1), args.number(2));
    args.flags(3, remap_flags::MAYMOVE)?;
    let range = own_pages(address, length).ok_or(Errno::EINVAL)?;
    let wanted = own_pages(address, new_length).ok_or(Errno::EINVAL)?;
    if wanted.end < range.end {
        let shrink = |_: &_| Ok(Resumable::Shrink(wanted.end..range.end, address));
        return Ok(resumable::resume(cpu, frame, shrink).into());
    }
    let rights = cpu.process.space.rights_of(&range).ok_or(Errno::EFAULT)?;
    if wanted.end > range.end {
        mm::admit()?;
        match cpu.process.space.map_anonymous(range.end..wanted.end, rights) {
            Ok(()) => {}
            Err(MapError::Overlap) => return Err(Errno::ENOMEM),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Reply::Done(Ok(address)))
}

/// `madvise(address, length, advice)`.
pub fn advise(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    let advised = args.number(2);
    if advised > advice::LAST {
        return Err(Errno::EINVAL);
    }
    if args.number(1) == 0 {
        return Ok(Reply::Done(Ok(0)));
    }
    let range = args.own_pages(0)?;
    if advised != advice::DONTNEED && advised != advice::FREE {
        return Ok(Reply::Done(Ok(0)));
    }
    Ok(resumable::resume(cpu, frame, |_| Ok(Resumable::Discard(range))).into())
}
