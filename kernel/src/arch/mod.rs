//! The machine: the only folder with code for a particular architecture.
//!
//! No other folder contains assembly, registers or page-table formats of RISC-V.
//! (`machine/device_tree.rs` has the device tree's properties.) A port adds a
//! sibling of `riscv64` with the same items; their documentation says what they must guarantee.

use core::fmt;

#[cfg(target_arch = "riscv64")]
mod riscv64;

#[cfg(target_arch = "riscv64")]
pub use riscv64::*;

pub use crate::machine::MAX_HARTS;

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

/// What the kernel does at an interrupt, or at an exception in the kernel. The interrupt handlers
/// run with interrupts disabled, take no locks and allocate nothing.
pub struct Handlers {
    /// The time given to [`set_timer`] has come.
    pub timer: fn(),
    /// Another hart, or this one, has called [`send_interrupt_to`].
    pub interprocessor: fn(),
    /// A device interrupts.
    pub external: fn(),
    /// The kernel has accessed an unmapped page or executed an illegal instruction.
    pub kernel_exception: fn(&TrapFrame) -> !,
    /// The kernel's stack is full; the argument is the stack pointer. Only the program counter and
    /// the frame pointer in the frame are valid.
    pub stack_overflow: fn(usize, &TrapFrame) -> !,
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
            Fault::AccessFault { address, access } => {
                write!(f, "nothing to {access} at {address:#x}")
            }
            Fault::Misaligned { address } => write!(f, "misaligned access to {address:#x}"),
            Fault::IllegalInstruction => f.write_str("illegal instruction"),
            Fault::Breakpoint => f.write_str("breakpoint"),
        }
    }
}
