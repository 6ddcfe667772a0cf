//! Starting programs.

use alloc::ffi::CString;
use alloc::vec::Vec;
use core::ffi::{CStr, c_char};

use cops_abi::syscall::SpawnOptions;
use cops_abi::{Errno, Priority};

use super::Child;
use crate::io::terminal::Mode;
use crate::io::{BorrowedFd, Error, Result, c_string};
use crate::system;

/// A program to be started, with its arguments, files, environment and group.
///
/// Without further options its standard streams are on the console, its environment is empty, and
/// it is in the group of this process.
#[derive(Clone, Debug)]
pub struct Command<'f> {
    /// The path, then the arguments.
    words: Vec<CString>,
    environment: Vec<CString>,
    ceiling: Option<Priority>,
    files: [Option<BorrowedFd<'f>>; 3],
    options: SpawnOptions,
}

impl<'f> Command<'f> {
    /// The program at `path`, which is its first argument, too.
    ///
    /// # Errors
    /// [`Error::ZeroByte`], `ENOMEM`.
    pub fn new(path: &str) -> Result<Self> {
        let options = SpawnOptions {
            files: [SpawnOptions::CONSOLE; 3],
            group: SpawnOptions::SAME_GROUP,
            foreground: 0,
            local: 0,
        };
        let mut words = Vec::new();
        add(&mut words, path)?;
        Ok(Self { words, environment: Vec::new(), ceiling: None, files: [None; 3], options })
    }

    /// Adds arguments.
    ///
    /// # Errors
    /// [`Error::ZeroByte`], `ENOMEM`.
    pub fn arguments<A: AsRef<str>>(mut self, arguments: &[A]) -> Result<Self> {
        for argument in arguments {
            add(&mut self.words, argument.as_ref())?;
        }
        Ok(self)
    }

    /// Adds a variable, as `NAME=value`, to the environment.
    ///
    /// # Errors
    /// [`Error::ZeroByte`], `ENOMEM`.
    pub fn variable(mut self, assignment: &str) -> Result<Self> {
        add(&mut self.environment, assignment)?;
        Ok(self)
    }

    /// Sets the ceiling of the child and all processes that it starts. `None`: this process's own.
    #[must_use]
    pub fn ceiling(mut self, ceiling: Option<Priority>) -> Self {
        self.ceiling = ceiling;
        self
    }

    /// Sets standard input, output and error.
    #[must_use]
    pub fn files(mut self, files: [BorrowedFd<'f>; 3]) -> Self {
        self.files = files.map(Some);
        self
    }

    /// Puts the child into a group; 0: a new one, with the number of the child.
    #[must_use]
    pub fn group(mut self, group: u32) -> Self {
        // A number that does not fit is the number of no group.
        self.options.group = i32::try_from(group).unwrap_or(i32::MAX);
        self
    }

    /// Puts the child's group into the foreground of the terminal, with this mode, before the child
    /// starts.
    #[must_use]
    pub fn foreground(mut self, mode: Mode) -> Self {
        (self.options.foreground, self.options.local) = (1, mode.local());
        self
    }

    /// Starts the program.
    ///
    /// # Errors
    /// `ENOENT`, `ENOEXEC`, `E2BIG`, `ENOMEM`, `ENAMETOOLONG`; `EPERM` if the ceiling is more
    /// urgent than this process's own, for a group outside this session, and for the foreground if
    /// this process is in the background and does not ignore `SIGTTOU`; `ENOTTY` for the foreground
    /// if the terminal does not belong to this session.
    pub fn spawn(&self) -> Result<Child> {
        let Some(path) = self.words.first() else { return Err(Error::ZeroByte) };
        let (words, environment) = (pointers(&self.words)?, pointers(&self.environment)?);
        let environment = (!self.environment.is_empty()).then_some(environment.as_slice());
        let mut options = self.options;
        for (place, file) in options.files.iter_mut().zip(self.files) {
            *place = file.map_or(SpawnOptions::CONSOLE, BorrowedFd::raw);
        }
        // SAFETY: the strings live until the call returns, each ends with a zero, and the last
        // pointer of both lists is null.
        #[allow(unsafe_code)]
        let pid =
            unsafe { system::spawn_process(path, &words, self.ceiling, &options, environment) }?;
        Ok(Child { pid: pid as u32 })
    }
}

/// Appends `text`.
fn add(strings: &mut Vec<CString>, text: &str) -> Result<()> {
    strings.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
    strings.push(c_string(text)?);
    Ok(())
}

/// The addresses of these strings, and null.
fn pointers(strings: &[CString]) -> Result<Vec<*const c_char>> {
    let mut pointers = Vec::new();
    pointers.try_reserve_exact(strings.len() + 1).map_err(|_| Errno::ENOMEM)?;
    pointers.extend(strings.iter().map(|string| CStr::as_ptr(string)));
    pointers.push(core::ptr::null());
    Ok(pointers)
}

/// Starts the program at `path` with `arguments`, to which the path is prepended. Its standard
/// streams are on the console.
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
    Command::new(path)?.arguments(arguments)?.ceiling(ceiling).spawn()
}
