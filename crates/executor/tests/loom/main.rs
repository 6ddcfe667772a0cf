//! The core under the model checker: every interleaving, and every value that a weakly ordered load
//! may see, of a few threads.
//!
//! `./cops test --only loom`, or
//! `RUSTFLAGS="--cfg loom" cargo test --release -p cops-executor --test loom`
//!
//! Each model is a small scene on the shipped core: a worker that runs, and threads that wake,
//! cancel, and so on. A task stops the run if it is polled by two at once, after its end, or
//! dropped twice; a lost wake shows as a coroutine that is left over, or a worker that sleeps for
//! ever, which loom calls a deadlock; and what the lists look like afterwards is checked link by
//! link (`Executor::verify`).
//!
//! Which scene is for which pair of transitions: `docs/book/transitions.md`.
#![cfg(loom)]
#![allow(unsafe_code)]

#[path = "../common/mod.rs"]
mod common;
mod counts;
mod order;
mod parking;
mod poll_ends;
mod requests;
mod scene;
mod spawning;
