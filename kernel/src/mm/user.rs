//! The kernel's access to a program's memory: through the direct map, after a walk of the program's
//! own table, never through the program's addresses.
//!
//! A [`UserRange`] is within the program's half of the address space; each access checks whether
//! the program itself could make it. Bytes are copied once and examined afterwards, because the
//! program may change them at any time.

use super::FaultError;
use super::address_space::AddressSpace;
use super::frames::FRAME_BYTES;
use crate::arch::{self, Access};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};

use cops_abi::Errno;
use cops_algorithms::user_range::{Part, UserRange};
use cops_fallible::{List, Text};

/// Maximum number of bytes of a string that are copied at once.
pub const STRING_PIECE_BYTES: usize = 256;

/// The place of the first zero, searched for by four words at a time: a path has up to 4 KiB.
fn first_zero(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const TOP_BITS: u64 = u64::from_le_bytes([0x80; 8]);
    let has_zero = |block: &[u8; 32]| {
        let (words, _) = block.as_chunks::<8>();
        let marks = words.iter().fold(0, |marks, word| {
            let word = u64::from_le_bytes(*word);
            marks | word.wrapping_sub(ONES) & !word
        });
        marks & TOP_BITS != 0
    };
    let (blocks, _) = bytes.as_chunks::<32>();
    let before = blocks.iter().position(has_zero).unwrap_or(blocks.len()) * 32;
    bytes[before..].iter().position(|&byte| byte == 0).map(|place| before + place)
}

impl AddressSpace {
    /// Copies the first `into.len()` bytes of `range` from the program.
    ///
    /// # Errors
    /// `NotAllowed` if the range is shorter, or if the program could not read all these bytes
    /// itself. A part of `into` may have been overwritten.
    pub fn copy_in(&self, range: UserRange, into: &mut [u8]) -> Result<(), FaultError> {
        let base = into.as_mut_ptr();
        self.for_each_part(range, Access::Read, into.len(), |part, page| {
            // SAFETY: `for_each_part` passes `part.length` bytes of one mapped page and an offset
            // with `part.offset + part.length <= into.len()`.
            unsafe { arch::copy_shared(base.add(part.offset), page, part.length) };
        })
    }

