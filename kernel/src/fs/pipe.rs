//! Anonymous pipes: a bounded byte queue with a reading and a writing end.
//!
//! The bytes lie in chunks that are allocated as the pipe fills and freed as it drains, none larger than a frame:
//! so memory that is fragmented serves as well as any other. An empty pipe keeps a small chunk at most, so that
//! short messages allocate nothing.
//!
//! When memory ends, a writer moves what fits into the chunks there are. If that is nothing, it waits for the reader, as
//! for room, as long as there are bytes to read, since reading them frees memory; otherwise the write fails with `ENOMEM`.

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_fallible::{List, OutOfMemory, try_arc};
use spin::Mutex;

use crate::mm::quota::{Amounts, Charge, Family, Kind};
use crate::mm::{self, PinnedBuffer};
use crate::task::WaitQueue;

/// Bytes a pipe holds, as on Linux.
const CAPACITY_BYTES: usize = 65_536;
/// Bytes of a chunk: a frame.
const CHUNK_BYTES: usize = 4096;
/// Bytes of the chunk that an empty pipe begins with, if what is written fits into it.
const SMALL_BYTES: usize = 512;
/// Chunks there can be: the first may be all but empty.
const CHUNKS_MAX: usize = CAPACITY_BYTES / CHUNK_BYTES + 1;

/// A queue of bytes. Its chunks are filled one after the other, each to its capacity.
struct Bytes {
    /// A ring of chunks. Those in use begin at `first`.
    chunks: [List<u8>; CHUNKS_MAX],
    first: usize,
    /// Chunks in use. An empty queue may keep one.
    used: usize,
    /// Bytes of the first chunk that have been read.
    read: usize,
    length: usize,
    /// What the chunks take.
    charge: Charge,
}

fn memory(bytes: usize) -> Amounts {
    Amounts::of(Kind::Memory, bytes as u64)
}

impl Bytes {
    const fn new(family: Family) -> Self {
        let charge = Charge::nothing(family);
        Self { chunks: [const { List::new() }; CHUNKS_MAX], first: 0, used: 0, read: 0, length: 0, charge }
    }

    /// The last chunk if it has room, otherwise a new one; `wanted` bytes are to follow.
    fn chunk_with_room(&mut self, wanted: usize) -> Result<&mut List<u8>, OutOfMemory> {
        let last = (self.first + self.used + CHUNKS_MAX - 1) % CHUNKS_MAX;
        let has_room = self.used > 0 && self.chunks[last].len() < self.chunks[last].capacity();
        if has_room {
            return Ok(&mut self.chunks[last]);
        }
        if self.used == CHUNKS_MAX {
            return Err(OutOfMemory);
        }
        // Not out of the kernel's reserve.
        mm::admit().map_err(|_| OutOfMemory)?;
        let bytes = if self.used == 0 && wanted <= SMALL_BYTES { SMALL_BYTES } else { CHUNK_BYTES };
        let next = (self.first + self.used) % CHUNKS_MAX;
        self.charge.grow(&memory(bytes)).map_err(|_| OutOfMemory)?;
        match List::try_with_capacity(bytes) {
            Ok(chunk) => self.chunks[next] = chunk,
            Err(error) => {
                self.charge.shrink(&memory(bytes));
                return Err(error);
            }
        }
        self.used += 1;
        Ok(&mut self.chunks[next])
    }

    /// Appends bytes of `buffer`, as many as there is memory for; returns how many.
    fn append(&mut self, buffer: &PinnedBuffer, count: usize) -> usize {
        let mut done = 0;
        while done < count {
            let Ok(chunk) = self.chunk_with_room(count - done) else { break };
            let begin = chunk.len();
            let part = (count - done).min(chunk.capacity() - begin);
            if chunk.try_resize(begin + part, 0).is_err() {
                break;
            }
            buffer.read_at(done, &mut chunk[begin..]);
            done += part;
        }
        self.length += done;
        done
    }

