//! Layout of a process's half of the address space (Sv39: 2^38 bytes).
//!
//! The kernel maps a process by these constants. A process should use the addresses in its
//! auxiliary vector instead of these constants.
//!
//! What every request uses starts at different *page colours*: the program at 0, the vDSO at 0x50,
//! the system page at 0x58, the process page and its ring at 0x60, mappings at 0x70, the first
//! stack at 0xff. A colour is the lowest eight bits of the page's number. A translation cache that
//! is direct-mapped finds a page by them, and QEMU's is: with the areas at round addresses each
//! change between program, heap and process page evicted the other's entry (decision 61).

/// Bytes in a page.
pub const PAGE_BYTES: usize = 4096;
/// One past the last address a process can have.
pub const USER_END: usize = 1 << 38;
/// Lowest address a process can map. Everything below is unmapped, so that an access through a null
/// pointer with an offset faults.
pub const USER_START: usize = 0x1_0000;
/// Start of the area for anonymous mappings, which are placed from the lowest address upwards.
/// Their pages are charged when they are mapped.
pub const MAP_START: usize = 0x10_0007_0000;
/// One past the last address of the mapping area, and start of the *lazy* area: for mappings of
/// Linux programs that are charged page by page on first access.
pub const MAP_END: usize = 0x20_0000_0000;
/// One past the last address of the lazy area.
pub const LAZY_END: usize = 0x3c_0000_0000;
/// Stacks of virtual CPUs: number `n` ends at `STACK_TOP - n * STACK_STRIDE`.
pub const STACK_TOP: usize = 0x3e_0000_0000;
/// Distance between the tops of two stacks. The part that a stack does not use is unmapped and
/// serves as a guard.
pub const STACK_STRIDE: usize = 16 << 20;
/// Size of a virtual CPU's stack, in bytes; its pages are allocated on first use.
pub const STACK_BYTES: usize = 1 << 20;
/// Size of the stack of a Linux program's first thread, likewise.
pub const LINUX_STACK_BYTES: usize = 8 << 20;
/// The process page ([`crate::page::ProcessPage`]), read-write.
pub const PROCESS_PAGE: usize = 0x3f_0006_0000;
/// The wake ring's entries ([`crate::ring::RingPage`]), read-write, directly after the process
/// page.
pub const RING_PAGES: usize = PROCESS_PAGE + PAGE_BYTES;
/// The system page ([`crate::page::SystemPage`]), read-only.
pub const SYSTEM_PAGE: usize = 0x3f_0015_8000;
/// The trace pages ([`crate::trace::TracePage`]) of a traced process, read-write, one for each
/// virtual CPU.
pub const TRACE_PAGES: usize = 0x3f_0018_0000;
/// The page to which handlers of signals return, read-execute, in Linux programs only.
pub const LINUX_TRAMPOLINE: usize = 0x3f_0000_0000;
/// The vDSO image, read-execute.
pub const VDSO: usize = 0x3f_0025_0000;

const _: () = assert!(VDSO < USER_END && STACK_TOP < PROCESS_PAGE && MAP_END < LAZY_END);
const _: () = assert!(LAZY_END + (crate::page::MAX_CPUS + 1) * STACK_STRIDE < STACK_TOP);
const _: () = assert!(LINUX_STACK_BYTES < STACK_STRIDE);
