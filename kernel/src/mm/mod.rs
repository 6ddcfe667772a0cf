//! Memory: frames, the kernel's heap, address spaces, and the only ways to touch a
//! program's memory.
//!
//! `frames` owns all RAM the kernel may use, `buddy` is its algorithm; `heap` is the global
//! allocator; `kernel_space` maps the kernel, `page_table` is the tree under every root,
//! `region` the bookkeeping of what a program has mapped, `address_space` joins the two, and
//! `root` is what a hart loads of it; `quota` counts who holds what; `user` and `pinned` reach a program's bytes, `shared`
//! the pages it shares with us. Out of memory is an error to the caller everywhere.
//!
//! The modules that may use `unsafe` are marked; the others are bookkeeping.

pub mod address_space;
pub mod asid;
mod buddy;
mod changes;
mod error;
#[allow(unsafe_code)]
pub mod frames;
#[allow(unsafe_code)]
pub mod heap;
#[allow(unsafe_code)]
pub mod kernel_space;
pub mod layout;
#[allow(unsafe_code)]
mod page_table;
mod pinned;
pub mod quota;
mod region;
mod remains;
#[allow(unsafe_code)]
mod root;
#[allow(unsafe_code)]
mod shared;
#[allow(unsafe_code)]
mod user;

pub use crate::arch::{Access, Rights};
pub use address_space::AddressSpace;
pub use error::{FaultError, MapError, OutOfMemory};
pub use frames::Frame;
pub use pinned::PinnedBuffer;
pub(crate) use remains::{Remains, take_abandoned};
pub(crate) use root::release_dead;
pub use shared::SharedFrame;
pub use user::UserRange;

use cops_abi::Errno;

/// Whether there is memory to begin something new for a program.
///
/// Programs get no frame, and should get no new object of the kernel's, once only a reserve
/// is left: what goes on already lives off that. This is policy only: every allocation can fail.
///
/// # Errors
/// `ENOMEM`.
pub fn admit() -> Result<(), Errno> {
    if frames::is_down_to_reserve() { Err(Errno::ENOMEM) } else { Ok(()) }
}
