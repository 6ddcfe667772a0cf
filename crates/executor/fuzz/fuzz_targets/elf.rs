//! Any bytes as the image that the scheduler's functions are looked up in.
#![no_main]

extern crate core;

#[allow(dead_code)]
#[path = "../../src/image/elf.rs"]
mod elf;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some(symbols) = elf::DynamicSymbols::in_bytes(bytes) else { return };
    for name in ["cops_interface_version", "cops_wake", ""] {
        if let Some(offset) = symbols.find(name) {
            assert!(offset < bytes.len());
        }
    }
});
