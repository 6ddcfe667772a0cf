//! Any bytes are a history of an executor with one to four workers; the core must do what the
//! models of `tests/history` do.
#![no_main]

#[path = "../../tests/common/mod.rs"]
mod common;
#[path = "../../tests/history/mod.rs"]
mod history;

use history::{history_of, play};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| play(history_of(bytes)));
