//! Clocks and sleep.
#![forbid(unsafe_code)]

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::syscall::TIMER_ABSTIME;

use crate::arch;
use crate::call::Operation;
use crate::mm::UserRange;
use crate::task::{Process, timer};

const NANOSECONDS_PER_SECOND: u64 = 1_000_000_000;
const TIMESPEC_BYTES: usize = 16;
/// Real time and monotonic time; both count from boot, since the machine tells no other time.
const CLOCKS: usize = 2;

/// `clock_gettime(clock, *mut timespec)`.
pub fn get(process: &Process, clock: usize, address: usize) -> CallResult {
    if clock >= CLOCKS {
        return Err(Errno::EINVAL);
    }
    let nanoseconds = timer::nanoseconds_from_ticks(arch::now_ticks());
    let mut bytes = [0; TIMESPEC_BYTES];
    bytes[..8].copy_from_slice(&(nanoseconds / NANOSECONDS_PER_SECOND).to_le_bytes());
    bytes[8..].copy_from_slice(&(nanoseconds % NANOSECONDS_PER_SECOND).to_le_bytes());
    UserRange::new(address, TIMESPEC_BYTES).copy_out(&process.space, &bytes)?;
    Ok(0)
}

/// `clock_nanosleep(clock, flags, *const timespec, _)`.
pub fn sleep(process: &Process, clock: usize, flags: usize, address: usize) -> Result<Operation, Errno> {
    if clock >= CLOCKS || flags & !TIMER_ABSTIME != 0 {
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
    let ticks = timer::ticks_from_nanoseconds(total);
    let deadline_ticks =
        if flags & TIMER_ABSTIME != 0 { ticks } else { arch::now_ticks().saturating_add(ticks) };
    Ok(Operation::Sleep { deadline_ticks, timer: None })
}
