//! The name of a process's program, for messages and for `ps`.
#![forbid(unsafe_code)]

use core::fmt;
use core::ops::Deref;

use cops_abi::inspect;

/// Size of a name: that of the field of `inspect`.
const BYTES: usize = 80;

/// The path of a program without the slash at its beginning. Of a long path, the end.
#[derive(Clone, Copy)]
pub struct Name([u8; BYTES]);

impl Name {
    /// The name of the program at `path`.
    pub fn of_path(path: &str) -> Self {
        Self(inspect::name(path.strip_prefix('/').unwrap_or(path)))
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        inspect::text(&self.0)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, formatter)
    }
}
