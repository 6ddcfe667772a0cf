//! Clocks and sleep.
#![forbid(unsafe_code)]

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::syscall::TIMER_ABSTIME;

use super::arguments::Clock;
use crate::arch;
use crate::call::Operation;
use crate::mm::UserRange;
use crate::process::Process;
use crate::sched::timer;

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;
/// Size of a `timespec`.
pub const TIMESPEC_BYTES: usize = 16;

/// Nanoseconds as a `timespec`.
pub fn timespec(nanoseconds: u64) -> [u8; TIMESPEC_BYTES] {
    let mut bytes = [0; TIMESPEC_BYTES];
    bytes[..8].copy_from_slice(&(nanoseconds / NANOSECONDS_PER_SECOND).to_le_bytes());
    bytes[8..].copy_from_slice(&(nanoseconds % NANOSECONDS_PER_SECOND).to_le_bytes());
    bytes
}

/// The time of a clock, in nanoseconds.
pub fn now_nanoseconds(clock: Clock) -> u64 {
    timer::nanoseconds_from_ticks(arch::now_ticks()).saturating_add(offset_of(clock))
}

/// The time of `clock` when the monotonic clock is 0, in nanoseconds.
fn offset_of(clock: Clock) -> u64 {
    match clock {
        Clock::Real => timer::epoch_nanoseconds(),
        Clock::Monotonic => 0,
    }
}

/// `clock_gettime(clock, *mut timespec)`.
pub fn get(process: &Process, clock: Clock, into: UserRange) -> CallResult {
    process.space.copy_out(into, &timespec(now_nanoseconds(clock)))?;
    Ok(0)
}

/// `clock_nanosleep(clock, flags, *const timespec, _)`.
pub fn sleep(
    process: &Process,
    clock: Clock,
    flags: usize,
    time: UserRange,
) -> Result<Operation, Errno> {
    let deadline_ticks = deadline_ticks(process, clock, flags, time)?;
    Ok(Operation::sleep_until(deadline_ticks))
}

/// The deadline that the `timespec` at `time` means: after that time, or at that time if `flags`
/// contains [`TIMER_ABSTIME`].
///
/// # Errors
/// `EFAULT`, `EINVAL`.
pub fn deadline_ticks(
    process: &Process,
    clock: Clock,
    flags: usize,
    time: UserRange,
) -> Result<u64, Errno> {
    let mut bytes = [0; TIMESPEC_BYTES];
    process.space.copy_in(time, &mut bytes)?;
    let total = nanoseconds_of(&bytes)?;
    Ok(if flags & TIMER_ABSTIME != 0 {
        timer::ticks_from_nanoseconds(total.saturating_sub(offset_of(clock)))
    } else {
        arch::now_ticks().saturating_add(timer::ticks_from_nanoseconds(total))
    })
}

/// The nanoseconds of a `timespec`.
///
/// # Errors
/// `EINVAL`.
pub fn nanoseconds_of(timespec: &[u8]) -> Result<u64, Errno> {
    let [seconds, nanoseconds] = *timespec.as_chunks::<8>().0 else { return Err(Errno::EINVAL) };
    let seconds = u64::try_from(i64::from_le_bytes(seconds)).map_err(|_| Errno::EINVAL)?;
    let nanoseconds = u64::from_le_bytes(nanoseconds);
    if nanoseconds >= NANOSECONDS_PER_SECOND {
        return Err(Errno::EINVAL);
    }
    Ok(seconds.saturating_mul(NANOSECONDS_PER_SECOND).saturating_add(nanoseconds))
}
