//! Calls that name files: a walk along a path, and what is done at its end.
//!
//! Each step is an attempt of a file system. If a step has to wait, the call sends the request
//! that the step has prepared in its [`Ask`] and attempts the same step again; if a portion is
//! over, the call's coroutine wakes itself. So a long path, or one on a slow disk, holds no hart
//! (decisions 29 and 32).
#![forbid(unsafe_code)]

use alloc::boxed::Box;
use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::{Status, mode, open};
use cops_abi::syscall::PATH_BYTES_MAX;
use cops_algorithms::path::Walk;
use cops_fallible::{List, Text, try_arc};

use super::map::{MapCall, SyncMemory};
use crate::fs::{self, Ask, Change, Device, File, New, NodeRef};
use crate::mm::PinnedBuffer;
use crate::process::Process;
use crate::sched::Waiter;

/// Steps of one portion.
const PORTION_STEPS: usize = 8;
/// Maximum number of levels that the path of the current directory has.
const LEVELS_MAX: usize = cops_algorithms::tree::LEVELS_MAX;

/// What is done with what a path names.
pub enum Then {
    /// Open it, or create it.
    Open { flags: u32, permissions: u32 },
    /// Store its status.
    Status { into: PinnedBuffer, is_extended: bool },
    /// Check whether it may be executed (1), written (2) and read (4).
    Access { mode: usize },
    /// Create a directory.
    MakeDirectory { permissions: u32 },
    /// Create a symbolic link to this path.
    MakeLink { target: Text },
    /// Remove it.
    Unlink { of_directory: bool },
    /// Give it another name.
    Rename { to: Second, no_replace: bool },
    /// Give it one more name.
    Link { to: Second },
    /// Store the path to which it leads.
    ReadLink { into: PinnedBuffer },
    /// Make it the current directory.
    ChangeDirectory,
    /// Change its length.
    Resize { length: u64 },
    /// Change its status.
    Change(Change),
    /// Store what is known of its file system.
    Usage { into: PinnedBuffer },
    /// Return when what was written to it survives a loss of power.
    Synchronise,
    /// Store its path: climb from it to the root.
    Where { into: PinnedBuffer, names: List<Text> },
    /// List it.
    List { file: Arc<File>, into: PinnedBuffer },
    /// Change the position of an open file.
    Seek { file: Arc<File>, offset: isize, whence: usize },
    /// Map it.
    Map(Box<MapCall>),
    /// Write back what was written to mappings of files, as `Synchronise` does.
    SynchroniseMemory(Box<SyncMemory>),
    /// The same as `Synchronise` for all file systems with numbers above this one; of the first of
    /// them, for mapped files with numbers above `file`.
    SynchroniseAll { after: u64, file: u64 },
    /// Put the file system of a server there, with this root; pages of its files may be kept.
    Mount { server: Arc<File>, root: u64, keeps_pages: bool },
    /// Remove the file system that was put there.
    Unmount,
}

/// The second path of a call, and what was found at the end of the first.
pub struct Second {
    /// Where it begins, and its text.
    pub at: NodeRef,
    pub walk: Walk,
    /// The directory and the last name of the first path, once it has been walked.
    first: Option<(NodeRef, Text)>,
}

impl Second {
    /// A second path, from directory `at`.
    pub fn new(at: NodeRef, walk: Walk) -> Self {
        Self { at, walk, first: None }
    }
}

/// A call with a path, or with an open file in the place of one.
pub struct PathCall {
    /// The directory that has been reached, or the node itself if there is no path.
    at: NodeRef,
    /// The rest of the path; `None` if there is nothing to walk.
    walk: Option<Walk>,
    /// Whether a symbolic link at the end of the path is followed.
    follows: bool,
    then: Then,
    /// Its requests to processes that serve file systems.
    ask: Ask,
}

/// What a step has found.
enum Step {
    /// There is more to walk.
    Again,
    /// The call is completed.
    Done(usize),
}

