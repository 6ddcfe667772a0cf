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
mod child;
mod current;
#[cfg(any(feature = "image", test))]
#[cfg_attr(not(feature = "image"), allow(dead_code))]
mod elf;
mod executor;
#[cfg(feature = "std")]
mod host;
mod hosting;
#[cfg(feature = "image")]
pub mod image;
#[cfg(feature = "alloc")]
mod join;
#[cfg(feature = "alloc")]
mod join_error;
#[cfg(feature = "alloc")]
mod join_set;
#[cfg(feature = "image")]
mod observe;
mod outcome;
mod poll;
#[cfg(feature = "alloc")]
mod pool;
mod registry;
mod run_until_empty;
mod static_memory;
mod static_task;
pub mod sync;
pub mod time;
mod waker;
mod yield_now;

#[cfg(feature = "alloc")]
pub use self::child::{AbortHandle, AbortOnDrop};
pub use self::current::{NO_CURRENT_WORKER, current_worker_of, encode_current_worker};
pub use self::executor::Executor;
#[cfg(feature = "std")]
pub use self::host::{
    BuildError, Builder, Handle, HostClock, LocalRuntime, Runtime, block_on, interval, sleep, spawn,
    spawn_at, spawn_local, spawn_local_at, timeout, timers,
};
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
pub use self::registry::{base_priority, cancel, current, priority, set_priority, wake_up};
pub use self::static_memory::StaticMemory;
pub use self::static_task::{FutureFunction, StaticTask, future_size};
pub use self::waker::waker_of;
pub use self::yield_now::{YieldNow, yield_now};
pub use crate::core::{FutureVTable, Hooks, Inspection, Phase, memory_for};
