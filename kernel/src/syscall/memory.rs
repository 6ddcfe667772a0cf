//! Memory of a process: anonymous mappings.
#![forbid(unsafe_code)]

use cops_abi::errno::CallResult;
use cops_abi::{Errno, layout};

use super::arguments::Mapping;
use crate::drivers::random;
use crate::mm::{self, UserRange};
use crate::process::Process;

/// The flags of Linux's `getrandom`, which change nothing here.
pub const RANDOM_FLAGS: usize = 7;

/// `mmap(0, length, protection, flags, -1, 0)`.
pub fn map(process: &Process, mapping: Mapping) -> CallResult {
    let length =
        mapping.length.checked_next_multiple_of(layout::PAGE_BYTES).ok_or(Errno::ENOMEM)?;
    mm::admit()?;
    // Charged here, so that a later access cannot fail because of the quota; frames are allocated
    // on first access.
    Ok(process.space.map_anonymous_anywhere(mm::layout::MAP_AREA, length, mapping.rights)?)
}

/// `getrandom(buffer, length, flags)`; of the buffer at most [`random::BYTES_MAX`] bytes.
pub fn random(process: &Process, buffer: UserRange) -> CallResult {
    let mut bytes = [0; random::BYTES_MAX];
    let bytes = &mut bytes[..buffer.len().min(random::BYTES_MAX)];
    random::fill(bytes);
    process.space.copy_out(buffer, bytes)?;
    Ok(bytes.len())
}
