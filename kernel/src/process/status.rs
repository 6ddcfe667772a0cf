//! How a process has ended.
#![forbid(unsafe_code)]

use cops_abi::syscall::wait_status;

/// How a process has ended: with the code of `exit`, or by a signal. Programs of the tutorial have
/// codes of 32 bits; other programs see their low byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStatus {
    /// By `exit`.
    Exited(i32),
    /// By a signal or a fault.
    Signalled(u8),
}

impl WaitStatus {
    /// Ended by `exit` with this code.
    pub const fn exited(code: u8) -> Self {
        Self::Exited(code as i32)
    }

    /// The status word of `wait4`.
    pub const fn word(self) -> i32 {
        match self {
            Self::Exited(code) => wait_status::exited(code as u8),
            Self::Signalled(signal) => wait_status::signalled(signal),
        }
    }

    /// The exit code as a program of the tutorial sees it: a signal is negative.
    pub const fn tutorial_code(self) -> i32 {
        match self {
            Self::Exited(code) => code,
            Self::Signalled(signal) => -(signal as i32),
        }
    }
}
