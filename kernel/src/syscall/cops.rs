//! The system calls specific to COPS.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::page::MAX_CPUS;

use super::Reply;
use crate::machine::device_tree;
use crate::mm::{self, UserRange};
use crate::process::Outcome;
use crate::process::{Process, VirtualCpu};

/// `park(leaves)`.
pub fn park(cpu: &Arc<VirtualCpu>, leaves: bool) -> Reply {
    if cpu.as_thread().is_some() {
        return Reply::Done(Err(Errno::EINVAL));
    }
    if cpu.process.park(cpu, leaves) { Reply::Outcome(Outcome::Sleep) } else { Reply::Done(Ok(0)) }
}

/// `unpark(virtual CPU)`.
pub fn unpark(process: &Process, index: usize) -> CallResult {
    if index >= MAX_CPUS {
        return Err(Errno::EINVAL);
    }
    process.unpark(index).map(|()| 0)
}

/// `alloc_cpu(count, entry)`.
pub fn allocate_cpus(process: &Arc<Process>, count: usize, entry: usize) -> CallResult {
    if count > MAX_CPUS {
        return Err(Errno::EINVAL);
    }
    for _ in 0..count {
        mm::admit()?;
        match process.add_cpu(entry) {
            // As many as possible: the result tells the caller how many there are.
            Err(Errno::EAGAIN) => break,
            other => other?,
        };
    }
    Ok(process.cpu_count())
}

/// `statistics(*mut Statistics, bytes)`.
pub fn statistics(process: &Process, buffer: UserRange) -> CallResult {
    let record = crate::inspect::statistics().to_bytes();
    let record = &record[..record.len().min(buffer.len())];
    process.space.copy_out(buffer, record)?;
    Ok(record.len())
}

/// `fail_allocation(n)`.
pub fn fail_allocation(count: usize) -> CallResult {
    if device_tree::boot_argument("fail-allocation") != Some("on") {
        return Err(Errno::ENOSYS);
    }
    Ok(mm::heap::fail_allocation(count as u64) as usize)
}
