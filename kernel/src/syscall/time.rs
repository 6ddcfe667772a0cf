//! Clocks and sleep.
#![forbid(unsafe_code)]

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::syscall::{CLOCK_MONOTONIC, CLOCK_REALTIME, TIMER_ABSTIME};

use crate::arch;
use crate::call::Operation;
use crate::mm::UserRange;
use crate::process::Process;
use crate::sched::timer;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;
const TIMESPEC_BYTES: usize = 16;

/// The time of clock `clock` when the monotonic clock is 0.
fn offset_of(clock: usize) -> Result<u64, Errno> {
    match clock {
        CLOCK_REALTIME => Ok(timer::epoch_nanoseconds()),
        CLOCK_MONOTONIC => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}

/// `clock_gettime(clock, *mut timespec)`.
pub fn get(process: &Process, clock: usize, address: usize) -> CallResult {
    let offset = offset_of(clock)?;
    let nanoseconds = timer::nanoseconds_from_ticks(arch::now_ticks()).saturating_add(offset);
    let mut bytes = [0; TIMESPEC_BYTES];
    bytes[..8].copy_from_slice(&(nanoseconds / NANOSECONDS_PER_SECOND).to_le_bytes());
    bytes[8..].copy_from_slice(&(nanoseconds % NANOSECONDS_PER_SECOND).to_le_bytes());
    UserRange::new(address, TIMESPEC_BYTES).copy_out(&process.space, &bytes)?;
    Ok(0)
}

/// `clock_nanosleep(clock, flags, *const timespec, _)`.
pub fn sleep(process: &Process, clock: usize, flags: usize, address: usize) -> Result<Operation, Errno> {
    let offset = offset_of(clock)?;
    if flags & !TIMER_ABSTIME != 0 {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; TIMESPEC_BYTES];
    UserRange::new(address, TIMESPEC_BYTES).copy_in(&process.space, &mut bytes)?;
    let word = |index: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[index..index + 8]);
        i64::from_le_bytes(word)
    };
    let seconds = u64::try_from(word(0)).map_err(|_| Errno::EINVAL)?;
    let nanoseconds = u64::try_from(word(8)).map_err(|_| Errno::EINVAL)?;
    if nanoseconds >= NANOSECONDS_PER_SECOND {
        return Err(Errno::EINVAL);
    }
    let total = seconds.saturating_mul(NANOSECONDS_PER_SECOND).saturating_add(nanoseconds);
    let deadline_ticks = if flags & TIMER_ABSTIME != 0 {
        timer::ticks_from_nanoseconds(total.saturating_sub(offset))
    } else {
        arch::now_ticks().saturating_add(timer::ticks_from_nanoseconds(total))
    };
    Ok(Operation::Sleep { deadline_ticks, timer: None })
}
