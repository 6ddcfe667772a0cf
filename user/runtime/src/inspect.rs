//! The state of harts, processes, virtual CPUs and coroutines, as the kernel reports it. For `ps`
//! and `top`.
//!
//! Lists are read in several calls. An item that begins or ends meanwhile may or may not be
//! included.

use alloc::vec::Vec;

use cops_abi::Errno;
use cops_abi::inspect::{Inspected, REPLY_BYTES_MAX, parse, request};

use crate::io::Result;
use crate::system;

pub use cops_abi::inspect::{
    CoroutineRecord, CpuRecord, HartRecord, PortionRecord, ProcessRecord, cause, coroutine_kind,
    state, text,
};

/// All records of a kind, beginning with number `from`.
fn all<R: Inspected>(from: u64) -> Result<Vec<R>> {
    let mut list = Vec::new();
    let mut from = from;
    loop {
        let mut bytes = [0; REPLY_BYTES_MAX];
        let length = system::inspect(request(R::KIND), from, &mut bytes)?;
        let (header, records) =
            parse::<R>(bytes.get(..length).unwrap_or_default()).ok_or(Errno::EIO)?;
        list.extend(records);
        // The numbers only increase, so the loop ends.
        if header.next <= from {
            return Ok(list);
        }
        from = header.next;
    }
}

/// The machine's harts.
///
/// # Errors
/// A kernel of this version returns none.
pub fn harts() -> Result<Vec<HartRecord>> {
    all(0)
}

/// All processes, by number.
///
/// # Errors
/// A kernel of this version returns none.
pub fn processes() -> Result<Vec<ProcessRecord>> {
    all(0)
}

/// The longest portions of the kernel's work, by kind. Empty unless the kernel was booted with
/// `portions=on`.
///
/// # Errors
/// A kernel of this version returns none.
pub fn portions() -> Result<Vec<PortionRecord>> {
    all(0)
}

/// The virtual CPUs of a process.
///
/// # Errors
/// `ESRCH` if there is no such process.
pub fn cpus(process: u32) -> Result<Vec<CpuRecord>> {
    all(u64::from(process) << 32)
}

/// The coroutines of a process; 0 means the kernel's.
///
/// # Errors
/// `ESRCH` if there is no such process.
pub fn coroutines(process: u32) -> Result<Vec<CoroutineRecord>> {
    all(u64::from(process) << 32)
}
