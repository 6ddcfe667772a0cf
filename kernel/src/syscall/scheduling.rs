//! Limits of urgency, and the shares of processes (decision 10).
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::errno::CallResult;
use cops_abi::{Errno, Priority};

use crate::call;
use crate::process::resumable::Resumable;
use crate::process::{Process, ProcessId, RUN_QUEUE, VirtualCpu, children};
use crate::sched::SHARE_MAX;

/// The ceiling that `process` requests for its child, at most as urgent as its own; its own if it
/// requests none.
pub fn ceiling_for_child(process: &Process, asked: Option<Priority>) -> Result<Priority, Errno> {
    let own = process.ceiling.priority();
    let asked = asked.unwrap_or(own);
    if asked.is_more_urgent_than(own) { Err(Errno::EPERM) } else { Ok(asked) }
}

/// `set_ceiling(pid or 0, level)`: takes effect at once for the process itself, and in portions for
/// its descendants, for calls in flight and, if its ceiling becomes more urgent, for what of it
/// waits for a hart.
pub fn set_ceiling(
    process: &Arc<Process>,
    id: ProcessId,
    asked: Priority,
) -> Result<Resumable, Errno> {
    if id == 0 || id == process.id {
        let asked = ceiling_for_child(process, Some(asked))?;
        process.lower_ceiling_to(asked);
        return Ok(Resumable::Lower {
            raised: None,
            family: process.family,
            priority: asked,
            next: Some(process.id + 1),
            cell: 0,
        });
    }
    let child = children::find(id).ok_or(Errno::ESRCH)?;
    process.check_authority_over(&child)?;
    let asked = ceiling_for_child(process, Some(asked))?;
    let raised = asked.is_more_urgent_than(child.ceiling.priority()).then_some((id, 0));
    child.set_ceiling_below(process, asked);
    let next = Some(id + 1);
    Ok(Resumable::Lower { raised, family: child.family, priority: asked, next, cell: 0 })
}

/// `set_share(per mille)`.
pub fn set_share(process: &Process, per_mille: usize) -> CallResult {
    process.check_authority_over_machine()?;
    let per_mille =
        u32::try_from(per_mille).ok().filter(|&share| share <= SHARE_MAX).ok_or(Errno::EINVAL)?;
    Ok(RUN_QUEUE.set_share(per_mille) as usize)
}

/// `set_thread_priority(id or 0, level)`. The ceiling of the process limits what counts of it.
pub fn set_thread_priority(cpu: &Arc<VirtualCpu>, id: usize, asked: Priority) -> CallResult {
    let process = &cpu.process;
    if id == 0 {
        cpu.as_thread().ok_or(Errno::EINVAL)?;
        process.set_thread_priority(cpu, asked);
    } else {
        let id = u32::try_from(id).map_err(|_| Errno::ESRCH)?;
        let thread = process.thread(id).ok_or(Errno::ESRCH)?;
        process.set_thread_priority(&thread, asked);
    }
    Ok(0)
}

/// `donate_priority(virtual CPU, thread id or HOLDER_UNKNOWN)`.
pub fn donate_priority(cpu: &VirtualCpu, holder: usize) -> CallResult {
    cpu.process.donate_priority(cpu, holder)
}

/// `set_call_priority(handle, level)`.
pub fn set_call_priority(process: &Arc<Process>, handle: u64, asked: Priority) -> CallResult {
    call::set_priority(process, handle, asked.into())
}
