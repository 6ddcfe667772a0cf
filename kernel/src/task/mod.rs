//! Processes, virtual CPUs and the kernel's coroutines: what runs, where, and when.
//!
//! - `executor` is the kernel's own executor.
//! - `switching` is the coroutine through which a hart enters user mode; `run_queue` has the
//!   virtual CPUs that it chooses from, by `urgency`, `slice` and `share`.
//! - `process`, `cpu`, `children`, `loader` and `reaper` implement the life of a process.
//! - `wake_ring` and `notify` deliver results to processes.
//! - `timer` and `wait` are what coroutines wait on.
//! - `service` wakes coroutines that run for ever.
//! - `report` and `inspect` describe the current state; `counters` and `random` are small helpers.
//!
//! May touch: `arch`, `mm`, `fs`, `call`, `net`, `trace`; drivers only for the console.

pub mod children;
mod counters;
mod cpu;
mod executor;
pub mod inspect;
pub mod interrupt;
mod loader;
mod notify;
mod process;
pub mod random;
mod reaper;
mod report;
mod run_queue;
mod service;
mod share;
mod slice;
mod start;
mod switching;
pub mod timer;
mod urgency;
mod wait;
mod wake_ring;

pub use counters::COUNTERS;
pub use cpu::VirtualCpu;
pub use executor::{core_table, current_number, executor, wake_by_number};
pub use loader::{Arguments, Loading};
pub use process::{FIRST_PROCESS, Process, ProcessId};
pub use run_queue::{RUN_QUEUE, SHARE_MAX, name_of_hold};
pub use start::{spawn_service, start, statistics};
pub use timer::Timer;
pub use wait::{WaitQueue, Waiter};

use start::{first_process_ended, system_page};
