//! The COPS user library: coroutines with priorities, asynchronous calls, network, files,
//! processes.
//!
//! ```ignore
//! #![no_std]
//! #![no_main]
//! use cops::io::{Read, Write};
//! use cops::net::{Ipv4Addr, TcpListener};
//!
//! #[cops::main]
//! async fn main() -> cops::io::Result<()> {
//!     let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 7))?;
//!     let mut stream = listener.accept().await?;
//!     let mut bytes = [0; 16];
//!     let count = stream.read(&mut bytes).await?;
//!     stream.write_all(&bytes[..count]).await
//! }
//! ```
//!
//! The scheduler is not part of this library: it is in the vDSO, and is the one that the kernel
//! uses too. The library provides what the scheduler needs to run in a process: memory, virtual
//! CPUs, and the results of calls. The modules:
//!
//! | module | is responsible for |
//! | --- | --- |
//! | `arch` | registers: entry, the `ecall`, the thread pointer, the clock |
//! | `start` | from the stack and auxiliary vector to `main` |
//! | `worker` | the executor; the loop of a virtual CPU; parking |
//! | `runner` | the same loop for a `main` that is not a coroutine |
//! | `interrupt` | the handler of user-level interrupts |
//! | `shared` | the pages shared with the kernel |
//! | `system` | calls that never wait |
//! | [`call`] | calls that may wait: slots, ring, cancellation, back-pressure |
//! | `heap`, `lock`, `panic` | what Rust requires of its environment |
//! | [`task`], [`thread`], [`io`], [`net`], [`fs`], [`time`], [`sync`], [`process`], [`memory`] | the interface for programs |
//! | [`inspect`], [`trace`] | the system's state, as far as programs can see it |
#![no_std]
#![warn(missing_docs)]

extern crate alloc;
// Its symbols replace those of Rust's own library.
extern crate cops_memcpy as _;

mod arch;
pub mod call;
pub mod fs;
mod heap;
pub mod inspect;
mod interrupt;
pub mod io;
mod lock;
mod macros;
pub mod memory;
pub mod model;
pub mod net;
mod panic;
pub mod process;
mod runner;
mod shared;
mod start;
pub mod sync;
mod system;
pub mod task;
pub mod thread;
pub mod time;
pub mod trace;
mod worker;

pub use cops_abi as abi;
pub use cops_macros::main;
use panic::fatal;
pub use start::Arguments;

/// Used by expanded macros and by tests of the kernel. Not part of the interface.
#[doc(hidden)]
pub mod private {
    pub use crate::arch::system_call;
    pub use crate::process::Termination;
    pub use crate::runner::run_until_empty;
    pub use crate::start::Main;
    pub use alloc::boxed::Box;
}
