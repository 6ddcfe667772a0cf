//! Processes: starting them, how they end, ending this one.
//!
//! May touch: this process's children.

use alloc::ffi::CString;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::Ordering::Relaxed;

use cops_abi::errno::CallResult;
pub use cops_abi::quota::Quota;
use cops_abi::quota::{ONLY_ASK, kind};
use cops_abi::syscall::{WAIT4, signal, wait_status};
use cops_abi::{Errno, Priority};

use crate::call::{Call, Mode, Operation, Request, Scratch, leftover};
use crate::io::{ConsoleMode, Error, Result};
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
/// `EPERM` unless this process's ceiling is the most urgent level; `EINVAL` above 500.
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
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Memory, Self::Processes, Self::Calls, Self::Descriptors, Self::Cpus];

    fn kind(self) -> usize {
        match self {
            Self::Memory => kind::MEMORY,
            Self::Processes => kind::PROCESSES,
            Self::Calls => kind::CALLS,
            Self::Descriptors => kind::DESCRIPTORS,
            Self::Cpus => kind::CPUS,
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

/// Starts the program at `path` with `arguments`, to which the path is prepended. It shares the
/// standard streams.
///
/// # Errors
/// `ENOENT`, `ENOEXEC`, `E2BIG`, `ENOMEM`, `ENAMETOOLONG`; [`Error::ZeroByte`].
pub fn spawn<A: AsRef<str>>(path: &str, arguments: &[A]) -> Result<Child> {
    spawn_below(path, arguments, None)
}

/// Like [`spawn`], with a ceiling for the child and all processes that it starts. `None`: this
/// process's own ceiling.
///
/// # Errors
/// As [`spawn`]; `EPERM` if `ceiling` is more urgent than this process's own.
pub fn spawn_below<A: AsRef<str>>(
    path: &str,
    arguments: &[A],
    ceiling: Option<Priority>,
) -> Result<Child> {
    start(path, arguments, ceiling, None)
}

/// Like [`spawn_below`], and makes the child the foreground process before it starts: it reads what
/// is typed, in `mode`, until it ends or this process takes the console back with
/// [`crate::io::take_console`].
///
/// # Errors
/// As [`spawn_below`]; `EPERM` if this process does not have the console; `EAGAIN` if it has been
/// handed on too often.
pub fn spawn_in_foreground<A: AsRef<str>>(
    path: &str,
    arguments: &[A],
    ceiling: Option<Priority>,
    mode: ConsoleMode,
) -> Result<Child> {
    start(path, arguments, ceiling, Some(mode))
}

fn start<A: AsRef<str>>(
    path: &str,
    arguments: &[A],
    ceiling: Option<Priority>,
    console: Option<ConsoleMode>,
) -> Result<Child> {
    let string = |text: &str| CString::new(text).map_err(|_| Error::ZeroByte);
    let path = string(path)?;
    let arguments: Vec<CString> =
        arguments.iter().map(|text| string(text.as_ref())).collect::<Result<_>>()?;
    let mut pointers: Vec<_> = arguments.iter().map(|text| text.as_ptr()).collect();
    pointers.insert(0, path.as_ptr());
    pointers.push(core::ptr::null());
    // SAFETY: `path` and the strings that the pointers refer to live until the call returns, each
    // ends with a zero, and the last pointer is null.
    #[allow(unsafe_code)]
    let pid = unsafe {
        system::spawn_process(&path, &pointers, ceiling, console.map(ConsoleMode::bits))
    }?;
    Ok(Child { pid: pid as u32 })
}

/// Ends process `pid` with `signal` (`cops_abi::syscall::signal`).
///
/// # Errors
/// `ESRCH`, `EINVAL`, `EPERM`.
pub fn kill(pid: u32, signal: u8) -> Result<()> {
    Ok(system::kill(pid, signal)?)
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

    /// Makes the child the foreground process: it reads what is typed, in `mode`, until it ends or
    /// this process takes the console back with [`crate::io::take_console`].
    ///
    /// # Errors
    /// `EPERM` if this process does not have the console; `EAGAIN` if it has been handed on too
    /// often; `ESRCH` if the child has ended.
    pub fn hand_console(&mut self, mode: ConsoleMode) -> Result<()> {
        Ok(system::hand_over_console(self.pid, mode.bits())?)
    }

    /// Kills it with `SIGKILL`. It must still be waited for.
    ///
    /// # Errors
    /// `ESRCH` if it has been waited for.
    pub fn kill(&mut self) -> Result<()> {
        kill(self.pid, signal::SIGKILL)
    }
}

/// `wait4(pid)`: waits for a child; returns its id and exit status.
#[derive(Debug)]
pub struct Wait {
    pid: Option<u32>,
}

impl Wait {
    /// Waits for one child, or for any.
    #[must_use]
    pub fn new(pid: Option<u32>) -> Self {
        Self { pid }
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
            arguments: [which, mode.scratch().expose_provenance(), 0, 0, 0, 0],
        }
    }

    fn finish(&mut self, result: CallResult, scratch: &Scratch) -> Self::Output {
        result.map(|pid| (pid as u32, ExitStatus { status: status(scratch) }))
    }

    fn abandon(&mut self, value: usize, scratch: &Scratch) {
        leftover::keep_status(value as u32, status(scratch));
    }
}
