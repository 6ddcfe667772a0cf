//! System call numbers and the calling convention.
//!
//! Number in `a7`, arguments in `a0..a5`, result in `a0` (see [`crate::errno::encode`]).
//!
//! A native process adds: `a6` is the caller's [`CoroutineId`](crate::CoroutineId), 0 for a
//! synchronous call; `t0` is a token of the caller's choice, handed back with the result. When
//! `a6` is not 0, `a1` tells whether the call has completed (0: `a0` is the result) or is in
//! flight (otherwise: `a1` is its [`CallHandle`], and the result comes through the wake ring).

/// Names a call in flight; never 0, never reused for another call of the same process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct CallHandle(pub core::num::NonZeroU64);

macro_rules! numbers {
    ($($(#[$doc:meta])+ $name:ident = $number:literal;)*) => {
        $($(#[$doc])+ pub const $name: usize = $number;)*

        /// Every call the kernel knows, with its name: for traces and for tests that must try each.
        pub const ALL: &[(usize, &str)] = &[$(($number, stringify!($name))),*];
    };
}

numbers! {
    /// `openat(directory fd or AT_FDCWD, path, flags, mode) -> fd`.
    OPENAT = 56;
    /// `close(fd)`.
    CLOSE = 57;
    /// `pipe2(*mut [i32; 2], flags = 0)`: fds of the reading and the writing end.
    PIPE2 = 59;
    /// `getdents64(fd, buffer, length) -> bytes`.
    GETDENTS64 = 61;
    /// `lseek(fd, offset, whence) -> offset`.
    LSEEK = 62;
    /// `read(fd, buffer, length) -> bytes`, 0 at the end. Can wait.
    READ = 63;
    /// `write(fd, buffer, length) -> bytes`. Can wait.
    WRITE = 64;
    /// `exit(code)`: ends this virtual CPU; the last one ends the process.
    EXIT = 93;
    /// `exit_group(code)`: ends the process.
    EXIT_GROUP = 94;
    /// `clock_gettime(clock, *mut timespec)`: [`CLOCK_REALTIME`] or [`CLOCK_MONOTONIC`].
    CLOCK_GETTIME = 113;
    /// `clock_nanosleep(clock, flags: 1 absolute, *const timespec, _)`. Can wait.
    CLOCK_NANOSLEEP = 115;
    /// `sched_yield()`.
    SCHED_YIELD = 124;
    /// `kill(pid, signal)`: any signal but 0 ends the process.
    KILL = 129;
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
    /// `shutdown(fd, how: 0 read, 1 write, 2 both)`.
    SHUTDOWN = 210;
    /// `munmap(address, length)`.
    MUNMAP = 215;
    /// `mmap(0, length, protection, flags: private anonymous, -1, 0) -> address`.
    MMAP = 222;
    /// `mprotect(address, length, protection)`.
    MPROTECT = 226;
    /// `accept4(fd, *mut sockaddr or 0, *mut u32 length, flags = 0) -> fd`. Can wait.
    ACCEPT4 = 242;
    /// `wait4(pid or -1, *mut i32 status, options: 1 no hang, 0) -> pid`. Can wait.
    WAIT4 = 260;
    /// `getrandom(buffer, length, flags) -> bytes`: at most 256 in one call; `docs/abi.md` says how good they are.
    GETRANDOM = 278;

    /// `park()`: sleeps this virtual CPU until a wake, or returns at once if one is pending.
    COPS_PARK = 4096;
    /// `unpark(virtual CPU)`: ends its sleep, or makes its next `park` return at once.
    COPS_UNPARK = 4097;
    /// `alloc_cpu(count, entry) -> virtual CPUs of the process now`: the new ones start at `entry(index)`.
    COPS_ALLOC_CPU = 4098;
    /// `cancel(call handle) -> 0` the call was in flight and is gone, or `1` it had completed: its entry is in the ring.
    COPS_CANCEL = 4099;
    /// `refill_ring()`: moves results that found the ring full into it. Returns how many still wait.
    COPS_REFILL_RING = 4100;
    /// `spawn_process(path, argv, ceiling, console) -> pid`: NUL-terminated path, null-terminated array of NUL-terminated strings; 0, or the child's ceiling
    /// plus 1; 0, or plus 1 the form ([`console_mode`]) in which the child has the console from its first instruction on.
    COPS_SPAWN_PROCESS = 4101;
    /// `statistics(*mut Statistics, bytes) -> bytes`: see [`crate::statistics`].
    COPS_STATISTICS = 4102;
    /// `set_ceiling(pid or 0, level)`: nothing that process shows or asks for counts as more urgent than `level` from now on. 0: the caller
    /// itself, which can only become less urgent; otherwise a child of the caller, which gets no more than the caller has.
    COPS_SET_CEILING = 4110;
    /// `set_share(per mille) -> what it was`: of each hart's time, for levels that more urgent ones would starve. For processes whose ceiling is 0.
    COPS_SET_SHARE = 4111;
    /// `set_call_priority(call handle, level)`: what a call in flight is finished with.
    COPS_SET_CALL_PRIORITY = 4112;
    /// `uret()`: returns from the handler of a user-level interrupt.
    COPS_URET = 4113;
    /// `quota(pid or 0, kind, limit, *mut Quota or 0)`: what a process and its descendants have and may have: see [`crate::quota`].
    /// 0: the caller itself, which can only lower its limit. Limits of others: descendants only.
    COPS_QUOTA = 4114;

    /// `inspect(kind, from, *mut records, bytes) -> bytes`: what there is, in records: see [`crate::inspect`].
    COPS_INSPECT = 4128;
    /// `trace(operation, a, b, c)`: tracing of the machine on or off, and what was traced: see [`crate::trace::operation`].
    COPS_TRACE = 4129;
    /// `fail_allocation(n) -> left`: the n-th allocation from now, of the kernel's heap or of a frame, fails, and only that
    /// one; 0: none. Returns how many allocations the call before this one still had to count: 0 if its allocation has
    /// failed. `ENOSYS` without the boot argument `fail-allocation=on`: for tests only.
    COPS_FAIL_ALLOCATION = 4130;
    /// `console(pid or 0, mode)`: hands the console's input to the caller or a child of it, in a form of [`console_mode`].
    COPS_CONSOLE = 4136;
}

/// The name of a call; `None` for a number that the kernel does not know.
#[must_use]
pub fn name(number: usize) -> Option<&'static str> {
    let place = ALL.binary_search_by_key(&number, |&(number, _)| number).ok()?;
    Some(ALL[place].1)
}

/// `openat`'s "relative to the working directory".
pub const AT_FDCWD: isize = -100;
/// `wait4`: do not wait.
pub const WNOHANG: usize = 1;
/// Time since 1970-01-01 UTC; since boot where no clock of the machine tells it.
pub const CLOCK_REALTIME: usize = 0;
/// Time since boot.
pub const CLOCK_MONOTONIC: usize = 1;
/// `clock_nanosleep`: the time is a deadline.
pub const TIMER_ABSTIME: usize = 1;
/// Most coroutine calls a process may have in flight; one more returns `EAGAIN`.
pub const CALLS_IN_FLIGHT_MAX: usize = 32_768;
/// Longest path, with its terminating zero, in bytes.
pub const PATH_BYTES_MAX: usize = 256;
/// Most bytes of arguments, with their zeros.
pub const ARGUMENT_BYTES_MAX: usize = 16 * 1024;
/// Most arguments.
pub const ARGUMENTS_MAX: usize = 256;

/// How a process that has the console reads from it: bits of the second argument of `console`.
pub mod console_mode {
    /// The kernel edits and echoes lines, and a read gives at most one. Without it, bytes pass as they are typed.
    pub const LINES: usize = 1;
    /// Ctrl-C is not input: the process that handed the console over reads it instead.
    pub const INTERRUPT: usize = 2;
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

/// Flags of `mmap`; exactly these two must be set.
pub mod map_flags {
    /// Changes are the process's own.
    pub const PRIVATE: usize = 2;
    /// No file behind it.
    pub const ANONYMOUS: usize = 0x20;
}

/// How `wait4` packs the way a process ended.
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
    /// What a shell reports: the code, or 128 + signal.
    #[must_use]
    pub const fn shell_code(status: i32) -> u8 {
        if status & 0x7f == 0 { (status >> 8) as u8 } else { 128 + (status & 0x7f) as u8 }
    }
}

/// Signals that end a process here; numbers are Linux's.
pub mod signal {
    /// Ctrl-C.
    pub const SIGINT: u8 = 2;
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
    /// Asked to end.
    pub const SIGTERM: u8 = 15;
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
    fn wait_status_reads_back() {
        assert_eq!(wait_status::shell_code(wait_status::exited(7)), 7);
        assert_eq!(wait_status::shell_code(wait_status::signalled(signal::SIGSEGV)), 139);
    }
}
