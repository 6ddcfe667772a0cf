//! File systems that a process serves: implement [`FileSystem`], open a [`Server`], mount it, and
//! let it [`serve`](Server::serve).
//!
//! Files are *nodes*, known by numbers of the file system's choice, except 0. The kernel resolves
//! paths, and asks for one name in one directory at a time. Each request is handled by a coroutine
//! of its own, with the priority of the caller, and any number of them at a time. So the file
//! system has to lock what its operations share, with a lock that inherits priorities
//! ([`crate::sync::Mutex`]) where it is held across an `.await`.
//!
//! ```ignore
//! use cops::abi::file::{Status, mode};
//! use cops::fs::server::{Entries, FileSystem, Result, Server};
//!
//! /// One file, `hello`, in one directory.
//! struct Hello;
//!
//! const ROOT: u64 = 1;
//! const FILE: u64 = 2;
//! const TEXT: &[u8] = b"hello\n";
//!
//! impl FileSystem for Hello {
//!     async fn look_up(&self, directory: u64, name: &str) -> Result<Status> {
//!         match (directory, name) {
//!             (ROOT, "hello") => self.status(FILE).await,
//!             _ => Err(Errno::ENOENT),
//!         }
//!     }
//!
//!     async fn status(&self, node: u64) -> Result<Status> {
//!         let status = match node {
//!             ROOT => Status::new(mode::DIRECTORY, 0o555),
//!             _ => Status { size: TEXT.len() as u64, ..Status::new(mode::REGULAR, 0o444) },
//!         };
//!         Ok(Status { number: node, ..status })
//!     }
//!
//!     async fn read(&self, _node: u64, offset: u64, into: &mut [u8]) -> Result<usize> {
//!         let rest = TEXT.get(offset as usize..).unwrap_or_default();
//!         let count = rest.len().min(into.len());
//!         into[..count].copy_from_slice(&rest[..count]);
//!         Ok(count)
//!     }
//!
//!     async fn list(&self, _node: u64, after: u64, entries: &mut Entries) -> Result<()> {
//!         if after == 0 {
//!             entries.push(3, FILE, mode::REGULAR, "hello");
//!         }
//!         Ok(())
//!     }
//! }
//!
//! #[cops::main]
//! async fn main() -> cops::io::Result<()> {
//!     let server = Server::open().await?;
//!     server.mount("/disk", ROOT).await?;
//!     server.serve(Hello).await
//! }
//! ```
//!
//! A process that uses its own file system must do so asynchronously, and with more than one
//! coroutine: a synchronous call would wait for a coroutine that cannot run.

mod handlers;
mod message;
mod service;

use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use cops_abi::Errno;
use cops_abi::file::{Status, Time, Usage};
pub use cops_abi::served::PLACES_MAX;
use cops_abi::syscall as number;
pub use message::Entries;

use super::call::{self, Argument};
use super::{OpenOptions, Result as IoResult};
use crate::io::{AsFd, BorrowedFd, Fd};

/// The result of an operation: what the caller gets.
pub type Result<T> = core::result::Result<T, Errno>;

/// What changes of a node; `None` stays. If nothing changes, the operation fails if nothing can be
/// changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// The permissions.
    pub permissions: Option<u32>,
    /// The length. What is added are zeros.
    pub length: Option<u64>,
    /// When it was last read.
    pub accessed: Option<Time>,
    /// When it was last written.
    pub modified: Option<Time>,
}

/// The time of what is written now: [`Time::of_file`] of real time. The kernel's times of files
/// have the same steps, so that no time of a file becomes earlier.
#[must_use]
pub fn now() -> Time {
    let now = crate::time::since_1970();
    Time { seconds: now.as_secs() as i64, nanoseconds: now.subsec_nanos() }.of_file()
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Number of bytes.
    pub count: usize,
    /// Where they end in the file.
    pub end: u64,
}

