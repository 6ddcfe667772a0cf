//! System call numbers and the calling convention.
//!
//! Number in `a7`, arguments in `a0..a5`, result in `a0` (see [`crate::errno::encode`]).
//!
//! A native process also passes the caller's [`CoroutineId`](crate::CoroutineId) in `a6` (0 for a
//! synchronous call), and in `t0` a token of its choice that comes back with the result. If `a6` is
//! not 0, the kernel returns in `a1` whether the call has completed (0: `a0` is the result) or is
//! in flight (otherwise: `a1` is its [`CallHandle`], and the result comes through the wake ring).

/// Identifies a call in flight. Never 0, and never reused for another call of the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CallHandle(pub core::num::NonZeroU64);

macro_rules! numbers {
    ($($(#[$doc:meta])+ $name:ident = $number:literal;)*) => {
        $($(#[$doc])+ pub const $name: usize = $number;)*

        /// Every call that the kernel has, with its name.
        pub const ALL: &[(usize, &str)] = &[$(($number, stringify!($name))),*];
    };
}

numbers! {
    /// `getcwd(buffer, length) -> bytes`, with the zero at the end.
    GETCWD = 17;
    /// `eventfd2(value, flags: semaphore, close on exec, non-blocking) -> fd`.
    EVENTFD2 = 19;
    /// `epoll_create1(flags: close on exec) -> fd`.
    EPOLL_CREATE1 = 20;
    /// `epoll_ctl(epoll fd, operation, fd, *const event)`: see [`crate::poll::epoll_control`].
    EPOLL_CTL = 21;
    /// `epoll_pwait(epoll fd, *mut event, count, milliseconds or -1, *const mask or 0, 8) ->
    /// count`. Can wait.
    EPOLL_PWAIT = 22;
    /// `dup(fd) -> fd`.
    DUP = 23;
    /// `dup3(fd, new fd, flags: close on exec) -> new fd`.
    DUP3 = 24;
    /// `fcntl(fd, command, argument)`: see [`crate::file::control`].
    FCNTL = 25;
    /// `ioctl(fd, request, argument)`: see [`crate::file::ioctl`].
    IOCTL = 29;
    /// `mkdirat(directory fd, path, mode)`.
    MKDIRAT = 34;
    /// `unlinkat(directory fd, path, flags: remove a directory)`.
    UNLINKAT = 35;
    /// `symlinkat(target, directory fd, path)`.
    SYMLINKAT = 36;
    /// `linkat(directory fd, path, directory fd, new path, flags: follow)`.
    LINKAT = 37;
    /// `umount2(path, 0)`: removes what was mounted last at a directory.
    UMOUNT2 = 39;
    /// `mount(_, path, "served", 0, "fd=N" or "fd=N,root=NODE")`: puts the file system of a
    /// descriptor of `/dev/fs` at a directory: see [`crate::served`].
    MOUNT = 40;
    /// `statfs(path, *mut statfs)`.
    STATFS = 43;
    /// `fstatfs(fd, *mut statfs)`.
    FSTATFS = 44;
    /// `truncate(path, length)`.
    TRUNCATE = 45;
    /// `ftruncate(fd, length)`.
    FTRUNCATE = 46;
    /// `faccessat(directory fd, path, mode)`.
    FACCESSAT = 48;
    /// `chdir(path)`.
    CHDIR = 49;
    /// `fchdir(fd)`.
    FCHDIR = 50;
    /// `fchmod(fd, mode)`.
    FCHMOD = 52;
    /// `fchmodat(directory fd, path, mode)`.
    FCHMODAT = 53;
    /// `fchownat(directory fd, path, user, group, flags)`.
    FCHOWNAT = 54;
    /// `fchown(fd, user, group)`.
    FCHOWN = 55;
    /// `openat(directory fd or AT_FDCWD, path, flags, mode) -> fd`.
    OPENAT = 56;
    /// `close(fd)`.
    CLOSE = 57;
    /// `pipe2(*mut [i32; 2], flags: close on exec, non-blocking)`: fds of the reading and the
    /// writing end.
    PIPE2 = 59;
    /// `getdents64(fd, buffer, length) -> bytes`.
    GETDENTS64 = 61;
    /// `lseek(fd, offset, whence) -> offset`.
    LSEEK = 62;
    /// `read(fd, buffer, length) -> bytes`, 0 at the end. Can wait.
    READ = 63;
    /// `write(fd, buffer, length) -> bytes`. Can wait.
    WRITE = 64;
    /// `readv(fd, *const iovec, count) -> bytes`. Can wait.
    READV = 65;
    /// `writev(fd, *const iovec, count) -> bytes`. Can wait.
    WRITEV = 66;
    /// `pread64(fd, buffer, length, offset) -> bytes`. Can wait.
    PREAD64 = 67;
    /// `pwrite64(fd, buffer, length, offset) -> bytes`. Can wait.
    PWRITE64 = 68;
    /// `preadv(fd, *const iovec, count, offset) -> bytes`. Can wait.
    PREADV = 69;
    /// `pwritev(fd, *const iovec, count, offset) -> bytes`. Can wait.
    PWRITEV = 70;
    /// `pselect6(count, *mut set, *mut set, *mut set, *mut timespec or 0, *const mask or 0) ->
    /// bits`. Can wait.
    PSELECT6 = 72;
    /// `ppoll(*mut pollfd, count, *mut timespec or 0, *const mask or 0, 8) -> count`. Can wait.
    PPOLL = 73;
    /// `readlinkat(directory fd, path, buffer, length) -> bytes`.
    READLINKAT = 78;
    /// `newfstatat(directory fd, path, *mut stat, flags)`.
    NEWFSTATAT = 79;
    /// `fstat(fd, *mut stat)`.
    FSTAT = 80;
    /// `sync()`.
    SYNC = 81;
    /// `fsync(fd)`: what was written to the disk is durable. Can wait.
    FSYNC = 82;
    /// `fdatasync(fd)`: the same.
    FDATASYNC = 83;
    /// `utimensat(directory fd, path or 0, *const [timespec; 2] or 0, flags)`.
    UTIMENSAT = 88;
    /// `exit(code)`: ends this virtual CPU; the last one ends the process.
    EXIT = 93;
    /// `exit_group(code)`: ends the process.
    EXIT_GROUP = 94;
    /// `futex(address, operation, value, timeout or count, address, value)`: see [`futex`]. Can
    /// wait.
    FUTEX = 98;
    /// `clock_gettime(clock, *mut timespec)`: [`CLOCK_REALTIME`] or [`CLOCK_MONOTONIC`].
    CLOCK_GETTIME = 113;
    /// `clock_nanosleep(clock, flags: 1 absolute, *const timespec, _)`. Can wait.
    CLOCK_NANOSLEEP = 115;
    /// `sched_yield()`.
    SCHED_YIELD = 124;
    /// `kill(pid, signal)`: to a process; 0 its own group, -1 all that it may signal, -n group n.
    KILL = 129;
    /// `setpgid(pid or 0, group or 0)`.
    SETPGID = 154;
    /// `getpgid(pid or 0) -> group`.
    GETPGID = 155;
    /// `getsid(pid or 0) -> session`.
    GETSID = 156;
    /// `setsid() -> session`.
    SETSID = 157;
    /// `umask(mask) -> previous mask`.
    UMASK = 166;
    /// `getpid()`.
    GETPID = 172;
    /// `getppid()`.
    GETPPID = 173;
    /// `socket(domain, type, protocol) -> fd`.
    SOCKET = 198;
    /// `bind(fd, *const sockaddr, length)`.
    BIND = 200;
    /// `listen(fd, backlog)`.
    LISTEN = 201;
    /// `accept(fd, *mut sockaddr or 0, *mut u32 length) -> fd`. Can wait.
    ACCEPT = 202;
    /// `connect(fd, *const sockaddr, length)`. Can wait.
    CONNECT = 203;
    /// `getsockname(fd, *mut sockaddr, *mut u32 length)`.
    GETSOCKNAME = 204;
    /// `getpeername(fd, *mut sockaddr, *mut u32 length)`.
    GETPEERNAME = 205;
    /// `sendto(fd, buffer, length, flags, *const sockaddr or 0, length) -> bytes`. Can wait.
    SENDTO = 206;
    /// `recvfrom(fd, buffer, length, flags, *mut sockaddr or 0, *mut u32 or 0) -> bytes`. Can wait.
    RECVFROM = 207;
    /// `setsockopt(fd, level, name, *const value, length)`: see [`crate::linux::socket_option`].
    SETSOCKOPT = 208;
    /// `shutdown(fd, how: 0 read, 1 write, 2 both)`.
    SHUTDOWN = 210;
    /// `munmap(address, length)`.
    MUNMAP = 215;
    /// `clone(flags, stack or 0, *mut i32, tls, *mut i32) -> pid`, 0 in the child: starts a copy of
    /// this process, with the [`clone_flags`] that Linux's `fork` and `vfork` pass.
    CLONE = 220;
    /// `execve(path, argv, envp)`: replaces the program of this process; `argv` and `envp` are
    /// null-terminated arrays of NUL-terminated strings, `envp` may be 0. Returns only an error.
    EXECVE = 221;
    /// `mmap(address, length, protection, flags, fd, offset) -> address`. Can wait if it maps a
    /// file that a process serves.
    MMAP = 222;
    /// `mprotect(address, length, protection)`.
    MPROTECT = 226;
    /// `msync(address, length, flags)`. Can wait.
    MSYNC = 227;
    /// `accept4(fd, *mut sockaddr or 0, *mut u32 length, flags: close on exec, non-blocking)`.
    /// Can wait.
    ACCEPT4 = 242;
    /// `wait4(pid or -1, *mut i32 status, options, *mut rusage or 0) -> pid`. Can wait.
    WAIT4 = 260;
    /// `renameat2(directory fd, path, directory fd, new path, flags: 1 does not replace)`.
    RENAMEAT2 = 276;
    /// `getrandom(buffer, length, flags) -> bytes`: at most 256 in one call; `docs/abi.md` says how
    /// good they are.
    GETRANDOM = 278;
    /// `statx(directory fd, path, flags, mask, *mut statx)`.
    STATX = 291;
    /// `faccessat2(directory fd, path, mode, flags)`.
    FACCESSAT2 = 439;

    /// `park()`: suspends this virtual CPU until it is unparked; returns at once if that has
    /// already happened.
    COPS_PARK = 4096;
    /// `unpark(virtual CPU)`: wakes it from `park`, or makes its next `park` return at once.
    COPS_UNPARK = 4097;
    /// `alloc_cpu(count, entry) -> number of virtual CPUs of the process`: the new ones start at
    /// `entry(index)`.
    COPS_ALLOC_CPU = 4098;
    /// `cancel(call handle) -> 0` if the call was in flight and is cancelled, or `1` if it had
    /// completed: its entry is in the ring.
    COPS_CANCEL = 4099;
    /// `refill_ring()`: moves results that found the ring full into it, as far as it has room and
    /// a number of them at most, so that the call is short. Returns how many still wait.
    COPS_REFILL_RING = 4100;
    /// `spawn_process(path, argv, ceiling, options, envp) -> pid`. `path` ends with NUL; `argv`,
    /// and `envp` unless it is 0, are null-terminated arrays of NUL-terminated strings. `ceiling`:
    /// 0 for the caller's, or the child's ceiling plus 1. `options`: 0, or the address of
    /// [`SpawnOptions`].
    COPS_SPAWN_PROCESS = 4101;
    /// `statistics(*mut Statistics, bytes) -> bytes`: see [`crate::statistics`].
    COPS_STATISTICS = 4102;
    /// `read_standing(fd, *mut block, bytes) -> bytes`: reads from a TCP connection into the block,
    /// and again each time the program has emptied it: see [`crate::standing`]. Asynchronous only.
    COPS_READ_STANDING = 4103;
    /// `resume_read(call handle) -> result or 0`: the block of this standing read has been emptied,
    /// and there may be more for it. If so, it is filled at once, and the result is as in the ring,
    /// where it does not come then. 0: the next result, or the last one, comes through the ring.
    COPS_RESUME_READ = 4104;
    /// `set_ceiling(pid or 0, level)`: limits the process to `level`: from now on, no level that it
    /// publishes or passes counts as more urgent. 0 is the caller; its ceiling can only become less
    /// urgent. Any other pid must be a descendant of the caller, and gets at most the caller's own
    /// ceiling.
    COPS_SET_CEILING = 4110;
    /// `set_share(per mille) -> previous value`: guarantees that share of each hart's time to
    /// virtual CPUs that are ready but not the most urgent. Only for the first process.
    COPS_SET_SHARE = 4111;
    /// `set_call_priority(call handle, level)`: changes the priority at which the kernel completes
    /// a call in flight.
    COPS_SET_CALL_PRIORITY = 4112;
    /// `uret()`: returns from the handler of a user-level interrupt.
    COPS_URET = 4113;
    /// `quota(pid or 0, kind, limit, *mut Quota or 0)`: reads, and optionally limits, what a
    /// process and its descendants use: see [`crate::quota`]. 0 is the caller, which can only lower
    /// its own limit; limits of other processes can be set for descendants only.
    COPS_QUOTA = 4114;
    /// `set_thread_priority(thread id or 0, level)`: sets the level of a thread of the caller's
    /// process; 0 is the caller. `EINVAL` for the caller if it is a worker.
    COPS_SET_THREAD_PRIORITY = 4115;
    /// `set_kernel_model(model)`: chooses the kernel's half of this process's reads and writes of
    /// TCP connections which have to wait: a [`kernel_model`].
    COPS_SET_KERNEL_MODEL = 4116;
    /// `donate_priority(virtual CPU, thread id or HOLDER_UNKNOWN) -> number of them`: that one, of
    /// the caller's process, has a lock for which the caller waits. If it waits for a hart, it has
    /// the urgency of the caller until it has had one for a moment. See [`HOLDER_UNKNOWN`].
    COPS_DONATE_PRIORITY = 4117;
    /// `try_write(fd, buffer, length) -> bytes`: as `write`, but it never waits. `EAGAIN` if
    /// nothing can be written at once, for more than [`TRY_WRITE_BYTES_MAX`] bytes, for bytes that
    /// are not in one page of memory that is there, and if `fd` is neither a connection nor a pipe.
    COPS_TRY_WRITE = 4118;

    /// `inspect(kind, from, *mut records, bytes) -> bytes`: reads the state of harts, processes,
    /// virtual CPUs and coroutines as records: see [`crate::inspect`].
    COPS_INSPECT = 4128;
    /// `trace(operation, a, b, c)`: controls tracing of the whole machine and reads the trace: see
    /// [`crate::trace::operation`].
    COPS_TRACE = 4129;
    /// `fail_allocation(n) -> left`: makes the n-th allocation from now (from the kernel's heap or
    /// of a frame, or a check whether there is memory) fail, and only that one; 0 makes none fail.
    /// Returns how many allocations the
    /// previous `fail_allocation` still had to count, which is 0 if its allocation has failed. For
    /// tests only: `ENOSYS` without the boot argument `fail-allocation=on`.
    COPS_FAIL_ALLOCATION = 4130;
    /// `ignore_signals(set) -> previous set`: the process ignores these signals from now on, and no
    /// others. Bit `n - 1` is for signal `n`; `SIGKILL` and `SIGSTOP` cannot be ignored, and bit 63
    /// is not returned.
    COPS_IGNORE_SIGNALS = 4136;
}

/// Maximum number of bytes of one `COPS_TRY_WRITE`.
pub const TRY_WRITE_BYTES_MAX: usize = 256;

/// For `COPS_DONATE_PRIORITY`: any virtual CPU of the process that is no thread may have the lock.
pub const HOLDER_UNKNOWN: usize = usize::MAX;

/// The name of a call; `None` for a number that the kernel does not know.
#[must_use]
pub fn name(number: usize) -> Option<&'static str> {
    let place = ALL.binary_search_by_key(&number, |&(number, _)| number).ok()?;
    Some(ALL[place].1)
}

/// Words of a set of calls with one of Linux's numbers, a bit for each.
pub const NUMBER_WORDS: usize = 8;

/// The native calls with one of Linux's numbers.
pub const LINUX_NUMBERS: [u64; NUMBER_WORDS] = {
    let mut numbers = [0; 8];
    let mut index = 0;
    while index < ALL.len() {
        let number = ALL[index].0;
        if number < 64 * numbers.len() {
            numbers[number / 64] |= 1 << (number % 64);
        }
        index += 1;
    }
    numbers
};

/// Whether the set has this number. Each call of a Linux program asks: a search for its [`name`]
/// would take some 60 instructions.
#[inline]
#[must_use]
pub const fn is_in(set: &[u64; NUMBER_WORDS], number: usize) -> bool {
    number < 64 * NUMBER_WORDS && set[number / 64] >> (number % 64) & 1 != 0
}

/// The set without these numbers.
///
/// # Panics
/// If one of them is not in the set.
#[must_use]
pub const fn without(mut set: [u64; NUMBER_WORDS], numbers: &[usize]) -> [u64; NUMBER_WORDS] {
    let mut index = 0;
    while index < numbers.len() {
        let number = numbers[index];
        assert!(is_in(&set, number), "the number is in the set, once");
        set[number / 64] &= !(1 << (number % 64));
        index += 1;
    }
    set
}

/// `openat`: paths are relative to the working directory.
pub const AT_FDCWD: isize = -100;
/// `wait4`: return at once if no child has ended.
pub const WNOHANG: usize = 1;
/// `wait4`: report stopped children too.
pub const WUNTRACED: usize = 2;
/// `wait4`: report children that continue too.
pub const WCONTINUED: usize = 8;
/// `wait4`: children that were not started by `fork` too.
pub const WAIT_ALL: usize = 0x4000_0000;
/// Time since 1970-01-01 UTC; since boot if the machine has no real-time clock.
pub const CLOCK_REALTIME: usize = 0;
/// Time since boot.
pub const CLOCK_MONOTONIC: usize = 1;
/// `clock_nanosleep`: the time is a deadline.
pub const TIMER_ABSTIME: usize = 1;
/// Maximum number of asynchronous calls of a process in flight; one more fails with `EAGAIN`.
pub const CALLS_IN_FLIGHT_MAX: usize = 32_768;
/// Maximum length of a path in bytes, including the terminating zero.
pub const PATH_BYTES_MAX: usize = 4096;
/// Maximum length of a name in a path, in bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum number of buffers of `readv` and its relatives.
pub const BUFFERS_MAX: usize = 1024;
/// Maximum size of all arguments in bytes, including their zeros.
pub const ARGUMENT_BYTES_MAX: usize = 16 * 1024;
/// Maximum number of arguments.
pub const ARGUMENTS_MAX: usize = 256;

/// The files and the group of a new process, for `spawn_process`: six words of 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SpawnOptions {
    /// The caller's descriptors that become the child's 0, 1 and 2, or [`Self::CONSOLE`].
    pub files: [i32; 3],
    /// The child's group: 0 for a new one, or [`Self::SAME_GROUP`].
    pub group: i32,
    /// Whether that group, which must be given, gets into the foreground of the terminal before the
    /// child starts: 0 or 1.
    pub foreground: u32,
    /// The terminal's local flags then: of `CANONICAL`, `ECHO` and `SIGNALS`; everything else has
    /// its usual setting.
    pub local: u32,
}

impl SpawnOptions {
    /// The console, opened anew.
    pub const CONSOLE: i32 = -1;
    /// The caller's group.
    pub const SAME_GROUP: i32 = -1;
    /// Size in bytes.
    pub const BYTES: usize = size_of::<Self>();

    /// The options in these bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
        let (words, _) = bytes.as_chunks();
        let word = |index: usize| words.get(index).map_or(0, |word| u32::from_le_bytes(*word));
        Self {
            files: [0, 1, 2].map(|index| word(index) as i32),
            group: word(3) as i32,
            foreground: word(4),
            local: word(5),
        }
    }
}

const _: () = assert!(SpawnOptions::BYTES == 24);

/// Flags of `clone`. The low byte is the signal that the parent gets when the child ends; it must
/// be [`signal::SIGCHLD`].
pub mod clone_flags {
    /// The low byte.
    pub const EXIT_SIGNAL: usize = 0xff;
    /// What a thread shares with the thread that starts it: everything. With these flags, `clone`
    /// starts a thread.
    pub const THREAD_SHARES: usize = VM | 0x200 | 0x400 | 0x800 | THREAD;
    /// A thread of the caller's process.
    pub const THREAD: usize = 0x1_0000;
    /// Flags for a thread that have no effect: share what System V semaphores would undo (there are
    /// none), detached.
    pub const THREAD_WITHOUT_EFFECT: usize = 0x4_0000 | 0x40_0000;
    /// Share the memory. Only together with [`VFORK`]; the child of a native program gets a copy
    /// all the same.
    pub const VM: usize = 0x100;
    /// Together with [`VM`], in a Linux program: suspend the caller until the child has ended or
    /// called `execve`. Otherwise without effect.
    pub const VFORK: usize = 0x4000;
    /// The fourth argument is the child's thread pointer.
    pub const SET_TLS: usize = 0x8_0000;
    /// Store the child's number at the third argument, in the parent.
    pub const PARENT_SET_TID: usize = 0x10_0000;
    /// Clear the word at the fifth argument when the child ends and another thread of it exists.
    pub const CHILD_CLEAR_TID: usize = 0x20_0000;
    /// Store the child's number at the fifth argument, in the child.
    pub const CHILD_SET_TID: usize = 0x100_0000;
}

/// Operations and flags of `futex`.
pub mod futex {
    /// Wait while the word is the given value, for at most a relative time.
    pub const WAIT: usize = 0;
    /// Wake so many waiters.
    pub const WAKE: usize = 1;
    /// Wake so many waiters, and move so many of the rest to another address.
    pub const REQUEUE: usize = 3;
    /// The same, if the word is the given value.
    pub const CMP_REQUEUE: usize = 4;
    /// Lock a word that is its owner's id, with priority inheritance, until a deadline in real
    /// time.
    pub const LOCK_PI: usize = 6;
    /// Unlock such a word.
    pub const UNLOCK_PI: usize = 7;
    /// Lock such a word if it is free.
    pub const TRYLOCK_PI: usize = 8;
    /// Wait for a wake with a common bit, until a deadline.
    pub const WAIT_BITSET: usize = 9;
    /// Wake waiters with a common bit.
    pub const WAKE_BITSET: usize = 10;
    /// As [`LOCK_PI`], until a deadline of the monotonic clock.
    pub const LOCK_PI2: usize = 13;
    /// Flag: the word is not shared with other processes. No effect: no word is.
    pub const PRIVATE: usize = 128;
    /// Flag: the deadline is in real time.
    pub const CLOCK_REALTIME: usize = 256;
}

/// Protection bits of `mmap` and `mprotect`.
pub mod protection {
    /// May be read.
    pub const READ: usize = 1;
    /// May be written.
    pub const WRITE: usize = 2;
    /// May be executed. Never together with [`WRITE`].
    pub const EXECUTE: usize = 4;
}

/// Flags of [`MSYNC`].
pub mod sync_flags {
    /// Begin to write.
    pub const ASYNC: usize = 1;
    /// Forget what other mappings have read.
    pub const INVALIDATE: usize = 2;
    /// Write, and wait for the end of that.
    pub const SYNC: usize = 4;
}

/// Flags of `mmap`; exactly these two must be set.
pub mod map_flags {
    /// Changes are seen by all that have mapped the same.
    pub const SHARED: usize = 1;
    /// Changes are the process's own.
    pub const PRIVATE: usize = 2;
    /// The mapping has no file.
    pub const ANONYMOUS: usize = 0x20;
}

/// The status word of `wait4`.
pub mod wait_status {
    /// Ended by `exit` with this code.
    #[must_use]
    pub const fn exited(code: u8) -> i32 {
        (code as i32) << 8
    }
    /// Ended by this signal.
    #[must_use]
    pub const fn signalled(signal: u8) -> i32 {
        (signal & 0x7f) as i32
    }
    /// Stopped by this signal.
    #[must_use]
    pub const fn stopped(signal: u8) -> i32 {
        (signal as i32) << 8 | 0x7f
    }
    /// Goes on after it was stopped.
    pub const CONTINUED: i32 = 0xffff;
    /// The exit status as a shell reports it: the exit code, or 128 + signal.
    #[must_use]
    pub const fn shell_code(status: i32) -> u8 {
        if status & 0x7f == 0 { (status >> 8) as u8 } else { 128 + (status & 0x7f) as u8 }
    }
}

/// Signals; numbers are Linux's.
pub mod signal {
    /// The terminal is gone, or a stopped group is orphaned.
    pub const SIGHUP: u8 = 1;
    /// Ctrl-C.
    pub const SIGINT: u8 = 2;
    /// Ctrl-\\.
    pub const SIGQUIT: u8 = 3;
    /// Illegal instruction.
    pub const SIGILL: u8 = 4;
    /// Breakpoint.
    pub const SIGTRAP: u8 = 5;
    /// Abort.
    pub const SIGABRT: u8 = 6;
    /// Misaligned or impossible access.
    pub const SIGBUS: u8 = 7;
    /// Killed.
    pub const SIGKILL: u8 = 9;
    /// Bad address.
    pub const SIGSEGV: u8 = 11;
    /// Write to a pipe without a reader.
    pub const SIGPIPE: u8 = 13;
    /// The alarm of `setitimer` rings.
    pub const SIGALRM: u8 = 14;
    /// Termination request.
    pub const SIGTERM: u8 = 15;
    /// A child has ended, is stopped or goes on.
    pub const SIGCHLD: u8 = 17;
    /// Makes a stopped process go on.
    pub const SIGCONT: u8 = 18;
    /// Stops a process.
    pub const SIGSTOP: u8 = 19;
    /// Ctrl-Z.
    pub const SIGTSTP: u8 = 20;
    /// A process in the background reads the terminal.
    pub const SIGTTIN: u8 = 21;
    /// A process in the background writes or sets the terminal.
    pub const SIGTTOU: u8 = 22;
}

/// What waits in the kernel for a process's calls (decision 56): for reads and writes of TCP
/// connections, in native programs.
pub mod kernel_model {
    /// A kernel coroutine; the default.
    pub const COROUTINES: u8 = 0;
    /// The calling thread sleeps and is woken. Calls of coroutines are as usual.
    pub const THREADS: u8 = 1;
    /// The calling thread retries and yields. Calls of coroutines are as usual.
    pub const RETRYING_THREADS: u8 = 2;
    /// One kernel thread polls the calls of coroutines. Calls of threads are as usual.
    pub const POLLING: u8 = 3;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_distinct_and_sorted() {
        assert!(ALL.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(ALL.iter().all(|&(number, text)| name(number) == Some(text)));
        assert_eq!(name(0), None);
    }

    #[test]
    fn linux_numbers_are_those_below_the_own_ones() {
        for number in (0..10_000).chain([usize::MAX]) {
            let is_one = number < COPS_PARK && name(number).is_some();
            assert_eq!(is_in(&LINUX_NUMBERS, number), is_one, "{number}");
        }
    }

    #[test]
    fn numbers_leave_the_set() {
        let rest = without(LINUX_NUMBERS, &[READ, FUTEX]);
        for number in 0..1000 {
            let stays = is_in(&LINUX_NUMBERS, number) && number != READ && number != FUTEX;
            assert_eq!(is_in(&rest, number), stays, "{number}");
        }
    }

    #[test]
    fn wait_status_reads_back() {
        assert_eq!(wait_status::shell_code(wait_status::exited(7)), 7);
        assert_eq!(wait_status::shell_code(wait_status::signalled(signal::SIGSEGV)), 139);
        assert_eq!(wait_status::stopped(signal::SIGTSTP), 0x147f);
    }
}
