//! The executor on an ordinary host: memory from the global allocator, workers that are threads.
//!
//! Two ways lead here. A program that brings its own threads starts an executor in a static with
//! [`start_on_host`](super::Executor::start_on_host) and lends threads to it; one that wants threads made for it
//! builds a [`Runtime`]. Both run the one loop in `drive`.
//!
//! | | |
//! | --- | --- |
//! | `memory` | the hooks for memory |
//! | `record` | what belongs to an executor on a host: who sleeps, who watches; the hook `notify` |
//! | `park` | a thread that polls one future and sleeps in between, with or without the reactor |
//! | `pace` | how many polls a worker makes before it looks up |
//! | `drive` | the loop of a worker, as the future that `park` polls |
//! | `clock` | timers without a reactor |
//! | `lend` | a thread of the program as a worker |
//! | `lease` | executors for runtimes: numbers, who may spawn, the end |
//! | `handle`, `runtime` | what a program sees |

mod clock;
mod drive;
mod handle;
mod lease;
mod lend;
mod memory;
mod pace;
mod park;
mod record;
mod runtime;

pub use self::clock::{HostClock, timers};
pub use self::handle::Handle;
pub use self::runtime::{BuildError, Builder, Runtime};
