//! The machine: the only folder with code for a particular architecture.
//!
//! No other folder contains assembly, registers or page-table formats of RISC-V. (The loader names
//! the ELF machine type, and `drivers/device_tree.rs` the device tree's properties.) A port adds a
//! sibling of `riscv64` with the same items; their documentation says what they must guarantee.

use core::fmt;

#[cfg(target_arch = "riscv64")]
mod riscv64;

#[cfg(target_arch = "riscv64")]
pub use riscv64::*;

/// Maximum number of harts that the kernel uses. Further harts of the machine are not started.
pub const MAX_HARTS: usize = 8;

/// What a program, or the kernel on its behalf, does to a memory location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read,
    Write,
    Execute,
}

/// The reason why a thread left user mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserTrap {
    /// A system call; the registers contain its number and arguments.
    Syscall,
    /// An interrupt; its handler has already run.
    Interrupt,
    /// An exception that the kernel must handle before the program can continue.
    Fault(Fault),
}

/// An exception caused by a program.
#[allow(clippy::enum_variant_names)] // the architecture's own name of it
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The page is not mapped, or not with the required right. Often the first access to a page.
    Page {
        address: usize,
        access: Access,
    },
    IllegalInstruction,
    Misaligned {
        address: usize,
    },
    Breakpoint,
    /// Physical memory that does not exist. Never happens with a mapping that the kernel made.
    AccessFault {
        address: usize,
        access: Access,
    },
}

/// Number and arguments of a system call, as the registers contained them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SyscallFrame {
    pub number: usize,
    pub arguments: [usize; 6],
    /// The calling coroutine's id, 0 for a synchronous call.
    pub coroutine: usize,
    /// The caller's token for an asynchronous call.
    pub token: usize,
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Access::Read => "read",
            Access::Write => "write",
            Access::Execute => "execute",
        })
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Page { address, access } => write!(f, "cannot {access} {address:#x}"),
            Fault::AccessFault { address, access } => write!(f, "nothing to {access} at {address:#x}"),
            Fault::Misaligned { address } => write!(f, "misaligned access to {address:#x}"),
            Fault::IllegalInstruction => f.write_str("illegal instruction"),
            Fault::Breakpoint => f.write_str("breakpoint"),
        }
    }
}
