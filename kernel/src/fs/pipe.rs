//! Anonymous pipes: a bounded byte queue with a reading and a writing end.
//!
//! The bytes are in a [`ByteQueue`]. Its chunks are allocated as the pipe fills and freed as it
//! drains.
//!
//! A write of up to 4,096 bytes waits until there is room for all of it.
//!
//! When memory is used up, a writer writes what fits into the existing chunks. If nothing fits, it
//! waits for the reader as long as there are bytes to read, because reading them frees memory;
//! otherwise the write fails with `ENOMEM`.

use alloc::sync::Arc;
use core::mem::MaybeUninit;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::poll::bits_if;
use cops_abi::poll::event::{ERROR, HANG_UP, READABLE, WRITABLE};
use cops_algorithms::byte_queue::{Budget, ByteQueue, CAPACITY_BYTES};
use cops_fallible::{OutOfMemory, try_arc};
use cops_lock::Mutex;

use crate::mm::quota::{Amounts, Charge, Family, Kind};
use crate::mm::{self, PinnedBuffer};
use crate::sched::WaitQueue;

impl Budget for Charge {
    fn grow(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        // Chunks do not use the kernel's reserve.
        mm::admit().map_err(|_| OutOfMemory)?;
        Charge::grow(self, &Amounts::of(Kind::Memory, bytes as u64)).map_err(|_| OutOfMemory)
    }

    fn shrink(&mut self, bytes: usize) {
        Charge::shrink(self, &Amounts::of(Kind::Memory, bytes as u64));
    }
}

/// Writes of this length and shorter ones are not mixed with others (`PIPE_BUF` of POSIX).
pub const ATOMIC_BYTES: usize = 4096;

struct State {
    bytes: ByteQueue<Charge>,
    readers: usize,
    writers: usize,
}

impl State {
    /// Whether there is room for a write of this length: for all of it, unless it is so long that
    /// it may be split.
    fn has_room_for(&self, bytes: usize) -> bool {
        let room = CAPACITY_BYTES - self.bytes.len();
        if bytes <= ATOMIC_BYTES { room >= bytes } else { room > 0 }
    }
}

/// The state shared by both ends.
struct Pipe {
    state: Mutex<State>,
    readable: WaitQueue,
    writable: WaitQueue,
}

/// The reading end; dropping it breaks the pipe for writers.
pub struct PipeReader(Arc<Pipe>);
/// The writing end; dropping it ends the stream for readers.
pub struct PipeWriter(Arc<Pipe>);

/// An empty pipe; its bytes are charged to `family`.
///
/// # Errors
/// [`OutOfMemory`].
pub fn pipe(family: Family) -> Result<(PipeReader, PipeWriter), OutOfMemory> {
    let charge = Charge::standing(family).map_err(|_| OutOfMemory)?;
    let pipe = try_arc(Pipe {
        state: Mutex::new(State { bytes: ByteQueue::new(charge), readers: 1, writers: 1 }),
        readable: WaitQueue::new(),
        writable: WaitQueue::new(),
    })?;
    Ok((PipeReader(pipe.clone()), PipeWriter(pipe)))
}

impl PipeReader {
    /// Moves available bytes into `buffer`; `None` if there are none and there is still a writer.
    pub fn attempt(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        let mut state = self.0.state.lock();
        if buffer.len() == 0 {
            return Some(Ok(0));
        }
        if state.bytes.is_empty() {
            return (state.writers == 0).then_some(Ok(0));
        }
        let count = state.bytes.take(buffer.len(), |at, bytes| buffer.write_at(at, bytes));
        drop(state);
        self.0.writable.wake_one();
        Some(Ok(count))
    }

    /// As [`Self::attempt`], of bytes that stay.
    pub fn attempt_peek(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        let state = self.0.state.lock();
        if state.bytes.is_empty() && buffer.len() > 0 {
            return (state.writers == 0).then_some(Ok(0));
        }
        let count = state.bytes.look(buffer.len(), |at, bytes| buffer.write_at(at, bytes));
        drop(state);
        // The call has taken a wake, and the bytes are for another reader.
        self.0.readable.wake_one();
        Some(Ok(count))
    }

