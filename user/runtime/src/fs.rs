//! Files and directories, in the shape of `std::fs`. What may have to wait is asynchronous.
//!
//! The root image is read-only. `/tmp` can be written, and is empty after a boot. Other processes
//! can serve file systems ([`server`]). [`File::open`] and [`read_directory`] are synchronous: in a
//! served file system, the virtual CPU waits for the server; [`OpenOptions::open`] lets other
//! coroutines run meanwhile. The disk is a file, too, of which reads and writes wait:
//! [`io::read_at`](crate::io::read_at).
//!
//! # Cancel safety
//! A dropped call with a path may or may not have had its effect. A file that was opened for it is
//! closed.

mod call;
mod mapped;
pub mod server;

use alloc::string::String;
use alloc::vec::Vec;

use cops_abi::Errno;
use cops_abi::file::{Status, at, mode, open};
use cops_abi::syscall as number;

use crate::io::{
    AsFd, BorrowedFd, Error, ErrorType, Fd, Read, Result, Seek, SeekFrom, Write, c_string,
    implement_stream, text,
};
use crate::system;
use call::Argument;

pub use mapped::Mapped;

/// An open file.
#[derive(Debug)]
pub struct File {
    fd: Fd,
}

impl File {
    /// Opens `path` for reading.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`, `EMFILE`, `ENOMEM`; [`Error::ZeroByte`].
    pub fn open(path: &str) -> Result<Self> {
        Self::open_with(path, open::READ_ONLY)
    }

    /// Opens `path` for reading and writing.
    ///
    /// # Errors
    /// As [`File::open`], and `EROFS`, `EPERM`.
    pub fn open_for_writing(path: &str) -> Result<Self> {
        Self::open_with(path, open::READ_WRITE)
    }

    fn open_with(path: &str, flags: u32) -> Result<Self> {
        Ok(Self { fd: Fd::from_raw(system::open(&c_string(path)?, flags)? as i32) })
    }

    /// Opens `path` for writing; creates the file, or makes it empty.
    ///
    /// # Errors
    /// As [`OpenOptions::open`].
    pub async fn create(path: &str) -> Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path).await
    }

    /// What is known of the file.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub async fn metadata(&self) -> Result<Metadata> {
        let arguments = [Argument::Number(self.fd.raw() as usize), Argument::Status];
        call::status(number::FSTAT, arguments).await.map(Metadata)
    }

    /// Changes the length of the file. What is added are zeros.
    ///
    /// # Errors
    /// `EINVAL` if it is not open for writing, `EFBIG`, `ENOMEM`.
    pub async fn set_len(&self, length: u64) -> Result<()> {
        let fd = Argument::Number(self.fd.raw() as usize);
        let arguments = [fd, Argument::Number(length as usize)];
        call::call(number::FTRUNCATE, arguments).await.map(drop)
    }
}

/// How to open a file: nothing is set at the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenOptions {
    reads: bool,
    writes: bool,
    /// Flags besides the access mode.
    flags: u32,
}

