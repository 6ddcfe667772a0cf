//! Reading and writing as operations the kernel can be asked for.
//!
//! May touch: the buffers. See [`crate::call`] for why a read in flight goes to memory of its own.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::slice;

use cops_abi::errno::CallResult;
use cops_abi::syscall::{READ, WRITE};

use super::{AsFd, BorrowedFd, Result};
use crate::call::{Mode, Operation, Partial, Request, SCRATCH_BYTES, Scratch, Whole, leftover};

/// Most bytes that a read in flight asks for; the kernel pins about as much.
const STAGE_BYTES_MAX: usize = 16 * 1024;

/// `read(fd, buffer)`: at least a byte, at most the buffer, 0 at the end. An empty buffer asks nobody anything.
///
/// Synchronously, the kernel writes to the buffer. Asynchronously, up to 24 bytes come by the slot of the call and
/// more by a heap block of the right size, and are copied: where that matters, [`ReadOwned`] copies nothing.
#[derive(Debug)]
pub struct ReadInto<'f, 'b> {
    fd: BorrowedFd<'f>,
    buffer: &'b mut [u8],
    stage: Stage,
}

/// Where the kernel leaves what it read.
#[derive(Debug)]
enum Stage {
    Buffer,
    Scratch,
    /// Nothing in it is initialised before the kernel says how much.
    Heap(Box<[MaybeUninit<u8>]>),
}

impl<'f, 'b> ReadInto<'f, 'b> {
    /// Reads from `fd` into `buffer`.
    pub fn new(fd: BorrowedFd<'f>, buffer: &'b mut [u8]) -> Self {
        Self { fd, buffer, stage: Stage::Buffer }
    }

    /// The heap block, if a block is called for and there is memory for one.
    fn block(&self) -> Option<Box<[MaybeUninit<u8>]>> {
        let bytes = self.buffer.len().min(STAGE_BYTES_MAX);
        let mut block = Vec::new();
        if bytes <= SCRATCH_BYTES || block.try_reserve_exact(bytes).is_err() {
            return None;
        }
        block.resize_with(bytes, MaybeUninit::uninit);
        Some(block.into_boxed_slice())
    }

    /// What the kernel read, wherever it is; not used for [`Stage::Buffer`].
    fn staged<'s>(&'s self, count: usize, scratch: &'s Scratch) -> &'s [u8] {
        match &self.stage {
            Stage::Buffer => &[],
            Stage::Scratch => scratch.0.get(..count).unwrap_or(&scratch.0),
            Stage::Heap(block) => {
                // SAFETY: so many bytes were written by the kernel, and the block has room for them.
                unsafe { slice::from_raw_parts(block.as_ptr().cast(), count.min(block.len())) }
            }
        }
    }
}

// SAFETY: in flight, the kernel writes to the scratch memory or to the block, whose length it is told.
unsafe impl Operation for ReadInto<'_, '_> {
    type Output = CallResult;

    fn shortcut(&mut self) -> Option<CallResult> {
        if self.buffer.is_empty() {
            return Some(Ok(0));
        }
        leftover::take_bytes(self.fd.raw(), self.buffer).map(Ok)
    }

    fn request(&mut self, mode: Mode) -> Request {
        let (address, length) = match mode {
            Mode::Synchronous(_) => {
                self.stage = Stage::Buffer;
                (self.buffer.as_mut_ptr().addr(), self.buffer.len())
            }
            Mode::Asynchronous(scratch) => match self.block() {
                Some(mut block) => {
                    let place = (block.as_mut_ptr().expose_provenance(), block.len());
                    self.stage = Stage::Heap(block);
                    place
                }
                None => {
                    self.stage = Stage::Scratch;
                    (scratch.expose_provenance(), self.buffer.len().min(SCRATCH_BYTES))
                }
            },
        };
        Request { number: READ, arguments: [self.fd.raw() as usize, address, length, 0, 0, 0] }
    }

    fn finish(&mut self, result: CallResult, scratch: &Scratch) -> CallResult {
        let count = result?;
        if matches!(self.stage, Stage::Buffer) {
            return Ok(count);
        }
        // Taken out for a moment, because the bytes staged and the buffer are parts of the same value.
        let buffer = core::mem::take(&mut self.buffer);
        let bytes = self.staged(count, scratch);
        let copied = bytes.len();
        if let Some(place) = buffer.get_mut(..copied) {
            place.copy_from_slice(bytes);
        }
        self.buffer = buffer;
        Ok(copied)
    }

    fn abandon(&mut self, value: usize, scratch: &Scratch) {
        leftover::keep_bytes(self.fd.raw(), self.staged(value, scratch));
    }
}

impl Partial for ReadInto<'_, '_> {
    type Whole = Result<()>;

    fn is_done(&self) -> bool {
        self.buffer.is_empty()
    }

    fn proceed(&mut self, output: CallResult) -> CallResult {
        let buffer = core::mem::take(&mut self.buffer);
        self.buffer = buffer.get_mut(output.unwrap_or(0)..).unwrap_or_default();
        output
    }

    fn conclude(&mut self, result: Result<()>) -> Result<()> {
        result
    }
}

/// Memory that can be lent to the kernel for as long as a call takes.
///
/// # Safety
/// The memory is not inside the value itself; it stays where it is, and is neither freed nor accessed by other means,
/// until the value is used again. A value that is forgotten never frees it. Any bytes are valid there.
pub unsafe trait Buffer: Unpin + Send + 'static {
    /// All of it.
    fn memory(&mut self) -> *mut [u8];
}

