//! Memory: frames, the kernel's heap, address spaces, and all access to programs' memory.
//!
//! - `frames` owns all RAM that the kernel may use.
//! - `heap` is the global allocator.
//! - `kernel_space` maps the kernel.
//! - `table` has the tables of a process, `page_table` walks through them, and `lower_half` frees
//!   them at the end. `kernel_table` is the same for the kernel's half.
//! - `object` is the interface to what several spaces can map, and has the mappings of a space.
//! - `region` records what a program has mapped; `contents` combines it with the page table and
//!   charges for both; `address_space` is their lock, and the harts that use them. `changes`
//!   unmaps and changes rights, `moves` moves mappings, `place` says where something is mapped,
//!   `fork` copies a space for a child, and `copied` has what a fault copies after that.
//! - `root` is what a hart loads to use an address space; `asid` assigns the tags of translation
//!   caches.
//! - `quota` counts what each process holds.
//! - `user` and `pinned` access a program's bytes at a [`UserRange`], `shared` accesses pages
//!   shared with a program.
//!
//! Running out of memory is an error that is returned to the caller, everywhere.
//!
//! Modules that may use `unsafe` are marked; the others only do bookkeeping.

pub mod address_space;
pub mod asid;
mod changes;
mod contents;
mod copied;
mod error;
mod fork;
#[allow(unsafe_code)]
pub mod frames;
#[allow(unsafe_code)]
pub mod heap;
#[allow(unsafe_code)]
pub mod kernel_space;
#[allow(unsafe_code)]
mod kernel_table;
#[allow(unsafe_code)]
mod lower_half;
mod moves;
mod object;
mod page_table;
mod pinned;
mod place;
pub mod quota;
mod region;
mod remains;
#[allow(unsafe_code)]
mod root;
#[allow(unsafe_code)]
mod shared;
#[allow(unsafe_code)]
mod table;
#[allow(unsafe_code)]
mod user;

pub use crate::arch::{Access, Rights};
pub use crate::machine::layout;
pub use address_space::AddressSpace;
pub use cops_algorithms::user_range::{UserRange, own_pages};
pub use error::{FaultError, MapError, OutOfMemory};
pub use fork::Copying;
pub use frames::Frame;
pub use moves::Move;
pub use object::{MemoryObject, Source, View, next_number as next_object_number};
pub use pinned::PinnedBuffer;
pub use place::{Place, Replacement};
pub(crate) use remains::{AbandonedList, Remains, any_abandoned, take_abandoned};
pub(crate) use root::release_dead;
pub use shared::SharedFrame;
pub use user::STRING_PIECE_BYTES;

use cops_abi::Errno;

/// Checks whether there is memory for a new object on behalf of a program.
///
/// When only the reserve is left, programs get no frames and should get no new objects of the
/// kernel; the reserve is for work that has already begun. This is only policy: every allocation
/// can fail. A test can make this check fail as it can an allocation.
///
/// # Errors
/// `ENOMEM`.
pub fn admit() -> Result<(), Errno> {
    if frames::is_down_to_reserve() || heap::is_to_fail() { Err(Errno::ENOMEM) } else { Ok(()) }
}
