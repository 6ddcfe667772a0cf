//! The levels of Linux programs' threads: nice values and real-time priorities (SPEC 3.11).
//!
//! | Linux | level |
//! | --- | --- |
//! | `SCHED_FIFO`, `SCHED_RR`, priority 99 to 1 | 1 to 11, nine priorities for a level |
//! | `SCHED_OTHER`, `SCHED_BATCH`, nice -20 to 19 | 12 to 51; nice 0 is level 32, the default |
//! | `SCHED_IDLE` | 60 |
//!
//! A thread has a level and nothing else: policy, priority and nice value are computed from it. No
//! privilege is needed for an urgent level, because none counts as more urgent than the ceiling of
//! the process.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::errno::CallResult;
use cops_abi::linux::policy;
use cops_abi::{Errno, Priority};

use super::super::arguments::Arguments;
use super::thread_of;
use crate::mm::UserRange;
use crate::process::VirtualCpu;

/// The level of nice value 0.
const NICE_0: i64 = Priority::DEFAULT.level() as i64;
const NICE_MIN: i64 = -20;
const NICE_MAX: i64 = 19;
/// The least urgent level of real-time priorities.
const LAST_REAL_TIME: i64 = NICE_0 + NICE_MIN - 1;
const IDLE: i64 = 60;
const REAL_TIME_MAX: i64 = 99;
/// Size of the structure with a real-time priority.
const PARAMETER_BYTES: usize = 4;
/// Number of real-time priorities with the same level.
const PER_LEVEL: i64 = 9;

const _: () = assert!(LAST_REAL_TIME - (REAL_TIME_MAX - 1) / PER_LEVEL == 1);
const _: () = assert!(NICE_0 + NICE_MAX < IDLE);

/// The thread that a call names: 0 is the caller.
///
/// # Errors
/// `ESRCH` unless it is a thread of the caller's process.
fn named(cpu: &Arc<VirtualCpu>, id: usize) -> Result<Arc<VirtualCpu>, Errno> {
    match u32::try_from(id).map_err(|_| Errno::ESRCH)? {
        0 => Ok(cpu.clone()),
        id => cpu.process.thread(id).ok_or(Errno::ESRCH),
    }
}

/// As [`named`], for the calls about policies.
///
/// # Errors
/// Also `EINVAL` for a negative number.
fn named_by_number(cpu: &Arc<VirtualCpu>, id: usize) -> Result<Arc<VirtualCpu>, Errno> {
    if (id as i32) < 0 { Err(Errno::EINVAL) } else { named(cpu, id) }
}

/// The place of a real-time priority, of which the address is in an argument.
///
/// # Errors
/// `EINVAL` for address 0, `EFAULT` for others that cannot be.
pub fn parameter_at(args: &Arguments<'_>, index: usize) -> Result<UserRange, Errno> {
    args.optional_structure(index, PARAMETER_BYTES)?.ok_or(Errno::EINVAL)
}

fn level_of(cpu: &VirtualCpu) -> Result<i64, Errno> {
    Ok(thread_of(cpu)?.base_priority().level().into())
}

fn set_level(cpu: &VirtualCpu, level: i64) {
    let priority = Priority::saturating(level.clamp(0, 63) as u32);
    cpu.process.set_thread_priority(cpu, priority);
}

/// `setpriority(0: a thread, id, nice)`.
pub fn set_nice(cpu: &Arc<VirtualCpu>, which: usize, id: usize, nice: isize) -> CallResult {
    if which != 0 {
        return Err(Errno::EINVAL);
    }
    set_level(&*named(cpu, id)?, NICE_0 + (nice as i64).clamp(NICE_MIN, NICE_MAX));
    Ok(0)
}

/// `getpriority(0: a thread, id)`: 20 minus the nice value.
pub fn nice(cpu: &Arc<VirtualCpu>, which: usize, id: usize) -> CallResult {
    if which != 0 {
        return Err(Errno::EINVAL);
    }
    let nice = (level_of(&*named(cpu, id)?)? - NICE_0).clamp(NICE_MIN, NICE_MAX);
    Ok((20 - nice) as usize)
}

/// `sched_setscheduler(id, policy, *const priority)`; without a policy, `sched_setparam`.
pub fn set_policy(
    cpu: &Arc<VirtualCpu>,
    id: usize,
    asked: Option<usize>,
    parameter: UserRange,
) -> CallResult {
    if (id as i32) < 0 {
        return Err(Errno::EINVAL);
    }
    let mut bytes = [0; PARAMETER_BYTES];
    cpu.process.space.copy_in(parameter, &mut bytes)?;
    let priority = i64::from(i32::from_le_bytes(bytes));
    let thread = named(cpu, id)?;
    let before = level_of(&thread)?;
    let is_same = asked.is_none_or(|asked| asked & !policy::RESET_ON_FORK == policy_of(before));
    let level = match asked.unwrap_or(policy_of(before)) & !policy::RESET_ON_FORK {
        policy::FIFO | policy::ROUND_ROBIN if (1..=REAL_TIME_MAX).contains(&priority) => {
            LAST_REAL_TIME - (priority - 1) / PER_LEVEL
        }
        // It keeps its nice value.
        policy::OTHER | policy::BATCH if priority == 0 && is_same => before,
        policy::OTHER | policy::BATCH if priority == 0 => NICE_0,
        policy::IDLE if priority == 0 => IDLE,
        _ => return Err(Errno::EINVAL),
    };
    set_level(&thread, level);
    Ok(0)
}

fn policy_of(level: i64) -> usize {
    match level {
        ..=LAST_REAL_TIME => policy::FIFO,
        IDLE.. => policy::IDLE,
        _ => policy::OTHER,
    }
}

/// `sched_getscheduler(id)`.
pub fn policy(cpu: &Arc<VirtualCpu>, id: usize) -> CallResult {
    Ok(policy_of(level_of(&*named_by_number(cpu, id)?)?))
}

/// `sched_getparam(id, *mut priority)`: the least of the real-time priorities with this level; 0
/// for another policy.
pub fn parameter(cpu: &Arc<VirtualCpu>, id: usize, into: UserRange) -> CallResult {
    let level = level_of(&*named_by_number(cpu, id)?)?;
    let priority = match policy_of(level) {
        policy::FIFO => ((LAST_REAL_TIME - level) * PER_LEVEL + 1).min(REAL_TIME_MAX),
        _ => 0,
    };
    cpu.process.space.copy_out(into, &(priority as i32).to_le_bytes())?;
    Ok(0)
}

/// `sched_get_priority_max(policy)` and `sched_get_priority_min(policy)`.
pub fn limit(asked: usize, is_max: bool) -> CallResult {
    match asked {
        policy::FIFO | policy::ROUND_ROBIN => Ok(if is_max { REAL_TIME_MAX as usize } else { 1 }),
        policy::OTHER | policy::BATCH | policy::IDLE => Ok(0),
        _ => Err(Errno::EINVAL),
    }
}
