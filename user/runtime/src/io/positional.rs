//! Reading and writing at a position, and making what was written durable: for files and disks,
//! with any number of operations on one descriptor at a time.
//!
//! May touch: the buffers. See [`crate::call`] for why a read in flight owns its memory.
#![allow(unsafe_code)]

use core::fmt;

use cops_abi::errno::CallResult;
use cops_abi::syscall::{FSYNC, PREAD64, PWRITE64};

use super::operation::Buffer;
use super::{AsFd, BorrowedFd};
use crate::call::{Call, Mode, Operation, Request, Scratch};

/// Reads from `fd` at `offset` into `buffer`, without using its position. Returns the number of
/// bytes, 0 at the end, and the buffer. One call reads at most some 16 KiB.
///
/// Cancel-safe: a dropped read has no effect. The buffer is lost with it.
///
/// # Errors
/// The kernel's: `EBADF`, `ESPIPE`, `EINVAL`, `EIO` and so on.
pub fn read_at<B: Buffer>(fd: &impl AsFd, offset: u64, buffer: B) -> Call<ReadAt<'_, B>> {
    Call::new(ReadAt { fd: fd.as_fd(), offset, buffer: Some(buffer) })
}

/// Writes the beginning of `bytes` to `fd` at `offset`, without using its position. Returns the
/// number of bytes written, of at most some 16 KiB.
///
/// Not cancel-safe: a dropped write may have written.
///
/// # Errors
/// The kernel's: `EBADF`, `ESPIPE`, `EINVAL`, `ENOSPC`, `EIO` and so on.
pub fn write_at<'a>(fd: &'a impl AsFd, offset: u64, bytes: &'a [u8]) -> Call<WriteAt<'a>> {
    Call::new(WriteAt { fd: fd.as_fd(), offset, bytes })
}

/// Waits until everything that was written to `fd` before is durable. Cancel-safe.
///
/// # Errors
/// `EBADF`; `EINVAL` for a file that cannot be durable; `EIO`.
pub fn synchronise(fd: &impl AsFd) -> Call<Synchronise<'_>> {
    Call::new(Synchronise { fd: fd.as_fd() })
}

/// `pread64(fd, buffer, length, offset)` into memory that the operation owns meanwhile.
pub struct ReadAt<'f, B: Buffer> {
    fd: BorrowedFd<'f>,
    offset: u64,
    buffer: Option<B>,
}

impl<B: Buffer> fmt::Debug for ReadAt<'_, B> {
    /// Without the buffer: the kernel may be writing to it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("ReadAt");
        fields.field("fd", &self.fd).field("offset", &self.offset).finish_non_exhaustive()
    }
}

// SAFETY: in flight, the kernel writes only to memory of a `Buffer`, which this operation owns.
unsafe impl<B: Buffer> Operation for ReadAt<'_, B> {
    type Output = (CallResult, B);

    fn request(&mut self, _mode: Mode) -> Request {
        let (address, length) = match &mut self.buffer {
            Some(buffer) => {
                let memory = buffer.memory();
                (memory.cast::<u8>().expose_provenance(), memory.len())
            }
            None => (0, 0),
        };
        let fd = self.fd.raw() as usize;
        Request { number: PREAD64, arguments: [fd, address, length, self.offset as usize, 0, 0] }
    }

    fn finish(&mut self, result: CallResult, _scratch: &Scratch) -> Self::Output {
        match self.buffer.take() {
            Some(buffer) => (result, buffer),
            None => unreachable!("an operation finishes once"),
        }
    }
}

/// `pwrite64(fd, bytes, length, offset)`. As with [`WriteFrom`](super::WriteFrom), the kernel reads
/// the bytes where they are.
#[derive(Debug)]
pub struct WriteAt<'a> {
    fd: BorrowedFd<'a>,
    offset: u64,
    bytes: &'a [u8],
}

// SAFETY: the kernel writes nothing, and the memory that it reads stays mapped because the kernel
// has pinned the frames.
unsafe impl Operation for WriteAt<'_> {
    type Output = CallResult;

    fn request(&mut self, _mode: Mode) -> Request {
        let (address, length) = (self.bytes.as_ptr().expose_provenance(), self.bytes.len());
        let fd = self.fd.raw() as usize;
        Request { number: PWRITE64, arguments: [fd, address, length, self.offset as usize, 0, 0] }
    }

    fn finish(&mut self, result: CallResult, _scratch: &Scratch) -> CallResult {
        result
    }
}

/// `fsync(fd)`.
#[derive(Debug)]
pub struct Synchronise<'f> {
    fd: BorrowedFd<'f>,
}

// SAFETY: the kernel accesses no memory.
unsafe impl Operation for Synchronise<'_> {
    type Output = CallResult;

    fn request(&mut self, _mode: Mode) -> Request {
        Request { number: FSYNC, arguments: [self.fd.raw() as usize, 0, 0, 0, 0, 0] }
    }

    fn finish(&mut self, result: CallResult, _scratch: &Scratch) -> CallResult {
        result
    }
}
