//! Reading and writing as operations.
//!
//! May touch: the buffers. See [`crate::call`] for why a read in flight uses memory of its own.
#![allow(unsafe_code)]

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::mem::MaybeUninit;
use core::ops::Range;
use core::slice;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::syscall::{READ, TRY_WRITE_BYTES_MAX, WRITE};

use super::{AsFd, BorrowedFd, Result};
use crate::call::{
    Call, Mode, Operation, Partial, Request, SCRATCH_BYTES, Scratch, Whole, leftover,
};
use crate::system;

/// Maximum number of bytes that a read in flight requests; the kernel pins about as many.
const STAGE_BYTES_MAX: usize = 16 * 1024;

/// `read(fd, buffer)`: reads at least one byte, at most the size of the buffer; 0 at the end. An
/// empty buffer needs no system call.
///
/// In a synchronous call the kernel writes to the buffer. In an asynchronous call, up to 24 bytes
/// go to the slot of the call, and more to a heap block; they are then copied. Where the copy
/// matters, use [`ReadOwned`], which copies nothing.
#[derive(Debug)]
pub struct ReadInto<'f, 'b> {
    fd: BorrowedFd<'f>,
    buffer: &'b mut [u8],
    stage: Stage,
}

/// Where the kernel writes what it reads.
#[derive(Debug)]
enum Stage {
    Buffer,
    Scratch,
    /// Not initialised, except for the bytes that the kernel reports.
    Heap(Box<[MaybeUninit<u8>]>),
}

impl<'f, 'b> ReadInto<'f, 'b> {
    /// Reads from `fd` into `buffer`.
    pub fn new(fd: BorrowedFd<'f>, buffer: &'b mut [u8]) -> Self {
        Self { fd, buffer, stage: Stage::Buffer }
    }

    /// Allocates the heap block, if one is needed and there is memory.
    fn block(&self) -> Option<Box<[MaybeUninit<u8>]>> {
        let bytes = self.buffer.len().min(STAGE_BYTES_MAX);
        let mut block = Vec::new();
        if bytes <= SCRATCH_BYTES || block.try_reserve_exact(bytes).is_err() {
            return None;
        }
        block.resize_with(bytes, MaybeUninit::uninit);
        Some(block.into_boxed_slice())
    }

    /// The bytes that the kernel has read; not used for [`Stage::Buffer`].
    fn staged<'s>(&'s self, count: usize, scratch: &'s Scratch) -> &'s [u8] {
        match &self.stage {
            Stage::Buffer => &[],
            Stage::Scratch => scratch.0.get(..count).unwrap_or(&scratch.0),
            Stage::Heap(block) => {
                // SAFETY: the kernel has reported that it initialised `count` bytes of the block,
                // and the slice is limited to the block's length.
                unsafe { slice::from_raw_parts(block.as_ptr().cast(), count.min(block.len())) }
            }
        }
    }
}

// SAFETY: in flight, the kernel writes only to the scratch memory or to the heap block, which
// `request` passes with its length. The block leaks if the operation is forgotten.
unsafe impl Operation for ReadInto<'_, '_> {
    type Output = CallResult;

    fn shortcut(&mut self) -> Option<CallResult> {
        if self.buffer.is_empty() {
            return Some(Ok(0));
        }
        leftover::take_bytes(self.fd.raw(), self.buffer)
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
        // Taken out temporarily, because the staged bytes and the buffer are parts of the same
        // value.
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
        leftover::undo_read(self.fd.raw(), self.staged(value, scratch));
    }

    fn abandon_error(&mut self, error: Errno) {
        leftover::keep_error(self.fd.raw(), error);
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

/// Memory that can be lent to the kernel as long as a call takes.
///
/// # Safety
/// The memory is outside of the value itself. Until the value is used again, it stays at its
/// address and is neither freed nor accessed in another way. Forgetting the value must not free it.
/// Any bytes are valid there.
pub unsafe trait Buffer: Unpin + Send + 'static {
    /// The whole memory.
    fn memory(&mut self) -> *mut [u8];
}

macro_rules! implement_buffer {
    ($($type:ty),*) => {$(
        // SAFETY: the memory is on the heap and contains integers, for which all bytes are valid;
        // forgetting the owner leaks it.
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
pub struct ReadOwned<'a, B: Buffer> {
    fd: BorrowedFd<'a>,
    buffer: Option<B>,
    range: Range<usize>,
}

impl<B: Buffer> fmt::Debug for ReadOwned<'_, B> {
    /// Without the buffer: the kernel may be writing to it.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("ReadOwned");
        fields.field("fd", &self.fd).field("range", &self.range).finish_non_exhaustive()
    }
}

impl<'a, B: Buffer> ReadOwned<'a, B> {
    /// Reads from `fd` into the bytes `range` of `buffer`, limited to its size.
    pub fn new(fd: BorrowedFd<'a>, mut buffer: B, range: Range<usize>) -> Self {
        let bytes = buffer.memory().len();
        let end = range.end.min(bytes);
        Self { fd, buffer: Some(buffer), range: range.start.min(end)..end }
    }

