//! The kernel's half of the models of the papers (decision 56).
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::syscall::kernel_model;

use super::Reply;
use crate::call::Operation;
use crate::fs::Object;
use crate::process::{Blocked, BlockedCall, Outcome, Process, VirtualCpu};
use crate::sched::Waiting;

/// `set_kernel_model(model)`.
pub fn set(process: &Process, model: usize) -> CallResult {
    let model = u8::try_from(model).ok().filter(|model| *model <= kernel_model::POLLING);
    process.set_kernel_model(model.ok_or(Errno::EINVAL)?);
    Ok(0)
}

/// Executes the synchronous `operation` of a thread that blocks in the kernel itself. `Err`: it is
/// none of those, and becomes a call as usual.
#[cold]
#[inline(never)]
pub fn block(cpu: &Arc<VirtualCpu>, operation: Operation) -> Result<Reply, Operation> {
    // A call with a time limit needs a timer, which acts; one that does not wait needs nothing.
    if cpu.as_thread().is_none() || !matches!(operation.timeout(), Ok(None)) {
        return Err(operation);
    }
    let call = match operation {
        Operation::Read { file, buffer } if matches!(file.object, Object::Socket(_)) => {
            BlockedCall { file, buffer, waiting: Waiting::ToRead }
        }
        Operation::Write { file, buffer } if matches!(file.object, Object::Socket(_)) => {
            BlockedCall { file, buffer, waiting: Waiting::ToWrite }
        }
        other => return Err(other),
    };
    Ok(match cpu.block_in(call) {
        Ok(Blocked::Done(result)) => Reply::Done(result),
        Ok(Blocked::Sleeps) => Reply::Waits,
        Ok(Blocked::Yields) => Reply::Outcome(Outcome::Yield),
        Err(error) => Reply::Done(Err(error)),
    })
}
