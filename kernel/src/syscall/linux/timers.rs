//! Timers as files: `timerfd_create`, `timerfd_settime`, `timerfd_gettime`.
#![forbid(unsafe_code)]

use alloc::sync::{Arc, Weak};

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::open;
use cops_abi::linux::{clock, timer_file};
use cops_abi::syscall::{CLOCK_MONOTONIC, CLOCK_REALTIME};
use cops_fallible::try_arc;

use super::super::arguments::Arguments;
use super::super::readiness::insert;
use super::super::time;
use crate::fs::{File, Object, TIMER_BYTES, TimerFile, TimerSetting};
use crate::mm;
use crate::process::{Process, ProcessId, VirtualCpu};
use crate::sched::timer::Payer;

/// Flags of `timerfd_create`.
const FLAGS: usize = (open::CLOSE_ON_EXEC | open::NON_BLOCKING) as usize;
/// Flags of `timerfd_settime`.
const SET_FLAGS: usize = timer_file::ABSOLUTE | timer_file::CANCEL_ON_SET;
/// Size of an `itimerspec`: the interval and the first expiration.
const BYTES: usize = 2 * time::TIMESPEC_BYTES;

/// Pays for the wake of a timer while its process exists. A timer that several processes have
/// outlives it, and must not keep it.
struct Setter {
    process: Weak<Process>,
    number: ProcessId,
}

// The memory of a process that has ended is kept for the timers that it has set.
const _: () = assert!(size_of::<Process>() + size_of::<Setter>() + 512 <= TIMER_BYTES as usize);

impl Payer for Setter {
    fn number(&self) -> u32 {
        self.number
    }

    fn charge(&self, ticks: u64) {
        if let Some(process) = self.process.upgrade() {
            process.account.charge(ticks);
        }
    }
}

/// `timerfd_create(clock, flags)`.
pub fn create(process: &Process, args: &Arguments<'_>) -> CallResult {
    let is_real = match args.number(0) {
        CLOCK_REALTIME => true,
        CLOCK_MONOTONIC | clock::BOOTTIME => false,
        _ => return Err(Errno::EINVAL),
    };
    let flags = args.flags(1, FLAGS)? as u32;
    mm::admit()?;
    insert(process, Object::Timer(TimerFile::new(is_real)?), flags)
}

/// The timer with this number.
fn with_timer<T>(file: &File, then: impl FnOnce(&TimerFile) -> T) -> Result<T, Errno> {
    match &file.object {
        Object::Timer(timer) => Ok(then(timer)),
        _ => Err(Errno::EINVAL),
    }
}

/// `timerfd_settime(fd, flags, *const itimerspec, *mut itimerspec or 0)`.
pub fn set(cpu: &VirtualCpu, args: &Arguments<'_>) -> CallResult {
    let process = &cpu.process;
    let mut bytes = [0; BYTES];
    process.space.copy_in(args.structure(2, BYTES)?, &mut bytes)?;
    let is_absolute = args.flags(1, SET_FLAGS)? & timer_file::ABSOLUTE != 0;
    let (interval, first) = bytes.split_at(time::TIMESPEC_BYTES);
    let (interval, first) = (time::nanoseconds_of(interval)?, time::nanoseconds_of(first)?);
    let file = args.file(0)?;
    let setter = match first {
        // To switch it off needs no memory.
        0 => None,
        _ => {
            mm::admit()?;
            let setter = Setter { process: Arc::downgrade(process), number: process.id };
            Some((try_arc(setter)? as Arc<dyn Payer>, process.current_priority(cpu)))
        }
    };
    let before = with_timer(&file, |timer| timer.set(first, interval, is_absolute, setter))??;
    if let Some(into) = args.optional_structure(3, BYTES)? {
        process.space.copy_out(into, &setting_bytes(before))?;
    }
    Ok(0)
}

/// `timerfd_gettime(fd, *mut itimerspec)`.
pub fn get(process: &Process, args: &Arguments<'_>) -> CallResult {
    let setting = with_timer(&*args.file(0)?, TimerFile::setting)?;
    process.space.copy_out(args.structure(1, BYTES)?, &setting_bytes(setting))?;
    Ok(0)
}

/// As an `itimerspec`.
fn setting_bytes(setting: TimerSetting) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let (interval, rest) = bytes.split_at_mut(time::TIMESPEC_BYTES);
    interval.copy_from_slice(&time::timespec(setting.interval));
    rest.copy_from_slice(&time::timespec(setting.rest));
    bytes
}
