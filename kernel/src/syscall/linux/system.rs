//! What Linux programs ask of the system and of themselves: names, limits, times, signals to
//! threads.
#![forbid(unsafe_code)]

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::layout;
use cops_abi::linux::{system_name, thread_control, usage};

use super::super::arguments::{Arguments, Clock};
use super::super::time;
use super::signals::words;
use crate::arch;
use crate::call;
use crate::mm::{UserRange, frames};
use crate::process::{Limit, Process, Thread, VirtualCpu, children};
use crate::sched::timer;

/// Size of the structure of `times`.
pub const TIMES_BYTES: usize = 32;

/// Copies `bytes` to `address`.
fn store(process: &Process, address: usize, bytes: &[u8]) -> Result<(), Errno> {
    let range = UserRange::new(address, bytes.len()).ok_or(Errno::EFAULT)?;
    Ok(process.space.copy_out(range, bytes)?)
}

/// `clock_gettime` of a clock that counts time on harts.
pub fn cpu_time(process: &Process, ticks: u64, into: UserRange) -> CallResult {
    let nanoseconds = timer::nanoseconds_from_ticks(ticks);
    process.space.copy_out(into, &time::timespec(nanoseconds))?;
    Ok(0)
}

/// `clock_getres(clock, *mut timespec or 0)`: all clocks count the same ticks.
pub fn resolution(process: &Process, into: Option<UserRange>) -> CallResult {
    if let Some(into) = into {
        let nanoseconds = timer::nanoseconds_from_ticks(1).max(1);
        process.space.copy_out(into, &time::timespec(nanoseconds))?;
    }
    Ok(0)
}

/// `gettimeofday(*mut timeval or 0, _)`: a time zone is not stored, as on Linux without one.
pub fn time_of_day(process: &Process, into: Option<UserRange>) -> CallResult {
    if let Some(into) = into {
        let nanoseconds = time::now_nanoseconds(Clock::Real);
        let mut bytes = time::timespec(nanoseconds);
        let microseconds = nanoseconds % 1_000_000_000 / 1000;
        bytes[8..].copy_from_slice(&microseconds.to_le_bytes());
        process.space.copy_out(into, &bytes)?;
    }
    Ok(0)
}

/// `getrusage(of, *mut rusage)`: the time on harts, and the present memory in the place of its
/// maximum. All time counts as time in the program.
pub fn usage(cpu: &VirtualCpu, of: isize, into: UserRange) -> CallResult {
    let process = &cpu.process;
    let (ticks, pages) = match of {
        usage::OWN => (process.account.used_ticks_until_now(), process.space.page_count()),
        usage::CHILDREN => (process.account.children_ticks(), 0),
        usage::THREAD => (cpu.used_ticks(), process.space.page_count()),
        _ => return Err(Errno::EINVAL),
    };
    let mut bytes = call::usage_of(ticks);
    let kibibytes = (pages * layout::PAGE_BYTES / 1024) as u64;
    bytes[32..40].copy_from_slice(&kibibytes.to_le_bytes());
    process.space.copy_out(into, &bytes)?;
    Ok(0)
}

/// `times(*mut tms or 0)`: hundredths of a second; all time counts as time in the program.
pub fn times(process: &Process, into: Option<UserRange>) -> CallResult {
    let hundredths = |ticks| timer::nanoseconds_from_ticks(ticks) / 10_000_000;
    if let Some(into) = into {
        let account = &process.account;
        let (own, children) = (account.used_ticks_until_now(), account.children_ticks());
        let mut bytes = [0; TIMES_BYTES];
        bytes[..8].copy_from_slice(&hundredths(own).to_le_bytes());
        bytes[16..24].copy_from_slice(&hundredths(children).to_le_bytes());
        process.space.copy_out(into, &bytes)?;
    }
    Ok(hundredths(arch::now_ticks()) as usize)
}

/// Calls that change users or groups: `ids` of them, of which 0 and -1 are the ones there are.
///
/// # Errors
/// `EPERM` for others.
pub fn set_users(args: &Arguments<'_>, ids: usize) -> CallResult {
    let is_known = |index| matches!(args.number(index) as i32, 0 | -1);
    if (0..ids).all(is_known) { Ok(0) } else { Err(Errno::EPERM) }
}

/// `getresuid(*mut u32, *mut u32, *mut u32)` and `getresgid`: always 0.
pub fn users(process: &Process, args: &Arguments<'_>) -> CallResult {
    for index in 0..3 {
        store(process, args.number(index), &[0; 4])?;
    }
    Ok(0)
}

/// `getitimer(0, *mut itimerval)`.
///
/// # Errors
/// `EINVAL` for another timer than that of real time, `EFAULT`.
pub fn alarm(process: &Process, args: &Arguments<'_>) -> CallResult {
    if args.number(0) != 0 {
        return Err(Errno::EINVAL);
    }
    store(process, args.number(1), itimerval(process.alarm().rest()).as_flattened())?;
    Ok(0)
}

/// `setitimer(0, *const itimerval, *mut itimerval or 0)`. As on Linux, without times it is switched
/// off.
///
/// # Errors
/// `EINVAL` for another timer than that of real time, and for a time that is none; `EFAULT`,
/// `EAGAIN`, `ENOMEM`.
pub fn set_alarm(cpu: &VirtualCpu, args: &Arguments<'_>) -> CallResult {
    let process = &cpu.process;
    if args.number(0) != 0 {
        return Err(Errno::EINVAL);
    }
    let times: [u64; 4] = match args.optional_structure(1, ITIMERVAL_BYTES)? {
        Some(place) => words(process, place)?,
        None => [0; 4],
    };
    let [interval, after] = [&times[..2], &times[2..]].map(|time| {
        if i64::try_from(time[0]).is_err() || time[1] >= 1_000_000 {
            return Err(Errno::EINVAL);
        }
        let nanoseconds = time[0].saturating_mul(1_000_000_000).saturating_add(time[1] * 1000);
        Ok(timer::ticks_from_nanoseconds(nanoseconds))
    });
    let (interval, after) = (interval?, Some(after?).filter(|&ticks| ticks > 0));
    let before = process.set_alarm(after, interval, process.current_priority(cpu))?;
    if args.number(2) != 0 {
        store(process, args.number(2), itimerval(before.rest()).as_flattened())?;
    }
    Ok(0)
}

