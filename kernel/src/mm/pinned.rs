//! Programs' buffers, pinned by references to their frames.
//!
//! A call in flight reads or writes the frame that the address referred to when the call was made,
//! or when this part of it began.
//! If the program unmaps it in the meantime, the frame stays allocated, without being mapped, until
//! the call drops its reference. So a late completion can never write into memory that is used for
//! something else.

use super::address_space::AddressSpace;
use super::frames::{FRAME_BYTES, Frame};
use super::{FaultError, OutOfMemory};
use crate::arch::Access;
use core::mem::MaybeUninit;
use core::sync::atomic::AtomicU32;

use cops_algorithms::user_range::UserRange;

/// The first part of a program's buffer, pinned.
#[derive(Debug)]
pub struct PinnedBuffer {
    frames: [Option<Frame>; Self::MAX_FRAMES],
    /// Where the buffer begins in the first frame.
    offset: u16,
    /// Whether the frames are the kernel's own.
    is_copy: bool,
    length: u32,
}

const _: () = assert!(size_of::<PinnedBuffer>() <= 32);

impl PinnedBuffer {
    /// How many frames one buffer can have: enough for any 16 KiB, whatever their alignment.
    pub const MAX_FRAMES: usize = 5;

    /// Pins the part of `range` that fits into [`Self::MAX_FRAMES`] frames. So the kernel can use
    /// them later even if the program changes its mappings.
    ///
    /// # Errors
    /// `NotAllowed` if the program itself could not make this access to all pinned bytes.
    pub fn new(space: &AddressSpace, range: UserRange, access: Access) -> Result<Self, FaultError> {
        let offset = range.address() % FRAME_BYTES;
        let range = range.prefix(Self::MAX_FRAMES * FRAME_BYTES - offset);
        let mut buffer = Self {
            frames: [const { None }; Self::MAX_FRAMES],
            offset: offset as u16,
            is_copy: false,
            length: range.len() as u32,
        };
        if offset + range.len() <= FRAME_BYTES && !range.is_empty() {
            buffer.frames[0] = Some(space.translate_for(range.address(), access)?);
        } else {
            buffer.pin_all(space, range, access)?;
        }
        Ok(buffer)
    }

    /// Apart from the frequent case of one frame, which needs fewer registers.
    #[inline(never)]
    fn pin_all(
        &mut self,
        space: &AddressSpace,
        range: UserRange,
        access: Access,
    ) -> Result<(), FaultError> {
        for (place, part) in self.frames.iter_mut().zip(range.parts()) {
            *place = Some(space.translate_for(part.address, access)?);
        }
        Ok(())
    }

    /// A buffer of the kernel's own, of zeros, for `length` bytes that are gathered from several
    /// places.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    ///
    /// # Panics
    /// If they do not fit into [`Self::MAX_FRAMES`] frames.
    pub fn gathered(length: usize) -> Result<Self, OutOfMemory> {
        assert!(length <= Self::MAX_FRAMES * FRAME_BYTES, "{length} bytes in one buffer");
        let mut frames = [const { None }; Self::MAX_FRAMES];
        for place in frames.iter_mut().take(length.div_ceil(FRAME_BYTES)) {
            *place = Some(Frame::allocate_zeroed()?);
        }
        Ok(Self { frames, offset: 0, is_copy: true, length: length as u32 })
    }

    /// Number of bytes of the kernel's memory that it takes.
    pub fn copied_bytes(&self) -> usize {
        if self.is_copy { self.len().next_multiple_of(FRAME_BYTES) } else { 0 }
    }

    /// Copies `length` bytes of `from`, from `start` on, into this buffer at `offset`.
    ///
    /// # Panics
    /// If they are not within [`PinnedBuffer::len`] of both.
    pub fn copy_from(&self, offset: usize, (from, start): (&PinnedBuffer, usize), length: usize) {
        self.for_each_part(offset, length, |frame, at, part| {
            from.copy_to_frame(start + part.start, (frame, at), part.len());
        });
    }

    /// Copies `length` bytes of `frame`, from `start` on, into this buffer at `offset`.
    ///
    /// # Panics
    /// If they are not within both.
    pub fn copy_from_frame(&self, offset: usize, (frame, start): (&Frame, usize), length: usize) {
        self.for_each_part(offset, length, |into, at, part| {
            into.copy_from(at, (frame, start + part.start), part.len());
        });
    }

