//! What a program compiles for itself: generic spawn, join handles, wakers, the registry of
//! executors.
//!
//! The front owns everything the core must not have: generics, vtables, statics. It reaches the
//! core through `calls` only, which links it directly or, with feature `image`, goes through a
//! table of pointers into the shared image.

mod calls;
#[cfg(feature = "alloc")]
mod cell;
#[cfg(feature = "alloc")]
pub(crate) mod child;
pub(crate) mod current;
pub(crate) mod executor;
mod hosting;
#[cfg(feature = "alloc")]
mod join;
#[cfg(feature = "alloc")]
mod join_error;
#[cfg(feature = "alloc")]
mod join_set;
pub(crate) mod lock;
#[cfg(feature = "std")]
mod magazines;
pub(crate) mod outcome;
mod poll;
#[cfg(feature = "alloc")]
mod pool;
pub(crate) mod registry;
#[cfg(feature = "std")]
pub(crate) mod relax;
mod run_until_empty;
mod spawn;
mod static_memory;
mod static_task;
mod waker;
pub(crate) mod yield_now;

#[cfg(feature = "alloc")]
pub use self::child::{AbortHandle, AbortOnDrop};
pub use self::current::{NO_CURRENT_WORKER, current_worker_of, encode_current_worker};
pub use self::executor::Executor;
#[cfg(feature = "alloc")]
pub use self::join::JoinHandle;
#[cfg(loom)]
#[doc(hidden)]
pub use self::join::modelled as modelled_join;
#[cfg(feature = "alloc")]
pub use self::join_error::{JoinError, Payload};
#[cfg(feature = "alloc")]
pub use self::join_set::JoinSet;
pub use self::outcome::{AddWorkerError, RunOutcome, SpawnError, StartError};
pub use self::registry::{base_priority, cancel, current, priority, wake_up};
pub use self::static_memory::StaticMemory;
pub use self::static_task::{FutureFunction, StaticTask, future_size};
pub use self::waker::waker_of;
pub use self::yield_now::{YieldNow, yield_now};
pub use crate::core::{FutureVTable, Hooks, Inspection, Phase, memory_for};
