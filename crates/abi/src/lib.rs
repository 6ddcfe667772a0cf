//! The contract between the COPS kernel and its processes.
//!
//! Everything both sides must agree on stands here and nowhere else: system call numbers and
//! error codes, the layout of the pages they share, the wake ring, the auxiliary vector, the
//! note that marks a COPS program. The normative prose is `docs/abi.md`.
//!
//! May touch: nothing. This crate holds integers, atomics and pure functions over them; it
//! never holds a pointer, because the other side of the boundary may lie.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod auxv;
pub mod bootargs;
pub mod errno;
pub mod inspect;
pub mod interrupt;
pub mod layout;
pub mod note;
pub mod page;
pub mod quota;
pub mod ring;
pub mod socket;
pub mod statistics;
pub mod syscall;
pub mod trace;

pub use cops_executor::{CoroutineId, Priority};
pub use errno::Errno;
