//! The type-erased scheduler: ids, state words, slots, ready queues, inboxes, workers, parking.
//!
//! This half goes into the vDSO image, so it has no statics, no trait objects, no formatting and no
//! path that panics; memory and vtables are the caller's. It may touch nothing but the [`Executor`]
//! it is given, the memory the executor's [`Hooks`] handed out, and the [`WorkerState`] records it
//! was registered with.
//!
//! Reading order: `priority`, `id`, `snapshot` and `state` (the heart), `slot`, `slab`, `inbox`,
//! `ready`, `record`, `worker`, `locked`, `executor`, `spawn`, `requests` (wake,
//! cancel, `set_priority`), `schedule` (run), `fast_path`, `steal`, `aging`, `park`,
//! `leave`.

mod aging;
pub(crate) mod atomic;
mod executor;
mod fast_path;
mod hooks;
pub(crate) mod id;
mod inbox;
mod inspection;
mod interface;
mod leave;
mod locked;
mod park;
mod priority;
pub(crate) mod published;
mod ready;
mod record;
mod requests;
mod schedule;
mod slab;
mod slot;
mod snapshot;
mod spawn;
mod state;
mod steal;
mod verify;
mod worker;

#[cfg(loom)]
#[doc(hidden)]
pub use atomic::begin_model;
pub use executor::Executor;
pub use hooks::Hooks;
pub use id::CoroutineId;
pub use inspection::{
    INSPECT_COROUTINE, INSPECT_EMPTY, INSPECT_END, Inspected, Inspection, Phase, RawInspection,
};
#[cfg(feature = "static-tasks")]
pub(crate) use interface::for_each_core_function;
pub use interface::*;
pub use priority::Priority;
pub use record::WorkerState;
pub use slot::FutureVTable;
pub use worker::{MAX_WORKERS, NO_WORKER};

/// The bytes that an executor of `workers` workers and up to `coroutines` coroutines at once asks
/// of [`Hooks::grow`], all in all.
///
/// ```
/// use cops_executor::core::memory_for;
/// assert!(memory_for(1, 1) <= memory_for(1, 100));
/// assert!(memory_for(1, 255) < memory_for(1, 256), "segments are of 256, and index 0 is not used");
/// ```
pub const fn memory_for(workers: u32, coroutines: u32) -> usize {
    workers as usize * size_of::<worker::Worker>() + slab::memory_for(coroutines)
}
