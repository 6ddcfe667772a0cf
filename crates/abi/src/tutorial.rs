//! The system calls of programs for rCore-Tutorial-v3 (SPEC, appendix A): number in `a7`, at most
//! three arguments in `a0` to `a2`, the result in `a0`, and -1 for every error.

macro_rules! numbers {
    ($($(#[$doc:meta])+ $name:ident = $number:literal;)*) => {
        $($(#[$doc])+ pub const $name: usize = $number;)*

        /// Every call of this module, with its name.
        pub const ALL: &[(usize, &str)] = &[$(($number, stringify!($name))),*];
    };
}

numbers! {
    /// `dup(fd) -> fd`.
    DUP = 24;
    /// `connect(IPv4 address, local port, remote port) -> fd` of a UDP socket.
    CONNECT = 29;
    /// `listen(port) -> fd` of a TCP socket that listens.
    LISTEN = 30;
    /// `accept(fd) -> fd`. Waits.
    ACCEPT = 31;
    /// `open(path, flags) -> fd`: see [`open`].
    OPEN = 56;
    /// `close(fd)`.
    CLOSE = 57;
    /// `pipe(*mut [usize; 2])`: stores the reading and the writing end.
    PIPE = 59;
    /// `read(fd, buffer, length) -> bytes`. Waits.
    READ = 63;
    /// `write(fd, buffer, length) -> bytes`. Waits.
    WRITE = 64;
    /// `exit(code)`: ends the thread, and the process if it is thread 0.
    EXIT = 93;
    /// `sleep(milliseconds)`. Waits.
    SLEEP = 101;
    /// `yield()`.
    YIELD = 124;
    /// `kill(process, bits of signals)`: the lowest of them ends the process.
    KILL = 129;
    /// `get_time() -> milliseconds` since boot.
    GET_TIME = 169;
    /// `getpid() -> process`.
    GETPID = 172;
    /// `fork() -> process`, 0 in the child.
    FORK = 220;
    /// `exec(path, arguments)`: both end with a zero.
    EXEC = 221;
    /// `waitpid(process or -1, *mut i32) -> process`; -2 if none has ended yet.
    WAITPID = 260;
    /// `thread_create(entry, argument) -> thread`.
    THREAD_CREATE = 1000;
    /// `gettid() -> thread`.
    GETTID = 1001;
    /// `waittid(thread) -> exit code`; -2 if it has not ended yet.
    WAITTID = 1002;
    /// `mutex_create(blocking) -> mutex`. Both kinds wait without using the processor.
    MUTEX_CREATE = 1010;
    /// `mutex_lock(mutex)`. Waits.
    MUTEX_LOCK = 1011;
    /// `mutex_unlock(mutex)`.
    MUTEX_UNLOCK = 1012;
    /// `semaphore_create(count) -> semaphore`.
    SEMAPHORE_CREATE = 1020;
    /// `semaphore_up(semaphore)`.
    SEMAPHORE_UP = 1021;
    /// `semaphore_down(semaphore)`. Waits.
    SEMAPHORE_DOWN = 1022;
    /// `condvar_create() -> condition variable`.
    CONDVAR_CREATE = 1030;
    /// `condvar_signal(condition variable)`: wakes one thread.
    CONDVAR_SIGNAL = 1031;
    /// `condvar_wait(condition variable, mutex)`. Waits.
    CONDVAR_WAIT = 1032;
}

/// The result of `waitpid` and `waittid` while there is nothing to report.
pub const NOT_YET: isize = -2;

/// The entry point by which a program of the tutorial is recognised.
pub const ENTRY: usize = 0x1_0000;

/// Flags of [`OPEN`]; none of the first two: for reading.
pub mod open {
    /// For writing.
    pub const WRITE_ONLY: usize = 1;
    /// For both.
    pub const READ_WRITE: usize = 2;
    /// Create the file, or empty it if it exists.
    pub const CREATE: usize = 0x200;
    /// Empty the file.
    pub const TRUNCATE: usize = 0x400;
}

/// The signals that [`KILL`] accepts, each the bit of its number: `SIGINT`, `SIGILL`, `SIGABRT`,
/// `SIGFPE`, `SIGKILL` and `SIGSEGV`.
pub const SIGNALS: usize = 1 << 2 | 1 << 4 | 1 << 6 | 1 << 8 | 1 << 9 | 1 << 11;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_distinct_and_sorted() {
        assert!(ALL.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
