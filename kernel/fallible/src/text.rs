//! A string.

use core::fmt;
use core::ops::Deref;

use super::{List, OutOfMemory};

/// A string that can fail to grow.
#[derive(Default, PartialEq, Eq)]
pub struct Text(List<u8>);

impl Text {
    /// An empty string; allocates nothing.
    pub const fn new() -> Self {
        Self(List::new())
    }

    /// The string in `bytes`; `None` if they are not UTF-8.
    pub fn from_utf8(bytes: List<u8>) -> Option<Self> {
        core::str::from_utf8(&bytes).is_ok().then_some(Self(bytes))
    }

    /// A copy of `text`.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn try_from_str(text: &str) -> Result<Self, OutOfMemory> {
        Ok(Self(List::try_from_slice(text.as_bytes())?))
    }

    /// Its bytes. Like the two functions after this one, it examines none of them; each use as a
    /// `str` examines all.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes that it consists of.
    pub fn into_bytes(self) -> List<u8> {
        self.0
    }

    /// Appends `text`.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the string is as it was.
    pub fn try_push_str(&mut self, text: &str) -> Result<(), OutOfMemory> {
        self.0.try_extend_from_slice(text.as_bytes())
    }

    /// Shortens the string to `length` bytes. Does nothing if it is shorter, or if `length` is not
    /// on a character boundary.
    pub fn truncate(&mut self, length: usize) {
        if self.is_char_boundary(length) {
            self.0.truncate(length);
        }
    }
}

impl Deref for Text {
    type Target = str;
    fn deref(&self) -> &str {
        // The bytes are always whole strings, so this never falls back.
        core::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Debug for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, formatter)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&**self, formatter)
    }
}

/// Formatting fails if there is no memory for the text.
impl fmt::Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.try_push_str(text).map_err(|_| fmt::Error)
    }
}
