//! What a path names: the interface between the calls on files and the file systems.
//!
//! An operation is an *attempt*: it is completed and returns its result, or it has to wait and has
//! changed nothing. An operation that has to wait prepares a request in the [`Ask`] of the call,
//! which sends it and attempts again when it is woken (`fs/served`). File systems in memory never
//! wait. `identity`, `kind` and `device` never wait either.

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::file::{Status, Time, Usage, mode};
use cops_fallible::Text;

use super::served::{Ask, ServedNode};
use crate::mm::quota::Family;
use crate::mm::{MemoryObject, PinnedBuffer};

/// The result of an attempt; `None` if the operation has to wait.
pub type Attempt<T> = Option<Result<T, Errno>>;

/// A node, shared by open files, current directories and calls.
pub type NodeRef = Arc<dyn Node>;

/// A device, of which the node is only the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Is empty, and takes everything.
    Null,
    /// Has zeros without end.
    Zero,
    /// Has zeros without end, and no room.
    Full,
    /// Has random numbers without end.
    Random,
    /// The console.
    Console,
    /// The disk.
    Disk,
    /// A new connection for a process that serves a file system.
    FileServer,
}

/// What is created.
pub enum New<'a> {
    /// A directory.
    Directory,
    /// A file without contents.
    File,
    /// A symbolic link to this path.
    Link(&'a str),
}

/// What changes of a status; `None` stays.
#[derive(Clone, Copy, Debug, Default)]
pub struct Change {
    /// The permissions.
    pub permissions: Option<u32>,
    /// When it was last read.
    pub accessed: Option<Time>,
    /// When it was last written.
    pub modified: Option<Time>,
}

impl Change {
    /// Whether nothing changes: it only asks whether something could.
    pub fn is_empty(&self) -> bool {
        self.permissions.is_none() && self.accessed.is_none() && self.modified.is_none()
    }
}

/// What a listing has found.
pub enum Listed {
    /// There are no more entries.
    End,
    /// There is no room for the next one.
    NoRoom,
    /// So many bytes of records. The listing goes on behind this place.
    Records { bytes: usize, place: u64 },
}

/// A file, directory, symbolic link or device of a file system.
///
/// `payer` is charged for the memory that an operation takes.
pub trait Node: Send + Sync {
    /// The number of its file system, and its own in that.
    fn identity(&self) -> (u64, u64);

    /// Its type: one of [`mode`].
    fn kind(&self) -> u32;

    /// What is known of it.
    fn status(&self, ask: &mut Ask) -> Attempt<Status>;

    /// The device that it names.
    fn device(&self) -> Option<Device> {
        None
    }

    /// The same node, if a process serves its file system.
    fn served(&self) -> Option<&ServedNode> {
        None
    }

    /// Reads at `offset`; 0 at the end. Of a file system in memory.
    fn read(&self, _offset: u64, _buffer: &PinnedBuffer) -> Attempt<usize> {
        Some(Err(Errno::EISDIR))
    }

