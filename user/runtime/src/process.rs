//! Processes: starting them, how they end, ending this one.
//!
//! May touch: this process's children.

mod command;

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

pub use command::{Command, spawn, spawn_below};
use cops_abi::errno::CallResult;
pub use cops_abi::quota::Quota;
use cops_abi::quota::{ONLY_ASK, kind};
use cops_abi::syscall::{
    PATH_BYTES_MAX, WAIT4, WCONTINUED, WNOHANG, WUNTRACED, signal, wait_status,
};
use cops_abi::{Errno, Priority};

use crate::call::{Call, Mode, Operation, Request, Scratch, leftover};
use crate::io::{Result, c_string, text};
use crate::system;

/// The exit code of a program; 0 means success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitCode(pub u8);

impl ExitCode {
    /// 0.
    pub const SUCCESS: ExitCode = ExitCode(0);
    /// 1.
    pub const FAILURE: ExitCode = ExitCode(1);
}

impl From<u8> for ExitCode {
    fn from(code: u8) -> Self {
        ExitCode(code)
    }
}

/// A type that `main` may return.
pub trait Termination {
    /// Prints the error, if there is one, and returns the exit code.
    fn report(self) -> ExitCode;
}

impl Termination for () {
    fn report(self) -> ExitCode {
        ExitCode::SUCCESS
    }
}

impl Termination for ExitCode {
    fn report(self) -> ExitCode {
        self
    }
}

impl Termination for core::convert::Infallible {
    fn report(self) -> ExitCode {
        match self {}
    }
}

impl<T: Termination, E: fmt::Display> Termination for core::result::Result<T, E> {
    /// Prints an error to standard error; the exit code is then 1.
    fn report(self) -> ExitCode {
        match self {
            Ok(value) => value.report(),
            Err(error) => {
                crate::eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        }
    }
}

/// Ends the process, all its virtual CPUs and coroutines. Nothing is dropped.
pub fn exit(code: u8) -> ! {
    system::exit_group(code)
}

/// Ends the process like `SIGABRT` (134 in a shell).
pub fn abort() -> ! {
    let _ = system::kill(id(), signal::SIGABRT);
    // Reached only if the kernel did not end the process.
    system::exit_group(128 + signal::SIGABRT)
}

/// The id of this process.
#[must_use]
pub fn id() -> u32 {
    system::process_id()
}

/// The id of the process that started this one; 0 if that was the kernel, or has ended.
#[must_use]
pub fn parent_id() -> u32 {
    system::parent_id()
}

/// The ceiling of this process: its most urgent possible level.
#[must_use]
pub fn ceiling() -> Priority {
    Priority::saturating(crate::shared::process_page().ceiling.load(Relaxed))
}

/// Lowers the ceiling of this process and all its descendants to `level`. It cannot be raised again
/// by this process.
///
/// # Errors
/// `EPERM` if `level` is more urgent than its ceiling.
pub fn lower_ceiling(priority: Priority) -> Result<()> {
    Ok(system::set_ceiling(0, priority)?)
}

/// Guarantees `per_mille` of each hart's time to virtual CPUs that are ready but not the most
/// urgent; 0, the default, guarantees nothing. Applies to the whole machine. Returns the previous
/// value.
///
/// # Errors
/// `EPERM` unless this is the first process; `EINVAL` above 500.
pub fn set_share_of_less_urgent(per_mille: u32) -> Result<u32> {
    Ok(system::set_share(per_mille)? as u32)
}

/// A resource that is counted for a process and its descendants together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Bytes of memory.
    Memory,
    /// Processes. A process counts until it has been waited for.
    Processes,
    /// Calls in flight.
    Calls,
    /// Open files.
    Descriptors,
    /// Virtual CPUs.
    Cpus,
    /// Ports of TCP and UDP that sockets are bound to or connect from.
    Ports,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Memory, Self::Processes, Self::Calls, Self::Descriptors, Self::Cpus, Self::Ports];

    fn kind(self) -> usize {
        match self {
            Self::Memory => kind::MEMORY,
            Self::Processes => kind::PROCESSES,
            Self::Calls => kind::CALLS,
            Self::Descriptors => kind::DESCRIPTORS,
            Self::Cpus => kind::CPUS,
            Self::Ports => kind::PORTS,
        }
    }
}

