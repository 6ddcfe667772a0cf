//! The COPS user library: coroutines with priorities, asynchronous calls, network, files, processes.
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
//! The scheduler is not in here: it is the kernel's own, in the vDSO, and this library brings what it needs to run in
//! a process: its memory, its virtual CPUs, the results of its calls. How the parts hang together:
//!
//! | module | is responsible for |
//! | --- | --- |
//! | `arch` | registers: entry, the `ecall`, the thread pointer, the clock |
//! | `start` | stack and auxiliary vector to `main` |
//! | `worker` | the executor; the loop of a virtual CPU; parking |
//! | `runner` | the same loop for a `main` that is no coroutine |
//! | `interrupt` | the handler of user-level interrupts |
//! | `shared` | the pages shared with the kernel |
//! | `system` | calls that never wait |
//! | [`call`] | calls that may wait: slots, ring, cancellation, back-pressure |
//! | `heap`, `lock`, `panic` | what Rust needs below everything else |
//! | [`task`], [`io`], [`net`], [`fs`], [`time`], [`sync`], [`process`], [`memory`] | what programs use |
//! | [`inspect`], [`trace`] | what programs can see of the system |
#![no_std]
#![warn(missing_docs)]

extern crate alloc;

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
pub mod net;
mod panic;
pub mod process;
mod runner;
mod shared;
mod start;
pub mod sync;
mod system;
pub mod task;
pub mod time;
pub mod trace;
mod worker;

pub use cops_abi as abi;
pub use cops_macros::main;
use panic::fatal;
pub use start::Arguments;

/// For what the macros expand to, and for tests of the kernel. No part of the interface.
#[doc(hidden)]
pub mod private {
    pub use crate::arch::system_call;
    pub use crate::process::Termination;
    pub use crate::start::Main;
    pub use alloc::boxed::Box;
}
