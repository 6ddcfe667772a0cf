//! A program's memory as the kernel sees it: through the direct map, after walking the
//! program's own table, never by its addresses.
//!
//! A [`UserRange`] is what the program *says*; only copying or pinning finds out whether it
//! is true. Bytes are copied once and then looked at, since the program may change them at
//! any time.

use super::address_space::AddressSpace;
use super::frames::FRAME_BYTES;
use super::{FaultError, PinnedBuffer, layout};
use crate::arch::{self, Access};
use cops_abi::Errno;
use cops_fallible::{List, Text};

/// An allegation: "`length` bytes of mine lie at `address`".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserRange {
    address: usize,
    length: usize,
}

impl UserRange {
    /// Takes down what the program says. Nothing is checked.
    pub const fn new(address: usize, length: usize) -> Self {
        Self { address, length }
    }

    /// Copies the first `into.len()` bytes out of the program.
    ///
    /// # Errors
    /// `NotAllowed` if the range is shorter, or the program could not read all of them
    /// itself; part of `into` may have been overwritten.
    pub fn copy_in(self, space: &AddressSpace, into: &mut [u8]) -> Result<(), FaultError> {
        let base = into.as_mut_ptr();
        self.for_each_page(space, Access::Read, into.len(), |at, page, length| {
            // SAFETY: `length` bytes of one mapped page, and as many at `at` in `into`.
            unsafe { arch::copy_shared(base.add(at), page, length) };
        })
    }

    /// Copies `from` to the start of the range.
    ///
    /// # Errors
    /// `NotAllowed` if the range is shorter, or the program could not write all of it
    /// itself; part of it may have been written.
    pub fn copy_out(self, space: &AddressSpace, from: &[u8]) -> Result<(), FaultError> {
        self.for_each_page(space, Access::Write, from.len(), |at, page, length| {
            // SAFETY: as in `copy_in`; nobody has a reference into a program's page.
            unsafe { arch::copy_shared(page, from.as_ptr().add(at), length) };
        })
    }

    /// Copies in the string that ends with the first zero byte at or after `address`; it has
    /// at most `max_bytes` without that.
    ///
    /// # Errors
    /// `EFAULT`; `ENAMETOOLONG` if there is no zero byte soon enough; `EINVAL` if the bytes
    /// are not UTF-8; `ENOMEM`.
    pub fn copy_in_string(space: &AddressSpace, address: usize, max_bytes: usize) -> Result<Text, Errno> {
        let mut bytes = List::new();
        let mut at = address;
        loop {
            // To the end of the page, since the next may not be mapped and need not be.
            let in_page = FRAME_BYTES - at % FRAME_BYTES;
            let mut chunk = [0; 256];
            let chunk = &mut chunk[..in_page.min(256)];
            UserRange::new(at, chunk.len()).copy_in(space, chunk)?;
            let end = chunk.iter().position(|&byte| byte == 0);
            let part = &chunk[..end.unwrap_or(chunk.len())];
            if bytes.len() + part.len() > max_bytes {
                return Err(Errno::ENAMETOOLONG);
            }
            bytes.try_extend_from_slice(part)?;
            if end.is_some() {
                return Text::from_utf8(bytes).ok_or(Errno::EINVAL);
            }
            at += chunk.len();
        }
    }

    /// Holds the frames behind the range, as far as [`PinnedBuffer`] reaches, so that the
    /// kernel can use them later whatever the program does to its mappings.
    ///
    /// # Errors
    /// `NotAllowed` if the program itself could not make this access to all pinned bytes.
    pub fn pin(self, space: &AddressSpace, access: Access) -> Result<PinnedBuffer, FaultError> {
        PinnedBuffer::new(space, self.address, self.length, access)
    }

    /// Calls `visit(offset, pointer, length)` for the part of the first `bytes` bytes in
    /// each page; the page stays mapped for so long.
    fn for_each_page(
        self,
        space: &AddressSpace,
        access: Access,
        bytes: usize,
        mut visit: impl FnMut(usize, *mut u8, usize),
    ) -> Result<(), FaultError> {
        if bytes > self.length || !is_in_user_half(self.address, bytes) {
            return Err(FaultError::NotAllowed);
        }
        let mut done = 0;
        while done < bytes {
            let address = self.address + done;
            let offset = address % FRAME_BYTES;
            let length = (FRAME_BYTES - offset).min(bytes - done);
            space.with_page(address, access, |page| visit(done, page.wrapping_add(offset), length))?;
            done += length;
        }
        Ok(())
    }
}

/// Whether a range lies in the program's half at all, without wrapping around.
pub(super) fn is_in_user_half(address: usize, length: usize) -> bool {
    address.checked_add(length).is_some_and(|end| end <= layout::USER_END)
}
