//! Decision 59, which root a hart has loaded, where a switching coroutine is, and which hart keeps
//! the time, under the model checker: every interleaving, and every value that a weakly ordered
//! load may see, of a few harts. A scene for each pair of transitions that can meet.
//!
//! `./cops test --only loom`, or
//! `RUSTFLAGS="--cfg cops_loom" cargo test --release -p cops-algorithms --test loom`
#![cfg(cops_loom)]

mod arrivals;
mod doorbell;
mod loaded_root;
mod standing;
mod timekeeper;