impl OpenOptions {
    /// Without any option.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn set(mut self, flag: u32, is_set: bool) -> Self {
        self.flags = if is_set { self.flags | flag } else { self.flags & !flag };
        self
    }

    /// The file can be read.
    #[must_use]
    pub fn read(mut self, is_set: bool) -> Self {
        self.reads = is_set;
        self
    }

    /// The file can be written.
    #[must_use]
    pub fn write(mut self, is_set: bool) -> Self {
        self.writes = is_set;
        self
    }

    /// The file can be written, and each write goes to its end.
    #[must_use]
    pub fn append(self, is_set: bool) -> Self {
        self.set(open::APPEND, is_set)
    }

    /// The file is made empty.
    #[must_use]
    pub fn truncate(self, is_set: bool) -> Self {
        self.set(open::TRUNCATE, is_set)
    }

    /// The file is created if it does not exist.
    #[must_use]
    pub fn create(self, is_set: bool) -> Self {
        self.set(open::CREATE, is_set)
    }

    /// The file is created, and must not exist.
    #[must_use]
    pub fn create_new(self, is_set: bool) -> Self {
        self.set(open::CREATE | open::EXCLUSIVE, is_set)
    }

    /// Opens the file at `path`.
    ///
    /// # Errors
    /// `ENOENT`, `EEXIST`, `ENOTDIR`, `EISDIR`, `EROFS`, `ELOOP`, `ENAMETOOLONG`, `EMFILE`,
    /// `ENOSPC`, `ENOMEM`; [`Error::ZeroByte`].
    pub async fn open(self, path: &str) -> Result<File> {
        const PERMISSIONS: usize = 0o666;
        let access = match (self.reads, self.writes || self.flags & open::APPEND != 0) {
            (true, true) => open::READ_WRITE,
            (false, true) => open::WRITE_ONLY,
            _ => open::READ_ONLY,
        };
        let flags = access | self.flags | open::CLOSE_ON_EXEC;
        let arguments = [
            Argument::Here,
            Argument::path(path)?,
            Argument::Number(flags as usize),
            Argument::Number(PERMISSIONS),
        ];
        let fd = call::call(number::OPENAT, arguments).await?;
        Ok(File { fd: Fd::from_raw(fd as i32) })
    }
}

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metadata(Status);

impl Metadata {
    /// Its size in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.size == 0
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.0.kind() {
            mode::REGULAR => Kind::File,
            mode::DIRECTORY => Kind::Directory,
            _ => Kind::Other,
        }
    }

    /// All that the kernel knows.
    #[must_use]
    pub fn status(&self) -> &Status {
        &self.0
    }
}

/// A call with one path from the current directory on, and a number.
async fn with_path(number: usize, path: &str, more: usize) -> Result<()> {
    let arguments = [Argument::Here, Argument::path(path)?, Argument::Number(more)];
    call::call(number, arguments).await.map(drop)
}

/// What is known of the file at `path`, through symbolic links.
///
/// # Errors
/// `ENOENT`, `ENOTDIR`, `ELOOP`, `ENAMETOOLONG`, `ENOMEM`; [`Error::ZeroByte`].
pub async fn metadata(path: &str) -> Result<Metadata> {
    let arguments = [Argument::Here, Argument::path(path)?, Argument::Status, Argument::Number(0)];
    call::status(number::NEWFSTATAT, arguments).await.map(Metadata)
}

/// Creates a directory.
///
/// # Errors
/// `EEXIST`, `ENOENT`, `ENOTDIR`, `EROFS`, `ENOSPC`, `ENOMEM`; [`Error::ZeroByte`].
pub async fn create_dir(path: &str) -> Result<()> {
    const PERMISSIONS: usize = 0o777;
    with_path(number::MKDIRAT, path, PERMISSIONS).await
}

/// Makes everything durable that was written to any file system.
///
/// # Errors
/// `ENOMEM`.
pub async fn synchronise_all() -> Result<()> {
    call::call(number::SYNC, []).await.map(drop)
}

/// Removes a file, or a symbolic link. The contents stay as long as the file is open.
///
/// # Errors
/// `ENOENT`, `ENOTDIR`, `EISDIR`, `EROFS`, `ENOMEM`; [`Error::ZeroByte`].
pub async fn remove_file(path: &str) -> Result<()> {
    with_path(number::UNLINKAT, path, 0).await
}

/// Removes an empty directory.
///
/// # Errors
/// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, `EBUSY`, `EROFS`, `ENOMEM`; [`Error::ZeroByte`].
pub async fn remove_dir(path: &str) -> Result<()> {
    with_path(number::UNLINKAT, path, at::REMOVE_DIRECTORY).await
}

