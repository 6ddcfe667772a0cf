//! The limits that a Linux program sets for itself and for what it starts (`setrlimit`). They only
//! make less of what the quotas allow (decision 16).
#![forbid(unsafe_code)]

use cops_abi::Errno;
use cops_abi::layout;
use cops_abi::linux::resource;
use cops_fallible::try_box;

use super::Process;
use crate::mm;
use crate::mm::quota::{self, Kind};

/// A limit: what counts now, and how high the process may raise it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// What counts.
    pub soft: u64,
    /// Its maximum.
    pub hard: u64,
}

/// The limits that a process has set; `None`: it has what its quotas give it.
#[derive(Clone, Default)]
pub struct ResourceLimits([Option<Limit>; resource::COUNT]);

impl Process {
    /// The limit of a resource.
    ///
    /// # Errors
    /// `EINVAL` for an unknown resource.
    pub fn limit(&self, which: usize) -> Result<Limit, Errno> {
        if which >= resource::COUNT {
            return Err(Errno::EINVAL);
        }
        let linux = self.personality.as_linux();
        let set = linux.and_then(|linux| linux.limits.lock().as_ref()?.0[which]);
        Ok(set.unwrap_or_else(|| {
            let of_quota = |kind| {
                quota::state(self.family).map_or(resource::INFINITY, |(limits, _)| limits.get(kind))
            };
            let limit = match which {
                resource::STACK => layout::LINUX_STACK_BYTES as u64,
                resource::PROCESSES => of_quota(Kind::Cpus),
                resource::FILES => of_quota(Kind::Descriptors),
                _ => resource::INFINITY,
            };
            Limit { soft: limit, hard: limit }
        }))
    }

    /// Sets the limit of a resource. It counts for descriptors and memory; the others are only
    /// remembered, for those that ask. As for the superuser of Linux, the maximum can be raised,
    /// and the number of processes does not count.
    ///
    /// # Errors
    /// `EINVAL` for an unknown resource, or more than the maximum; `EPERM` for a limit of computing
    /// time or the size of files, which nothing would keep; `ENOMEM`.
    pub fn set_limit(&self, which: usize, limit: Limit) -> Result<(), Errno> {
        let linux = self.personality.as_linux().ok_or(Errno::ENOSYS)?;
        if which >= resource::COUNT || limit.soft > limit.hard {
            return Err(Errno::EINVAL);
        }
        if matches!(which, resource::CPU | resource::FILE_SIZE) && limit.soft != resource::INFINITY
        {
            return Err(Errno::EPERM);
        }
        mm::admit()?;
        // With the lock held, so that of two that set a limit the last one counts.
        let mut limits = linux.limits.lock();
        let limits = match &mut *limits {
            Some(limits) => limits,
            none => none.insert(try_box(ResourceLimits::default())?),
        };
        limits.0[which] = Some(limit);
        let bytes = |which: usize| limits.0[which].map_or(resource::INFINITY, |limit| limit.soft);
        match which {
            resource::FILES => self.files.lock().set_limit(clamped(limit.soft)),
            resource::DATA | resource::ADDRESSES => {
                let bytes = bytes(resource::DATA).min(bytes(resource::ADDRESSES));
                self.space.set_page_limit(clamped(bytes / layout::PAGE_BYTES as u64));
            }
            _ => {}
        }
        Ok(())
    }
}

fn clamped(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}
