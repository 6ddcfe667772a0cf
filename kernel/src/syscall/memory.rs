//! Memory of a process: anonymous mappings.
#![forbid(unsafe_code)]

use core::ops::Range;

use cops_abi::errno::CallResult;
use cops_abi::syscall::{map_flags, protection};
use cops_abi::{Errno, layout};

use crate::drivers::random;
use crate::mm::{self, Rights, UserRange};
use crate::process::Process;
use crate::process::work::Work;

/// `mmap(0, length, protection, flags, -1, 0)`.
pub fn map(
    process: &Process,
    address: usize,
    length: usize,
    bits: usize,
    flags: usize,
    file: isize,
    offset: usize,
) -> CallResult {
    // The address is only a hint, which this kernel ignores, as Linux may too.
    let _ = address;
    if flags != map_flags::PRIVATE | map_flags::ANONYMOUS || file != -1 || offset != 0 || length == 0 {
        return Err(Errno::EINVAL);
    }
    let rights = rights(bits)?;
    let length = length.checked_next_multiple_of(layout::PAGE_BYTES).ok_or(Errno::ENOMEM)?;
    mm::admit()?;
    // Charged here, so that a later access cannot fail because of the quota; frames are allocated
    // on first access.
    Ok(process.space.map_anonymous_anywhere(length, rights)?)
}

/// `munmap(address, length)`.
pub fn unmap(address: usize, length: usize) -> Result<Work, Errno> {
    Ok(Work::Unmap(own_range(address, length)?))
}

/// `mprotect(address, length, protection)`.
pub fn protect(address: usize, length: usize, bits: usize) -> Result<Work, Errno> {
    Ok(Work::Protect(own_range(address, length)?, rights(bits)?))
}

/// `getrandom(buffer, length, flags)`.
pub fn random(process: &Process, address: usize, length: usize, flags: usize) -> CallResult {
    if flags > 7 {
        return Err(Errno::EINVAL);
    }
    let length = length.min(random::BYTES_MAX);
    let mut bytes = [0; random::BYTES_MAX];
    let bytes = &mut bytes[..length];
    random::fill(bytes);
    UserRange::new(address, length).copy_out(&process.space, bytes)?;
    Ok(length)
}

/// A page-aligned range that the process may change, which excludes what the kernel shares with it.
fn own_range(address: usize, length: usize) -> Result<Range<usize>, Errno> {
    let length = length.checked_next_multiple_of(layout::PAGE_BYTES).filter(|&length| length > 0);
    let end = length.and_then(|length| address.checked_add(length)).ok_or(Errno::EINVAL)?;
    if !address.is_multiple_of(layout::PAGE_BYTES) || address < layout::USER_START || end > layout::STACK_TOP
    {
        return Err(Errno::EINVAL);
    }
    Ok(address..end)
}

fn rights(bits: usize) -> Result<Rights, Errno> {
    if bits & !(protection::READ | protection::WRITE | protection::EXECUTE) != 0 {
        return Err(Errno::EINVAL);
    }
    let rights = Rights {
        read: bits & protection::READ != 0,
        write: bits & protection::WRITE != 0,
        execute: bits & protection::EXECUTE != 0,
    };
    // No mapping is ever both writable and executable.
    if rights.write && rights.execute { Err(Errno::EACCES) } else { Ok(rights) }
}
