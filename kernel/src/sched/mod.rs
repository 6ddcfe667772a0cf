//! Scheduling: what runs on a hart, where, and when.
//!
//! - `executor` is the kernel's own executor; `service` starts and wakes coroutines that run for
//!   ever.
//! - `switching` is the coroutine through which a hart enters user mode; `run_queue` has the
//!   virtual CPUs that it chooses from, by `urgency` and `share`; `peers` is about
//!   coroutines of the kernel of the same level.
//! - `timer` and `wait` are what coroutines wait on; `interrupt` is the effect of interrupts.
//! - `doorbell` decides when the network card is notified of frames; `arrivals` looks for frames
//!   while their hart is busy.
//! - `spread` decides when a sleeping hart is woken for what waits on another one.
//! - `burst` lets a service that wakes calls attempt them.
//! - `watch` tells others of the events of a wait queue; `leftovers` frees what is large.
//! - `hart_time` records how the harts spend their time.
//! - `system_page` is the page that tells processes the state of the system.

mod account;
pub mod arrivals;
mod burst;
pub mod doorbell;
mod entity;
mod executor;
pub mod hart_time;
pub mod interrupt;
pub mod leftovers;
mod peers;
mod run_queue;
mod service;
mod share;
pub mod spread;
mod switching;
mod system_page;
pub mod timer;
mod urgency;
mod wait;
pub mod watch;

pub use account::Account;
pub use burst::{Woken, burst};
pub use entity::{Client, Entity, Standing};
pub use executor::{
    any_asleep, current_number, executor, offer_all, prepare, run_hart, wake_by_number, workers,
};
pub use peers::others_are_behind;
pub use run_queue::{RunQueue, SHARE_MAX, name_of_hold};
pub use service::{Service, set_priority, spawn_service, spawn_switching};
pub use switching::{Stopped, Switcher, switching};
pub use system_page::{make as make_system_page, system_page};
pub use timer::Timer;
pub use urgency::{
    Asked, Ceiling, Published, kernel_waiting, publish_hart, publish_hart_in_kernel,
};
pub use wait::{WaitQueue, Waiter, Waiting};
pub use watch::{WATCH_BYTES, WatchSlot, Watcher};

#[allow(unsafe_code)]
unsafe extern "Rust" {
    // SAFETY: the only definition is in `call::pool`, with the same signature.
    /// The wait node of the call with this number. `call`, which is above this room, defines it,
    /// and the linker finds it: a request looks nodes up some twenty times.
    #[link_name = "cops_wait_node"]
    safe fn wait_node(number: u32) -> &'static cops_algorithms::wait_list::Node;

    // SAFETY: the only definition is in `call::together`, with the same signature.
    /// Attempts the calls that a burst has woken, or wakes their coroutines. `call` defines it, as
    /// the above.
    #[link_name = "cops_attempt_calls"]
    safe fn attempt_calls(woken: &[Woken]);
}

/// Identifies a process. Never 0.
pub type ProcessId = u32;
/// The number of the first process. All others descend from it, and the system ends with it.
pub const FIRST_PROCESS: ProcessId = 1;
