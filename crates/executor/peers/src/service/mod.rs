//! A TCP service with an interactive and a batch class on one runtime, on cops-executor and on
//! tokio: how long interactive requests take while there is twice as much batch work as the machine
//! can do.
//!
//! `cargo run --release --manifest-path crates/executor/peers/Cargo.toml --features service --bin two-classes`
//!
//! - `work`: what a request computes. `server`: the service, once, over a `Platform`; `on_cops`,
//!   `on_tokio`: the platforms. The server is a process of its own, on processors of its own if
//!   there are enough.
//! - `load`: the client, with threads and blocking sockets. Open loop: requests are sent at times
//!   fixed beforehand, and latencies count from those times.
//! - `experiment`: which phases, in which order; `outcome`: table, JSON, plot.

pub mod contender;
pub mod experiment;
pub mod load;
pub mod message;
mod on_cops;
mod on_tokio;
pub mod outcome;
pub mod process;
mod server;
pub mod work;