/// Size of an `itimerval`.
const ITIMERVAL_BYTES: usize = 32;

/// Linux's `itimerval`: interval and rest, each in seconds and microseconds, rounded up so that
/// what is on never seems to be off.
fn itimerval((rest, interval): (Option<u64>, u64)) -> [[u8; 8]; 4] {
    let [interval, rest] = [interval, rest.unwrap_or(0)]
        .map(|ticks| timer::nanoseconds_from_ticks(ticks).div_ceil(1000));
    let words = [interval / 1_000_000, interval % 1_000_000, rest / 1_000_000, rest % 1_000_000];
    words.map(u64::to_le_bytes)
}

/// `uname(*mut utsname)`: six fields of 65 bytes.
pub fn name(process: &Process, address: usize) -> CallResult {
    const FIELD_BYTES: usize = 65;
    let fields = [
        system_name::SYSTEM,
        system_name::NODE,
        system_name::RELEASE,
        system_name::VERSION,
        arch::LINUX_NAME,
        "(none)",
    ];
    let mut bytes = [0; 6 * FIELD_BYTES];
    for (field, text) in bytes.chunks_mut(FIELD_BYTES).zip(fields) {
        field[..text.len()].copy_from_slice(text.as_bytes());
    }
    store(process, address, &bytes)?;
    Ok(0)
}

/// `sysinfo(*mut sysinfo)`: seconds since boot, memory and processes; loads and swap are 0.
pub fn information(process: &Process, address: usize) -> CallResult {
    const BYTES: usize = 112;
    let memory = frames::statistics();
    let seconds = time::now_nanoseconds(Clock::Monotonic) / 1_000_000_000;
    let mut bytes = [0; BYTES];
    let mut put = |offset: usize, value: u64, length: usize| {
        bytes[offset..offset + length].copy_from_slice(&value.to_le_bytes()[..length]);
    };
    put(0, seconds, 8);
    put(32, memory.total as u64, 8);
    put(40, memory.free as u64, 8);
    put(80, children::count() as u64, 2);
    // The unit of the figures of memory.
    put(104, layout::PAGE_BYTES as u64, 4);
    store(process, address, &bytes)?;
    Ok(0)
}

/// `prlimit64(process, resource, *const rlimit or 0, *mut rlimit or 0)`: of the caller only.
pub fn limit(process: &Process, id: usize, which: usize, new: usize, old: usize) -> CallResult {
    if id != 0 && id != process.id as usize {
        return Err(Errno::ESRCH);
    }
    let before = process.limit(which)?;
    if new != 0 {
        let [soft, hard] = words(process, UserRange::new(new, 16).ok_or(Errno::EFAULT)?)?;
        process.set_limit(which, Limit { soft, hard })?;
    }
    if old != 0 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&before.soft.to_le_bytes());
        bytes[8..].copy_from_slice(&before.hard.to_le_bytes());
        store(process, old, &bytes)?;
    }
    Ok(0)
}

/// `prctl(operation, argument)`: sets or gets the name of the calling thread.
pub fn control_thread(
    process: &Process,
    thread: &Thread,
    operation: usize,
    address: usize,
) -> CallResult {
    match operation {
        thread_control::SET_NAME => {
            let mut name = [0; thread_control::NAME_BYTES];
            // The name may end just before a page that is not mapped.
            for (index, place) in name[..thread_control::NAME_BYTES - 1].iter_mut().enumerate() {
                let mut byte = [0];
                let at = address.checked_add(index).ok_or(Errno::EFAULT)?;
                process.space.copy_in(UserRange::new(at, 1).ok_or(Errno::EFAULT)?, &mut byte)?;
                if byte == [0] {
                    break;
                }
                [*place] = byte;
            }
            *thread.name.lock() = name;
        }
        thread_control::NAME => {
            let mut name = *thread.name.lock();
            if name[0] == 0 {
                // That of the program, until it gets another one.
                let command = process.program().command;
                let program = command.as_bytes();
                let length = program.len().min(name.len() - 1);
                name[..length].copy_from_slice(&program[..length]);
            }
            store(process, address, &name)?;
        }
        _ => return Err(Errno::EINVAL),
    }
    Ok(0)
}

/// `sched_getaffinity(id, bytes, *mut mask)`: any thread runs on any hart.
///
/// # Errors
/// `ESRCH` unless it is 0, a thread of the caller's process, or a process; `EINVAL`, `EFAULT`.
pub fn affinity(process: &Process, id: usize, bytes: usize, address: usize) -> CallResult {
    let mask = u64::MAX >> (64 - arch::hart_count());
    if bytes < size_of_val(&mask) || !bytes.is_multiple_of(size_of_val(&mask)) {
        return Err(Errno::EINVAL);
    }
    let id = u32::try_from(id).map_err(|_| Errno::ESRCH)?;
    if id != 0 && process.thread(id).is_none() {
        children::kinship(id)?;
    }
    store(process, address, &mask.to_le_bytes())?;
    Ok(size_of_val(&mask))
}