    /// Moves bytes into `buffer`, as many as there are and fit; returns how many.
    fn take(&mut self, buffer: &PinnedBuffer) -> usize {
        let count = buffer.len().min(self.length);
        let mut done = 0;
        while done < count {
            let chunk = &mut self.chunks[self.first];
            let part = (count - done).min(chunk.len() - self.read);
            buffer.write_at(done, &chunk[self.read..self.read + part]);
            self.read += part;
            done += part;
            if self.read == chunk.len() {
                self.drop_first();
            }
        }
        self.length -= done;
        done
    }

    /// The first chunk has been read.
    fn drop_first(&mut self) {
        self.read = 0;
        let chunk = &mut self.chunks[self.first];
        if self.used == 1 && chunk.capacity() < CHUNK_BYTES {
            chunk.clear();
            return;
        }
        // Chunks are larger than asked for only by the allocator's rounding; what was charged is one of two sizes.
        let bytes = if chunk.capacity() < CHUNK_BYTES { SMALL_BYTES } else { CHUNK_BYTES };
        *chunk = List::new();
        self.charge.shrink(&memory(bytes));
        self.first = (self.first + 1) % CHUNKS_MAX;
        self.used -= 1;
    }
}

struct State {
    bytes: Bytes,
    readers: usize,
    writers: usize,
}

/// What the two ends share.
struct Pipe {
    state: Mutex<State>,
    readable: WaitQueue,
    writable: WaitQueue,
}

/// The reading end; dropping it breaks the pipe for writers.
pub struct PipeReader(Arc<Pipe>);
/// The writing end; dropping it ends the stream for readers.
pub struct PipeWriter(Arc<Pipe>);

/// A pipe with nothing in it, whose bytes are charged to `family`.
///
/// # Errors
/// [`OutOfMemory`].
pub fn pipe(family: Family) -> Result<(PipeReader, PipeWriter), OutOfMemory> {
    let pipe = try_arc(Pipe {
        state: Mutex::new(State { bytes: Bytes::new(family), readers: 1, writers: 1 }),
        readable: WaitQueue::new(),
        writable: WaitQueue::new(),
    })?;
    Ok((PipeReader(pipe.clone()), PipeWriter(pipe)))
}

impl PipeReader {
    /// Moves what is there into `buffer`; `None` if nothing is and a writer is left.
    pub fn attempt(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        let mut state = self.0.state.lock();
        if buffer.len() == 0 {
            return Some(Ok(0));
        }
        if state.bytes.length == 0 {
            return (state.writers == 0).then_some(Ok(0));
        }
        let count = state.bytes.take(buffer);
        drop(state);
        self.0.writable.wake_one();
        Some(Ok(count))
    }

    /// The readers that wait, and whether an attempt would succeed now.
    pub fn queue(&self) -> (&WaitQueue, bool) {
        let state = self.0.state.lock();
        (&self.0.readable, state.bytes.length > 0 || state.writers == 0)
    }
}

impl PipeWriter {
    /// Moves what fits out of `buffer`; `None` if nothing does.
    pub fn attempt(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        let mut state = self.0.state.lock();
        if state.readers == 0 {
            return Some(Err(Errno::EPIPE));
        }
        let room = buffer.len().min(CAPACITY_BYTES - state.bytes.length);
        let count = state.bytes.append(buffer, room);
        if count == 0 && buffer.len() > 0 {
            return (state.bytes.length == 0).then_some(Err(Errno::ENOMEM));
        }
        drop(state);
        self.0.readable.wake_one();
        Some(Ok(count))
    }

    /// The writers that wait, and whether an attempt would succeed now.
    pub fn queue(&self) -> (&WaitQueue, bool) {
        let state = self.0.state.lock();
        (&self.0.writable, state.bytes.length < CAPACITY_BYTES || state.readers == 0)
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        self.0.state.lock().readers -= 1;
        // Each writer that finds it broken wakes the next.
        self.0.writable.wake_one();
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        self.0.state.lock().writers -= 1;
        // Each reader that finds the end wakes the next.
        self.0.readable.wake_one();
    }
}
