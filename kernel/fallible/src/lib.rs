//! Collections and pointers that report every failed allocation.
//!
//! The kernel must not panic when memory is exhausted, and a program or a peer can exhaust it at
//! any allocation. Most methods of `alloc`'s collections allocate infallibly, so the kernel does
//! not use them (`kernel/clippy.toml` forbids them). In this crate, every method that allocates
//! returns a `Result` (decision 15).
//!
//! | here | instead of | |
//! | --- | --- | --- |
//! | [`List`] | `Vec` | |
//! | [`Queue`] | `VecDeque` | |
//! | [`Map`] | `BTreeMap`, `BTreeSet` | can insert into a node allocated earlier: [`map::Spare`] |
//! | [`Table`] | `HashMap` | |
//! | [`Text`] | `String` | |
//! | [`try_box`], [`try_arc`] | `Box::new`, `Arc::new` | |
#![no_std]
#![warn(missing_docs)]
// This crate is the only one of the kernel that uses alloc's collections.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

extern crate alloc;

mod list;
pub mod map;
#[allow(unsafe_code)]
mod pointer;
mod queue;
mod table;
mod text;

pub use list::List;
pub use map::Map;
pub use pointer::{set_promise, try_arc, try_arc_with, try_box};
pub use queue::Queue;
pub use table::{Cursor, Table};
pub use text::Text;

/// There is not enough memory, or no contiguous block that is large enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory;

impl From<OutOfMemory> for cops_abi::Errno {
    fn from(_: OutOfMemory) -> Self {
        Self::ENOMEM
    }
}

impl core::fmt::Display for OutOfMemory {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("out of memory")
    }
}
