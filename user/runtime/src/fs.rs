//! Files and directories. The root image is in memory and read-only. The disk is a file, too, of
//! which reads and writes wait: [`io::read_at`](crate::io::read_at).

use alloc::ffi::CString;
use alloc::string::String;
use alloc::vec::Vec;

use cops_abi::file::open as flags;

use crate::io::{
    AsFd, BorrowedFd, Error, ErrorType, Fd, Read, Result, Seek, SeekFrom, implement_stream,
};
use crate::system;

/// An open file.
#[derive(Debug)]
pub struct File {
    fd: Fd,
}

impl File {
    /// Opens `path` for reading.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`, `EMFILE`; [`Error::ZeroByte`].
    pub fn open(path: &str) -> Result<Self> {
        Self::open_with(path, flags::READ_ONLY)
    }

    /// Opens `path` for reading and writing.
    ///
    /// # Errors
    /// As [`File::open`], and `EROFS`, `EPERM`.
    pub fn open_for_writing(path: &str) -> Result<Self> {
        Self::open_with(path, flags::READ_WRITE)
    }

    fn open_with(path: &str, flags: u32) -> Result<Self> {
        let path = CString::new(path).map_err(|_| Error::ZeroByte)?;
        Ok(Self { fd: Fd::from_raw(system::open(&path, flags)? as i32) })
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl ErrorType for File {
    type Error = Error;
}

implement_stream!(File: Read);

impl Seek for File {
    /// Changes the position in the file. Returns the new one, in bytes from the beginning.
    async fn seek(&mut self, position: SeekFrom) -> Result<u64> {
        let (offset, whence) = match position {
            SeekFrom::Start(offset) => {
                (i64::try_from(offset).map_err(|_| cops_abi::Errno::EINVAL)?, 0)
            }
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
        while let Some((entry, rest)) = take_record(records) {
            entries.extend(entry);
            records = rest;
        }
    }
}

/// Parses one of Linux's `linux_dirent64`: inode, offset, record length, type, zero-terminated
/// name. `.` and `..` are skipped.
fn take_record(records: &[u8]) -> Option<(Option<DirectoryEntry>, &[u8])> {
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
    let entry = DirectoryEntry { name: String::from_utf8_lossy(name).into_owned(), kind };
    Some(((entry.name != "." && entry.name != "..").then_some(entry), rest))
}
