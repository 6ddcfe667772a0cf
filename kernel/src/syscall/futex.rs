//! Futexes.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::syscall::{TIMER_ABSTIME, futex};
use cops_algorithms::futex::Word;
use cops_fallible::try_box;

use super::arguments::{Arguments, Clock};
use super::{Reply, submit, time};
use crate::arch::SyscallFrame;
use crate::call::{FutexWait, LockWait, Operation};
use crate::process::resumable::{self, Resumable};
use crate::process::{
    Outcome, Sweeping, Thread, VirtualCpu, Wait, check_futex_address, read_futex,
};

/// `futex(address, operation, value, timeout or count, address, value)`.
///
/// A futex in memory that processes share is a word of that memory, so that each of them can wake
/// the others. With the flag for private ones, and in all other memory, it is an address of its
/// process.
pub fn futex(
    cpu: &Arc<VirtualCpu>,
    frame: &SyscallFrame,
    args: &Arguments<'_>,
) -> Result<Reply, Errno> {
    let (address, operation) = (args.number(0), args.number(1) & !futex::PRIVATE);
    let is_private = args.number(1) & futex::PRIVATE != 0;
    let word = |address| {
        if is_private { Word::own(address) } else { cpu.process.futex_word(address) }
    };
    let (value, count) = (args.number(2) as u32, args.number(2) as i32);
    let (command, by_real_time) =
        (operation & !futex::CLOCK_REALTIME, operation & futex::CLOCK_REALTIME != 0);
    if by_real_time && !matches!(command, futex::WAIT_BITSET | futex::LOCK_PI2) {
        return Err(Errno::ENOSYS);
    }
    let mask = match command {
        futex::WAIT_BITSET | futex::WAKE_BITSET => args.number(5) as u32,
        _ => u32::MAX,
    };
    // As on Linux, a wake of none wakes one.
    let wakes = usize::try_from(count).unwrap_or(0).max(1);
    match command {
        futex::WAIT | futex::WAIT_BITSET => {
            check_futex_address(address)?;
            if mask == 0 {
                return Err(Errno::EINVAL);
            }
            let deadline_ticks = match args.optional_structure(3, time::TIMESPEC_BYTES)? {
                None => None,
                Some(until) => {
                    let clock = if by_real_time { Clock::Real } else { Clock::Monotonic };
                    let flags = if command == futex::WAIT { 0 } else { TIMER_ABSTIME };
                    Some(time::deadline_ticks(&cpu.process, clock, flags, until)?)
                }
            };
            let waited_on = (address, word(address), mask);
            if deadline_ticks.is_none() && frame.coroutine == 0 && cpu.as_thread().is_some() {
                cpu.wait_on_futex(waited_on, value)?;
                cpu.process.waits_for(cpu, Wait::Futex);
                cpu.process.report_stop();
                return Ok(Reply::Waits);
            }
            // Before anything is allocated for the wait.
            if read_futex(&cpu.process, address)? != value {
                return Err(Errno::EAGAIN);
            }
            let wait = FutexWait::new(&cpu.process, waited_on, value, deadline_ticks)?;
            Ok(submit(cpu, frame, Operation::Futex(try_box(wait)?)))
        }
        futex::WAKE | futex::WAKE_BITSET => {
            check_futex_address(address)?;
            if mask == 0 {
                return Err(Errno::EINVAL);
            }
            let reply = resumable::resume(cpu, frame, |process| {
                let from = word(address);
                // As on Linux, a word that could be another one's must exist.
                if !is_private && !from.is_shared() && !process.space.is_mapped(address) {
                    return Err(Errno::EFAULT);
                }
                Ok(Resumable::Sweep(Sweeping::new(process, (from, mask), wakes, (from, 0))))
            });
            Ok(reply.into())
        }
        futex::REQUEUE | futex::CMP_REQUEUE => {
            let to = args.number(4);
            check_futex_address(address)?;
            check_futex_address(to)?;
            let count = |count: i32| usize::try_from(count).map_err(|_| Errno::EINVAL);
            let (wakes, moves) = (count(count_of(args, 2))?, count(count_of(args, 3))?);
            let reply = resumable::resume(cpu, frame, |process| {
                // The waiters are those of now; then the word is compared.
                let waiters = (word(address), mask);
                let sweeping = Sweeping::new(process, waiters, wakes, (word(to), moves));
                if command == futex::CMP_REQUEUE
                    && read_futex(process, address)? != args.number(5) as u32
                {
                    return Err(Errno::EAGAIN);
                }
                Ok(Resumable::Sweep(sweeping))
            });
            Ok(reply.into())
        }
        futex::LOCK_PI | futex::LOCK_PI2 => {
            let clock = if command == futex::LOCK_PI || by_real_time {
                Clock::Real
            } else {
                Clock::Monotonic
            };
            let thread = locking_thread(cpu, frame, address)?;
            let deadline_ticks = match args.optional_structure(3, time::TIMESPEC_BYTES)? {
                None => None,
                Some(until) => {
                    Some(time::deadline_ticks(&cpu.process, clock, TIMER_ABSTIME, until)?)
                }
            };
            // Before anything is allocated for the wait.
            if cpu.process.try_lock(thread, (address, is_private), true)? {
                return Ok(Reply::Done(Ok(0)));
            }
            let word = (address, is_private);
            let wait = LockWait::new(&cpu.process, (cpu.index, thread), word, deadline_ticks)?;
            Ok(submit(cpu, frame, Operation::Lock(try_box(wait)?)))
        }
        futex::TRYLOCK_PI => {
            let thread = locking_thread(cpu, frame, address)?;
            let is_locked = cpu.process.try_lock(thread, (address, is_private), false)?;
            Ok(Reply::Done(if is_locked { Ok(0) } else { Err(Errno::EAGAIN) }))
        }
        futex::UNLOCK_PI => {
            let thread = locking_thread(cpu, frame, address)?;
            let before = thread.priority();
            cpu.process.unlock(thread, (address, is_private))?;
            // It inherits less: a more urgent thread, perhaps the next owner, takes the hart.
            let is_lowered = before != thread.priority();
            Ok(if is_lowered { Reply::Outcome(Outcome::Yield) } else { Reply::Done(Ok(0)) })
        }
        _ => Err(Errno::ENOSYS),
    }
}

/// The thread that locks or unlocks the word at `address`. A coroutine has no id for the word.
///
/// # Errors
/// `EINVAL` for a worker and an asynchronous call; those of the address.
fn locking_thread<'a>(
    cpu: &'a VirtualCpu,
    frame: &SyscallFrame,
    address: usize,
) -> Result<&'a Thread, Errno> {
    check_futex_address(address)?;
    let thread = cpu.as_thread().filter(|_| frame.coroutine == 0);
    thread.ok_or(Errno::EINVAL)
}

/// A count, which is a signed word.
fn count_of(args: &Arguments<'_>, index: usize) -> i32 {
    args.number(index) as i32
}
