//! The terminal: its session, its foreground group, and how it is read.
//!
//! May touch: the terminal of standard input, which is the console unless it was redirected.

use cops_abi::Errno;
use cops_abi::file::ioctl;
use cops_abi::file::terminal::{BYTES, CANONICAL, ECHO, SIGNALS};

use super::Result;
use crate::system;

const STANDARD_INPUT: i32 = 0;
/// Where the local flags are in the settings.
const LOCAL_AT: usize = 12;

/// How the terminal is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mode {
    /// The kernel edits lines, and a read returns at most one of them. Otherwise bytes are read as
    /// they are typed.
    pub lines: bool,
    /// What is typed is shown.
    pub echo: bool,
    /// Ctrl-C, Ctrl-\\ and Ctrl-Z are no input: they send signals to the foreground group.
    pub signals: bool,
}

impl Mode {
    /// For programs that do not set a mode themselves.
    pub const ORDINARY: Mode = Mode { lines: true, echo: true, signals: true };
    /// Keys as they are typed, except those of signals.
    pub const KEYS: Mode = Mode { lines: false, echo: false, signals: true };
    /// Everything that is typed.
    pub const RAW: Mode = Mode { lines: false, echo: false, signals: false };

    pub(crate) fn local(self) -> u32 {
        let bits = [(self.lines, CANONICAL), (self.echo, ECHO), (self.signals, SIGNALS)];
        bits.into_iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, bit)| all | bit)
    }
}

/// All settings of the terminal, to be restored later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings([u8; BYTES]);

impl Settings {
    /// The current ones.
    ///
    /// # Errors
    /// `ENOTTY` if standard input is no terminal.
    pub fn current() -> Result<Self> {
        let mut settings = Self([0; BYTES]);
        system::ioctl(STANDARD_INPUT, ioctl::GET_TERMINAL, &mut settings.0)?;
        Ok(settings)
    }

    /// These settings with another mode.
    #[must_use]
    pub fn with_mode(mut self, mode: Mode) -> Self {
        if let Some((local, _)) = self.0.get_mut(LOCAL_AT..).and_then(<[u8]>::split_first_chunk_mut)
        {
            let others = u32::from_le_bytes(*local) & !(CANONICAL | ECHO | SIGNALS);
            *local = (others | mode.local()).to_le_bytes();
        }
        self
    }

    /// Sets them.
    ///
    /// # Errors
    /// `ENOTTY` if standard input is no terminal; `EIO` if it belongs to another session, or if
    /// this process is in a background group that no process could make go on.
    pub fn set(mut self) -> Result<()> {
        Ok(system::ioctl(STANDARD_INPUT, ioctl::SET_TERMINAL, &mut self.0)?)
    }
}

/// Sets how the terminal is read.
///
/// # Errors
/// As [`Settings::set`].
pub fn set_mode(mode: Mode) -> Result<()> {
    Settings::current()?.with_mode(mode).set()
}

/// Makes the terminal that of this process's session, which it leads, with its own group in the
/// foreground.
///
/// # Errors
/// `EPERM` if this process does not lead its session, or the terminal belongs to another one;
/// `ENOTTY` if standard input is no terminal.
pub fn take() -> Result<()> {
    Ok(system::ioctl(STANDARD_INPUT, ioctl::TAKE_TERMINAL, &mut [])?)
}

/// The group in the foreground; 0 if there is none.
///
/// # Errors
/// `ENOTTY` if standard input is not the terminal of this process's session.
pub fn foreground() -> Result<u32> {
    let mut group = [0; 4];
    system::ioctl(STANDARD_INPUT, ioctl::GET_FOREGROUND, &mut group)?;
    Ok(u32::from_le_bytes(group))
}

/// Puts a group of this process's session into the foreground. A process that is in the background
/// itself must ignore `SIGTTOU` ([`crate::process::ignore_signals`]); it is stopped otherwise.
///
/// # Errors
/// `ENOTTY` if standard input is not the terminal of this process's session; `EPERM` if the group
/// is in another session; `ESRCH` if there is none with this number.
pub fn set_foreground(group: u32) -> Result<()> {
    let group = i32::try_from(group).map_err(|_| Errno::ESRCH)?;
    let mut group = group.to_le_bytes();
    Ok(system::ioctl(STANDARD_INPUT, ioctl::SET_FOREGROUND, &mut group)?)
}
