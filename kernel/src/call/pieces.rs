//! The program's memory of a long transfer: one range, or the buffers of an array such as that of
//! `writev`.
//!
//! The array stays in the program's memory, and its entries are read as the transfer goes on: a
//! copy would be 16 KiB of the kernel's memory for each thread. The program may change them
//! meanwhile; then other bytes of its own are moved, and never more than the call began with.
#![forbid(unsafe_code)]

use cops_abi::Errno;
use cops_abi::syscall::BUFFERS_MAX;

use crate::mm::{AddressSpace, UserRange};

/// Bytes of an entry of the array: address and length.
pub const ENTRY_BYTES: usize = 16;

/// Number of entries that are copied at once.
const COPIED: usize = 32;

/// What is left of the memory of a transfer.
#[derive(Clone, Copy)]
pub struct Pieces {
    /// What is left of the buffer that comes next.
    current: UserRange,
    /// The entries of the buffers after it.
    entries: UserRange,
    /// The number of bytes that are left.
    length: usize,
}

impl Pieces {
    /// One range.
    pub fn of_range(range: UserRange) -> Self {
        Self { current: range, entries: range.prefix(0), length: range.len() }
    }

    /// The buffers of these entries, which together have `length` bytes.
    pub fn of_buffers(entries: UserRange, length: usize) -> Self {
        Self { current: entries.prefix(0), entries, length }
    }

    /// The buffers of an array of `count` entries at `address`.
    ///
    /// # Errors
    /// `EMSGSIZE` for more than [`BUFFERS_MAX`], `EINVAL` for more bytes than a call can report;
    /// `EFAULT`.
    pub fn of_array(space: &AddressSpace, address: usize, count: usize) -> Result<Self, Errno> {
        if count > BUFFERS_MAX {
            return Err(Errno::EMSGSIZE);
        }
        let entries = UserRange::new(address, count * ENTRY_BYTES).ok_or(Errno::EFAULT)?;
        let (mut bytes, mut rest, mut total) = ([0; ENTRY_BYTES * COPIED], entries, 0_usize);
        while !rest.is_empty() {
            let part = &mut bytes[..rest.len().min(ENTRY_BYTES * COPIED)];
            space.copy_in(rest, part)?;
            rest = rest.after(part.len());
            for [_, length] in part.as_chunks::<8>().0.as_chunks::<2>().0 {
                let sum = total.checked_add(usize::from_le_bytes(*length));
                total = sum.filter(|&sum| isize::try_from(sum).is_ok()).ok_or(Errno::EINVAL)?;
            }
        }
        Ok(Self::of_buffers(entries, total))
    }

    /// The number of bytes that are left.
    pub fn len(&self) -> usize {
        self.length
    }

    /// The number of entries that have not been read.
    pub fn entry_count(&self) -> usize {
        self.entries.len() / ENTRY_BYTES
    }

    /// Whether none are left.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Nothing more is to be moved.
    pub fn end(&mut self) {
        self.length = 0;
    }

    /// Goes behind the next piece, of at most `bytes`, and returns it. `None`: there is none among
    /// the next `entries` entries, of which it takes off those that it has read.
    ///
    /// # Errors
    /// `EFAULT` for an entry that cannot be read, or that is not the program's memory.
    pub fn take(
        &mut self,
        space: &AddressSpace,
        bytes: usize,
        entries: &mut usize,
    ) -> Result<Option<UserRange>, Errno> {
        while self.current.is_empty() {
            if self.entries.is_empty() {
                self.length = 0;
            }
            if self.length == 0 || *entries == 0 {
                return Ok(None);
            }
            *entries -= 1;
            let mut entry = [[0; 8]; 2];
            space.copy_in(self.entries.prefix(ENTRY_BYTES), entry.as_flattened_mut())?;
            self.entries = self.entries.after(ENTRY_BYTES);
            let [address, length] = entry.map(usize::from_le_bytes);
            self.current = UserRange::new(address, length).ok_or(Errno::EFAULT)?;
        }
        let piece = self.current.prefix(bytes.min(self.length));
        self.current = self.current.after(piece.len());
        self.length -= piece.len();
        Ok(Some(piece))
    }

    /// Goes on by `bytes`, which are among the pieces of the next `entries` entries.
    ///
    /// # Errors
    /// As for [`Self::take`].
    pub fn advance(
        &mut self,
        space: &AddressSpace,
        bytes: usize,
        mut entries: usize,
    ) -> Result<(), Errno> {
        let mut left = bytes;
        while left > 0 {
            match self.take(space, left, &mut entries)? {
                Some(piece) => left -= piece.len(),
                None => break,
            }
        }
        Ok(())
    }
}