/// The value of an attempt, or `return` to wait.
macro_rules! attempt {
    ($attempt:expr) => {
        match $attempt {
            Some(result) => result?,
            None => return Ok(None),
        }
    };
}

impl PathCall {
    /// A call for what `walk` names from directory `at` on.
    pub fn new(at: NodeRef, walk: Walk, follows: bool, then: Then) -> Self {
        Self { at, walk: Some(walk), follows, then, ask: Ask::default() }
    }

    /// A call for a node itself.
    pub fn of_node(node: NodeRef, then: Then) -> Self {
        Self { at: node, walk: None, follows: false, then, ask: Ask::default() }
    }

    /// Sends the request for which the last attempt has to wait. Returns false if only a portion
    /// was over, and the call is to attempt again when others have run.
    pub fn insert_waiter(&mut self, waiter: Waiter) -> bool {
        self.ask.insert_waiter(&waiter)
    }

    /// It does not wait for its turn any more.
    pub fn remove_waiter(&mut self) {
        self.ask.remove_waiter();
    }

    /// Whether a handled signal ends it: a mapping has begun to replace what was there.
    pub fn is_interruptible(&self) -> bool {
        !matches!(self.then, Then::Map(_))
    }

    /// Whether the last attempt has prepared a request that is not sent yet.
    pub fn is_unsent(&self) -> bool {
        self.ask.is_unsent()
    }

