//! What a process and its descendants have, and may have (decision 16).
#![forbid(unsafe_code)]

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::quota::{ONLY_ASK, Quota, kind};

use crate::mm::UserRange;
use crate::mm::quota::{self, Kind};
use crate::process::{Process, children};

/// `quota(pid or 0, kind, limit, *mut Quota or 0)`.
pub fn quota(process: &Process, id: usize, asked: usize, limit: usize, address: usize) -> CallResult {
    let kind = match asked {
        kind::MEMORY => Kind::Memory,
        kind::PROCESSES => Kind::Processes,
        kind::CALLS => Kind::Calls,
        kind::DESCRIPTORS => Kind::Descriptors,
        kind::CPUS => Kind::Cpus,
        _ => return Err(Errno::EINVAL),
    };
    let family = if id == 0 || id == process.id as usize {
        process.family
    } else {
        let id = u32::try_from(id).map_err(|_| Errno::ESRCH)?;
        let other = children::find(id).ok_or(Errno::ESRCH)?;
        if limit != ONLY_ASK {
            process.check_authority_over(&other)?;
        }
        other.family
    };
    let (limits, used) = quota::state(family).ok_or(Errno::ESRCH)?;
    let mut record = Quota { limit: limits.get(kind), used: used.get(kind), room: quota::room(family, kind) };
    if limit != ONLY_ASK {
        if family == process.family && limit as u64 > record.limit {
            return Err(Errno::EPERM);
        }
        quota::set_limit(family, kind, limit as u64)?;
        let (limits, _) = quota::state(family).ok_or(Errno::ESRCH)?;
        record.limit = limits.get(kind);
        record.room = quota::room(family, kind);
    }
    if address != 0 {
        UserRange::new(address, Quota::BYTES).copy_out(&process.space, &record.to_bytes())?;
    }
    Ok(0)
}
