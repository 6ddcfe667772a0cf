//! Anonymous pipes: a bounded byte queue with a reading and a writing end.
//!
//! The bytes are in chunks that are allocated as the pipe fills and freed as it drains. No chunk is
//! larger than a frame, so fragmented memory is sufficient. An empty pipe keeps at most a small
//! chunk, so that short messages need no allocation.
//!
//! When memory is used up, a writer writes what fits into the existing chunks. If nothing fits, it
//! waits for the reader as long as there are bytes to read, because reading them frees memory;
//! otherwise the write fails with `ENOMEM`.

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_fallible::{List, OutOfMemory, try_arc};
use spin::Mutex;

use crate::mm::quota::{Amounts, Charge, Family, Kind};
use crate::mm::{self, PinnedBuffer};
use crate::sched::WaitQueue;

/// Capacity of a pipe in bytes, as on Linux.
const CAPACITY_BYTES: usize = 65_536;
/// Size of a chunk: one frame.
const CHUNK_BYTES: usize = 4096;
/// Size of an empty pipe's first chunk, if the written bytes fit into it.
const SMALL_BYTES: usize = 512;
/// Maximum number of chunks: the first may be almost empty.
const CHUNKS_MAX: usize = CAPACITY_BYTES / CHUNK_BYTES + 1;

/// A queue of bytes. Its chunks are filled one after another, each to its capacity.
struct Bytes {
    /// A ring of chunks. Those in use begin at `first`.
    chunks: [List<u8>; CHUNKS_MAX],
    first: usize,
    /// Number of chunks in use. An empty queue may keep one.
    used: usize,
    /// Number of bytes of the first chunk that have been read.
    read: usize,
    length: usize,
    /// The charge for the chunks.
    charge: Charge,
}

fn memory(bytes: usize) -> Amounts {
    Amounts::of(Kind::Memory, bytes as u64)
}

impl Bytes {
    const fn new(family: Family) -> Self {
        let charge = Charge::nothing(family);
        Self {
            chunks: [const { List::new() }; CHUNKS_MAX],
            first: 0,
            used: 0,
            read: 0,
            length: 0,
            charge,
        }
    }

    /// The last chunk if it has room, otherwise a new one, for `wanted` bytes.
    fn chunk_with_room(&mut self, wanted: usize) -> Result<&mut List<u8>, OutOfMemory> {
        let last = (self.first + self.used + CHUNKS_MAX - 1) % CHUNKS_MAX;
        let has_room = self.used > 0 && self.chunks[last].len() < self.chunks[last].capacity();
        if has_room {
            return Ok(&mut self.chunks[last]);
        }
        if self.used == CHUNKS_MAX {
            return Err(OutOfMemory);
        }
        // Chunks do not use the kernel's reserve.
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

    /// Appends bytes of `buffer`, as many as memory permits; returns the number.
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

    /// Moves as many bytes as possible into `buffer`; returns the number.
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

    /// Frees or reuses the first chunk, which has been read completely.
    fn drop_first(&mut self) {
        self.read = 0;
        let chunk = &mut self.chunks[self.first];
        if self.used == 1 && chunk.capacity() < CHUNK_BYTES {
            chunk.clear();
            return;
        }
        // A chunk's capacity exceeds the requested one only by the allocator's rounding; the charge
        // was one of the two sizes.
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
    let pipe = try_arc(Pipe {
        state: Mutex::new(State { bytes: Bytes::new(family), readers: 1, writers: 1 }),
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
        if state.bytes.length == 0 {
            return (state.writers == 0).then_some(Ok(0));
        }
        let count = state.bytes.take(buffer);
        drop(state);
        self.0.writable.wake_one();
        Some(Ok(count))
    }

    /// The waiting readers, and whether an attempt would succeed now.
    pub fn queue(&self) -> (&WaitQueue, bool) {
        let state = self.0.state.lock();
        (&self.0.readable, state.bytes.length > 0 || state.writers == 0)
    }
}

impl PipeWriter {
    /// Moves bytes out of `buffer` as far as there is room; `None` if there is none.
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

    /// The waiting writers, and whether an attempt would succeed now.
    pub fn queue(&self) -> (&WaitQueue, bool) {
        let state = self.0.state.lock();
        (&self.0.writable, state.bytes.length < CAPACITY_BYTES || state.readers == 0)
    }
}

impl Drop for PipeReader {
    fn drop(&mut self) {
        self.0.state.lock().readers -= 1;
        // Each writer that finds the pipe broken wakes the next one.
        self.0.writable.wake_one();
    }
}

impl Drop for PipeWriter {
    fn drop(&mut self) {
        self.0.state.lock().writers -= 1;
        // Each reader that finds the end wakes the next one.
        self.0.readable.wake_one();
    }
}