    /// The bytes of a file that never change, if it is one.
    fn image(&self) -> Option<&'static [u8]> {
        None
    }

    /// The same node, as something that can be mapped.
    ///
    /// # Errors
    /// `ENODEV` if it cannot.
    fn object(self: Arc<Self>) -> Result<Arc<dyn MemoryObject>, Errno> {
        Err(Errno::ENODEV)
    }

    /// The same node, for a mapping that shares its pages with others.
    ///
    /// # Errors
    /// `ENODEV` if it cannot, `ENOMEM`.
    fn shared_object(self: Arc<Self>) -> Result<Arc<dyn MemoryObject>, Errno> {
        Err(Errno::ENODEV)
    }

    /// Like [`Self::read`], into memory of the kernel: for a program that is loaded.
    fn read_into(&self, _offset: u64, _bytes: &mut [u8]) -> Attempt<usize> {
        Some(Err(Errno::EACCES))
    }

    /// Writes at `offset`, or at the end. Returns where the written bytes end, and their number. Of
    /// a file system in memory.
    fn write(
        &self,
        _offset: Option<u64>,
        _buffer: &PinnedBuffer,
        _payer: Family,
    ) -> Attempt<(u64, usize)> {
        Some(Err(Errno::EISDIR))
    }

    /// Changes the length.
    fn resize(self: Arc<Self>, _length: u64, _ask: &mut Ask) -> Attempt<()> {
        Some(Err(Errno::EINVAL))
    }

    /// Returns when what was written survives a loss of power.
    fn synchronise(&self, _ask: &mut Ask) -> Attempt<()> {
        Some(Ok(()))
    }

    /// The same of everything in its file system.
    fn synchronise_all(&self, _ask: &mut Ask) -> Attempt<()> {
        Some(Ok(()))
    }

    /// Changes the status.
    fn change(&self, change: Change, ask: &mut Ask) -> Attempt<()>;

    /// What `name` names in this directory, also `.` and `..`; `..` of the root is the root.
    fn look_up(&self, _name: &str, _ask: &mut Ask) -> Attempt<NodeRef> {
        Some(Err(Errno::ENOTDIR))
    }

    /// Creates `name` in this directory.
    fn make(
        &self,
        _name: &str,
        _new: New<'_>,
        _permissions: u32,
        _payer: Family,
        _ask: &mut Ask,
    ) -> Attempt<NodeRef> {
        Some(Err(Errno::ENOTDIR))
    }

    /// Gives `node`, of the same file system, another name, in this directory.
    fn link(&self, _name: &str, _node: &NodeRef, _payer: Family, _ask: &mut Ask) -> Attempt<()> {
        Some(Err(Errno::ENOTDIR))
    }

    /// Removes a name: of an empty directory if `of_directory`, otherwise of something else.
    fn unlink(&self, _name: &str, _of_directory: bool, _ask: &mut Ask) -> Attempt<()> {
        Some(Err(Errno::ENOTDIR))
    }

    /// Gives what has this name the name `new_name` in directory `to` of the same file system, in
    /// the place of what has that name, unless `no_replace`. Atomic.
    fn rename(
        &self,
        _name: &str,
        (_to, _new_name): (&NodeRef, &str),
        _no_replace: bool,
        _payer: Family,
        _ask: &mut Ask,
    ) -> Attempt<()> {
        Some(Err(Errno::ENOTDIR))
    }

    /// Puts entries of this directory behind a place into `records`, at least one, as Linux's
    /// `dirent64`; places 0 and 1 are the beginning. Without `.` and `..`.
    fn list(&self, _after: u64, _records: &mut [u8], _ask: &mut Ask) -> Attempt<Listed> {
        Some(Err(Errno::ENOTDIR))
    }

    /// The directory that this directory is in, and its name there; `None` for the root.
    fn place(&self, _ask: &mut Ask) -> Attempt<Option<(NodeRef, Text)>> {
        Some(Err(Errno::ENOTDIR))
    }

    /// The node to which a symbolic link leads, if it is not found by the path. Never waits.
    ///
    /// # Errors
    /// `EACCES`, `ENOENT`.
    fn destination(&self, _ask: &Ask) -> Result<Option<NodeRef>, Errno> {
        Ok(None)
    }

    /// Whether the process that looked it up may open it.
    ///
    /// # Errors
    /// `EACCES`.
    fn may_open(&self) -> Result<(), Errno> {
        Ok(())
    }

    /// The path to which a symbolic link leads.
    fn target(&self, _ask: &mut Ask) -> Attempt<Text> {
        Some(Err(Errno::EINVAL))
    }

    /// Use and size of its file system.
    fn usage(&self, ask: &mut Ask) -> Attempt<Usage>;
}

/// Whether `node` is a directory.
pub fn is_directory(node: &NodeRef) -> bool {
    node.kind() == mode::DIRECTORY
}
