//! The kinds of the arguments of each system call.

use cops::abi::syscall as number;

/// The kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Arbitrary.
    Any,
    /// Mostly 0.
    Zero,
    /// A small number of flags or objects.
    Small,
    /// A file descriptor.
    Descriptor,
    /// A descriptor of a directory, or that of the current one.
    Directory,
    /// Flags of `openat`.
    OpenFlags,
    /// Flags of the calls with names that end with `at`.
    AtFlags,
    /// A command of `fcntl`.
    Control,
    /// A request of `ioctl`.
    Request,
    /// A pointer to an array of `iovec`.
    Buffers,
    /// A pointer to an array of `pollfd`.
    Polled,
    /// A pointer to memory that the call reads or writes.
    Pointer,
    /// A number of bytes.
    Length,
    /// The first address of a page.
    Page,
    /// A pointer to a NUL-terminated path.
    Path,
    /// A pointer to a null-terminated array of pointers to strings.
    Strings,
    /// A pointer to a socket address.
    Address,
    /// The length of a socket address.
    AddressLength,
    /// A pointer to the length of a socket address.
    PointerToLength,
    /// A pointer to a `timespec`.
    Time,
    /// An operation of `futex`.
    Operation,
    /// A process.
    Process,
    /// A signal.
    Signal,
    /// A priority level.
    Level,
    /// The handle of a call in flight.
    Handle,
    /// The entry point of a virtual CPU.
    Entry,
    /// Protection bits.
    Protection,
    /// `mmap`'s flags.
    MapFlags,
    /// `inspect`'s kind.
    Inspected,
    /// Where `inspect` begins; the upper half is a process.
    InspectFrom,
    /// An address family.
    Family,
}

use Kind::*;

/// A call, its relative frequency, and the kinds of its arguments.
pub struct Signature {
    pub number: usize,
    pub weight: u32,
    pub arguments: &'static [Kind],
}

const fn call(number: usize, weight: u32, arguments: &'static [Kind]) -> Signature {
    Signature { number, weight, arguments }
}

