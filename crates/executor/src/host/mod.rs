//! The executor on an ordinary host: memory from the global allocator, workers that are threads.
//!
//! Two ways lead here. A program that brings its own threads starts an executor in a static with
//! [`start_on_host`](super::Executor::start_on_host) and lends threads to it; one that wants
//! threads made for it builds a [`Runtime`]. Both run the one loop in `drive`.
//!
//! | | |
//! | --- | --- |
//! | `memory` | the hooks for memory |
//! | `record` | what belongs to an executor on a host: which workers sleep, which one watches; the hook `notify` |
//! | `sleeper`, `bell` | how a worker's thread sleeps, with or without the reactor, and is woken in any context |
//! | `park` | a thread that is no worker, and polls one future |
//! | `pace` | how many polls a worker makes before it looks up |
//! | `drive` | the loop of a worker: run, look up, sleep |
//! | `clock` | timers without a reactor |
//! | `lend` | a thread of the program as a worker |
//! | `lease` | executors for runtimes: numbers, which handles may spawn, the end |
//! | `context` | which runtime the code of a thread is in |
//! | `handle`, `runtime`, `local`, `free`, `members` | what a program sees |

#[cfg(feature = "reactor")]
mod bell;
mod clock;
mod context;
mod drive;
mod free;
mod handle;
mod lease;
mod lend;
mod local;
mod members;
mod memory;
mod pace;
mod park;
mod record;
mod runtime;
mod sleeper;

pub use self::clock::{HostClock, timers};
pub use self::free::{
    block_on, interval, sleep, spawn, spawn_at, spawn_local, spawn_local_at, timeout,
};
pub use self::handle::Handle;
pub use self::local::LocalRuntime;
pub use self::runtime::{BuildError, Builder, Runtime};