    /// Copies `length` bytes of this buffer, from `offset` on, into `frame` at `start`.
    ///
    /// # Panics
    /// If they are not within both.
    pub fn copy_to_frame(&self, offset: usize, (frame, start): (&Frame, usize), length: usize) {
        self.for_each_part(offset, length, |from, at, part| {
            frame.copy_from(start + part.start, (from, at), part.len());
        });
    }

    /// A buffer of the kernel's own, the first `length` bytes of these frames.
    ///
    /// # Panics
    /// If the frames are too many, or too few.
    pub fn of_frames(frames: impl Iterator<Item = Frame>, length: usize) -> Self {
        let mut places = [const { None }; Self::MAX_FRAMES];
        let mut count = 0;
        for frame in frames {
            places[count] = Some(frame);
            count += 1;
        }
        assert!(length <= count * FRAME_BYTES, "{length} bytes in {count} frames");
        Self { frames: places, offset: 0, is_copy: false, length: length as u32 }
    }

    /// The frame that has exactly the page of bytes at `offset`, if there is one.
    pub fn whole_frame(&self, offset: usize) -> Option<&Frame> {
        let at = usize::from(self.offset) + offset;
        let is_whole = at.is_multiple_of(FRAME_BYTES)
            && self.len().checked_sub(offset).is_some_and(|rest| rest >= FRAME_BYTES);
        if is_whole { self.frame(at / FRAME_BYTES) } else { None }
    }

    /// One of its frames.
    pub fn frame(&self, index: usize) -> Option<&Frame> {
        self.frames.get(index)?.as_ref()
    }

    /// Its first word; `None` if it has none, or it is not aligned to eight bytes.
    #[inline]
    pub fn first_word(&self) -> Option<&AtomicU32> {
        let offset = usize::from(self.offset);
        let has_word = self.len() >= size_of::<u32>() && offset.is_multiple_of(size_of::<u64>());
        self.frame(0).filter(|_| has_word).map(|frame| frame.word(offset))
    }

    /// Number of pinned bytes: the buffer's length or, for a long buffer, that of its first part.
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Copies `from` into the buffer at `offset`.
    ///
    /// # Panics
    /// If that is not within [`PinnedBuffer::len`].
    pub fn write_at(&self, offset: usize, from: &[u8]) {
        self.for_each_part(offset, from.len(), |frame, at, part| frame.write(at, &from[part]));
    }

    /// Copies from the buffer at `offset`.
    ///
    /// # Panics
    /// If that is not within [`PinnedBuffer::len`].
    pub fn read_at(&self, offset: usize, into: &mut [u8]) {
        self.for_each_part(offset, into.len(), |frame, at, part| frame.read(at, &mut into[part]));
    }

    /// Copies from the buffer at `offset` to the begin of `into`, which need not be initialised: as
    /// many bytes as are in one frame. Returns them.
    ///
    /// # Panics
    /// If `offset` is not within [`PinnedBuffer::len`].
    pub fn read_into<'a>(&self, offset: usize, into: &'a mut [MaybeUninit<u8>]) -> &'a mut [u8] {
        assert!(offset < self.len(), "{offset} in a pinned buffer of {}", self.len());
        let at = usize::from(self.offset) + offset;
        let frame = self.frames[at / FRAME_BYTES].as_ref().expect("pinned bytes have frames");
        let part = (FRAME_BYTES - at % FRAME_BYTES).min(self.len() - offset).min(into.len());
        frame.read_into(at % FRAME_BYTES, &mut into[..part])
    }

    /// Calls `visit(frame, offset in it, range of the copy)` for the parts of a copy.
    fn for_each_part(
        &self,
        offset: usize,
        length: usize,
        mut visit: impl FnMut(&Frame, usize, core::ops::Range<usize>),
    ) {
        assert!(
            offset <= self.len() && length <= self.len() - offset,
            "{length} bytes at {offset} of a pinned buffer of {}",
            self.len()
        );
        // Usually it is in one frame, and the first.
        let at = usize::from(self.offset) + offset;
        if at + length <= FRAME_BYTES
            && let Some(frame) = self.frame(0)
        {
            return visit(frame, at, 0..length);
        }
        let mut done = 0;
        while done < length {
            let at = usize::from(self.offset) + offset + done;
            let frame = self.frames[at / FRAME_BYTES].as_ref().expect("pinned bytes have frames");
            let part = (FRAME_BYTES - at % FRAME_BYTES).min(length - done);
            visit(frame, at % FRAME_BYTES, done..done + part);
            done += part;
        }
    }
}
