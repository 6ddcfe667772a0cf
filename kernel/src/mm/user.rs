//! The kernel's access to a program's memory: through the direct map, after a walk of the program's
//! own table, never through the program's addresses.
//!
//! A [`UserRange`] is only what the program *claims*; copying or pinning checks whether it is true.
//! Bytes are copied once and examined afterwards, because the program may change them at any time.

use super::address_space::AddressSpace;
use super::frames::FRAME_BYTES;
use super::{FaultError, PinnedBuffer, layout};
use crate::arch::{self, Access};
use cops_abi::Errno;
use cops_fallible::{List, Text};

/// A claim of a program: "`length` bytes of my memory are at `address`".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserRange {
    address: usize,
    length: usize,
}

impl UserRange {
    /// Records the claim. Nothing is checked.
    pub const fn new(address: usize, length: usize) -> Self {
        Self { address, length }
    }

    /// Copies the first `into.len()` bytes from the program.
    ///
    /// # Errors
    /// `NotAllowed` if the range is shorter, or if the program could not read all these bytes
    /// itself. A part of `into` may have been overwritten.
    pub fn copy_in(self, space: &AddressSpace, into: &mut [u8]) -> Result<(), FaultError> {
        let base = into.as_mut_ptr();
        self.for_each_page(space, Access::Read, into.len(), |at, page, length| {
            // SAFETY: `for_each_page` passes `length` bytes of one mapped page and an offset `at`
            // with `at + length <= into.len()`.
            unsafe { arch::copy_shared(base.add(at), page, length) };
        })
    }

    /// Copies `from` to the start of the range.
    ///
    /// # Errors
    /// `NotAllowed` if the range is shorter, or if the program could not write all these bytes
    /// itself. A part of it may have been written.
    pub fn copy_out(self, space: &AddressSpace, from: &[u8]) -> Result<(), FaultError> {
        self.for_each_page(space, Access::Write, from.len(), |at, page, length| {
            // SAFETY: `for_each_page` passes `length` bytes of one mapped page and an offset `at`
            // with `at + length <= from.len()`. The kernel never makes references to a program's
            // page.
            unsafe { arch::copy_shared(page, from.as_ptr().add(at), length) };
        })
    }

    /// Copies the string at `address`, which ends before the first zero byte and has at most
    /// `max_bytes`.
    ///
    /// # Errors
    /// `EFAULT`; `ENAMETOOLONG` without a zero byte within that length; `EINVAL` if the bytes are
    /// not UTF-8; `ENOMEM`.
    pub fn copy_in_string(space: &AddressSpace, address: usize, max_bytes: usize) -> Result<Text, Errno> {
        let mut bytes = List::new();
        let mut at = address;
        loop {
            // At most to the end of the page, because the next page may not be mapped and may not
            // be needed.
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

    /// Pins the frames of the range, as far as a [`PinnedBuffer`] reaches. So the kernel can use
    /// them later even if the program changes its mappings.
    ///
    /// # Errors
    /// `NotAllowed` if the program itself could not make this access to all pinned bytes.
    pub fn pin(self, space: &AddressSpace, access: Access) -> Result<PinnedBuffer, FaultError> {
        PinnedBuffer::new(space, self.address, self.length, access)
    }

    /// Calls `visit(offset, pointer, length)` for the part of the first `bytes` bytes in each page.
    /// The page stays mapped during the call.
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

/// Whether a range is within the program's half, without wrapping around.
pub(super) fn is_in_user_half(address: usize, length: usize) -> bool {
    address.checked_add(length).is_some_and(|end| end <= layout::USER_END)
}
