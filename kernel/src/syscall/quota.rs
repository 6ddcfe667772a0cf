//! What a process and its descendants have, and may have (decision 16).
#![forbid(unsafe_code)]

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::quota::Quota;

use crate::mm::UserRange;
use crate::mm::quota::{self, Kind};
use crate::process::{Process, ProcessId, children};

/// `quota(pid or 0, kind, limit, *mut Quota or 0)`; without a limit it only asks.
pub fn quota(
    process: &Process,
    id: ProcessId,
    kind: Kind,
    limit: Option<u64>,
    into: Option<UserRange>,
) -> CallResult {
    let family = if id == 0 || id == process.id {
        process.family
    } else {
        let other = children::find(id).ok_or(Errno::ESRCH)?;
        if limit.is_some() {
            process.check_authority_over(&other)?;
        }
        other.family
    };
    let (limits, used) = quota::state(family).ok_or(Errno::ESRCH)?;
    let mut record =
        Quota { limit: limits.get(kind), used: used.get(kind), room: quota::room(family, kind) };
    if let Some(limit) = limit {
        if family == process.family {
            quota::lower_limit(family, kind, limit)?;
        } else {
            quota::set_limit(family, kind, limit)?;
        }
        let (limits, _) = quota::state(family).ok_or(Errno::ESRCH)?;
        record.limit = limits.get(kind);
        record.room = quota::room(family, kind);
    }
    if let Some(into) = into {
        process.space.copy_out(into, &record.to_bytes())?;
    }
    Ok(0)
}