/// A file system. Operations that are not implemented fail with `EROFS` if they would change
/// something, otherwise with `EOPNOTSUPP`.
///
/// A status has the number of its node and its type; the kernel puts in the number of the file
/// system. Names are not empty, and contain no slash.
#[allow(unused_variables, reason = "the names of arguments are documentation")]
pub trait FileSystem: Send + Sync + 'static {
    /// What `name` names in `directory`; also `..`, but not in the root. Counts as one use of the
    /// node, until [`Self::forget`].
    fn look_up(&self, directory: u64, name: &str) -> impl Future<Output = Result<Status>> + Send;

    /// What is known of a node.
    fn status(&self, node: u64) -> impl Future<Output = Result<Status>> + Send;

    /// How many bytes of a file, from the beginning on, can be written without more space on the
    /// disk, and are not protected. It counts only if the file system was mounted with
    /// [`Server::mount_keeping_writes`]; with 0, the first write of each page is a request. An
    /// error shows when the file is used.
    fn solid(&self, node: u64) -> impl Future<Output = u64> + Send {
        async { 0 }
    }

    /// Reads at `offset`; 0 at the end.
    fn read(
        &self,
        node: u64,
        offset: u64,
        into: &mut [u8],
    ) -> impl Future<Output = Result<usize>> + Send;

    /// Where on the disk the `length` bytes of a node at `offset` are, or fewer at its end, so that
    /// the kernel reads them: at most [`PLACES_MAX`] positions and numbers of bytes, multiples of
    /// 512 but for the last number. Only if the file system was mounted with a disk. `None`: they
    /// are not all there, and [`Self::read`] is called.
    ///
    /// The blocks must not be used for anything else before a [`change`](Self::change) of the
    /// length, and must be on the disk as [`Self::read`] would return them.
    fn places(
        &self,
        node: u64,
        offset: u64,
        length: usize,
    ) -> impl Future<Output = Option<Vec<(u64, u64)>>> + Send {
        async { None }
    }

    /// Lists entries of `directory` behind place `after`, 0 for the beginning, until
    /// [`Entries::push`] says that there is no room. Without `.` and `..`.
    fn list(
        &self,
        directory: u64,
        after: u64,
        entries: &mut Entries,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Writes at `offset`, or at the end.
    fn write(
        &self,
        node: u64,
        offset: Option<u64>,
        bytes: &[u8],
    ) -> impl Future<Output = Result<Written>> + Send {
        async { Err(Errno::EROFS) }
    }

    /// Writes at `offset` what the kernel has kept; the file was written at `time` the last time.
    fn write_kept(
        &self,
        node: u64,
        offset: u64,
        bytes: &[u8],
        time: Time,
    ) -> impl Future<Output = Result<Written>> + Send {
        async move { self.write(node, Some(offset), bytes).await }
    }

    /// Changes the status of a node.
    fn change(&self, node: u64, change: Change) -> impl Future<Output = Result<()>> + Send {
        async { Err(Errno::EROFS) }
    }

    /// Creates a file. `EEXIST` if there is something. Counts as one use of the file.
    fn create(
        &self,
        directory: u64,
        name: &str,
        permissions: u32,
    ) -> impl Future<Output = Result<Status>> + Send {
        async { Err(Errno::EROFS) }
    }

    /// Creates a directory, as [`Self::create`].
    fn make_directory(
        &self,
        directory: u64,
        name: &str,
        permissions: u32,
    ) -> impl Future<Output = Result<Status>> + Send {
        async { Err(Errno::EROFS) }
    }

    /// Creates a symbolic link to the path `target`, as [`Self::create`].
    fn make_link(
        &self,
        directory: u64,
        name: &str,
        target: &str,
    ) -> impl Future<Output = Result<Status>> + Send {
        async { Err(Errno::EROFS) }
    }

    /// The path to which a symbolic link leads.
    fn read_link(&self, node: u64) -> impl Future<Output = Result<String>> + Send {
        async { Err(Errno::EOPNOTSUPP) }
    }

    /// Gives `node`, which is no directory, one more name.
    fn link(
        &self,
        node: u64,
        directory: u64,
        name: &str,
    ) -> impl Future<Output = Result<()>> + Send {
        async { Err(Errno::EROFS) }
    }

    /// Removes a name of something that is no directory. A node without a name stays while it has
    /// a use.
    fn unlink(&self, directory: u64, name: &str) -> impl Future<Output = Result<()>> + Send {
        async { Err(Errno::EROFS) }
    }

    /// Removes an empty directory, as [`Self::unlink`].
    fn remove_directory(
        &self,
        directory: u64,
        name: &str,
    ) -> impl Future<Output = Result<()>> + Send {
        async { Err(Errno::EROFS) }
    }

    /// Gives `name` in directory `from` the name `new_name` in directory `to`, in the place of
    /// what has it; with `no_replace`, `EEXIST` if there is something. Atomic.
    fn rename(
        &self,
        from: (u64, &str),
        to: (u64, &str),
        no_replace: bool,
    ) -> impl Future<Output = Result<()>> + Send {
        async { Err(Errno::EROFS) }
    }

    /// Returns when what was written to `node` is durable.
    fn synchronise(&self, node: u64) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Returns when everything that was written is durable.
    fn synchronise_all(&self) -> impl Future<Output = Result<()>> + Send {
        async { Ok(()) }
    }

    /// Use and size.
    fn usage(&self) -> impl Future<Output = Result<Usage>> + Send {
        async { Ok(Usage::default()) }
    }

    /// The directory that `directory` is in, and its name there. Counts as one use of the
    /// directory above. The default searches `..` for it.
    fn place(&self, directory: u64) -> impl Future<Output = Result<(Status, String)>> + Send {
        async move {
            let parent = self.look_up(directory, "..").await?;
            let name = async {
                let mut after = 0;
                loop {
                    let mut entries = Entries::new(Entries::BYTES_MAX);
                    self.list(parent.number, after, &mut entries).await?;
                    if let Some(name) = entries.name_of(directory) {
                        return Ok(name);
                    }
                    after = entries.last_place().ok_or(Errno::ENOENT)?;
                }
            };
            match name.await {
                Ok(name) => Ok((parent, name)),
                Err(error) => {
                    self.forget(parent.number, 1).await;
                    Err(error)
                }
            }
        }
    }

    /// `count` uses of `node` have ended. Without a use, no open file, current directory or call
    /// has the node, and it can be freed if it has no name.
    fn forget(&self, node: u64, count: u64) -> impl Future<Output = ()> + Send {
        async {}
    }
}