macro_rules! implement_buffer {
    ($($type:ty),*) => {$(
        // SAFETY: heap memory of integers; what was forgotten is leaked.
        unsafe impl Buffer for $type {
            fn memory(&mut self) -> *mut [u8] {
                let bytes = size_of_val::<[_]>(self);
                core::ptr::slice_from_raw_parts_mut(self.as_mut_ptr().cast(), bytes)
            }
        }
    )*};
}

implement_buffer!(Vec<u8>, Vec<u64>, Box<[u8]>, Box<[u64]>);

/// `read(fd, buffer)` into memory that the operation owns meanwhile: nothing is copied.
#[derive(Debug)]
pub struct ReadOwned<'a, B: Buffer> {
    fd: BorrowedFd<'a>,
    buffer: Option<B>,
    range: Range<usize>,
}

impl<'a, B: Buffer> ReadOwned<'a, B> {
    /// Reads from `fd` into the bytes `range` of `buffer`, or as much of that as there is.
    pub fn new(fd: BorrowedFd<'a>, mut buffer: B, range: Range<usize>) -> Self {
        let bytes = buffer.memory().len();
        let end = range.end.min(bytes);
        Self { fd, buffer: Some(buffer), range: range.start.min(end)..end }
    }

    fn take_buffer(&mut self) -> B {
        match self.buffer.take() {
            Some(buffer) => buffer,
            None => unreachable!("an operation finishes once"),
        }
    }

    fn part(&mut self) -> &mut [u8] {
        match &mut self.buffer {
            Some(buffer) => {
                // SAFETY: `Buffer` promises the memory, initialised; no call is in flight when this is asked for.
                let memory = unsafe { &mut *buffer.memory() };
                memory.get_mut(self.range.clone()).unwrap_or_default()
            }
            None => &mut [],
        }
    }
}

// SAFETY: in flight, the kernel writes to memory of a `Buffer`, which this owns.
unsafe impl<B: Buffer> Operation for ReadOwned<'_, B> {
    type Output = (CallResult, B);

    fn shortcut(&mut self) -> Option<Self::Output> {
        if self.range.is_empty() {
            return Some((Ok(0), self.take_buffer()));
        }
        let fd = self.fd.raw();
        let count = leftover::take_bytes(fd, self.part())?;
        Some((Ok(count), self.take_buffer()))
    }

    fn request(&mut self, _mode: Mode) -> Request {
        let part = self.part();
        let (address, length) = (part.as_mut_ptr().expose_provenance(), part.len());
        Request { number: READ, arguments: [self.fd.raw() as usize, address, length, 0, 0, 0] }
    }

    fn finish(&mut self, result: CallResult, _scratch: &Scratch) -> Self::Output {
        (result, self.take_buffer())
    }

    fn abandon(&mut self, value: usize, _scratch: &Scratch) {
        let fd = self.fd.raw();
        let part = self.part();
        leftover::keep_bytes(fd, part.get(..value).unwrap_or(part));
    }
}

impl<B: Buffer> Partial for ReadOwned<'_, B> {
    type Whole = (Result<()>, B);

    fn is_done(&self) -> bool {
        self.range.is_empty()
    }

    fn proceed(&mut self, (result, buffer): (CallResult, B)) -> CallResult {
        self.buffer = Some(buffer);
        self.range.start += result.unwrap_or(0);
        result
    }

    fn conclude(&mut self, result: Result<()>) -> (Result<()>, B) {
        (result, self.take_buffer())
    }
}

/// Reads until the bytes of `buffer` from `start` on are filled. The buffer comes back in any case.
///
/// Not cancel-safe: if dropped, what had been read is gone with the buffer.
///
/// # Errors
/// [`UnexpectedEnd`](super::Error::UnexpectedEnd) if the stream ends before, otherwise as `read`.
pub fn fill<B: Buffer>(fd: &impl AsFd, buffer: B, start: usize) -> Whole<ReadOwned<'_, B>> {
    Whole::new(ReadOwned::new(fd.as_fd(), buffer, start..usize::MAX))
}

/// `write(fd, bytes)`: at least a byte unless there is none.
///
/// The kernel reads the bytes where they are, also in flight; so this must not be forgotten (`mem::forget`) while in
/// flight, or it sends what lies there later. Dropping it is always fine.
#[derive(Debug)]
pub struct WriteFrom<'f, 'b> {
    fd: BorrowedFd<'f>,
    bytes: &'b [u8],
}

impl<'f, 'b> WriteFrom<'f, 'b> {
    /// Writes `bytes`, or the beginning of them, to `fd`.
    pub fn new(fd: BorrowedFd<'f>, bytes: &'b [u8]) -> Self {
        Self { fd, bytes }
    }
}

// SAFETY: the kernel writes nothing. What it reads stays mapped: it has pinned the frames.
unsafe impl Operation for WriteFrom<'_, '_> {
    type Output = CallResult;

    fn shortcut(&mut self) -> Option<CallResult> {
        self.bytes.is_empty().then_some(Ok(0))
    }

    fn request(&mut self, _mode: Mode) -> Request {
        let (address, length) = (self.bytes.as_ptr().expose_provenance(), self.bytes.len());
        Request { number: WRITE, arguments: [self.fd.raw() as usize, address, length, 0, 0, 0] }
    }

    fn finish(&mut self, result: CallResult, _scratch: &Scratch) -> CallResult {
        result
    }
}

impl Partial for WriteFrom<'_, '_> {
    type Whole = Result<()>;

    fn is_done(&self) -> bool {
        self.bytes.is_empty()
    }

    fn proceed(&mut self, output: CallResult) -> CallResult {
        self.bytes = self.bytes.get(output.unwrap_or(0)..).unwrap_or_default();
        output
    }

    fn conclude(&mut self, result: Result<()>) -> Result<()> {
        result
    }
}
