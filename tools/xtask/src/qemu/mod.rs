//! The machine: which QEMU is used, how it is started, what its serial line carries, how it ends.

pub mod command;
pub mod console;
pub mod demux;
pub mod inspection;
pub mod machine;
pub mod namespace;
pub mod portions;
pub mod ports;
pub mod server;
pub mod statistics;
pub mod version;
