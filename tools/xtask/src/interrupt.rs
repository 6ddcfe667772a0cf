//! Ctrl-C and termination: all children are ended, and the terminal's settings are restored.
//!
//! Signals are received on a thread of their own. By default a signal ends the children that are
//! registered here, restores the terminal and exits with 128 + signal. A command that can shut down
//! in an orderly way (`serve`) calls [`defer`]; then the first signal only sets a flag, and the
//! second one ends the program. While gdb has the terminal (`debug`), Ctrl-C is for gdb alone:
//! [`leave_ctrl_c_to_the_child`].
//!
//! If this program is killed by SIGKILL, this module cannot act. For that case, children are
//! started under `setpriv --pdeathsig` where it exists (`tied_to_us`). No signal removes scratch
//! folders: the next command does (`Workspace::scratch`).

use std::process::{Child, Command};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::error::{Because, Outcome};
use crate::process::find_program;

/// The running children. A child's owner removes its id before it waits for the child.
static CHILDREN: Mutex<Vec<Pid>> = Mutex::new(Vec::new());
/// The terminal's settings before it was made raw.
static TERMINAL_BEFORE: Mutex<Option<Termios>> = Mutex::new(None);
static DEFERRED: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);
static IS_CTRL_C_THE_CHILDS: AtomicBool = AtomicBool::new(false);

/// Begins to receive signals. Called once, at the beginning of `main`.
pub fn install() -> Outcome<()> {
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP]).because(|| "cannot take signals".into())?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if signal == SIGINT && IS_CTRL_C_THE_CHILDS.load(Ordering::Relaxed) {
                continue;
            }
            let again = REQUESTED.swap(true, Ordering::Relaxed);
            if again || !DEFERRED.load(Ordering::Relaxed) {
                leave(128 + signal);
            }
        }
    });
    Ok(())
}

/// Ends this process and all its children, from any thread.
pub fn leave(status: i32) -> ! {
    let children = end_children();
    restore_terminal();
    for pid in children {
        // The owners, on other threads, will not wait for them any more. An error means that one
        // has just done so.
        let _ = waitpid(Some(pid), WaitOptions::empty());
    }
    std::process::exit(status)
}

/// From now on the first signal only sets the flag that [`requested`] reads.
pub fn defer() {
    DEFERRED.store(true, Ordering::Relaxed);
}

/// From now on SIGINT has no effect on this program. The terminal sends it to every process in the
/// foreground, and a child there handles it, as often as it comes.
pub fn leave_ctrl_c_to_the_child() {
    IS_CTRL_C_THE_CHILDS.store(true, Ordering::Relaxed);
}

/// Whether a signal has asked this program to end.
pub fn requested() -> bool {
    REQUESTED.load(Ordering::Relaxed)
}

/// A registered child is ended together with this program as long as its guard lives.
#[derive(Debug)]
pub struct Guard(Option<Pid>);

/// Registers a child. The guard must be dropped after the child has been waited for.
pub fn guard(child: &Child) -> Guard {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if let Some(pid) = pid {
        lock(&CHILDREN).push(pid);
    }
    Guard(pid)
}

impl Drop for Guard {
    fn drop(&mut self) {
        lock(&CHILDREN).retain(|pid| Some(*pid) != self.0);
    }
}

/// Ends every registered child, and returns their ids. They must still be waited for.
pub fn end_children() -> Vec<Pid> {
    let children = std::mem::take(&mut *lock(&CHILDREN));
    for pid in &children {
        // It may just have ended by itself.
        let _ = kill_process(*pid, Signal::KILL);
    }
    children
}

/// A command for `program` that the system ends when the thread that starts it ends for any reason.
pub fn tied_to_us(program: &std::path::Path) -> Command {
    match find_program("setpriv") {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// Makes the terminal on standard input raw until [`restore_terminal`]. Does nothing if it is not a
/// terminal.
pub fn make_terminal_raw() -> Outcome<()> {
    let stdin = std::io::stdin();
    let Ok(before) = tcgetattr(&stdin) else { return Ok(()) };
    let mut raw = before.clone();
    raw.make_raw();
    // Output stays cooked, because messages of this program end lines with a bare newline.
    raw.output_modes = before.output_modes;
    *lock(&TERMINAL_BEFORE) = Some(before);
    tcsetattr(&stdin, OptionalActions::Now, &raw).because(|| "cannot make the terminal raw".into())
}

/// Undoes [`make_terminal_raw`].
pub fn restore_terminal() {
    if let Some(before) = lock(&TERMINAL_BEFORE).take() {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &before);
    }
}

/// Ignores poisoning, because the locks here protect plain data that is always valid.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guard_forgets_its_child() {
        let mut child = Command::new("true").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        let guard = guard(&child);
        assert!(lock(&CHILDREN).contains(&pid));
        child.wait().unwrap();
        drop(guard);
        assert!(!lock(&CHILDREN).contains(&pid));
    }
}
