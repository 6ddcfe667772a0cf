//! Shared mappings of files.
//!
//! Other processes, and calls, may write to a file while it is mapped. So a mapping is never a
//! slice: bytes are copied out of it and into it, with atomic accesses.
//!
//! May touch: the memory of its mapping.
#![allow(unsafe_code)]

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use cops_abi::layout::PAGE_BYTES;
use cops_abi::syscall::{map_flags, protection, sync_flags};
use cops_abi::{Errno, syscall as number};

use super::File;
use super::call::{Argument, call};
use crate::io::{AsFd, Result};
use crate::system;

/// A part of a file in memory. Dropping it unmaps it; what was written stays in the file, and is
/// durable some time after that, or after [`Mapped::synchronise`].
#[derive(Debug)]
pub struct Mapped {
    start: usize,
    length: usize,
}

impl File {
    /// Maps `length` bytes of the file at `offset`, a multiple of 4096, to be read and written. The
    /// file must be open for both, and bytes behind its end must not be accessed: that ends the
    /// process, as an access to unmapped memory does.
    ///
    /// Waits until the bytes are in memory, if a process serves the file. Cancel-safe.
    ///
    /// # Errors
    /// `EACCES` if the file is not open for reading and writing; `EINVAL` for a length of 0 or
    /// another offset; `ENODEV` if it cannot be mapped; `ENOMEM`; `EIO`.
    pub async fn map(&self, offset: u64, length: usize) -> Result<Mapped> {
        let arguments = [
            Argument::Number(0),
            Argument::Number(length),
            Argument::Number(protection::READ | protection::WRITE),
            Argument::Number(map_flags::SHARED),
            Argument::Number(self.as_fd().raw() as usize),
            Argument::Number(usize::try_from(offset).map_err(|_| Errno::EOVERFLOW)?),
        ];
        Ok(Mapped::new(call(number::MMAP, arguments).await?, length))
    }
}

impl Mapped {
    /// The mapping that a call has made.
    pub(super) fn new(start: usize, length: usize) -> Self {
        Self { start, length }
    }

    /// Its length in bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Copies the bytes at `at` out of it. Each aligned word of 8 bytes is read at once.
    ///
    /// # Panics
    /// If they are not within it.
    pub fn read_at(&self, at: usize, into: &mut [u8]) {
        self.check(at, into.len());
        let mut done = 0;
        while done < into.len() {
            let rest = &mut into[done..];
            if let Some(word) = rest.first_chunk_mut()
                && let Some(place) = self.word(at + done)
            {
                *word = place.load(Relaxed).to_ne_bytes();
                done += 8;
            } else {
                rest[0] = self.byte(at + done).load(Relaxed);
                done += 1;
            }
        }
    }

    /// Copies `bytes` to `at`. Each aligned word of 8 bytes is written at once.
    ///
    /// # Panics
    /// If they are not within it.
    pub fn write_at(&self, at: usize, bytes: &[u8]) {
        self.check(at, bytes.len());
        let mut done = 0;
        while done < bytes.len() {
            let rest = &bytes[done..];
            if let Some(word) = rest.first_chunk()
                && let Some(place) = self.word(at + done)
            {
                place.store(u64::from_ne_bytes(*word), Relaxed);
                done += 8;
            } else {
                self.byte(at + done).store(rest[0], Relaxed);
                done += 1;
            }
        }
    }

    /// Waits until everything that was written before is durable. Cancel-safe.
    ///
    /// # Errors
    /// `EIO`, `ENOSPC`, and other errors of the server of the file; what was written stays in
    /// memory.
    pub async fn synchronise(&self) -> Result<()> {
        let arguments = [
            Argument::Number(self.start),
            Argument::Number(self.length),
            Argument::Number(sync_flags::SYNC),
        ];
        call(number::MSYNC, arguments).await.map(drop)
    }

    fn check(&self, at: usize, length: usize) {
        assert!(
            at <= self.length && length <= self.length - at,
            "{length} bytes at {at} of a mapping of {}",
            self.length
        );
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        let place = core::ptr::with_exposed_provenance(self.start + at);
        // SAFETY: `check` has found that the byte is within the mapping, which exists as long as
        // `self`. It is accessed only with atomic operations, here and by other processes.
        unsafe { &*place }
    }

    /// The word at `at`, if that is aligned. All of it is within the mapping: the caller has that
    /// many bytes left.
    fn word(&self, at: usize) -> Option<&AtomicU64> {
        if !at.is_multiple_of(8) {
            return None;
        }
        let place = core::ptr::with_exposed_provenance(self.start + at);
        // SAFETY: as in `byte`, and the mapping begins at a page, so the word is aligned.
        Some(unsafe { &*place })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let start = core::ptr::with_exposed_provenance_mut(self.start);
        if let Some(start) = NonNull::new(start) {
            // SAFETY: the kernel has made the mapping for this value alone. References into it
            // borrow `self`, so there are none.
            unsafe { system::unmap(start, self.length.next_multiple_of(PAGE_BYTES)) };
        }
    }
}
