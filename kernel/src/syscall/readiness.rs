//! Waiting for one of many files: `ppoll`, `pselect6`, `epoll` and `eventfd2` (decision 31).
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::errno::CallResult;
use cops_abi::file::open;
use cops_abi::poll::{
    EPOLL_EVENT_BYTES, EPOLL_EVENTS_MAX, EVENT_SEMAPHORE, POLL_MAX, epoll_control,
};
use cops_abi::{Errno, syscall as number};
use cops_algorithms::interest::Interest;
use cops_fallible::{try_arc, try_box};

use super::arguments::{Arguments, Clock};
use super::path::Started;
use super::time;
use crate::arch;
use crate::call::{EpollWait, Form, Operation, PollCall, Sets};
use crate::fs::{Epoll, EventCounter, File, Object};
use crate::mm::{self, Access, PinnedBuffer, UserRange};
use crate::process::{Process, VirtualCpu};
use crate::sched::timer;

/// Flags of `eventfd2`.
const EVENT_FLAGS: usize = (EVENT_SEMAPHORE | open::CLOSE_ON_EXEC | open::NON_BLOCKING) as usize;
/// Maximum number of events that a program may ask for, as on Linux.
const EVENTS_MAX: usize = i32::MAX as usize / EPOLL_EVENT_BYTES;

/// Executes a call with this number, if it is one of those here.
pub fn dispatch(
    cpu: &VirtualCpu,
    call: usize,
    args: &Arguments<'_>,
) -> Result<Option<Started>, Errno> {
    let process = &cpu.process;
    let operation = match call {
        number::PPOLL => {
            // As on Linux, the upper half of the register is ignored.
            let count = args.number(1) as u32 as usize;
            if count > POLL_MAX {
                return Err(Errno::EINVAL);
            }
            let form = Form::Array { address: args.number(0), count };
            poll(cpu, form, args.optional_structure(2, time::TIMESPEC_BYTES)?)?
        }
        number::PSELECT6 => {
            let count = usize::try_from(args.number(0) as i32).map_err(|_| Errno::EINVAL)?;
            let addresses = [1, 2, 3].map(|index| args.number(index));
            let sets = Sets { addresses, count: count.min(POLL_MAX), stored: 0 };
            let time = args.optional_structure(4, time::TIMESPEC_BYTES)?;
            poll(cpu, Form::Sets(sets), time)?
        }
        number::EPOLL_CREATE1 => {
            let flags = args.flags(0, open::CLOSE_ON_EXEC as usize)? as u32;
            mm::admit()?;
            let instance = Object::Epoll(Epoll::new(process.family)?);
            return Ok(Some(insert(process, instance, flags).into()));
        }
        number::EPOLL_CTL => return Ok(Some(control(cpu, args).into())),
        number::EPOLL_PWAIT => wait(cpu, args)?,
        number::EVENTFD2 => {
            let flags = args.flags(1, EVENT_FLAGS)? as u32;
            mm::admit()?;
            let counter = EventCounter::new(args.number(0) as u32, flags & EVENT_SEMAPHORE != 0);
            return Ok(Some(insert(process, Object::Event(counter), flags).into()));
        }
        _ => return Ok(None),
    };
    Ok(Some(Started::Operation(operation)))
}

/// Opens `object` in the process.
pub fn insert(process: &Process, object: Object, flags: u32) -> CallResult {
    let file = try_arc(File::new(object, open::READ_WRITE | flags))?;
    let closes = flags & open::CLOSE_ON_EXEC != 0;
    process.files.lock().insert(file, closes).map(|file| file.0)
}

/// `ppoll` or `pselect6` with this time-out.
fn poll(cpu: &VirtualCpu, form: Form, time: Option<UserRange>) -> Result<Operation, Errno> {
    mm::admit()?;
    let process = &cpu.process;
    let until = match time {
        Some(time) => {
            let deadline_ticks = time::deadline_ticks(process, Clock::Monotonic, 0, time)?;
            let rest = if process.personality.is_linux() { time.address() } else { 0 };
            Some((deadline_ticks, rest))
        }
        None => None,
    };
    let priority = process.current_priority(cpu);
    let call = PollCall::new(form, until, process.family, priority, process.has_signal(cpu))?;
    Ok(Operation::Poll(try_box(call)?))
}

/// The epoll instance that `file` is.
fn instance(file: &File) -> Result<&Epoll, Errno> {
    match &file.object {
        Object::Epoll(instance) => Ok(instance),
        _ => Err(Errno::EINVAL),
    }
}

/// `epoll_ctl(epoll fd, operation, fd, *const event)`.
fn control(cpu: &VirtualCpu, args: &Arguments<'_>) -> CallResult {
    let (process, operation) = (&cpu.process, args.number(1));
    let mut bytes = [0; EPOLL_EVENT_BYTES];
    if operation != epoll_control::DELETE {
        process.space.copy_in(args.structure(3, bytes.len())?, &mut bytes)?;
    }
    let [[a, b, c, d, ..], data] = *bytes.as_chunks::<8>().0 else { return Err(Errno::EINVAL) };
    let interest = Interest::new(u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(data));
    let (own, file) = (args.file(0)?, args.file(2)?);
    if !file.can_be_watched() {
        return Err(Errno::EPERM);
    }
    let instance = instance(&own)?;
    if Arc::ptr_eq(&own, &file) {
        return Err(Errno::EINVAL);
    }
    let (what, asker) = ((args.number(2), &file), (process.party(), process.current_priority(cpu)));
    match operation {
        epoll_control::ADD => {
            mm::admit()?;
            instance.add(what, interest, asker)?;
        }
        epoll_control::MODIFY => instance.modify(what, interest, asker)?,
        epoll_control::DELETE => instance.delete(what.0, what.1)?,
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// `epoll_pwait(epoll fd, *mut event, count, milliseconds, ...)`.
fn wait(cpu: &VirtualCpu, args: &Arguments<'_>) -> Result<Operation, Errno> {
    let process = &cpu.process;
    mm::admit()?;
    let file = args.file(0)?;
    let count = args.number(2) as i32;
    let count = usize::try_from(count).ok().filter(|count| (1..=EVENTS_MAX).contains(count));
    let count = count.ok_or(Errno::EINVAL)?.min(EPOLL_EVENTS_MAX);
    let range = args.structure(1, count * EPOLL_EVENT_BYTES)?;
    let buffer = PinnedBuffer::new(&process.space, range, Access::Write)?;
    let deadline_ticks = u64::try_from(args.number(3) as i32).ok().map(|milliseconds| {
        arch::now_ticks().saturating_add(timer::ticks_from_microseconds(milliseconds * 1000))
    });
    let priority = process.current_priority(cpu);
    let wait = EpollWait::new(file, buffer, deadline_ticks, priority)?;
    Ok(Operation::Epoll(try_box(wait)?))
}
