//! Standing reads (decision 51): one call with a block that the kernel fills again each time it has
//! been emptied.
//!
//! May touch: the kernel, by the raw call, and the block.
#![allow(unsafe_code)]

use alloc::alloc::{Layout, alloc_zeroed, dealloc};
use core::fmt;
use core::ops::Range;
use core::pin::Pin;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use core::task::{Context, Poll};

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::standing::{BLOCK_BYTES_MAX, ENDED, HEADER_BYTES};
use cops_abi::standing::{count, empty, is_empty, is_wanted, left};
use cops_abi::syscall::{COPS_READ_STANDING, READ};

use super::{Call, Mode, Operation, Request, Scratch, State, arrived, end, leftover};
use crate::system::{self, Cancelled};
use crate::task::waker_of;
use crate::worker;

/// Memory for the turn and for what is received. It leaks if it is forgotten.
struct Block {
    memory: NonNull<u8>,
    bytes: usize,
}

// SAFETY: it owns its memory; the turn is atomic, and the other bytes are accessed by the kernel or
// through `&mut self`, as `Block::received` says.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    fn new(capacity: usize) -> Result<Self, Errno> {
        let bytes = HEADER_BYTES + capacity.clamp(1, BLOCK_BYTES_MAX - HEADER_BYTES);
        let layout = Layout::from_size_align(bytes, HEADER_BYTES).map_err(|_| Errno::EINVAL)?;
        // SAFETY: the layout's size is more than that of the header, which is not 0.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(Errno::ENOMEM)?;
        Ok(Self { memory, bytes })
    }

    fn turn(&self) -> &AtomicU32 {
        // SAFETY: the memory begins with the turn and is aligned for it; the kernel and this
        // program access it atomically only.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().cast()) }
    }

    /// The bytes behind the header.
    ///
    /// # Safety
    /// The kernel does not fill them meanwhile: no call is in flight, or the turn is not `EMPTY`.
    unsafe fn received(&mut self) -> &mut [u8] {
        let first = self.memory.as_ptr().wrapping_add(HEADER_BYTES);
        // SAFETY: the memory is valid and was initialised when it was allocated; by the contract
        // of this function and by `&mut self` there is no other access.
        unsafe { core::slice::from_raw_parts_mut(first, self.bytes - HEADER_BYTES) }
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let Ok(layout) = Layout::from_size_align(self.bytes, HEADER_BYTES) {
            // SAFETY: allocated in `new` with the same layout. `StandingRead` has cancelled its
            // call before it drops the block.
            unsafe { dealloc(self.memory.as_ptr(), layout) };
        }
    }
}

/// `read_standing(fd, block)`, or a plain read where there is no coroutine.
struct ReadBlock {
    fd: i32,
    block: Block,
}

// SAFETY: the kernel writes only to the block, which is outside of this value and leaks if it is
// forgotten. It is accessed after `finish`, and while the call stands only by `StandingRead`, which
// does so while the turn is not `EMPTY`.
unsafe impl Operation for ReadBlock {
    type Output = CallResult;

    fn shortcut(&mut self) -> Option<CallResult> {
        // SAFETY: no call is in flight before the first request.
        leftover::take_bytes(self.fd, unsafe { self.block.received() })
    }

    fn request(&mut self, mode: Mode) -> Request {
        let address = self.block.memory.as_ptr().expose_provenance();
        let (number, header) = match mode {
            Mode::Synchronous(_) => (READ, HEADER_BYTES),
            Mode::Asynchronous(_) => (COPS_READ_STANDING, 0),
        };
        // No call stands that could want more.
        let _ = empty(self.block.turn());
        let (address, bytes) = (address + header, self.block.bytes - header);
        Request { number, arguments: [self.fd as usize, address, bytes, 0, 0, 0] }
    }

    fn finish(&mut self, result: CallResult, _scratch: &Scratch) -> CallResult {
        result.map(count)
    }
}

/// A standing read of a descriptor, which must stay open as long as this exists.
pub struct StandingRead {
    call: Call<ReadBlock>,
    /// What the block contains and has not been taken.
    received: Range<usize>,
    /// The call is in flight, and its last result has been taken from the slot: the block is ours.
    is_delivered: bool,
    /// How many bytes had no room in the block then, and have not been read otherwise. The kernel
    /// waits for more than these.
    left: u32,
    /// It has let others run before it empties the block of this result.
    has_yielded: bool,
}

impl fmt::Debug for StandingRead {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("StandingRead").field("received", &self.received).finish()
    }
}

