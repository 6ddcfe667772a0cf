//! A plugin for QEMU that counts what a machine executes: for each block of code and each call
//! path, how often it was executed. `./cops profile` builds it, loads it and reads its record.
//!
//! - `plugin` is the interface to QEMU, the only module with unsafe code.
//! - `code` decodes what a block ends with; `stacks` follows calls and returns.
//! - `counts` is the record, which is written when the machine ends.
//!
//! The count is exact: QEMU increments a counter at each instruction that begins. A block that is
//! left in its middle, by a fault, is counted for as many instructions as began. What differs from
//! the guest's own count (`instret`): an instruction that faults counts here, and not there.

mod code;
mod counts;
mod options;
#[cfg(not(test))]
mod plugin;
mod stacks;
