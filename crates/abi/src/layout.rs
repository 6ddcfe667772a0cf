//! Where things lie in a process's half of the address space (Sv39: 2^38 bytes).
//!
//! The kernel maps them; a process is told where through the auxiliary vector and should believe
//! that rather than these constants.

/// Bytes in a page.
pub const PAGE_BYTES: usize = 4096;
/// One past the last address a process can have.
pub const USER_END: usize = 1 << 38;
/// Lowest address a process can map; below it a null pointer with an offset must fault.
pub const USER_START: usize = 0x1_0000;
/// Where anonymous mappings are placed, growing up.
pub const MAP_START: usize = 0x10_0000_0000;
/// One past the last address of the mapping area.
pub const MAP_END: usize = 0x38_0000_0000;
/// Stacks of virtual CPUs: number `n` ends at `STACK_TOP - n * STACK_STRIDE`.
pub const STACK_TOP: usize = 0x3e_0000_0000;
/// Distance of two stacks; what a stack does not use of it is unmapped, a guard.
pub const STACK_STRIDE: usize = 16 << 20;
/// Bytes of a virtual CPU's stack, demand-zero.
pub const STACK_BYTES: usize = 1 << 20;
/// The process page ([`crate::page::ProcessPage`]), read-write.
pub const PROCESS_PAGE: usize = 0x3f_0000_0000;
/// The wake ring's entries ([`crate::ring::RingPage`]), read-write, behind the process page.
pub const RING_PAGES: usize = PROCESS_PAGE + PAGE_BYTES;
/// The system page ([`crate::page::SystemPage`]), read-only.
pub const SYSTEM_PAGE: usize = 0x3f_0010_0000;
/// A trace page ([`crate::trace::TracePage`]) for each virtual CPU, read-write, of a process that is traced.
pub const TRACE_PAGES: usize = 0x3f_0018_0000;
/// The vDSO image, read-execute.
pub const VDSO: usize = 0x3f_0020_0000;

const _: () = assert!(VDSO < USER_END && STACK_TOP < PROCESS_PAGE && MAP_END < STACK_TOP);
const _: () = assert!(MAP_END + (crate::page::MAX_CPUS + 1) * STACK_STRIDE < STACK_TOP);
