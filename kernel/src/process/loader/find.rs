//! The file that is to be executed: found by its path, in portions, and read.
//!
//! A file in memory that can be written is copied into the program's pages while it is loaded, so a
//! later write does not change the program, and no writer is refused (decision 34). Files of which
//! an operation would have to wait are not executed.

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::file::mode;
use cops_algorithms::path::Walk;
use cops_algorithms::script::HEAD_BYTES;
use cops_fallible::{List, Text};

use crate::fs::{self, Ask, Attempt, NodeRef};
use crate::mm::{MemoryObject, layout};
use crate::process::ProcessId;

/// Components of a path that one portion walks.
const PORTION_STEPS: usize = 8;

/// The error of a file that cannot be executed for what it is, or where it is.
const NOT_EXECUTABLE: Errno = Errno::EACCES;

/// The walk to a file.
pub struct Search {
    /// The directory that has been reached.
    at: NodeRef,
    walk: Walk,
    /// The process that asks; 0: the kernel.
    caller: ProcessId,
    /// The path of the directory.
    path: Path,
}

/// Maximum length of a path that is kept.
const PATH_BYTES_KEPT: usize = 1000;

/// The path of a directory.
enum Path {
    /// It ends with this, and what is before it is the path of this directory.
    Below(NodeRef, Text),
    /// The whole path; empty for the root.
    Known(Text),
    /// It is too long, or cannot be found without waiting.
    Unknown,
}

impl Path {
    /// Climbs one level, if the beginning of the path is not known.
    fn climb(self) -> Result<Self, Errno> {
        let Self::Below(at, end) = self else { return Ok(self) };
        if let Some(covered) = fs::covered_by(&at) {
            return Ok(Self::Below(covered, end));
        }
        Ok(match at.place(&mut Ask::default()) {
            Some(Ok(None)) => Self::Known(end),
            Some(Ok(Some((parent, name)))) => match joined(&name, &end)? {
                Some(longer) => Self::Below(parent, longer),
                None => Self::Unknown,
            },
            // The directory has been removed, or its server would have to be asked.
            Some(Err(_)) | None => Self::Unknown,
        })
    }

    /// The path of what has this name in the directory.
    fn join(&mut self, name: &str) -> Result<(), Errno> {
        let Self::Known(path) = self else { return Ok(()) };
        match name {
            "." => {}
            ".." => path.truncate(path.rfind('/').unwrap_or(0)),
            name if path.len() + 1 + name.len() > PATH_BYTES_KEPT => *self = Self::Unknown,
            name => {
                path.try_push_str("/")?;
                path.try_push_str(name)?;
            }
        }
        Ok(())
    }
}

/// `/` and `name` before `end`; `None` if that is too long.
fn joined(name: &str, end: &str) -> Result<Option<Text>, Errno> {
    if 1 + name.len() + end.len() > PATH_BYTES_KEPT {
        return Ok(None);
    }
    let mut text = Text::try_from_str("/")?;
    text.try_push_str(name)?;
    text.try_push_str(end)?;
    Ok(Some(text))
}

/// The result of an attempt that must not wait.
fn at_once<T>(attempt: Attempt<T>) -> Result<T, Errno> {
    attempt.unwrap_or(Err(NOT_EXECUTABLE))
}

impl Search {
    /// A walk along `path`, which begins in directory `working` unless it is absolute.
    ///
    /// # Errors
    /// `ENOENT` for an empty path, `ENOMEM`.
    pub fn new(working: &NodeRef, path: &str, caller: ProcessId) -> Result<Self, Errno> {
        let walk = Walk::new(Text::try_from_str(path)?)?;
        let (at, path) = if walk.is_absolute() {
            (fs::root_directory(), Path::Known(Text::new()))
        } else {
            (working, Path::Below(working.clone(), Text::new()))
        };
        Ok(Self { at: at.clone(), walk, caller, path })
    }