/// Usage and limit of `resource` for process `pid` (0: this one) and its descendants.
///
/// # Errors
/// `ESRCH`.
pub fn quota(pid: u32, resource: Resource) -> Result<Quota> {
    Ok(system::quota(pid, resource.kind(), ONLY_ASK)?)
}

/// Limits `resource` for process `pid` (0: this one) and its descendants. Current usage is not
/// affected. Returns the resulting quota: a limit is at most that of the process's parent.
///
/// # Errors
/// `EPERM` unless the process is a descendant, or this one and the limit becomes lower; `ESRCH`.
pub fn set_quota(pid: u32, resource: Resource, limit: u64) -> Result<Quota> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX).min(ONLY_ASK - 1);
    Ok(system::quota(pid, resource.kind(), limit)?)
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitStatus {
    status: i32,
}

impl ExitStatus {
    /// The exit code, unless it was killed.
    #[must_use]
    pub fn code(self) -> Option<u8> {
        (self.status & 0x7f == 0).then(|| wait_status::shell_code(self.status))
    }

    /// The signal that killed it, if any.
    #[must_use]
    pub fn signal(self) -> Option<u8> {
        Some((self.status & 0x7f) as u8).filter(|&signal| signal != 0)
    }

    /// The status as a shell reports it: the exit code, or 128 + signal.
    #[must_use]
    pub fn shell_code(self) -> u8 {
        wait_status::shell_code(self.status)
    }

    /// Whether it exited with code 0.
    #[must_use]
    pub fn success(self) -> bool {
        self.code() == Some(0)
    }
}

impl fmt::Display for ExitStatus {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.signal() {
            Some(signal) => write!(formatter, "killed by signal {signal}"),
            None => write!(formatter, "exit code {}", self.shell_code()),
        }
    }
}

/// Ignores the signals in this set from now on, and no others; bit `n - 1` is for signal `n`.
/// Processes that are started later ignore none.
pub fn ignore_signals(signals: u64) {
    system::ignore_signals(signals);
}

/// The process group of this process.
#[must_use]
pub fn group() -> u32 {
    system::group()
}

/// Makes this process the only member of a new group, which has its number.
///
/// # Errors
/// `EPERM` if it leads its session.
pub fn begin_group() -> Result<()> {
    Ok(system::set_group(0, 0)?)
}

/// Makes this process the leader of a new session, which has no terminal, and of a new group.
///
/// # Errors
/// `EPERM` if there is a group with the number of this process.
pub fn begin_session() -> Result<()> {
    Ok(system::begin_session()?)
}

/// Sends `signal` to the processes of `group` that this process may signal.
///
/// # Errors
/// `ESRCH`, `EINVAL`, `EPERM` if there are only others.
pub fn kill_group(group: u32, signal: u8) -> Result<()> {
    Ok(system::kill_group(group, signal)?)
}

/// The environment, as `NAME=value`.
pub fn environment() -> impl Iterator<Item = &'static [u8]> {
    crate::start::environment()
}

/// The current directory.
///
/// # Errors
/// `ERANGE` if its path is longer than any that a call takes, `ENOMEM`.
pub fn working_directory() -> Result<String> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(PATH_BYTES_MAX).map_err(|_| Errno::ENOMEM)?;
    bytes.resize(PATH_BYTES_MAX, 0);
    let length = system::working_directory(&mut bytes)?;
    // It ends with a zero.
    bytes.truncate(length.saturating_sub(1));
    text(&bytes)
}

/// Changes the current directory, in which relative paths begin, also those of processes that are
/// started later.
///
/// # Errors
/// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`, `ENOMEM`; [`Error::ZeroByte`](crate::io::Error::ZeroByte).
pub fn set_working_directory(path: &str) -> Result<()> {
    Ok(system::set_working_directory(&c_string(path)?)?)
}

/// Ends process `pid` with `signal` (`cops_abi::syscall::signal`).
///
/// # Errors
/// `ESRCH`, `EINVAL`, `EPERM`.
pub fn kill(pid: u32, signal: u8) -> Result<()> {
    Ok(system::kill(pid, signal)?)
}

/// Sends `signal` to all processes that this process may signal, except itself and process 1.
///
/// # Errors
/// `ESRCH` if there are none, `EINVAL`.
pub fn kill_all(signal: u8) -> Result<()> {
    // The number of a group is negated, and -1 stands for all.
    Ok(system::kill_group(1, signal)?)
}