/// The calls with known kinds of arguments. All other calls of the kernel get arbitrary arguments.
pub const SIGNATURES: &[Signature] = &[
    call(number::OPENAT, 40, &[Directory, Path, OpenFlags, Zero]),
    call(number::CLOSE, 60, &[Descriptor]),
    call(number::EVENTFD2, 30, &[Small, Zero]),
    call(number::EPOLL_CREATE1, 20, &[Zero]),
    call(number::EPOLL_CTL, 120, &[Descriptor, Small, Descriptor, Buffers]),
    call(number::EPOLL_PWAIT, 60, &[Descriptor, Pointer, Small, Small, Zero, Zero]),
    call(number::PSELECT6, 30, &[Small, Buffers, Pointer, Zero, Time, Zero]),
    call(number::PPOLL, 60, &[Polled, Small, Time, Zero, Zero]),
    call(number::GETCWD, 5, &[Pointer, Length]),
    call(number::MKDIRAT, 20, &[Directory, Path, Small]),
    call(number::UNLINKAT, 30, &[Directory, Path, AtFlags]),
    call(number::SYMLINKAT, 20, &[Path, Directory, Path]),
    call(number::LINKAT, 20, &[Directory, Path, Directory, Path, AtFlags]),
    call(number::MOUNT, 5, &[Any, Path, Path, Small, Path]),
    call(number::UMOUNT2, 5, &[Path, Small]),
    call(number::STATFS, 5, &[Path, Pointer]),
    call(number::FSTATFS, 5, &[Descriptor, Pointer]),
    call(number::TRUNCATE, 10, &[Path, Length]),
    call(number::FTRUNCATE, 20, &[Descriptor, Length]),
    call(number::CHDIR, 20, &[Path]),
    call(number::FCHDIR, 10, &[Descriptor]),
    call(number::FCHMOD, 5, &[Descriptor, Small]),
    call(number::FCHMODAT, 5, &[Directory, Path, Small]),
    call(number::FCHOWNAT, 5, &[Directory, Path, Small, Small, AtFlags]),
    call(number::FCHOWN, 5, &[Descriptor, Small, Small]),
    call(number::READLINKAT, 10, &[Directory, Path, Pointer, Length]),
    call(number::SYNC, 2, &[]),
    call(number::FSYNC, 5, &[Descriptor]),
    call(number::FDATASYNC, 5, &[Descriptor]),
    call(number::UTIMENSAT, 5, &[Directory, Path, Time, AtFlags]),
    call(number::UMASK, 5, &[Small]),
    call(number::RENAMEAT2, 30, &[Directory, Path, Directory, Path, Small]),
    call(number::DUP, 20, &[Descriptor]),
    call(number::DUP3, 20, &[Descriptor, Descriptor, OpenFlags]),
    call(number::FCNTL, 30, &[Descriptor, Control, Any]),
    call(number::IOCTL, 10, &[Descriptor, Request, Pointer]),
    call(number::FACCESSAT, 10, &[Directory, Path, Small]),
    call(number::PIPE2, 50, &[Pointer, OpenFlags]),
    call(number::READV, 30, &[Descriptor, Buffers, Small]),
    call(number::WRITEV, 30, &[Descriptor, Buffers, Small]),
    call(number::PREAD64, 20, &[Descriptor, Pointer, Length, Small]),
    call(number::PWRITE64, 20, &[Descriptor, Pointer, Length, Small]),
    call(number::PREADV, 10, &[Descriptor, Buffers, Small, Small]),
    call(number::PWRITEV, 10, &[Descriptor, Buffers, Small, Small]),
    call(number::NEWFSTATAT, 20, &[Directory, Path, Pointer, AtFlags]),
    call(number::FSTAT, 10, &[Descriptor, Pointer]),
    call(number::STATX, 10, &[Directory, Path, AtFlags, Zero, Pointer]),
    call(number::FACCESSAT2, 5, &[Directory, Path, Small, AtFlags]),
    call(number::GETDENTS64, 20, &[Descriptor, Pointer, Length]),
    call(number::LSEEK, 20, &[Descriptor, Any, Small]),
    call(number::READ, 100, &[Descriptor, Pointer, Length]),
    call(number::WRITE, 100, &[Descriptor, Pointer, Length]),
    // These end the caller, so they are rare.
    call(number::EXIT, 1, &[Small]),
    call(number::EXIT_GROUP, 1, &[Small]),
    call(number::CLOCK_GETTIME, 10, &[Small, Pointer]),
    call(number::FUTEX, 40, &[Pointer, Operation, Small, Time, Pointer, Small]),
    call(number::CLOCK_NANOSLEEP, 60, &[Small, Small, Time, Any]),
    call(number::SCHED_YIELD, 20, &[]),
    call(number::KILL, 20, &[Process, Signal]),
    call(number::GETPID, 5, &[]),
    call(number::GETPPID, 5, &[]),
    call(number::SETPGID, 10, &[Process, Process]),
    call(number::GETPGID, 5, &[Process]),
    call(number::GETSID, 5, &[Process]),
    call(number::SETSID, 2, &[]),
    call(number::SOCKET, 60, &[Family, Small, Zero]),
    call(number::BIND, 50, &[Descriptor, Address, AddressLength]),
    call(number::LISTEN, 50, &[Descriptor, Small]),
    call(number::ACCEPT, 30, &[Descriptor, Address, PointerToLength]),
    call(number::CONNECT, 50, &[Descriptor, Address, AddressLength]),
    call(number::GETSOCKNAME, 20, &[Descriptor, Address, PointerToLength]),
    call(number::GETPEERNAME, 20, &[Descriptor, Address, PointerToLength]),
    call(number::SHUTDOWN, 20, &[Descriptor, Small]),
    call(number::SETSOCKOPT, 10, &[Descriptor, Small, Small, Pointer, Length]),
    call(number::MUNMAP, 30, &[Page, Length]),
    call(number::MMAP, 40, &[Zero, Length, Protection, MapFlags, Any, Zero]),
    call(number::MPROTECT, 40, &[Page, Length, Protection]),
    call(number::MSYNC, 15, &[Page, Length, Small]),
    call(number::ACCEPT4, 30, &[Descriptor, Address, PointerToLength, Zero]),
    call(number::WAIT4, 30, &[Process, Pointer, Small, Zero]),
    call(number::GETRANDOM, 10, &[Pointer, Length, Zero]),
    // Only another virtual CPU or a result ends it; a child with only sleeping virtual CPUs is
    // killed.
    call(number::COPS_PARK, 10, &[]),
    call(number::COPS_UNPARK, 40, &[Small]),
    call(number::COPS_ALLOC_CPU, 4, &[Small, Entry]),
    call(number::COPS_CANCEL, 80, &[Handle]),
    call(number::COPS_REFILL_RING, 30, &[]),
    call(number::COPS_SPAWN_PROCESS, 12, &[Path, Strings, Level]),
    call(number::COPS_READ_STANDING, 40, &[Descriptor, Pointer, Length]),
    call(number::COPS_RESUME_READ, 40, &[Handle]),
    call(number::COPS_STATISTICS, 6, &[Pointer, Length]),
    call(number::COPS_SET_CEILING, 20, &[Process, Level]),
    call(number::COPS_SET_SHARE, 5, &[Any]),
    call(number::COPS_SET_CALL_PRIORITY, 40, &[Handle, Level]),
    call(number::COPS_SET_THREAD_PRIORITY, 10, &[Small, Level]),
    call(number::COPS_DONATE_PRIORITY, 20, &[Any]),
    call(number::COPS_TRY_WRITE, 40, &[Descriptor, Pointer, Length]),
    call(number::COPS_SET_KERNEL_MODEL, 10, &[Small]),
    // It continues wherever the shared page says, so it is rare.
    call(number::COPS_URET, 1, &[]),
    call(number::COPS_INSPECT, 30, &[Inspected, InspectFrom, Pointer, Length]),
    call(number::COPS_FAIL_ALLOCATION, 1, &[Small]),
    call(number::COPS_TRACE, 15, &[Small, Small, Pointer, Length]),
];