    /// Copies all of `range` to the start of `into`, and returns it, if that takes no more than one
    /// look at the program's table: the bytes fit, and are within one page that is there and that
    /// the program could read itself. `None` otherwise; [`Self::copy_in`] knows why.
    #[inline]
    pub fn copy_in_at_once<'a>(
        &self,
        range: UserRange,
        into: &'a mut [MaybeUninit<u8>],
    ) -> Option<&'a [u8]> {
        let in_page = range.address() % FRAME_BYTES;
        let into = into.get_mut(..range.len()).filter(|_| in_page + range.len() <= FRAME_BYTES)?;
        self.with_page_that_is_there(range.address(), Access::Read, |page| {
            // SAFETY: the page is mapped in the direct map during this call, and the range is
            // within it and as long as `into` (checked above), all of which is written.
            // `copy_shared` permits that the program writes to the page meanwhile.
            unsafe {
                arch::copy_shared(into.as_mut_ptr().cast(), page.add(in_page), into.len());
                &*into.assume_init_mut()
            }
        })
    }

    /// Copies `from` to the start of `range`.
    ///
    /// # Errors
    /// `NotAllowed` if the range is shorter, or if the program could not write all these bytes
    /// itself. A part of it may have been written.
    pub fn copy_out(&self, range: UserRange, from: &[u8]) -> Result<(), FaultError> {
        self.for_each_part(range, Access::Write, from.len(), |part, page| {
            // SAFETY: `for_each_part` passes `part.length` bytes of one mapped page and an offset
            // with `part.offset + part.length <= from.len()`. The kernel never makes references to
            // a program's page.
            unsafe { arch::copy_shared(page, from.as_ptr().add(part.offset), part.length) };
        })
    }

    /// The word at `place`, read in one step.
    ///
    /// # Errors
    /// `NotAllowed` if the word is not aligned or the program could not read it itself.
    pub fn load(&self, place: UserRange) -> Result<u32, FaultError> {
        let address = place.address();
        if !address.is_multiple_of(size_of::<u32>()) || place.len() < size_of::<u32>() {
            return Err(FaultError::NotAllowed);
        }
        self.with_page(address, Access::Read, |page| {
            let word = page.wrapping_add(address % FRAME_BYTES).cast();
            // SAFETY: the word is aligned and within one page, which stays mapped in the kernel
            // during this call. The kernel accesses it atomically only, and never makes another
            // reference to it.
            let word = unsafe { AtomicU32::from_ptr(word) };
            word.load(Ordering::SeqCst)
        })
    }

    /// Replaces the word at `place` by `new` if it is `current`, in one step for all harts. Returns
    /// what it was.
    ///
    /// # Errors
    /// `NotAllowed` if the word is not aligned or the program could not write it itself.
    pub fn compare_exchange(
        &self,
        place: UserRange,
        current: u32,
        new: u32,
    ) -> Result<u32, FaultError> {
        self.with_word(place, |word| {
            word.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst)
                .unwrap_or_else(|found| found)
        })
    }

    /// Sets `bits` in the word at `place`, in one step for all harts. Returns what it was.
    ///
    /// # Errors
    /// As [`Self::compare_exchange`].
    pub fn fetch_or(&self, place: UserRange, bits: u32) -> Result<u32, FaultError> {
        self.with_word(place, |word| word.fetch_or(bits, Ordering::SeqCst))
    }

    /// Calls `change` for the word at `place`.
    fn with_word<R>(
        &self,
        place: UserRange,
        change: impl FnOnce(&AtomicU32) -> R,
    ) -> Result<R, FaultError> {
        let address = place.address();
        if !address.is_multiple_of(size_of::<u32>()) || place.len() < size_of::<u32>() {
            return Err(FaultError::NotAllowed);
        }
        self.with_page(address, Access::Write, |page| {
            let word = page.wrapping_add(address % FRAME_BYTES).cast();
            // SAFETY: the word is aligned and within one page, which stays mapped in the kernel
            // during this call. The kernel accesses it atomically only, and never makes another
            // reference to it.
            change(unsafe { AtomicU32::from_ptr(word) })
        })
    }

    /// Copies the string at `address`, which ends before the first zero byte and has at most
    /// `max_bytes`.
    ///
    /// # Errors
    /// `EFAULT`; `ENAMETOOLONG` without a zero byte within that length; `EINVAL` if the bytes are
    /// not UTF-8; `ENOMEM`.
    pub fn copy_in_string(&self, address: usize, max_bytes: usize) -> Result<Text, Errno> {
        let mut bytes = List::new();
        loop {
            let before = bytes.len();
            // Four times as many bytes each time: a path takes three pieces, and most of it is not
            // moved again. One more than there may be is enough to find that out.
            let wanted = (4 * before).max(STRING_PIECE_BYTES).min(max_bytes + 1);
            bytes.try_resize(wanted, 0)?;
            let (piece, is_last) = self.copy_in_piece(address + before, &mut bytes[before..])?;
            let length = before + piece.len();
            if length > max_bytes {
                return Err(Errno::ENAMETOOLONG);
            }
            bytes.truncate(length);
            if is_last {
                return Text::from_utf8(bytes).ok_or(Errno::EINVAL);
            }
        }
    }

    /// Copies the piece of a string at `address` into `into`: at most up to the end of the page,
    /// because the next page may not be mapped and may not be needed. Returns it without the zero
    /// byte after the string, and whether there was one.
    ///
    /// # Errors
    /// `EFAULT`.
    pub fn copy_in_piece<'a>(
        &self,
        address: usize,
        into: &'a mut [u8],
    ) -> Result<(&'a [u8], bool), Errno> {
        let in_page = FRAME_BYTES - address % FRAME_BYTES;
        let length = in_page.min(into.len());
        let piece = &mut into[..length];
        self.copy_in(UserRange::new(address, piece.len()).ok_or(Errno::EFAULT)?, piece)?;
        let end = first_zero(piece);
        Ok((&piece[..end.unwrap_or(piece.len())], end.is_some()))
    }

    /// Calls `visit(part, pointer)` for the part of the first `bytes` bytes of `range` in each
    /// page. The page stays mapped during the call.
    fn for_each_part(
        &self,
        range: UserRange,
        access: Access,
        bytes: usize,
        mut visit: impl FnMut(Part, *mut u8),
    ) -> Result<(), FaultError> {
        if bytes > range.len() {
            return Err(FaultError::NotAllowed);
        }
        for part in range.prefix(bytes).parts() {
            let in_page = part.address % FRAME_BYTES;
            self.with_page(part.address, access, |page| visit(part, page.wrapping_add(in_page)))?;
        }
        Ok(())
    }
}
