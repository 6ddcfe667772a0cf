//! What the programs of this folder share: the board, and a way for interrupt handlers to tell
//! coroutines.
#![no_std]

#[cfg(not(any(target_arch = "riscv32", target_arch = "riscv64")))]
compile_error!("this is for a RISC-V board: cargo build --target riscv32imac-unknown-none-elf");

pub mod board;
pub mod signal;