/// A process that this one started. Its exit status stays in the kernel until it is waited for or
/// this process ends.
#[derive(Debug)]
pub struct Child {
    pid: u32,
}

impl Child {
    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.pid
    }

    /// Waits until it has ended. Cancel-safe; can succeed only once.
    ///
    /// # Errors
    /// `ECHILD` if its status has already been returned.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        let (_, status) = Call::new(Wait::new(Some(self.pid))).await?;
        Ok(status)
    }

    /// Sets the ceiling of the child.
    ///
    /// Lowering it also lowers the ceilings of all its descendants. Raising it, at most to this
    /// process's own ceiling, raises only the child's.
    ///
    /// # Errors
    /// `EPERM` if `level` is more urgent than this process's own ceiling; `ESRCH` if it has ended.
    pub fn set_ceiling(&mut self, priority: Priority) -> Result<()> {
        Ok(system::set_ceiling(self.pid, priority)?)
    }

    /// Kills it with `SIGKILL`. It must still be waited for.
    ///
    /// # Errors
    /// `ESRCH` if it has been waited for.
    pub fn kill(&mut self) -> Result<()> {
        kill(self.pid, signal::SIGKILL)
    }
}

/// What has happened to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has ended.
    Ended(ExitStatus),
    /// This signal has stopped it.
    Stopped(u8),
    /// It goes on.
    Continued,
}

/// The low byte of the status of a process that is stopped.
const STOPPED: i32 = 0x7f;

impl Change {
    fn of(status: i32) -> Self {
        match status {
            wait_status::CONTINUED => Self::Continued,
            _ if status & 0xff == STOPPED => Self::Stopped((status >> 8) as u8),
            _ => Self::Ended(ExitStatus { status }),
        }
    }
}

/// Waits until a child ends, stops or goes on; returns its id. Cancel-safe. A program that uses
/// this function uses neither [`Child::wait`] nor [`Wait`], which could get news of a stop.
///
/// # Errors
/// `ECHILD` if there is no child.
pub async fn wait_for_change() -> Result<(u32, Change)> {
    let (pid, status) = Call::new(Wait { pid: None, options: WUNTRACED | WCONTINUED }).await?;
    Ok((pid, Change::of(status.status)))
}

/// As [`wait_for_change`], without waiting: `None` if there are no news.
#[must_use]
pub fn next_change() -> Option<(u32, Change)> {
    let kept = leftover::take_status(None);
    let options = WNOHANG | WUNTRACED | WCONTINUED;
    let (pid, status) = kept.or_else(|| system::wait_any(options).ok().flatten())?;
    Some((pid, Change::of(status)))
}

/// `wait4(pid)`: waits for a child; returns its id and exit status.
#[derive(Debug)]
pub struct Wait {
    pid: Option<u32>,
    options: usize,
}

impl Wait {
    /// Waits for the end of one child, or of any.
    #[must_use]
    pub fn new(pid: Option<u32>) -> Self {
        Self { pid, options: 0 }
    }
}

/// The status in the first four bytes of the scratch memory.
fn status(scratch: &Scratch) -> i32 {
    let [a, b, c, d, ..] = scratch.0;
    i32::from_le_bytes([a, b, c, d])
}

// SAFETY: the kernel writes only to the scratch memory, which has room for an `i32` and is aligned
// by the slot.
#[allow(unsafe_code)]
unsafe impl Operation for Wait {
    type Output = core::result::Result<(u32, ExitStatus), Errno>;

    fn shortcut(&mut self) -> Option<Self::Output> {
        leftover::take_status(self.pid).map(|(pid, status)| Ok((pid, ExitStatus { status })))
    }

    fn request(&mut self, mode: Mode) -> Request {
        let which = self.pid.map_or(usize::MAX, |pid| pid as usize);
        Request {
            number: WAIT4,
            arguments: [which, mode.scratch().expose_provenance(), self.options, 0, 0, 0],
        }
    }

    fn finish(&mut self, result: CallResult, scratch: &Scratch) -> Self::Output {
        result.map(|pid| (pid as u32, ExitStatus { status: status(scratch) }))
    }

    fn abandon(&mut self, value: usize, scratch: &Scratch) {
        leftover::keep_status(value as u32, status(scratch));
    }
}
