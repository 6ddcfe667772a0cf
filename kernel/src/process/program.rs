//! What is known of the program of a process: its name, its file, and where its arguments are.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_fallible::{Text, try_arc};

use super::Name;
use crate::fs::NodeRef;

/// The file of a program; that of the interpreter for a script.
pub struct ProgramFile {
    /// The file, which may have been renamed or removed.
    pub node: NodeRef,
    /// The path at which it was found, without symbolic links; empty if that is not known.
    pub path: Text,
}

/// Where the strings of a program are in its memory, which it may have changed since.
#[derive(Clone, Copy, Debug, Default)]
pub struct Strings {
    /// Where the arguments begin, each with its zero.
    pub arguments: usize,
    /// Where they end, and the environment begins.
    pub environment: usize,
    /// Where that ends.
    pub end: usize,
}

/// A program.
#[derive(Clone)]
pub struct Program {
    /// Its name, for messages.
    pub name: Name,
    /// The last part of the path by which it was started: what its threads are called.
    pub command: Name,
    /// Its file.
    pub file: Arc<ProgramFile>,
    /// Its arguments and its environment.
    pub strings: Strings,
}

impl Program {
    /// The program in `node`, found at `path`, with a name and a command.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub(super) fn new(
        (name, command): (Name, Name),
        node: NodeRef,
        path: Text,
    ) -> Result<Self, Errno> {
        let file = try_arc(ProgramFile { node, path })?;
        Ok(Self { name, command, file, strings: Strings::default() })
    }
}
