//! Profiles: how many instructions each function executed, on which call path.
//!
//! - `record` is what QEMU's plugin (tools/profiler) has counted.
//! - `images` knows the functions of the firmware, the kernel, the vDSO and the programs.
//! - `paths` is a profile: instructions by call path, as a file of "folded stacks".
//! - `kinds` are the kinds of instructions: loads, branches, atomic ones.
//! - `stages` are the parts of a request, and what each may cost.
//! - `tables` are its flat tables, and the comparison of two profiles.
//! - `flames` is its flame graph.

pub mod flames;
pub mod images;
pub mod kinds;
pub mod paths;
pub mod record;
pub mod stages;
pub mod tables;
