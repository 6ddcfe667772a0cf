//! What can go wrong.

use core::fmt;

/// Why an operation failed. A changing operation that fails has changed nothing, except where its
/// documentation says that it works in steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The directory has no such name.
    NotFound,
    /// The name exists already.
    Exists,
    /// A directory is needed here.
    NotDirectory,
    /// The inode is a directory.
    IsDirectory,
    /// The directory still has names.
    NotEmpty,
    /// No block is free, or no inode.
    NoSpace,
    /// A name has more than 255 bytes, or a link's target does not fit into a block.
    NameTooLong,
    /// A file cannot have this size, or an operation would change more than the journal holds.
    TooLarge,
    /// The inode has as many names as the format can count.
    TooManyLinks,
    /// The name is empty, has a slash or a zero byte, or is `.` or `..` where these are not
    /// possible; a directory would become its own descendant; the inode has no such property.
    Invalid,
    /// A directory cannot have a second name; an inode is immutable or append-only (`chattr +i`,
    /// `chattr +a`).
    NotPermitted,
    /// The inode number names no file: it never did, or the file is gone.
    Stale,
    /// The image uses a feature that this library does not implement; the name of the feature.
    Unsupported(&'static str),
    /// A structure on the disk contradicts itself; which one. `e2fsck` is needed.
    Corrupt(&'static str),
    /// The device failed.
    Device,
}

/// The result of every operation.
pub type Result<T> = core::result::Result<T, Error>;

impl Error {
    /// Linux's number of the error.
    pub const fn errno(self) -> i32 {
        match self {
            Error::NotFound => 2,
            Error::Exists => 17,
            Error::NotDirectory => 20,
            Error::IsDirectory => 21,
            Error::NotEmpty => 39,
            Error::NoSpace => 28,
            Error::NameTooLong => 36,
            Error::TooLarge => 27,
            Error::TooManyLinks => 31,
            Error::Invalid => 22,
            Error::NotPermitted => 1,
            Error::Stale => 116,
            Error::Unsupported(_) => 95,
            Error::Corrupt(_) => 117,
            Error::Device => 5,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotFound => to.write_str("no such file or directory"),
            Error::Exists => to.write_str("the name exists"),
            Error::NotDirectory => to.write_str("not a directory"),
            Error::IsDirectory => to.write_str("is a directory"),
            Error::NotEmpty => to.write_str("the directory is not empty"),
            Error::NoSpace => to.write_str("no space is left on the disk"),
            Error::NameTooLong => to.write_str("the name is too long"),
            Error::TooLarge => to.write_str("too large"),
            Error::TooManyLinks => to.write_str("too many links"),
            Error::Invalid => to.write_str("invalid argument"),
            Error::NotPermitted => to.write_str("not permitted"),
            Error::Stale => to.write_str("the inode names no file"),
            Error::Unsupported(what) => {
                write!(to, "the image uses a feature without support: {what}")
            }
            Error::Corrupt(what) => write!(to, "the file system is corrupted: {what}; run e2fsck"),
            Error::Device => to.write_str("the device failed"),
        }
    }
}

impl core::error::Error for Error {}
