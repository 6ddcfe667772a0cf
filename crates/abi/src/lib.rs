//! The contract between the COPS kernel and its processes.
//!
//! This crate defines everything that both sides must agree on: system call numbers and error
//! codes, the layout of the shared pages, the wake ring, the auxiliary vector, and the ELF note
//! that marks a COPS program. The normative text is `docs/abi.md`.
//!
//! May touch: nothing. The crate contains integers, atomics and pure functions over them, and no
//! pointers, because the other side of the boundary may write any value.
#![no_std]
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod auxv;
pub mod bootargs;
pub mod errno;
pub mod file;
pub mod inspect;
pub mod interrupt;
pub mod layout;
pub mod linux;
pub mod note;
pub mod page;
pub mod poll;
pub mod quota;
pub mod ring;
pub mod served;
pub mod socket;
pub mod standing;
pub mod statistics;
pub mod syscall;
pub mod trace;
pub mod tutorial;

pub use cops_executor::{CoroutineId, Priority};
pub use errno::Errno;
