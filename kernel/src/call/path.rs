//! Calls that name files: the walk along a path, and what a call does at its end ([`finish`]).
//!
//! Each step is an attempt of a file system. If a step has to wait, the call sends the request
//! that the step has prepared in its [`Ask`] and attempts the same step again; if a portion is
//! over, the call's coroutine wakes itself. So a long path, or one on a slow disk, holds no hart
//! (decisions 29 and 32).
#![forbid(unsafe_code)]

/// The value of an attempt, or `return` to wait.
macro_rules! attempt {
    ($attempt:expr) => {
        match $attempt {
            Some(result) => result?,
            None => return Ok(None),
        }
    };
}

mod finish;
mod reserved;

use alloc::boxed::Box;
use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::file::{mode, open};
use cops_algorithms::path::Walk;
use cops_fallible::{List, OutOfMemory, Text};

use super::map::{MapCall, SyncMemory};
use crate::fs::{self, Ask, Change, File, New, NodeRef, Terms};
use crate::mm::PinnedBuffer;
use crate::mm::quota::{Family, Kept};
use crate::process::Process;
use crate::sched::Waiter;

use finish::open_node;
pub use finish::{LIST_BYTES_MAX, store_status};
pub use reserved::Reserved;

/// Steps of one portion.
const PORTION_STEPS: usize = 8;

/// What is done with what a path names.
pub enum Then {
    /// Open it, or create it; `number` is for the descriptor, from the first attempt on.
    Open { flags: u32, permissions: u32, number: Option<Reserved> },
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
    /// Put the file system of a server there, with this root, on these terms.
    Mount { server: Arc<File>, root: u64, terms: Terms },
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
    kept: Kept,
}

/// What a step has found.
enum Step {
    /// There is more to walk.
    Again,
    /// The call is completed.
    Done(usize),
}

impl PathCall {
    /// A call for what `walk` names from directory `at` on.
    pub fn new(at: NodeRef, walk: Walk, follows: bool, then: Then) -> Self {
        let (ask, kept) = (Ask::default(), Kept::default());
        Self { at, walk: Some(walk), follows, then, ask, kept }
    }

    /// A call for a node itself.
    pub fn of_node(node: NodeRef, then: Then) -> Self {
        let (ask, kept) = (Ask::default(), Kept::default());
        Self { at: node, walk: None, follows: false, then, ask, kept }
    }

    /// It has to wait: charges what it keeps, of which a link in the path may make more.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn begin_waiting(&mut self, family: Family) -> Result<(), OutOfMemory> {
        if let Then::Map(call) = &mut self.then {
            call.begin_waiting();
        }
        let path = self.walk.as_ref().map_or(0, Walk::byte_count);
        self.kept.at_least(family, size_of::<Self>() + path + self.then.byte_count())
    }

    /// Sends the request for which the last attempt has to wait. Returns false if only a portion
    /// was over, and the call is to attempt again when others have run.
    pub fn insert_waiter(&mut self, waiter: Waiter) -> bool {
        self.ask.insert_waiter(&waiter)
    }

    /// It has ended: it does not wait for its turn any more.
    pub fn remove_waiter(&mut self, process: &Process) {
        self.ask.remove_waiter();
        if let Then::Map(call) = &mut self.then {
            call.end(process);
        }
    }

    /// Whether the attempt after [`Self::insert_waiter`] waits for an event for which no waiter is
    /// registered, or only a portion was over.
    pub fn waits_for_another_event(&self) -> bool {
        !self.ask.is_registered()
    }

    /// Does some of it. Out of line, as every rare attempt: otherwise each read and write would
    /// set up what this one needs of registers and stack.
    #[inline(never)]
    pub fn attempt(&mut self, process: &Arc<Process>) -> Option<CallResult> {
        self.ask.begin(process.id, process.family);
        if let Then::Open { number: number @ None, .. } = &mut self.then {
            // As on Linux, first: a call that gets none creates and truncates nothing.
            match Reserved::new(process) {
                Ok(reserved) => *number = Some(reserved),
                Err(error) => return Some(Err(error)),
            }
        }
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
        if found.served().is_some() {
            // A step of its own, which may have to write back first what was written to the file.
            (self.at, self.walk) = (found, None);
            return Ok(Some(Step::Again));
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
        let Then::Open { flags, permissions, .. } = self.then else { return Err(Errno::ENOENT) };
        if has_slash {
            return Err(Errno::EISDIR);
        }
        // What can fail comes before the file exists.
        let mut file = open_node(process, at.clone(), flags)?;
        match at.make(name, New::File, permissions, process.family, &mut self.ask) {
            // Another call was faster.
            Some(Err(Errno::EEXIST)) if flags & open::EXCLUSIVE == 0 => Ok(Some(Step::Again)),
            made => {
                let node = attempt!(made);
                Arc::get_mut(&mut file).ok_or(Errno::EIO)?.lead_to(node);
                self.then.install(file).map(|number| Some(Step::Done(number)))
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
}

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

    /// Number of bytes of texts that it keeps.
    fn byte_count(&self) -> usize {
        match self {
            Then::MakeLink { target } => target.len(),
            Then::Rename { to, .. } | Then::Link { to } => {
                to.walk.byte_count() + to.first.as_ref().map_or(0, |(_, name)| name.len())
            }
            Then::Where { names, .. } => {
                names.iter().map(|name| size_of::<Text>() + name.len()).sum()
            }
            _ => 0,
        }
    }

    /// Opens `file` with the number that was reserved for it.
    fn install(&mut self, file: Arc<File>) -> CallResult {
        let Then::Open { flags, number, .. } = self else { return Err(Errno::EIO) };
        let closes = *flags & open::CLOSE_ON_EXEC != 0;
        number.take().ok_or(Errno::EIO)?.fill(file, closes)
    }

    fn creates(&self) -> bool {
        matches!(self, Then::Open { flags, .. } if flags & open::CREATE != 0)
    }
}