    /// Does some of it. Out of line, as every rare attempt: otherwise each read and write would
    /// set up what this one needs of registers and stack.
    #[inline(never)]
    pub fn attempt(&mut self, process: &Arc<Process>) -> Option<CallResult> {
        self.ask.begin(process.id, process.family);
        for _ in 0..PORTION_STEPS {
            match self.step(process) {
                Ok(Some(Step::Again)) => self.ask.next_step(),
                Ok(Some(Step::Done(value))) => return Some(Ok(value)),
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        None
    }

    /// One component of the path, or what is done at its end. `Ok(None)`: it has to wait.
    fn step(&mut self, process: &Arc<Process>) -> Result<Option<Step>, Errno> {
        let Some(walk) = &self.walk else {
            return self.finish(process, self.at.clone());
        };
        let component = walk.next();
        if component.is_last {
            return self.last(process);
        }
        let mut found = attempt!(fs::look_up(&self.at, component.name, &mut self.ask));
        if found.kind() == mode::LINK {
            match found.destination(&self.ask)? {
                Some(destination) => found = destination,
                None => return self.follow(&found),
            }
        }
        if !fs::is_directory(&found) {
            return Err(Errno::ENOTDIR);
        }
        self.at = found;
        if let Some(walk) = &mut self.walk {
            walk.advance();
        }
        Ok(Some(Step::Again))
    }

    /// Goes on along a symbolic link.
    fn follow(&mut self, link: &NodeRef) -> Result<Option<Step>, Errno> {
        let target = attempt!(link.target(&mut self.ask));
        if let Some(walk) = &mut self.walk
            && walk.expand(&target)?
        {
            self.at = fs::root_directory().clone();
        }
        Ok(Some(Step::Again))
    }

    /// The last component of the path.
    fn last(&mut self, process: &Arc<Process>) -> Result<Option<Step>, Errno> {
        let Some(walk) = &self.walk else { return Err(Errno::EIO) };
        let component = walk.next();
        let (has_slash, at) = (component.has_slash, self.at.clone());
        let name = Text::try_from_str(component.name)?;
        if self.then.names_a_place() {
            return self.finish_place(process, &at, name, has_slash);
        }
        let mut found = match fs::look_up(&at, &name, &mut self.ask) {
            Some(Err(Errno::ENOENT)) if self.then.creates() => {
                return self.create(process, &at, &name, has_slash);
            }
            found => attempt!(found),
        };
        if found.kind() == mode::LINK && (self.follows || has_slash) {
            match found.destination(&self.ask)? {
                Some(destination) => found = destination,
                None => return self.follow(&found),
            }
        }
        if has_slash && !fs::is_directory(&found) {
            return Err(Errno::ENOTDIR);
        }
        if let Then::Link { to } = &mut self.then {
            // A directory is refused by its file system. The first name is only looked up.
            to.first = Some((found, Text::new()));
            return self.walk_second();
        }
        self.finish(process, found)
    }

    /// Creates the file that is to be opened.
    fn create(
        &mut self,
        process: &Arc<Process>,
        at: &NodeRef,
        name: &str,
        has_slash: bool,
    ) -> Result<Option<Step>, Errno> {
        let Then::Open { flags, permissions } = self.then else { return Err(Errno::ENOENT) };
        if has_slash {
            return Err(Errno::EISDIR);
        }
        match at.make(name, New::File, permissions, process.family, &mut self.ask) {
            // Another call was faster.
            Some(Err(Errno::EEXIST)) if flags & open::EXCLUSIVE == 0 => Ok(Some(Step::Again)),
            made => {
                let node = attempt!(made);
                insert(process, node, flags).map(|fd| Some(Step::Done(fd)))
            }
        }
    }

    /// Walks the second path of a call.
    fn walk_second(&mut self) -> Result<Option<Step>, Errno> {
        let (Then::Rename { to, .. } | Then::Link { to }) = &mut self.then else {
            return Err(Errno::EIO);
        };
        self.at = to.at.clone();
        core::mem::swap(&mut to.walk, self.walk.as_mut().ok_or(Errno::EIO)?);
        Ok(Some(Step::Again))
    }

    /// What is done with a name in a directory, whether it exists or not.
    fn finish_place(
        &mut self,
        process: &Arc<Process>,
        at: &NodeRef,
        name: Text,
        has_slash: bool,
    ) -> Result<Option<Step>, Errno> {
        let payer = process.family;
        match &mut self.then {
            Then::MakeDirectory { permissions } => {
                let new = New::Directory;
                drop(attempt!(at.make(&name, new, *permissions, payer, &mut self.ask)));
            }
            // With a slash it would name a directory.
            Then::MakeLink { .. } if has_slash => return Err(Errno::ENOENT),
            Then::MakeLink { target } => {
                drop(attempt!(at.make(&name, New::Link(target), 0o777, payer, &mut self.ask)));
            }
            Then::Unlink { of_directory: false } if has_slash => {
                let found = attempt!(fs::look_up(at, &name, &mut self.ask));
                let error = if fs::is_directory(&found) { Errno::EISDIR } else { Errno::ENOTDIR };
                return Err(error);
            }
            Then::Unlink { of_directory } => {
                // A directory in the place of which another file system is found stays. There is
                // none in a file system that a process serves.
                if at.served().is_none() {
                    let found = attempt!(fs::look_up(at, &name, &mut self.ask));
                    if *of_directory && &*name != "." && fs::covered_by(&found).is_some() {
                        return Err(Errno::EBUSY);
                    }
                }
                attempt!(at.unlink(&name, *of_directory, &mut self.ask));
            }
            Then::Rename { to, .. } if to.first.is_none() => {
                if has_slash {
                    must_be_directory(attempt!(fs::look_up(at, &name, &mut self.ask)))?;
                }
                to.first = Some((at.clone(), name));
                return self.walk_second();
            }
            Then::Rename { to, no_replace } => {
                let Some((from, old)) = &to.first else { return Err(Errno::EIO) };
                same_file_system(from, at)?;
                if has_slash {
                    must_be_directory(attempt!(fs::look_up(from, old, &mut self.ask)))?;
                }
                attempt!(from.rename(old, (at, &name), *no_replace, payer, &mut self.ask));
            }
            Then::Link { to } => {
                let Some((node, _)) = &to.first else { return Err(Errno::EIO) };
                same_file_system(node, at)?;
                attempt!(at.link(&name, node, payer, &mut self.ask));
            }
            _ => return Err(Errno::EIO),
        }
        Ok(Some(Step::Done(0)))
    }

    /// What is done with a node.
    fn finish(&mut self, process: &Arc<Process>, node: NodeRef) -> Result<Option<Step>, Errno> {
        match &mut self.then {
            Then::Open { flags, .. } => {
                let flags = *flags;
                attempt!(check_open(&node, flags, &mut self.ask));
                if flags & open::TRUNCATE != 0 && node.kind() == mode::REGULAR {
                    attempt!(node.resize(0, &mut self.ask));
                }
                return insert(process, node, flags).map(|fd| Some(Step::Done(fd)));
            }
            Then::Status { into, is_extended } => {
                let status = attempt!(node.status(&mut self.ask));
                store_status(&status, into, *is_extended);
            }
            Then::Access { mode: asked } => {
                let status = attempt!(node.status(&mut self.ask));
                let may_execute = status.kind() != mode::REGULAR || status.mode & 0o111 != 0;
                if *asked & 1 != 0 && !may_execute {
                    return Err(Errno::EACCES);
                }
                if *asked & 2 != 0 && node.device().is_none() {
                    // Changing nothing fails where nothing can be changed.
                    attempt!(node.change(Change::default(), &mut self.ask));
                }
            }
            Then::ReadLink { into } => {
                let target = attempt!(node.target(&mut self.ask));
                let count = target.len().min(into.len());
                into.write_at(0, &target.as_bytes()[..count]);
                return Ok(Some(Step::Done(count)));
            }
            Then::ChangeDirectory => {
                let node = must_be_directory(node)?;
                process.files.lock().set_working(node);
            }
            Then::Resize { length } => attempt!(node.resize(*length, &mut self.ask)),
            Then::Change(change) => attempt!(node.change(*change, &mut self.ask)),
            Then::Usage { into } => {
                let usage = attempt!(node.usage(&mut self.ask));
                into.write_at(0, &usage.to_bytes());
            }
            Then::Synchronise => attempt!(node.synchronise(&mut self.ask)),
            Then::Seek { file, offset, whence } => {
                let position = attempt!(file.attempt_seek(*offset, *whence, &mut self.ask));
                return Ok(Some(Step::Done(position)));
            }
            Then::Map(call) => {
                return Ok(call.attempt(process, &node, &mut self.ask)?.map(Step::Done));
            }
            Then::SynchroniseMemory(memory) => {
                let is_done = memory.attempt(process, &mut self.ask)?;
                return Ok(is_done.then_some(Step::Done(0)));
            }
            Then::SynchroniseAll { after, file } => {
                if let Some(served) = node.served()
                    && *file < u64::MAX
                    && (self.ask.turn().is_some() || self.ask.is_fresh())
                {
                    let dirty = match self.ask.turn() {
                        Some(dirty) => Ok(dirty.clone()),
                        None => served.next_dirty(*file),
                    };
                    match dirty {
                        Ok(dirty) => {
                            // `sync` reports no error. If the server refuses the pages of a file,
                            // they stay dirty, and the next file is written back.
                            if dirty.write_back(&mut self.ask).is_none() {
                                return Ok(None);
                            }
                            *file = dirty.number();
                        }
                        Err(next) => *file = next.unwrap_or(u64::MAX),
                    }
                    return Ok(Some(Step::Again));
                }
                // This file system first, and then those behind it, even if it fails.
                if node.synchronise_all(&mut self.ask).is_none() {
                    return Ok(None);
                }
                if let Some((number, next)) = fs::served_after(*after) {
                    (*after, *file) = (number, 0);
                    self.at = next;
                    return Ok(Some(Step::Again));
                }
            }
            Then::Mount { server, root, keeps_pages } => {
                fs::mount_served(&node, server, *root, *keeps_pages)?;
            }
            Then::Unmount => fs::unmount(&node)?,
            Then::List { file, into } => {
                let mut bytes = [0; LIST_BYTES_MAX];
                let bytes = &mut bytes[..into.len().min(LIST_BYTES_MAX)];
                let count = attempt!(file.attempt_list(bytes, &mut self.ask));
                into.write_at(0, &bytes[..count]);
                return Ok(Some(Step::Done(count)));
            }
            Then::Where { .. } => return self.climb(&node),
            _ => return Err(Errno::EIO),
        }
        Ok(Some(Step::Done(0)))
    }

    /// One level up; at the root, stores the path.
    fn climb(&mut self, node: &NodeRef) -> Result<Option<Step>, Errno> {
        if let Some(covered) = fs::covered_by(node) {
            self.at = covered;
            return Ok(Some(Step::Again));
        }
        let place = attempt!(node.place(&mut self.ask));
        let Then::Where { into, names } = &mut self.then else { return Err(Errno::EIO) };
        if let Some((parent, name)) = place {
            if names.len() >= LEVELS_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            names.try_push(name)?;
            self.at = parent;
            return Ok(Some(Step::Again));
        }
        let length: usize = names.iter().map(|name| name.len() + 1).sum();
        let length = length.max(1);
        if length >= PATH_BYTES_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        if length + 1 > into.len() {
            return Err(Errno::ERANGE);
        }
        let mut at = 0;
        for name in names.iter().rev() {
            into.write_at(at, b"/");
            into.write_at(at + 1, name.as_bytes());
            at += name.len() + 1;
        }
        into.write_at(0, b"/");
        into.write_at(length, &[0]);
        Ok(Some(Step::Done(length + 1)))
    }
}

/// Maximum number of bytes that one `getdents64` stores.
pub const LIST_BYTES_MAX: usize = 768;

impl Then {
    /// Whether it concerns a name in a directory rather than what has this name.
    fn names_a_place(&self) -> bool {
        match self {
            Then::MakeDirectory { .. }
            | Then::MakeLink { .. }
            | Then::Unlink { .. }
            | Then::Rename { .. } => true,
            Then::Link { to } => to.first.is_some(),
            _ => false,
        }
    }

    fn creates(&self) -> bool {
        matches!(self, Then::Open { flags, .. } if flags & open::CREATE != 0)
    }
}

/// Stores a status.
pub fn store_status(status: &Status, into: &PinnedBuffer, is_extended: bool) {
    if is_extended {
        into.write_at(0, &status.to_extended_bytes());
    } else {
        into.write_at(0, &status.to_bytes());
    }
}

fn must_be_directory(node: NodeRef) -> Result<NodeRef, Errno> {
    if fs::is_directory(&node) { Ok(node) } else { Err(Errno::ENOTDIR) }
}

fn same_file_system(one: &NodeRef, other: &NodeRef) -> Result<(), Errno> {
    if one.identity().0 == other.identity().0 { Ok(()) } else { Err(Errno::EXDEV) }
}

/// Whether a node that exists may be opened so; `None` if the call has to wait.
fn check_open(node: &NodeRef, flags: u32, ask: &mut Ask) -> Option<Result<(), Errno>> {
    if let Err(error) = node.may_open() {
        return Some(Err(error));
    }
    let kind = node.kind();
    let writes = flags & open::ACCESS_MODE != open::READ_ONLY || flags & open::TRUNCATE != 0;
    if flags & open::CREATE != 0 && flags & open::EXCLUSIVE != 0 {
        return Some(Err(Errno::EEXIST));
    }
    Some(match kind {
        mode::LINK => Err(Errno::ELOOP),
        mode::DIRECTORY if writes || flags & open::CREATE != 0 => Err(Errno::EISDIR),
        mode::DIRECTORY => Ok(()),
        _ if flags & open::DIRECTORY != 0 => Err(Errno::ENOTDIR),
        mode::REGULAR if writes => node.change(Change::default(), ask)?,
        _ => Ok(()),
    })
}

/// Opens `node` in the process. Returns its descriptor.
fn insert(process: &Process, node: NodeRef, flags: u32) -> CallResult {
    if let Some(Device::Disk | Device::FileServer) = node.device() {
        // The disk has the files of all processes, and a served file system is seen by all.
        process.check_authority_over_machine()?;
    }
    let file = try_arc(File::of_node(node, flags, process.family)?)?;
    let closes = flags & open::CLOSE_ON_EXEC != 0;
    process.files.lock().insert(file, closes).map(|file| file.0)
}
