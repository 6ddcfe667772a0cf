//! A simulator in virtual time that drives the real executor by its public interface, and the
//! tables of what it saw.
//!
//! ```text
//! cargo test --release -p cops-executor --test simulator
//! COPS_RECORD_TABLES=1 cargo test --release -p cops-executor --test simulator    # writes tables.md anew
//! ```
//!
//! `stage`: the clock, and threads in lock step. `world`: the executor, its workers, watched
//! coroutines. `monitor`: what is ready, and the order of polls. `load`: jobs that arrive at
//! random. The rest are scenarios, a table each.

#[path = "../common/mod.rs"]
mod common;

mod aging;
mod batch;
mod load;
mod monitor;
mod peers;
mod random;
mod stage;
mod storm;
mod sweep;
mod table;
mod urgent;
mod world;