    /// Ends the stream after the bytes that are in the pipe, and breaks it for writers.
    pub fn shut_down(&self) {
        self.0.shut_down();
    }

    /// Number of bytes that a read finds.
    pub fn unread_bytes(&self) -> usize {
        self.0.state.lock().bytes.len()
    }

    /// The events of `ppoll` that it has.
    pub fn readiness(&self) -> u32 {
        let state = self.0.state.lock();
        bits_if(!state.bytes.is_empty(), READABLE) | bits_if(state.writers == 0, HANG_UP)
    }

    /// The waiting readers.
    pub fn waiters(&self) -> &WaitQueue {
        &self.0.readable
    }

    /// The waiting readers, and whether an attempt would succeed now.
    pub fn queue(&self) -> (&WaitQueue, bool) {
        let state = self.0.state.lock();
        (&self.0.readable, !state.bytes.is_empty() || state.writers == 0)
    }
}

impl Pipe {
    fn shut_down(&self) {
        let mut state = self.state.lock();
        (state.readers, state.writers) = (0, 0);
        drop(state);
        // Each call that finds the end wakes the next one.
        self.readable.wake_one();
        self.writable.wake_one();
    }
}

impl PipeWriter {
    /// As [`PipeReader::shut_down`].
    pub fn shut_down(&self) {
        self.0.shut_down();
    }

    /// Moves bytes out of `buffer` as far as there is room; `None` if there is none.
    pub fn attempt(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        self.attempt_with(buffer.len(), |at, room| buffer.read_into(at, room))
    }

    /// As [`Self::attempt`], of bytes that the kernel has a copy of.
    pub fn attempt_bytes(&self, bytes: &[u8]) -> Option<CallResult> {
        self.attempt_with(bytes.len(), |at, room| {
            let bytes = &bytes[at..][..room.len()];
            room.write_copy_of_slice(bytes)
        })
    }

    /// `read(at, room)` copies the bytes from number `at` on, as many as there is room for.
    #[inline]
    fn attempt_with(
        &self,
        length: usize,
        read: impl for<'a> FnMut(usize, &'a mut [MaybeUninit<u8>]) -> &'a mut [u8],
    ) -> Option<CallResult> {
        // Also without readers.
        if length == 0 {
            return Some(Ok(0));
        }
        let mut state = self.0.state.lock();
        if state.readers == 0 {
            return Some(Err(Errno::EPIPE));
        }
        if !state.has_room_for(length) {
            return None;
        }
        let count = state.bytes.append(length, read);
        if count == 0 {
            return state.bytes.is_empty().then_some(Err(Errno::ENOMEM));
        }
        drop(state);
        self.0.readable.wake_one();
        Some(Ok(count))
    }

    /// The events of `ppoll` that it has.
    pub fn readiness(&self) -> u32 {
        let state = self.0.state.lock();
        bits_if(state.has_room_for(ATOMIC_BYTES), WRITABLE) | bits_if(state.readers == 0, ERROR)
    }

    /// Whether there are no readers.
    pub fn is_broken(&self) -> bool {
        self.0.state.lock().readers == 0
    }

    /// The waiting writers.
    pub fn waiters(&self) -> &WaitQueue {
        &self.0.writable
    }

    /// The waiting writers, and whether an attempt would succeed now.
    pub fn queue(&self) -> (&WaitQueue, bool) {
        let state = self.0.state.lock();
        (&self.0.writable, state.bytes.len() < CAPACITY_BYTES || state.readers == 0)
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.readers = state.readers.saturating_sub(1);
        drop(state);
        // Each writer that finds the pipe broken wakes the next one.
        self.0.writable.wake_one();
        // What has watched this end finds it closed.
        self.0.readable.notify_watches();
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.writers = state.writers.saturating_sub(1);
        drop(state);
        // Each reader that finds the end wakes the next one.
        self.0.readable.wake_one();
        // What has watched this end finds it closed.
        self.0.writable.notify_watches();
    }
}
