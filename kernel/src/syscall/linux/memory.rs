//! Memory of Linux programs: the heap of `brk`, `mremap`, `madvise`.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::linux::{advice, remap_flags};
use cops_algorithms::user_range::own_pages;
use cops_fallible::try_box;

use super::super::Reply;
use super::super::arguments::Arguments;
use crate::arch::SyscallFrame;
use crate::mm::layout::{MAP_START, page_up};
use crate::mm::{self, MapError, Move, Rights};
use crate::process::resumable::{self, Resumable};
use crate::process::{Linux, Process, VirtualCpu};

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

/// `mremap(address, length, new length, flags, new address)`: shrinks a mapping, extends it where
/// the addresses behind it are free, or moves it.
pub fn remap(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    let (address, length, new_length) = (args.number(0), args.number(1), args.number(2));
    let flags = args.flags(3, remap_flags::MAYMOVE | remap_flags::FIXED)?;
    let may_move = flags & remap_flags::MAYMOVE != 0;
    let range = own_pages(address, length).ok_or(Errno::EINVAL)?;
    let wanted = own_pages(address, new_length).ok_or(Errno::EINVAL)?;
    if flags & remap_flags::FIXED != 0 {
        let target = own_pages(args.number(4), new_length).ok_or(Errno::EINVAL)?;
        if !may_move || target.start < range.end && range.start < target.end {
            return Err(Errno::EINVAL);
        }
        let begin = |process: &Arc<Process>| {
            mm::admit()?;
            if !process.space.is_one_mapping(&range) {
                return Err(Errno::EFAULT);
            }
            let call = Move::new(range.clone(), Some(target.start), target.len());
            Ok(Resumable::Move(try_box(call)?))
        };
        return Ok(resumable::resume(cpu, frame, begin).into());
    }
    if wanted.end < range.end {
        let shrink = |process: &Arc<Process>| {
            if !process.space.is_mapped(address) {
                return Err(Errno::EFAULT);
            }
            Ok(Resumable::Shrink(wanted.end..range.end, address))
        };
        return Ok(resumable::resume(cpu, frame, shrink).into());
    }
    let begin = |_: &_| {
        let call = Move::new(range.clone(), None, wanted.len());
        Ok(Resumable::Move(try_box(call)?))
    };
    if resumable::is_unfinished(cpu, frame) {
        return Ok(resumable::resume(cpu, frame, begin).into());
    }
    if wanted.end > range.end {
        mm::admit()?;
    }
    match cpu.process.space.extend(&range, wanted.end) {
        Ok(()) => Ok(Reply::Done(Ok(address))),
        Err(MapError::NotMapped) => Err(Errno::EFAULT),
        Err(MapError::Overlap) if may_move => Ok(resumable::resume(cpu, frame, begin).into()),
        Err(MapError::Overlap) => Err(Errno::ENOMEM),
        Err(error) => Err(error.into()),
    }
}

/// `madvise(address, length, advice)`.
pub fn advise(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    let frees = match args.number(2) {
        advice::DONTNEED | advice::FREE | advice::DONTNEED_LOCKED => true,
        other if other < 64 && advice::WITHOUT_EFFECT >> other & 1 != 0 => false,
        _ => return Err(Errno::EINVAL),
    };
    if args.number(1) == 0 {
        return Ok(Reply::Done(Ok(0)));
    }
    let rest = args.own_pages(0)?;
    if !frees {
        let has_gap = cpu.process.space.has_gap_in_portion(&rest);
        return if has_gap { Err(Errno::ENOMEM) } else { Ok(Reply::Done(Ok(0))) };
    }
    let discard = Resumable::Discard { rest, has_gap: false };
    Ok(resumable::resume(cpu, frame, |_| Ok(discard)).into())
}
