//! The terminal as a program uses it: requests of `ioctl`, and the calls that a process in the
//! background may not make (decision 36).
//!
//! Such a call fails with `ERESTARTSYS`, which no program sees: [`reply_to_error`] sends a signal
//! to the caller's group, in portions, and the call is made again when the caller goes on.
#![forbid(unsafe_code)]

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::ioctl;
use cops_abi::file::terminal::{BYTES, CANONICAL, ECHO, SIGNALS};
use cops_abi::syscall::{self as number, signal};
use cops_algorithms::terminal::{Access, Settings};

use super::Reply;
use super::arguments::Arguments;
use crate::arch::SyscallFrame;
use crate::fs::terminal;
use crate::process::resumable::{self, Resumable};
use crate::process::{Process, ProcessId, Signalling, VirtualCpu, children};

/// Columns and rows of the console, which does not know its size.
const COLUMNS: u16 = 80;
const ROWS: u16 = 24;

/// The reply to a call that has failed with `error`.
#[cold]
#[inline(never)]
pub fn reply_to_error(cpu: &VirtualCpu, frame: &SyscallFrame, error: Errno) -> Reply {
    if error != Errno::ERESTARTSYS {
        return Reply::Done(Err(error));
    }
    let process = &cpu.process;
    let signal = match frame.number {
        number::READ | number::READV => signal::SIGTTIN,
        _ => signal::SIGTTOU,
    };
    let group = process.party().group;
    if !resumable::is_unfinished(cpu, frame)
        && (signal == signal::SIGTTIN && process.disregards(cpu, signal)
            || children::is_orphaned(group))
    {
        let is_for_foreground =
            frame.number == number::IOCTL && frame.arguments[1] == ioctl::SET_FOREGROUND;
        return Reply::Done(Err(if is_for_foreground { Errno::ENOTTY } else { Errno::EIO }));
    }
    let sent = resumable::resume(cpu, frame, |_| {
        Ok(Resumable::Signal(Signalling::by_kernel(group, signal)))
    });
    if sent.is_none() || !process.personality.is_linux() {
        return Reply::Again;
    }
    cpu.signals.interrupt_own_call();
    Reply::Interrupted
}

/// Checks that the caller may read what is typed.
///
/// # Errors
/// `ERESTARTSYS` in the background, `EIO` if the terminal belongs to another session.
pub fn check_read(process: &Process) -> Result<(), Errno> {
    match terminal::access(process.party()) {
        Access::Granted => Ok(()),
        Access::Background => Err(Errno::ERESTARTSYS),
        Access::Foreign => Err(Errno::EIO),
    }
}

/// Checks that the caller may write, if settings forbid that to processes in the background.
///
/// # Errors
/// `ERESTARTSYS`.
pub fn check_write(cpu: &VirtualCpu) -> Result<(), Errno> {
    let process = &cpu.process;
    if terminal::stops_writer(process.party()) && !process.disregards(cpu, signal::SIGTTOU) {
        return Err(Errno::ERESTARTSYS);
    }
    Ok(())
}

/// Checks that the caller may change settings or the foreground.
///
/// # Errors
/// `ERESTARTSYS` in the background.
pub fn check_change(cpu: &VirtualCpu) -> Result<(), Errno> {
    let process = &cpu.process;
    let is_background = terminal::access(process.party()) == Access::Background;
    if is_background && !process.disregards(cpu, signal::SIGTTOU) {
        return Err(Errno::ERESTARTSYS);
    }
    Ok(())
}

/// The settings of a terminal with these local flags; `EINVAL` for other flags than those of lines,
/// echo and signals.
pub fn settings_of(local: u32) -> Result<Settings, Errno> {
    let is_known = local & !(CANONICAL | ECHO | SIGNALS) == 0;
    if is_known { Ok(Settings::USUAL.with_local(local)) } else { Err(Errno::EINVAL) }
}

/// `ioctl(fd, request, argument)` of a terminal.
pub fn request(cpu: &VirtualCpu, request: usize, args: &Arguments<'_>) -> CallResult {
    let process = &cpu.process;
    let party = process.party();
    let put = |bytes: &[u8]| {
        process.space.copy_out(args.structure(2, bytes.len())?, bytes)?;
        Ok(0)
    };
    match request {
        ioctl::GET_TERMINAL => put(&terminal::settings().0),
        ioctl::SET_TERMINAL | ioctl::SET_TERMINAL_AND_WAIT | ioctl::SET_TERMINAL_AND_FLUSH => {
            check_change(cpu)?;
            let mut settings = [0; BYTES];
            process.space.copy_in(args.structure(2, settings.len())?, &mut settings)?;
            let flushes = request == ioctl::SET_TERMINAL_AND_FLUSH;
            terminal::set_settings(party, Settings(settings), flushes).map(|()| 0)
        }
        ioctl::GET_WINDOW_SIZE => {
            let [[a, b], [c, d]] = [ROWS.to_le_bytes(), COLUMNS.to_le_bytes()];
            put(&[a, b, c, d, 0, 0, 0, 0])
        }
        ioctl::GET_SESSION => put(&terminal::session(party)?.session.to_le_bytes()),
        ioctl::GET_FOREGROUND => put(&terminal::session(party)?.group.to_le_bytes()),
        ioctl::SET_FOREGROUND => {
            check_change(cpu)?;
            terminal::session(party)?;
            let mut group = [0; 4];
            process.space.copy_in(args.structure(2, group.len())?, &mut group)?;
            let group = ProcessId::try_from(i32::from_le_bytes(group));
            let group = group.map_err(|_| Errno::EINVAL)?;
            if children::session_of_group(group)? != party.session {
                return Err(Errno::EPERM);
            }
            terminal::set_foreground(party, group, None).map(|()| 0)
        }
        ioctl::TAKE_TERMINAL => {
            if party.session != process.id {
                return Err(Errno::EPERM);
            }
            terminal::take(party).map(|()| 0)
        }
        _ => Err(Errno::ENOTTY),
    }
}

/// `ioctl(fd, FIONREAD, *mut u32)`: edits what was typed, in portions.
pub fn store_unread(cpu: &VirtualCpu, args: &Arguments<'_>) -> Result<Reply, Errno> {
    let process = &cpu.process;
    let place = args.structure(2, size_of::<u32>())?;
    let Some(count) = terminal::unread_bytes(process.party()) else { return Ok(Reply::Again) };
    process.space.copy_out(place, &(count as u32).to_le_bytes())?;
    Ok(Reply::Done(Ok(0)))
}

/// `ioctl(fd, TIOCNOTTY)`: makes the terminal free, and sends `SIGHUP` and `SIGCONT` to the group
/// that was in the foreground, in portions.
pub fn leave(cpu: &VirtualCpu, frame: &SyscallFrame) -> Reply {
    resumable::resume(cpu, frame, |process| {
        let party = process.party();
        terminal::session(party)?;
        if party.session != process.id {
            return Err(Errno::EPERM);
        }
        let group = terminal::leave(party.session).ok_or(Errno::ENOTTY)?;
        Ok(Resumable::HangUp { group, signal: signal::SIGHUP, next: 0 })
    })
    .into()
}