impl StandingRead {
    /// A standing read of `fd` that receives up to `capacity` bytes at once. The call is made when
    /// bytes are first asked for.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(fd: i32, capacity: usize) -> Result<Self, Errno> {
        let operation = ReadBlock { fd, block: Block::new(capacity)? };
        Ok(Self {
            call: Call::new(operation),
            received: 0..0,
            is_delivered: false,
            left: 0,
            has_yielded: false,
        })
    }

    /// Moves received bytes into `buffer`; 0 at the end of the stream.
    pub fn poll_read(&mut self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<CallResult> {
        if buffer.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if self.received.is_empty() {
            // The call stands: without another one, what a cancelled read has kept comes first. It
            // was received after what was in the block, and the kernel has not filled that since.
            if self.is_delivered
                && let Some(result) = leftover::take_bytes(self.call.operation.fd, buffer)
            {
                self.pass(result.unwrap_or(0));
                return Poll::Ready(result);
            }
            match self.poll_more(context) {
                Poll::Ready(Ok(count)) => self.received = 0..count,
                other => return other,
            }
        }
        Poll::Ready(Ok(self.take(buffer)))
    }

    /// Moves into `buffer` what has been received and not been taken. Returns the number of bytes.
    pub fn take(&mut self, buffer: &mut [u8]) -> usize {
        let count = buffer.len().min(self.received.len());
        if count == 0 {
            return 0;
        }
        let from = self.received.start..self.received.start + count;
        // SAFETY: there are received bytes, and the kernel does not fill the block before it is
        // emptied, which `poll_more` does when there are none.
        let bytes = unsafe { self.call.operation.block.received() };
        if let (Some(place), Some(bytes)) = (buffer.get_mut(..count), bytes.get(from)) {
            place.copy_from_slice(bytes);
        }
        self.received.start += count;
        count
    }

    /// The next `bytes` of what has no room in the block were read otherwise.
    pub fn pass(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Number of bytes of the next arrival, which are in the block then; 0 at the end. There must
    /// be none left.
    fn poll_more(&mut self, context: &mut Context<'_>) -> Poll<CallResult> {
        let waker = context.waker();
        // Its own waker tells at once, usually, that it is still the same coroutine.
        if let State::InFlight(_, _, coroutine) = &self.call.state
            && !waker.will_wake(&waker_of(*coroutine))
            && crate::task::current() != Some(*coroutine)
        {
            // The kernel's part has the priority of another coroutine.
            if let Some(result) = self.withdraw() {
                return Poll::Ready(result);
            }
        }
        if let State::InFlight(lease, handle, _) = &self.call.state {
            if self.is_delivered {
                let turn = self.call.operation.block.turn();
                // Others first: until then the rest of a message may have arrived, which this
                // coroutine would wait for.
                if !self.has_yielded && (self.left != 0 || is_wanted(turn)) {
                    self.has_yielded = true;
                    waker.wake_by_ref();
                    return Poll::Pending;
                }
                self.is_delivered = false;
                // In this order: a result may arrive as soon as the block is empty.
                lease.rearm(waker);
                if (empty(turn) || self.left != 0)
                    && let Some(result) = system::resume_read(*handle)
                {
                    let count = self.delivered(result);
                    // What the kernel has done for it, and what is to be done with the bytes, would
                    // together be a long poll.
                    if worker::is_urged() {
                        self.received = 0..count;
                        waker.wake_by_ref();
                        return Poll::Pending;
                    }
                    return Poll::Ready(Ok(count));
                }
                return Poll::Pending;
            }
            match lease.poll(waker) {
                None => return Poll::Pending,
                Some(Ok(result)) if result != 0 && result & ENDED == 0 => {
                    return Poll::Ready(Ok(self.delivered(result)));
                }
                // The last result: the call ends, as any other does.
                Some(_) => {}
            }
        }
        let result = Pin::new(&mut self.call).poll(context);
        if result.is_ready() {
            self.call.state = State::New(None);
        }
        result
    }

    /// A result with which the call stands has been taken. Returns how many bytes are in the block.
    fn delivered(&mut self, result: usize) -> usize {
        (self.is_delivered, self.has_yielded) = (true, false);
        self.left = left(result) as u32;
        count(result)
    }

    /// Cancels the call. Returns the result that has arrived meanwhile and has not been taken.
    fn withdraw(&mut self) -> Option<CallResult> {
        if !matches!(self.call.state, State::InFlight(..)) {
            return None;
        }
        let State::InFlight(lease, handle, coroutine) =
            core::mem::replace(&mut self.call.state, State::New(None))
        else {
            unreachable!("checked above");
        };
        let was_delivered = core::mem::take(&mut self.is_delivered);
        let is_gone = (was_delivered || lease.result().is_none())
            && system::cancel(handle) == Cancelled::Gone;
        // The kernel fills the block, and then delivers, under a lock that cancelling takes. So it
        // has delivered if the block is not empty.
        let is_without = is_gone && is_empty(self.call.operation.block.turn());
        let has_result = !was_delivered && !is_without;
        let result = has_result.then(|| arrived(&lease).map(count));
        if has_result && !is_gone {
            // A result was there already; the call may still stand.
            let _ = system::cancel(handle);
        }
        lease.disarm();
        end(coroutine, &lease);
        result
    }

    /// Cancels the call, so that other reads of the descriptor get what comes from now on. What has
    /// been received can still be [taken](Self::take); an error is for the next read.
    pub fn rest(&mut self) {
        if !self.is_delivered {
            self.withdraw_and_keep();
        }
    }

    /// Cancels the call, and keeps the result that has arrived meanwhile.
    fn withdraw_and_keep(&mut self) {
        match self.withdraw() {
            Some(Ok(count)) => self.received = 0..count,
            Some(Err(error)) => leftover::keep_error(self.call.operation.fd, error),
            None => {}
        }
    }
}

impl Drop for StandingRead {
    /// What was received and not taken is kept for the next read of the descriptor, and so is an
    /// error.
    fn drop(&mut self) {
        self.withdraw_and_keep();
        let operation = &mut self.call.operation;
        // SAFETY: the call is cancelled.
        let bytes = unsafe { operation.block.received() };
        leftover::undo_read(operation.fd, bytes.get(self.received.clone()).unwrap_or(&[]));
    }
}