/// The server's end of a file system.
#[derive(Debug)]
pub struct Server {
    fd: Fd,
}

impl Server {
    /// Opens `/dev/fs`.
    ///
    /// # Errors
    /// `EPERM` for all but the first process; `EMFILE`, `ENOMEM`.
    pub async fn open() -> IoResult<Self> {
        let file = OpenOptions::new().read(true).write(true).open("/dev/fs").await?;
        Ok(Self { fd: file.fd })
    }

    /// The server of a descriptor of `/dev/fs`, which another process has handed on.
    #[must_use]
    pub fn from_fd(fd: Fd) -> Self {
        Self { fd }
    }

    /// Puts the file system, of which the root has number `root`, at the directory `path`.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`; `EBUSY` if it is mounted already, or something is mounted there;
    /// `EINVAL` in another served file system; `ENOSPC`, `ENOMEM`.
    pub async fn mount(&self, path: &str, root: u64) -> IoResult<()> {
        self.mount_with(path, root, "").await
    }

    /// As [`Self::mount`], and the kernel keeps pages of files: a read of what it has is no
    /// request.
    ///
    /// For file systems of which the files change only by requests of this connection, and a read
    /// returns fewer bytes than asked for only at the end of a file. A number may be used
    /// again for what a request makes. The kernel's memory for this, a sixteenth of the machine's,
    /// is charged to the process that opened `/dev/fs`.
    ///
    /// # Errors
    /// As for [`Self::mount`].
    pub async fn mount_cached(&self, path: &str, root: u64) -> IoResult<()> {
        self.mount_with(path, root, ",keep=pages").await
    }

    /// As [`Self::mount_cached`], and the kernel keeps what is written, and sends it later, several
    /// pages with one request. The server promises in addition that a write within the bytes
    /// that [`FileSystem::solid`] counts needs no more space on the disk. It should call
    /// [`synchronise_all`](crate::fs::synchronise_all) now and then.
    ///
    /// # Errors
    /// As for [`Self::mount`].
    pub async fn mount_keeping_writes(&self, path: &str, root: u64) -> IoResult<()> {
        self.mount_with(path, root, ",keep=writes").await
    }

    /// As [`Self::mount_keeping_writes`], and the kernel reads the disk of the file system itself,
    /// where [`FileSystem::places`] says. `disk` is open for reading.
    ///
    /// # Errors
    /// As for [`Self::mount`]; `EINVAL` if `disk` is no disk.
    pub async fn mount_on_disk(&self, path: &str, root: u64, disk: BorrowedFd<'_>) -> IoResult<()> {
        self.mount_with(path, root, &format!(",keep=writes,disk={}", disk.raw())).await
    }

    async fn mount_with(&self, path: &str, root: u64, more: &str) -> IoResult<()> {
        let options = format!("fd={},root={root}{more}", self.fd.raw());
        let arguments = [
            Argument::path("")?,
            Argument::path(path)?,
            Argument::path("served")?,
            Argument::Number(0),
            Argument::path(&options)?,
        ];
        call::call(number::MOUNT, arguments).await.map(drop)
    }

    /// Serves `files` until nothing uses the file system any more: it has been unmounted, and no
    /// file of it is open.
    ///
    /// Each request is handled at the priority of its caller, also if that becomes more urgent
    /// later. The process is as urgent as the requests that the kernel has handed to it; it is most
    /// urgent if there are so many that the next one could not be handed to it.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub async fn serve(self, files: impl FileSystem) -> IoResult<()> {
        let service = Arc::new(service::Service::new(self.fd, files));
        service::serve(service).await
    }
}

impl AsFd for Server {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Removes the served file system at the directory `path`. Files of it stay open.
///
/// # Errors
/// `EPERM` for all but the first process; `EINVAL` if there is none.
pub async fn unmount(path: &str) -> IoResult<()> {
    call::call(number::UMOUNT2, [Argument::path(path)?, Argument::Number(0)]).await.map(drop)
}
