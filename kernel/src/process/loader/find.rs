//! The search for the file that is to be executed, by its path, in portions.

use cops_abi::Errno;
use cops_abi::file::mode;
use cops_algorithms::path::Walk;
use cops_fallible::Text;

use super::asking::Asking;
use crate::fs::{self, Ask, NodeRef};
use crate::process::Portion;

/// Components of a path that one portion walks.
const PORTION_STEPS: usize = 8;

/// The walk to a file.
pub struct Search {
    /// The directory that has been reached.
    at: NodeRef,
    walk: Walk,
    /// The symbolic link that the next component names, while its server is asked where it leads.
    link: Option<NodeRef>,
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
    /// It is too long, or cannot be found.
    Unknown,
}

impl Path {
    /// Climbs one level, if the beginning of the path is not known. `None` if that has to wait.
    fn climb(&mut self, asking: &mut Asking) -> Result<Option<()>, Errno> {
        let Self::Below(at, end) = self else { return Ok(Some(())) };
        if let Some(covered) = fs::covered_by(at) {
            *at = covered;
            return Ok(Some(()));
        }
        let Some(place) = asking.attempt(at, |ask| at.place(ask)) else { return Ok(None) };
        *self = match place {
            Ok(None) => Self::Known(core::mem::take(end)),
            Ok(Some((parent, name))) => match joined(&name, end)? {
                Some(longer) => Self::Below(parent, longer),
                None => Self::Unknown,
            },
            // The directory has been removed.
            Err(_) => Self::Unknown,
        };
        Ok(Some(()))
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

impl Search {
    /// A walk along `path`, which begins in directory `working` unless it is absolute.
    ///
    /// # Errors
    /// `ENOENT` for an empty path, `ENOMEM`.
    pub fn new(working: &NodeRef, path: &str) -> Result<Self, Errno> {
        let walk = Walk::new(Text::try_from_str(path)?)?;
        let (at, path) = if walk.is_absolute() {
            (fs::root_directory(), Path::Known(Text::new()))
        } else {
            (working, Path::Below(working.clone(), Text::new()))
        };
        Ok(Self { at: at.clone(), walk, link: None, path })
    }

    /// Walks some of the path. When it is done, returns the file, and its path, which is empty if
    /// that is not known.
    ///
    /// # Errors
    /// As for `open`; `EACCES` if a step would have to wait, and `asking` cannot.
    pub fn resume(&mut self, asking: &mut Asking) -> Result<Portion<(NodeRef, Text)>, Errno> {
        for _ in 0..PORTION_STEPS {
            match self.step(asking)? {
                Portion::More => {}
                other => return Ok(other),
            }
        }
        Ok(Portion::More)
    }

    /// Walks along one component of the path, or climbs one level of the directory's own path.
    #[inline(always)]
    fn step(&mut self, asking: &mut Asking) -> Result<Portion<(NodeRef, Text)>, Errno> {
        if let Path::Below(..) = self.path {
            let climbed = self.path.climb(asking)?;
            return Ok(climbed.map_or(Portion::Waits, |()| Portion::More));
        }
        let component = self.walk.next();
        let found = match self.link.take() {
            Some(link) => Some(Ok(link)),
            None => asking.attempt(&self.at, |ask| fs::look_up(&self.at, component.name, ask)),
        };
        let Some(found) = found else { return Ok(Portion::Waits) };
        let mut found = found?;
        if found.kind() == mode::LINK {
            let Some(target) = asking.attempt(&found, |ask| found.target(ask)) else {
                self.link = Some(found);
                return Ok(Portion::Waits);
            };
            match found.destination(&Ask::of(asking.caller()))? {
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
                    return Ok(Portion::More);
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
            return Ok(Portion::Done((found, path)));
        }
        self.at = found;
        self.walk.advance();
        Ok(Portion::More)
    }
}