    /// Before the first call: `take` moves bytes to the beginning of the part that is to be read,
    /// and returns how many. Returns how many are left to read.
    pub(crate) fn begin_with(&mut self, take: impl FnOnce(&mut [u8]) -> usize) -> usize {
        self.range.start += take(self.part());
        self.range.len()
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
                // SAFETY: `Buffer` guarantees that the memory is valid and initialised; no call is
                // in flight when this is called, so the kernel does not write to it.
                let memory = unsafe { &mut *buffer.memory() };
                memory.get_mut(self.range.clone()).unwrap_or_default()
            }
            None => &mut [],
        }
    }
}

// SAFETY: in flight, the kernel writes only to memory of a `Buffer`, which this operation owns.
unsafe impl<B: Buffer> Operation for ReadOwned<'_, B> {
    type Output = (CallResult, B);

    fn shortcut(&mut self) -> Option<Self::Output> {
        if self.range.is_empty() {
            return Some((Ok(0), self.take_buffer()));
        }
        let fd = self.fd.raw();
        let result = leftover::take_bytes(fd, self.part())?;
        Some((result, self.take_buffer()))
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
        leftover::undo_read(fd, part.get(..value).unwrap_or(part));
    }

    fn abandon_error(&mut self, error: Errno) {
        leftover::keep_error(self.fd.raw(), error);
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

/// A buffer is in none of these outputs, so it need not implement `Debug`.
const fn debug_reads_no_buffer<B: Buffer>() {
    const fn implements_debug<T: fmt::Debug>() {}
    implements_debug::<Call<ReadOwned<'_, B>>>();
    implements_debug::<Whole<ReadOwned<'_, B>>>();
    implements_debug::<Call<super::ReadAt<'_, B>>>();
    implements_debug::<crate::net::Fill<'_, B>>();
}
const _: () = debug_reads_no_buffer::<Vec<u8>>();

/// Reads until the bytes of `buffer` from `start` on are filled. Always returns the buffer.
///
/// Not cancel-safe: if dropped, the bytes read so far are lost with the buffer.
///
/// # Errors
/// [`UnexpectedEnd`](super::Error::UnexpectedEnd) if the stream ends before, otherwise as `read`.
pub fn fill<B: Buffer>(fd: &impl AsFd, buffer: B, start: usize) -> Whole<ReadOwned<'_, B>> {
    Whole::new(ReadOwned::new(fd.as_fd(), buffer, start..usize::MAX))
}

/// `write(fd, bytes)`: writes at least one byte, unless `bytes` is empty.
///
/// The kernel reads the bytes where they are, also in flight. If this future is forgotten
/// (`mem::forget`) while in flight, the kernel sends whatever is there later. Dropping it is always
/// allowed.
#[derive(Debug)]
pub struct WriteFrom<'f, 'b> {
    fd: BorrowedFd<'f>,
    bytes: &'b [u8],
    is_to_connection: bool,
}

impl<'f, 'b> WriteFrom<'f, 'b> {
    /// Writes `bytes`, or their beginning, to `fd`.
    pub fn new(fd: BorrowedFd<'f>, bytes: &'b [u8]) -> Self {
        Self { fd, bytes, is_to_connection: false }
    }

    /// The same to `fd` that is a connection: a few bytes for which it has room, as most messages
    /// are, take a call that cannot wait, so nothing is prepared for a wait.
    pub(crate) fn to_connection(fd: BorrowedFd<'f>, bytes: &'b [u8]) -> Self {
        Self { fd, bytes, is_to_connection: true }
    }
}

// SAFETY: the kernel writes nothing, and the memory that it reads stays mapped because the kernel
// has pinned the frames.
unsafe impl Operation for WriteFrom<'_, '_> {
    type Output = CallResult;

    fn shortcut(&mut self) -> Option<CallResult> {
        if self.bytes.is_empty() {
            return Some(Ok(0));
        }
        if !self.is_to_connection || self.bytes.len() > TRY_WRITE_BYTES_MAX {
            return None;
        }
        match system::try_write(self.fd.raw(), self.bytes) {
            Err(Errno::EAGAIN) => None,
            result => Some(result),
        }
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
