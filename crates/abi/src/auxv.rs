//! Keys of the auxiliary vector. Entries that Linux has too use Linux's keys; keys above 1000 are
//! specific to COPS.

/// End of the vector.
pub const AT_NULL: usize = 0;
/// Address of the program headers. Linux programs only, like the others up to [`AT_EXECFN`] that
/// are not described as COPS's in `docs/abi.md`.
pub const AT_PHDR: usize = 3;
/// Bytes of a program header.
pub const AT_PHENT: usize = 4;
/// Number of program headers.
pub const AT_PHNUM: usize = 5;
/// Bytes in a page.
pub const AT_PAGESZ: usize = 6;
/// Address of the interpreter: 0.
pub const AT_BASE: usize = 7;
/// Flags: 0.
pub const AT_FLAGS: usize = 8;
/// The program's entry point.
pub const AT_ENTRY: usize = 9;
/// User: 0.
pub const AT_UID: usize = 11;
/// Effective user: 0.
pub const AT_EUID: usize = 12;
/// Group: 0.
pub const AT_GID: usize = 13;
/// Effective group: 0.
pub const AT_EGID: usize = 14;
/// A bit for each letter of the processor's extensions.
pub const AT_HWCAP: usize = 16;
/// Ticks in a second of `times`.
pub const AT_CLKTCK: usize = 17;
/// Whether the program has more rights than its caller: 0.
pub const AT_SECURE: usize = 23;
/// Address of 16 random bytes.
pub const AT_RANDOM: usize = 25;
/// Address of the program's path.
pub const AT_EXECFN: usize = 31;
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
