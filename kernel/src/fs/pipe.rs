//! Anonymous pipes: a bounded byte queue with a reading and a writing end.

use alloc::collections::VecDeque;
use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use spin::Mutex;

use crate::mm::PinnedBuffer;
use crate::task::WaitQueue;

/// Bytes a pipe holds, as on Linux.
const CAPACITY_BYTES: usize = 65_536;

struct State {
    bytes: VecDeque<u8>,
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

/// A pipe with nothing in it.
pub fn pipe() -> (PipeReader, PipeWriter) {
    let pipe = Arc::new(Pipe {
        state: Mutex::new(State { bytes: VecDeque::new(), readers: 1, writers: 1 }),
        readable: WaitQueue::new(),
        writable: WaitQueue::new(),
    });
    (PipeReader(pipe.clone()), PipeWriter(pipe))
}

impl PipeReader {
    /// Moves what is there into `buffer`; `None` if nothing is and a writer is left.
    pub fn attempt(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        let mut state = self.0.state.lock();
        if buffer.len() == 0 {
            return Some(Ok(0));
        }
        if state.bytes.is_empty() {
            return (state.writers == 0).then_some(Ok(0));
        }
        let count = buffer.len().min(state.bytes.len());
        let (front, back) = state.bytes.as_slices();
        let from_front = count.min(front.len());
        buffer.write_at(0, &front[..from_front]);
        buffer.write_at(from_front, &back[..count - from_front]);
        state.bytes.drain(..count);
        drop(state);
        self.0.writable.wake_one();
        Some(Ok(count))
    }

    /// The readers that wait, and whether an attempt would succeed now.
    pub fn queue(&self) -> (&WaitQueue, bool) {
        let state = self.0.state.lock();
        (&self.0.readable, !state.bytes.is_empty() || state.writers == 0)
    }
}

impl PipeWriter {
    /// Moves what fits out of `buffer`; `None` if nothing does.
    pub fn attempt(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        let mut state = self.0.state.lock();
        if state.readers == 0 {
            return Some(Err(Errno::EPIPE));
        }
        let count = buffer.len().min(CAPACITY_BYTES - state.bytes.len());
        if count == 0 && buffer.len() > 0 {
            return None;
        }
        let mut chunk = [0; 512];
        let mut done = 0;
        while done < count {
            let part = (count - done).min(chunk.len());
            buffer.read_at(done, &mut chunk[..part]);
            state.bytes.extend(&chunk[..part]);
            done += part;
        }
        drop(state);
        self.0.readable.wake_one();
        Some(Ok(count))
    }

    /// The writers that wait, and whether an attempt would succeed now.
    pub fn queue(&self) -> (&WaitQueue, bool) {
        let state = self.0.state.lock();
        (&self.0.writable, state.bytes.len() < CAPACITY_BYTES || state.readers == 0)
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
