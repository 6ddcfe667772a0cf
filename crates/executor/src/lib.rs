//! A `no_std` executor for coroutines with priorities: find-first-set, pop, poll.
#![no_std]
#![warn(missing_docs)]

#[cfg(feature = "front")]
extern crate alloc;
#[cfg(any(feature = "std", test))]
extern crate std;

pub mod core;
#[cfg(feature = "front")]
mod front;

pub use crate::core::{CoroutineId, Priority, WorkerState};
#[cfg(feature = "front")]
pub use crate::front::*;