    /// Walks some of the path. `None` if there is more to walk; otherwise the file, and its path,
    /// which is empty if that is not known.
    ///
    /// # Errors
    /// As for `open`; `EACCES` if a step would have to wait.
    pub fn resume(&mut self) -> Result<Option<(NodeRef, Text)>, Errno> {
        for _ in 0..PORTION_STEPS {
            if let Path::Below(..) = self.path {
                self.path = core::mem::replace(&mut self.path, Path::Unknown).climb()?;
                continue;
            }
            let component = self.walk.next();
            let ask = &mut Ask::of(self.caller);
            let mut found = at_once(fs::look_up(&self.at, component.name, ask))?;
            if found.kind() == mode::LINK {
                let target = at_once(found.target(ask));
                match found.destination(ask)? {
                    Some(destination) => {
                        found = destination;
                        self.path = match target {
                            Ok(path) if path.starts_with('/') => Path::Known(path),
                            _ => Path::Unknown,
                        };
                    }
                    None => {
                        if self.walk.expand(&target?)? {
                            self.at = fs::root_directory().clone();
                            self.path = Path::Known(Text::new());
                        }
                        continue;
                    }
                }
            } else {
                self.path.join(component.name)?;
            }
            if (component.has_slash || !component.is_last) && !fs::is_directory(&found) {
                return Err(Errno::ENOTDIR);
            }
            if component.is_last {
                let path = match core::mem::replace(&mut self.path, Path::Unknown) {
                    Path::Known(path) => path,
                    _ => Text::new(),
                };
                return Ok(Some((found, path)));
            }
            self.at = found;
            self.walk.advance();
        }
        Ok(None)
    }
}

/// A file that may be executed.
pub struct Executable {
    node: NodeRef,
    /// Its bytes, if they never change.
    image: Option<&'static [u8]>,
    /// What was read last of another file.
    buffer: List<u8>,
}

impl Executable {
    /// The file at `node`.
    ///
    /// # Errors
    /// `EACCES` if it is not a regular file, or has no permission to execute; `ENOMEM`.
    pub fn new(node: NodeRef) -> Result<Self, Errno> {
        let status = at_once(node.status(&mut Ask::default()))?;
        if node.kind() != mode::REGULAR || status.mode & 0o111 == 0 {
            return Err(NOT_EXECUTABLE);
        }
        let image = node.image();
        let mut buffer = List::new();
        if image.is_none() {
            buffer.try_resize(layout::PAGE_BYTES, 0)?;
        }
        Ok(Self { node, image, buffer })
    }

    /// Whether reading it costs next to nothing.
    pub fn is_image(&self) -> bool {
        self.image.is_some()
    }

    /// Its pages, if they never change.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn unchanging_object(&self) -> Result<Option<Arc<dyn MemoryObject>>, Errno> {
        if self.image.is_some() { self.node.clone().object().map(Some) } else { Ok(None) }
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        match self.image {
            Some(bytes) => bytes.len(),
            None => {
                let status = at_once(self.node.status(&mut Ask::default()));
                status.map_or(0, |status| status.size as usize)
            }
        }
    }

    /// The `count` bytes at `offset`, at most a page.
    ///
    /// # Errors
    /// `ENOEXEC` if the file ends before.
    pub fn bytes(&mut self, offset: usize, count: usize) -> Result<&[u8], Errno> {
        let bytes = match self.image {
            Some(bytes) => bytes.get(offset..).and_then(|rest| rest.get(..count)),
            None => {
                let place = self.buffer.get_mut(..count).ok_or(Errno::ENOEXEC)?;
                let read = at_once(self.node.read_into(offset as u64, place))?;
                (read == count).then_some(&*place)
            }
        };
        bytes.ok_or(Errno::ENOEXEC)
    }

    /// Its beginning, padded with zeros.
    ///
    /// # Errors
    /// As for [`Self::bytes`].
    pub fn head(&mut self) -> Result<[u8; HEAD_BYTES], Errno> {
        let mut head = [0; HEAD_BYTES];
        let count = self.len().min(HEAD_BYTES);
        head[..count].copy_from_slice(self.bytes(0, count)?);
        Ok(head)
    }
}
