//! The machine: the one place that knows which architecture this is.
//!
//! Nothing outside this folder names RISC-V. A port brings a sibling of `riscv64` with the
//! same items; what they promise is written on the items themselves.

use core::fmt;

#[cfg(target_arch = "riscv64")]
mod riscv64;

#[cfg(target_arch = "riscv64")]
pub use riscv64::*;

/// The most harts the kernel will run on. More in the machine are left asleep.
pub const MAX_HARTS: usize = 8;

/// What a program, or the kernel on its behalf, does to a memory location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Read,
    Write,
    Execute,
}

/// Why user mode was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UserTrap {
    /// The program asks for a system call; its registers say which.
    Syscall,
    /// An interrupt came. Its handler has already run.
    Interrupt,
    /// The program did something it cannot go on from by itself.
    Fault(Fault),
}

/// What a program did wrong, or what it needs from the memory manager.
#[allow(clippy::enum_variant_names)] // the architecture's own name of it
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// No page, or not with this right. Often just the first touch of a page.
    Page {
        address: usize,
        access: Access,
    },
    IllegalInstruction,
    Misaligned {
        address: usize,
    },
    Breakpoint,
    /// A hole in physical memory. Cannot come from a mapping the kernel made.
    AccessFault {
        address: usize,
        access: Access,
    },
}

/// The numbers and arguments of a system call, as the registers held them.
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
