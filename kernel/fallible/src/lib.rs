//! Collections and pointers whose every allocation may fail.
//!
//! The kernel must not panic when memory ends, and a program or a peer can make it end at any
//! allocation. `alloc`'s collections allocate infallibly in most of their methods, so the kernel does
//! not use them (`kernel/clippy.toml` refuses them): the types of this crate have no method that
//! allocates without saying so in its result (decision 15).
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
// The one place where alloc's own types are used.
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
pub use pointer::{set_promise, try_arc, try_box};
pub use queue::Queue;
pub use table::Table;
pub use text::Text;

/// There is not enough memory, or not in one piece.
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