/// Gives what is at `from` the path `to`, in the place of what is there. Atomic.
///
/// # Errors
/// `ENOENT`, `ENOTDIR`, `EISDIR`, `ENOTEMPTY`, `EINVAL`, `EXDEV` to another file system, `EROFS`,
/// `ENOSPC`, `ENOMEM`; [`Error::ZeroByte`].
pub async fn rename(from: &str, to: &str) -> Result<()> {
    let (from, to) = (Argument::path(from)?, Argument::path(to)?);
    let arguments = [Argument::Here, from, Argument::Here, to, Argument::Number(0)];
    call::call(number::RENAMEAT2, arguments).await.map(drop)
}

/// Writes `contents` to the file at `path`, which is created or replaced. Not cancel-safe: a part
/// may have been written.
///
/// # Errors
/// As [`OpenOptions::open`].
pub async fn write(path: &str, contents: &[u8]) -> Result<()> {
    File::create(path).await?.write_all(contents).await
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl ErrorType for File {
    type Error = Error;
}

implement_stream!(File: Read + Write);

impl Seek for File {
    /// Changes the position in the file. Returns the new one, in bytes from the beginning.
    async fn seek(&mut self, position: SeekFrom) -> Result<u64> {
        let (offset, whence) = match position {
            SeekFrom::Start(offset) => (i64::try_from(offset).map_err(|_| Errno::EINVAL)?, 0),
            SeekFrom::Current(offset) => (offset, 1),
            SeekFrom::End(offset) => (offset, 2),
        };
        Ok(system::seek(self.fd.raw(), offset, whence)? as u64)
    }
}

/// The contents of the file at `path`.
///
/// # Errors
/// As [`File::open`], and `EISDIR`.
pub async fn read(path: &str) -> Result<Vec<u8>> {
    const STEP_BYTES: usize = 4096;
    let mut file = File::open(path)?;
    let mut contents = Vec::new();
    let mut length = 0;
    loop {
        contents.try_reserve(STEP_BYTES).map_err(|_| Errno::ENOMEM)?;
        contents.resize(length + STEP_BYTES, 0);
        let count = file.read(contents.get_mut(length..).unwrap_or_default()).await?;
        length += count;
        contents.truncate(length);
        if count == 0 {
            return Ok(contents);
        }
    }
}

/// The type of a directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// Any other type.
    Other,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryEntry {
    /// Its name within the directory. Bytes that are not UTF-8 are replaced.
    pub name: String,
    /// Its type.
    pub kind: Kind,
}

/// The entries of the directory at `path`, in the kernel's order.
///
/// # Errors
/// As [`File::open`], and `ENOTDIR`.
pub fn read_directory(path: &str) -> Result<Vec<DirectoryEntry>> {
    let directory = File::open(path)?;
    let mut buffer = [0; 1024];
    let mut entries = Vec::new();
    loop {
        let count = system::directory_entries(directory.fd.raw(), &mut buffer)?;
        let mut records = buffer.get(..count).unwrap_or(&buffer);
        if records.is_empty() {
            return Ok(entries);
        }
        while let Some((name, kind, rest)) = take_record(records) {
            if name != b"." && name != b".." {
                entries.try_reserve(1).map_err(|_| Errno::ENOMEM)?;
                entries.push(DirectoryEntry { name: text(name)?, kind });
            }
            records = rest;
        }
    }
}

/// Parses one of Linux's `linux_dirent64`: inode, offset, record length, type, zero-terminated
/// name. Returns the name, the type, and the records behind it.
fn take_record(records: &[u8]) -> Option<(&[u8], Kind, &[u8])> {
    const LENGTH_AT: usize = 16;
    const TYPE_AT: usize = 18;
    const NAME_AT: usize = 19;
    let length = usize::from(u16::from_le_bytes(*records.get(LENGTH_AT..)?.first_chunk()?));
    let (record, rest) = records.split_at_checked(length)?;
    let kind = match record.get(TYPE_AT)? {
        8 => Kind::File,
        4 => Kind::Directory,
        _ => Kind::Other,
    };
    let name = record.get(NAME_AT..)?.split(|&byte| byte == 0).next()?;
    Some((name, kind, rest))
}
