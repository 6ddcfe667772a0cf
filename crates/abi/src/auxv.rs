//! Keys of the auxiliary vector. Entries that Linux has too use Linux's keys; keys above 1000 are
//! specific to COPS.

/// End of the vector.
pub const AT_NULL: usize = 0;
/// Bytes in a page.
pub const AT_PAGESZ: usize = 6;
/// The program's entry point.
pub const AT_ENTRY: usize = 9;
/// Address of 16 random bytes.
pub const AT_RANDOM: usize = 25;
/// Address of the vDSO's ELF header.
pub const AT_SYSINFO_EHDR: usize = 33;
/// Address of the process page.
pub const AT_COPS_PROCESS_PAGE: usize = 1001;
/// Address of the first ring page; the others follow.
pub const AT_COPS_RING: usize = 1002;
/// Address of the system page.
pub const AT_COPS_SYSTEM_PAGE: usize = 1003;
/// Address of the first of [`crate::page::MAX_CPUS`] trace pages. Present only if the process is
/// traced.
pub const AT_COPS_TRACE: usize = 1032;
