//! cops-executor and other executors, measured in the same run: instructions, wall time, bytes, and
//! polls that an urgent coroutine waits for.
//!
//! `cargo run --release --manifest-path crates/executor/peers/Cargo.toml` does all and writes
//! `docs/results/executor.md` and `executor.json`; `-- --help` tells what else there is.
//!
//! - `rows`: what is measured; `contender`: the executors that are compared; `operation`: the
//!   programs; `runtime`: how each runtime is driven.
//! - A measurement is a process (`child`), started with or without valgrind (`valgrind`, `driver`);
//!   its result comes through a pipe (`sample`).
//! - `report`: tables and data; `limits`: what an operation of ours may cost.
//! - `service`: a program rather than an operation, with feature `service`; apart from the rest.

pub mod child;
pub mod contender;
pub mod driver;
pub mod earlier;
pub mod gate;
pub mod limits;
pub mod operation;
pub mod report;
pub mod rows;
pub mod runtime;
pub mod sample;
#[cfg(feature = "service")]
pub mod service;
pub mod valgrind;
