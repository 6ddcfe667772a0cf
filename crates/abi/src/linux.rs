//! The system calls that only programs of the Linux personality can make, with Linux's numbers for
//! riscv64. The calls that native programs have too are in [`crate::syscall`].

macro_rules! numbers {
    ($($(#[$doc:meta])+ $name:ident = $number:literal;)*) => {
        $($(#[$doc])+ pub const $name: usize = $number;)*

        /// Every call of this module, with its name.
        pub const ALL: &[(usize, &str)] = &[$(($number, stringify!($name))),*];
    };
}

numbers! {
    /// `flock(fd, operation)`: see [`file_lock::whole`]. Can wait.
    FLOCK = 32;
    /// `fallocate(fd, mode, offset, length)`: always an error, at best `EOPNOTSUPP`: the C library
    /// writes instead.
    FALLOCATE = 47;
    /// `sendfile(out, in, *mut offset, count)`: always `ENOSYS`; programs copy instead.
    SENDFILE = 71;
    /// `sync_file_range(fd, offset, length, flags)`: see [`sync_range`]. Can wait.
    SYNC_FILE_RANGE = 84;
    /// `timerfd_create(clock, flags) -> fd`.
    TIMERFD_CREATE = 85;
    /// `timerfd_settime(fd, flags, *const itimerspec, *mut itimerspec or 0)`: see [`timer_file`].
    TIMERFD_SETTIME = 86;
    /// `timerfd_gettime(fd, *mut itimerspec)`.
    TIMERFD_GETTIME = 87;
    /// `waitid(which, id, *mut siginfo or 0, options, *mut rusage or 0)`. Can wait.
    WAITID = 95;
    /// `set_tid_address(address) -> thread`: the word at `address` becomes 0 when the thread ends.
    SET_TID_ADDRESS = 96;
    /// `set_robust_list(head, bytes)`: the mutexes in this list are released when the thread ends.
    SET_ROBUST_LIST = 99;
    /// `nanosleep(*const timespec, *mut timespec)`. Can wait.
    NANOSLEEP = 101;
    /// `getitimer(0: real time, *mut itimerval)`.
    GETITIMER = 102;
    /// `setitimer(0: real time, *const itimerval, *mut itimerval or 0)`.
    SETITIMER = 103;
    /// `clock_getres(clock, *mut timespec or 0)`.
    CLOCK_GETRES = 114;
    /// `sched_setparam(thread or 0, *const priority)`.
    SCHED_SETPARAM = 118;
    /// `sched_setscheduler(thread or 0, policy, *const priority)`: see [`policy`].
    SCHED_SETSCHEDULER = 119;
    /// `sched_getscheduler(thread or 0) -> policy`.
    SCHED_GETSCHEDULER = 120;
    /// `sched_getparam(thread or 0, *mut priority)`.
    SCHED_GETPARAM = 121;
    /// `sched_getaffinity(thread, bytes, *mut mask) -> bytes`.
    SCHED_GETAFFINITY = 123;
    /// `sched_get_priority_max(policy) -> priority`.
    SCHED_GET_PRIORITY_MAX = 125;
    /// `sched_get_priority_min(policy) -> priority`.
    SCHED_GET_PRIORITY_MIN = 126;
    /// `tkill(thread, signal)`.
    TKILL = 130;
    /// `tgkill(process, thread, signal)`.
    TGKILL = 131;
    /// `sigaltstack(*const stack or 0, *mut stack or 0)`.
    SIGALTSTACK = 132;
    /// `rt_sigsuspend(set, bytes)`: waits for a handler. Can wait.
    RT_SIGSUSPEND = 133;
    /// `rt_sigaction(signal, action, old, bytes)`.
    RT_SIGACTION = 134;
    /// `rt_sigprocmask(how, set, old, bytes)`.
    RT_SIGPROCMASK = 135;
    /// `rt_sigpending(*mut set, bytes)`.
    RT_SIGPENDING = 136;
    /// `rt_sigtimedwait(set, *mut siginfo or 0, *const timespec or 0, bytes)`. Can wait.
    RT_SIGTIMEDWAIT = 137;
    /// `rt_sigqueueinfo(pid, signal, *const siginfo)`.
    RT_SIGQUEUEINFO = 138;
    /// `rt_sigreturn()`: returns from the handler of a signal; has no result.
    RT_SIGRETURN = 139;
    /// `setpriority(0: thread, id or 0, nice)`.
    SETPRIORITY = 140;
    /// `getpriority(0: thread, id or 0) -> 20 - nice`.
    GETPRIORITY = 141;
    /// `setregid(group, group)`.
    SETREGID = 143;
    /// `setgid(group)`.
    SETGID = 144;
    /// `setreuid(user, user)`.
    SETREUID = 145;
    /// `setuid(user)`.
    SETUID = 146;
    /// `setresuid(user, user, user)`.
    SETRESUID = 147;
    /// `getresuid(*mut u32, *mut u32, *mut u32)`.
    GETRESUID = 148;
    /// `setresgid(group, group, group)`.
    SETRESGID = 149;
    /// `getresgid(*mut u32, *mut u32, *mut u32)`.
    GETRESGID = 150;
    /// `times(*mut tms or 0)`.
    TIMES = 153;
    /// `getgroups(count, *mut u32) -> 0`.
    GETGROUPS = 158;
    /// `uname(*mut utsname)`.
    UNAME = 160;
    /// `getrlimit(resource, *mut rlimit)`.
    GETRLIMIT = 163;
    /// `setrlimit(resource, *const rlimit)`.
    SETRLIMIT = 164;
    /// `getrusage(of, *mut rusage)`.
    GETRUSAGE = 165;
    /// `prctl(operation, argument)`: the name of the thread.
    PRCTL = 167;
    /// `gettimeofday(*mut timeval or 0, _)`.
    GETTIMEOFDAY = 169;
    /// `getuid() -> 0`.
    GETUID = 174;
    /// `geteuid() -> 0`.
    GETEUID = 175;
    /// `getgid() -> 0`.
    GETGID = 176;
    /// `getegid() -> 0`.
    GETEGID = 177;
    /// `gettid() -> thread`.
    GETTID = 178;
    /// `sysinfo(*mut sysinfo)`.
    SYSINFO = 179;
    /// `socketpair(AF_UNIX, SOCK_STREAM, 0, *mut [i32; 2])`.
    SOCKETPAIR = 199;
    /// `getsockopt(fd, level, name, *mut value, *mut u32 length)`.
    GETSOCKOPT = 209;
    /// `sendmsg(fd, *const msghdr, flags) -> bytes`. Can wait.
    SENDMSG = 211;
    /// `recvmsg(fd, *mut msghdr, flags) -> bytes`. Can wait.
    RECVMSG = 212;
    /// `brk(address or 0) -> end of the heap`.
    BRK = 214;
    /// `mremap(address, length, new length, flags, new address) -> address`.
    MREMAP = 216;
    /// `madvise(address, length, advice)`.
    MADVISE = 233;
    /// `recvmmsg(fd, *mut mmsghdr, count, flags, *const timespec or 0) -> messages`. Can wait.
    RECVMMSG = 243;
    /// `riscv_hwprobe(...)`: always `ENOSYS`, as on Linux before 6.4; libraries ask at each start.
    HARDWARE_PROBE = 258;
    /// `riscv_flush_icache(start, end, flags)`: what the process has written to memory is what it
    /// executes from now on.
    FLUSH_ICACHE = 259;
    /// `prlimit64(process or 0, resource, new = 0, *mut rlimit or 0)`.
    PRLIMIT64 = 261;
    /// `sendmmsg(fd, *mut mmsghdr, count, flags) -> messages`. Can wait.
    SENDMMSG = 269;
    /// `memfd_create(name, flags) -> fd`: see [`memory_file`].
    MEMFD_CREATE = 279;
    /// `copy_file_range(...)`: always `ENOSYS`; programs copy instead.
    COPY_FILE_RANGE = 285;
    /// `rseq(...)`: always `ENOSYS`; libraries ask at each start.
    RSEQ = 293;
    /// `close_range(first, last, flags)`: see [`close_range`].
    CLOSE_RANGE = 436;
}

/// Flags of [`SYNC_FILE_RANGE`].
pub mod sync_range {
    /// Wait for what is being written already.
    pub const WAIT_BEFORE: usize = 1;
    /// Write.
    pub const WRITE: usize = 2;
    /// Wait until it is written.
    pub const WAIT_AFTER: usize = 4;
}

/// Flags and limits of [`MEMFD_CREATE`].
pub mod memory_file {
    /// `execve` closes the descriptor.
    pub const CLOSE_ON_EXEC: usize = 1;
    /// The file may be executed, which is so without this flag too.
    pub const EXECUTABLE: usize = 0x10;
    /// Maximum length of the name.
    pub const NAME_BYTES: usize = 249;
}

/// Flags of [`CLOSE_RANGE`].
pub mod close_range {
    /// First, the caller gets a table of its own. It has one.
    pub const UNSHARE: usize = 2;
    /// `execve` closes the descriptors; this call does not.
    pub const CLOSE_ON_EXEC: usize = 4;
}

/// Locks of ranges of files: commands of [`FCNTL`](crate::syscall::FCNTL), and their structure.
pub mod file_lock {
    /// Stores what is in the way of a lock of the process.
    pub const GET: usize = 5;
    /// Takes or releases a lock of the process; `EAGAIN` if it is not free.
    pub const SET: usize = 6;
    /// As [`SET`], but waits.
    pub const SET_AND_WAIT: usize = 7;
    /// As [`GET`], of the open file.
    pub const GET_OF_FILE: usize = 36;
    /// As [`SET`], of the open file.
    pub const SET_OF_FILE: usize = 37;
    /// As [`SET_OF_FILE`], but waits.
    pub const SET_OF_FILE_AND_WAIT: usize = 38;

    /// A lock that others can have too.
    pub const READ: u16 = 0;
    /// A lock that only one owner can have.
    pub const WRITE: u16 = 1;
    /// No lock.
    pub const UNLOCK: u16 = 2;

    /// The start counts from the beginning of the file.
    pub const FROM_START: u16 = 0;
    /// The start counts from the position.
    pub const FROM_POSITION: u16 = 1;
    /// The start counts from the end.
    pub const FROM_END: u16 = 2;

    /// Operations of [`FLOCK`](super::FLOCK).
    pub mod whole {
        /// A lock that others can have too.
        pub const SHARED: usize = 1;
        /// A lock that only one open file can have.
        pub const EXCLUSIVE: usize = 2;
        /// `EAGAIN` rather than wait.
        pub const NON_BLOCKING: usize = 4;
        /// Releases the lock.
        pub const UNLOCK: usize = 8;
    }

    /// `struct flock`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct FileLock {
        /// [`READ`], [`WRITE`] or [`UNLOCK`].
        pub kind: u16,
        /// Where the start counts from.
        pub whence: u16,
        /// The start.
        pub start: i64,
        /// Number of bytes; 0: all from the start on; negative: those before.
        pub length: i64,
        /// The owner, in the answer of [`GET`]; -1 for an open file.
        pub process: i32,
    }

    impl FileLock {
        /// Size of the structure.
        pub const BYTES: usize = 32;

        /// The structure in memory.
        #[must_use]
        pub fn to_bytes(self) -> [u8; Self::BYTES] {
            let mut bytes = [0; Self::BYTES];
            bytes[0..2].copy_from_slice(&self.kind.to_le_bytes());
            bytes[2..4].copy_from_slice(&self.whence.to_le_bytes());
            bytes[8..16].copy_from_slice(&self.start.to_le_bytes());
            bytes[16..24].copy_from_slice(&self.length.to_le_bytes());
            bytes[24..28].copy_from_slice(&self.process.to_le_bytes());
            bytes
        }

        /// Reads the structure.
        #[must_use]
        pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Self {
            let [kind, start, length, owner] = *bytes.as_chunks::<8>().0 else {
                unreachable!("it has four words")
            };
            let [kind_low, kind_high, whence_low, whence_high, ..] = kind;
            let [a, b, c, d, ..] = owner;
            Self {
                kind: u16::from_le_bytes([kind_low, kind_high]),
                whence: u16::from_le_bytes([whence_low, whence_high]),
                start: i64::from_le_bytes(start),
                length: i64::from_le_bytes(length),
                process: i32::from_le_bytes([a, b, c, d]),
            }
        }
    }
}

/// Flags of [`TIMERFD_SETTIME`].
pub mod timer_file {
    /// The first expiration is at a time of the clock.
    pub const ABSOLUTE: usize = 1;
    /// Has no effect: the clock is never set.
    pub const CANCEL_ON_SET: usize = 2;
}

/// The argument of [`SENDMSG`] and [`RECVMSG`]: offsets of its fields, and its size.
pub mod message_header {
    /// Length of the peer's address.
    pub const NAME_BYTES: usize = 8;
    /// Length of the control data.
    pub const CONTROL_BYTES: usize = 40;
    /// Flags of what was received.
    pub const FLAGS: usize = 48;
    /// Its size.
    pub const BYTES: usize = 56;
    /// The size of an entry of [`SENDMMSG`](super::SENDMMSG) and
    /// [`RECVMMSG`](super::RECVMMSG): it, the number of bytes that were moved, and nothing.
    pub const ENTRY_BYTES: usize = 64;
}

/// Address family of [`SOCKETPAIR`].
pub const AF_UNIX: usize = 1;
/// Flag of [`SENDTO`](crate::syscall::SENDTO): a broken pipe is only an error.
pub const MSG_NOSIGNAL: usize = 0x4000;

/// More flags of [`SENDTO`](crate::syscall::SENDTO) and [`RECVFROM`](crate::syscall::RECVFROM).
pub mod message {
    /// What is received stays.
    pub const PEEK: usize = 2;
    /// Has no effect.
    pub const DONT_ROUTE: usize = 4;
    /// A datagram was cut; as a flag of a receive: the result is its length all the same.
    pub const TRUNCATED: usize = 0x20;
    /// `EAGAIN` rather than wait.
    pub const DONT_WAIT: usize = 0x40;
    /// Waits until the buffer is full, or the stream ends.
    pub const WAIT_ALL: usize = 0x100;
    /// Has no effect.
    pub const CONFIRM: usize = 0x800;
    /// Receives an error, of which there is none.
    pub const ERRORS: usize = 0x2000;
    /// [`RECVMMSG`](super::RECVMMSG) waits for the first message only.
    pub const WAIT_FOR_ONE: usize = 0x1_0000;
    /// Has no effect.
    pub const MORE: usize = 0x8000;
    /// Has no effect: no descriptors are received.
    pub const CLOSE_ON_EXEC: usize = 0x4000_0000;
}

/// Options of sockets: level and name.
pub mod socket_option {
    /// The level, and the protocol, of TCP.
    pub const TCP: usize = 6;
    /// The protocol of UDP.
    pub const UDP: usize = 17;
    /// A port in use may be bound. Has no effect.
    pub const REUSE_ADDRESS: (usize, usize) = (1, 2);
    /// The type of the socket.
    pub const TYPE: (usize, usize) = (1, 3);
    /// How the connection has failed, once.
    pub const ERROR: (usize, usize) = (1, 4);
    /// Whether broadcasts may be sent.
    pub const BROADCAST: (usize, usize) = (1, 6);
    /// The size of the buffer for sending. Cannot be changed.
    pub const SEND_BUFFER: (usize, usize) = (1, 7);
    /// The size of the buffer for receiving. Cannot be changed.
    pub const RECEIVE_BUFFER: (usize, usize) = (1, 8);
    /// A silent peer is probed.
    pub const KEEP_ALIVE: (usize, usize) = (1, 9);
    /// Closing waits until all is sent: never.
    pub const LINGER: (usize, usize) = (1, 13);
    /// How long calls wait that receive or accept.
    pub const RECEIVE_TIMEOUT: (usize, usize) = (1, 20);
    /// How long calls wait that send or connect.
    pub const SEND_TIMEOUT: (usize, usize) = (1, 21);
    /// Whether it listens.
    pub const LISTENS: (usize, usize) = (1, 30);
    /// The protocol.
    pub const PROTOCOL: (usize, usize) = (1, 38);
    /// The address family.
    pub const DOMAIN: (usize, usize) = (1, 39);
    /// Small segments are sent at once, which they are from the start.
    pub const NO_DELAY: (usize, usize) = (TCP, 1);
    /// After how many seconds of silence a peer is probed.
    pub const KEEP_IDLE: (usize, usize) = (TCP, 4);
    /// How many seconds lie between two probes.
    pub const KEEP_INTERVAL: (usize, usize) = (TCP, 5);
    /// After how many probes in vain a connection ends.
    pub const KEEP_COUNT: (usize, usize) = (TCP, 6);
    /// Errors of datagrams are reported, over IPv4: there are none.
    pub const ERRORS: (usize, usize) = (0, 11);
    /// The same over IPv6.
    pub const ERRORS_V6: (usize, usize) = (41, 25);
    /// An IPv6 socket serves IPv6 only: never.
    pub const ONLY_IPV6: (usize, usize) = (41, 26);
}

/// Operations of [`PRCTL`].
pub mod thread_control {
    /// Sets the name of the calling thread.
    pub const SET_NAME: usize = 15;
    /// Gets it.
    pub const NAME: usize = 16;
    /// Size of a name.
    pub const NAME_BYTES: usize = 16;
}

/// Calls that fail with `EINTR` when a handler has interrupted them, whatever its flags.
pub const NEVER_REPEATED: [usize; 9] = [
    NANOSLEEP,
    RT_SIGSUSPEND,
    crate::syscall::CLOCK_NANOSLEEP,
    crate::syscall::EPOLL_PWAIT,
    crate::syscall::PSELECT6,
    crate::syscall::PPOLL,
    RT_SIGTIMEDWAIT,
    // msgrcv, semop.
    188,
    193,
];

/// Size of a `siginfo`.
pub const SIGINFO_BYTES: usize = 128;

/// Flag of an alternate stack: the thread is on it.
pub const SS_ONSTACK: u64 = 1;
/// Flag of an alternate stack: there is none.
pub const SS_DISABLE: u64 = 2;
/// Minimum size of an alternate stack.
pub const MINSIGSTKSZ: usize = 2048;

/// Of what `getrusage` tells.
pub mod usage {
    /// The process.
    pub const OWN: isize = 0;
    /// Its children that have ended and were waited for, and theirs.
    pub const CHILDREN: isize = -1;
    /// The calling thread.
    pub const THREAD: isize = 1;
}

/// What `waitid` waits for, and its options beside those of `wait4`.
pub mod waitid {
    /// Any child.
    pub const ALL: usize = 0;
    /// The child with this number.
    pub const PROCESS: usize = 1;
    /// The children in this group; 0 is that of the caller.
    pub const GROUP: usize = 2;
    /// For children that have ended.
    pub const EXITED: usize = 4;
    /// The news stay for another call.
    pub const NO_WAIT: usize = 0x0100_0000;
}

/// How `rt_sigprocmask` changes the blocked signals.
pub mod mask_change {
    /// Adds to them.
    pub const BLOCK: usize = 0;
    /// Removes from them.
    pub const UNBLOCK: usize = 1;
    /// Replaces them.
    pub const SET: usize = 2;
}

/// Why a signal was sent: `si_code`.
pub mod signal_code {
    /// By `kill`.
    pub const USER: i32 = 0;
    /// By `sigqueue`.
    pub const QUEUE: i32 = -1;
    /// By `tkill` or `tgkill`.
    pub const THREAD: i32 = -6;
    /// `SIGCHLD`: the child has exited.
    pub const CHILD_EXITED: i32 = 1;
    /// `SIGCHLD`: a signal has ended the child.
    pub const CHILD_KILLED: i32 = 2;
    /// `SIGCHLD`: the child is stopped.
    pub const CHILD_STOPPED: i32 = 5;
    /// `SIGCHLD`: the child goes on.
    pub const CHILD_CONTINUED: i32 = 6;
    /// By the kernel.
    pub const KERNEL: i32 = 0x80;
    /// `SIGSEGV`: nothing is mapped there, or not with this right.
    pub const SEGMENT_UNMAPPED: i32 = 1;
    /// `SIGBUS`: misaligned.
    pub const BUS_ALIGNMENT: i32 = 1;
    /// `SIGILL`: illegal instruction.
    pub const ILLEGAL_INSTRUCTION: i32 = 1;
    /// `SIGTRAP`: breakpoint.
    pub const BREAKPOINT: i32 = 1;
}

/// More flags of `mmap`.
pub mod map_flags {
    /// The address is not a hint; what is mapped there is replaced.
    pub const FIXED: usize = 0x10;
    /// The mapping grows downwards, which it does not here: it has its full size from the start.
    pub const GROWSDOWN: usize = 0x100;
    /// Pages are charged when they are first accessed.
    pub const NORESERVE: usize = 0x4000;
    /// For a stack.
    pub const STACK: usize = 0x2_0000;
    /// The address is not a hint, and `EEXIST` if anything is mapped there.
    pub const FIXED_NOREPLACE: usize = 0x10_0000;
    /// Flags without an effect: executable or denied to writers (old), locked, populated.
    pub const WITHOUT_EFFECT: usize = 0x800 | 0x1000 | 0x2000 | 0x8000 | 0x1_0000;
}

/// Flags of `mremap`.
pub mod remap_flags {
    /// The mapping may get another address.
    pub const MAYMOVE: usize = 1;
    /// It gets the address in the fifth argument; what is mapped there is unmapped first.
    pub const FIXED: usize = 2;
}

/// Flags of `riscv_flush_icache`.
pub mod flush_flags {
    /// Only the calling thread executes the new code.
    pub const LOCAL: usize = 1;
}

/// Advice of `madvise`.
pub mod advice {
    /// The pages are not needed: the next access finds zeros.
    pub const DONTNEED: usize = 4;
    /// The pages are not needed if memory is short.
    pub const FREE: usize = 8;
    /// As [`DONTNEED`], also for locked pages.
    pub const DONTNEED_LOCKED: usize = 24;
    /// A bit for each advice that is accepted without an effect: it only concerns speed, dumps, or
    /// what is the case anyway. Not 9 (`REMOVE`), 10 (`DONTFORK`) and 18 (`WIPEONFORK`), after
    /// which a program would see other contents.
    pub const WITHOUT_EFFECT: usize = 0x2fb_f80f;
}

/// Clocks of `clock_gettime` beside [`crate::syscall::CLOCK_REALTIME`] and
/// [`crate::syscall::CLOCK_MONOTONIC`].
pub mod clock {
    /// The time for which the threads of the process had a hart.
    pub const PROCESS_CPUTIME: usize = 2;
    /// The time for which the calling thread had a hart.
    pub const THREAD_CPUTIME: usize = 3;
    /// The same as the monotonic clock.
    pub const MONOTONIC_RAW: usize = 4;
    /// The same as the real-time clock.
    pub const REALTIME_COARSE: usize = 5;
    /// The same as the monotonic clock.
    pub const MONOTONIC_COARSE: usize = 6;
    /// The same as the monotonic clock.
    pub const BOOTTIME: usize = 7;
}

/// Resources of `prlimit64`.
pub mod resource {
    /// Seconds of computing.
    pub const CPU: usize = 0;
    /// Bytes of a file.
    pub const FILE_SIZE: usize = 1;
    /// Bytes that a process can write to, apart from files.
    pub const DATA: usize = 2;
    /// Bytes of the first thread's stack, and default for the stacks of other threads.
    pub const STACK: usize = 3;
    /// Processes of a user.
    pub const PROCESSES: usize = 6;
    /// Open files.
    pub const FILES: usize = 7;
    /// Bytes of addresses.
    pub const ADDRESSES: usize = 9;
    /// One past the last resource.
    pub const COUNT: usize = 16;
    /// No limit.
    pub const INFINITY: u64 = u64::MAX;
}

/// Policies of `sched_setscheduler`.
pub mod policy {
    /// By nice value.
    pub const OTHER: usize = 0;
    /// By priority, 1 to 99; more urgent than all nice values.
    pub const FIFO: usize = 1;
    /// The same here: equals always alternate.
    pub const ROUND_ROBIN: usize = 2;
    /// By nice value.
    pub const BATCH: usize = 3;
    /// Less urgent than all nice values.
    pub const IDLE: usize = 5;
    /// Flag: children do not inherit the level. Processes never do; threads do all the same.
    pub const RESET_ON_FORK: usize = 0x4000_0000;
}

/// The name of a call of this module.
#[must_use]
pub fn name(number: usize) -> Option<&'static str> {
    let place = ALL.binary_search_by_key(&number, |&(number, _)| number).ok()?;
    Some(ALL[place].1)
}

/// What `uname` and `/proc/sys/kernel` say.
pub mod system_name {
    /// The system of which programs run.
    pub const SYSTEM: &str = "Linux";
    /// The name of the machine in a network.
    pub const NODE: &str = "cops";
    /// The release of the system that is closest.
    pub const RELEASE: &str = "6.1.0-cops";
    /// The version of the kernel.
    pub const VERSION: &str = concat!("COPS ", env!("CARGO_PKG_VERSION"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_distinct_sorted_and_not_native() {
        assert!(ALL.windows(2).all(|pair| pair[0].0 < pair[1].0));
        for &(number, text) in ALL {
            assert_eq!(name(number), Some(text));
            assert!(crate::syscall::ALL.iter().all(|&(other, _)| other != number), "{text}");
        }
    }
}
