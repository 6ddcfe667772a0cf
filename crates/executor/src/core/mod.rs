//! The type-erased scheduler: ids, state words, slots, ready queues, inboxes, workers, parking.
//!
//! This half goes into the vDSO image, so it has no statics, no trait objects, no formatting and no path
//! that panics; memory and vtables are the caller's. It may touch nothing but the [`Executor`] it is given,
//! the memory the executor's [`Hooks`] handed out, and the [`WorkerState`] records it was registered with.
//!
//! Reading order: `priority`, `id`, `state` (the heart), `slot`, `slab`, `inbox`, `ready`, `worker`, `executor`
//! (spawn, wake, cancel, set_priority), `schedule` (run), `park`.

mod atomic;
mod executor;
mod hooks;
pub(crate) mod id;
mod inbox;
mod interface;
mod park;
mod priority;
mod ready;
mod schedule;
mod slab;
mod slot;
mod state;
mod worker;

#[cfg(loom)]
#[doc(hidden)]
pub use atomic::begin_model;
pub use executor::{Executor, Inspection};
pub use hooks::Hooks;
pub use id::CoroutineId;
pub use interface::*;
pub use priority::Priority;
pub use slot::FutureVTable;
pub use state::Phase;
pub use worker::{MAX_WORKERS, NO_WORKER, WorkerState};
