//! Reads and writes of several buffers, or at a given offset.
//!
//! A write of several buffers is gathered into frames of the kernel first, so that it is one write:
//! its bytes appear together in a pipe and at the end of a file. A read fills one buffer after the
//! other. Both may move less than was asked for, as `read` and `write` may.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::errno::CallResult;
use cops_fallible::{List, OutOfMemory};

use crate::fs::File;
use crate::mm::PinnedBuffer;
use crate::mm::quota::{Family, Kept};
use crate::sched::Waiting;

/// A read or a write.
pub struct Transfer {
    /// The open file.
    file: Arc<File>,
    /// The buffers, in order.
    buffers: List<PinnedBuffer>,
    /// Where in the file; `None`: at its position, which moves.
    offset: Option<u64>,
    /// Whether it reads or writes.
    direction: Waiting,
    kept: Kept,
}

impl Transfer {
    /// Reads into `buffers`, or writes them, at `offset` or at the position of the file.
    pub fn new(
        file: Arc<File>,
        buffers: List<PinnedBuffer>,
        offset: Option<u64>,
        direction: Waiting,
    ) -> Self {
        Self { file, buffers, offset, direction, kept: Kept::default() }
    }

    /// It has to wait: charges what it keeps.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub fn begin_waiting(&mut self, family: Family) -> Result<(), OutOfMemory> {
        let copied: usize = self.buffers.iter().map(PinnedBuffer::copied_bytes).sum();
        let list = self.buffers.len() * size_of::<PinnedBuffer>();
        self.kept.at_least(family, size_of::<Self>() + list + copied)
    }

    /// The number of the operation for measurements.
    pub fn number(&self) -> u32 {
        if self.direction == Waiting::ToRead { 1 } else { 2 }
    }

    /// The file and the direction.
    pub fn file(&self) -> (&File, Waiting) {
        (&self.file, self.direction)
    }

    /// Moves what can be moved now; `None` if that is nothing, and the call has to wait.
    #[inline(never)]
    pub fn attempt(&self) -> Option<CallResult> {
        let mut done = 0;
        for buffer in self.buffers.iter() {
            let result = match (self.direction, self.offset) {
                (Waiting::ToRead, None) => self.file.attempt_read(buffer),
                (Waiting::ToWrite, None) => self.file.attempt_write(buffer),
                (Waiting::ToRead, Some(offset)) => {
                    self.file.attempt_read_at(offset + done as u64, buffer)
                }
                (Waiting::ToWrite, Some(offset)) => {
                    self.file.attempt_write_at(offset + done as u64, buffer)
                }
            };
            match result {
                Some(Ok(count)) => {
                    done += count;
                    if count < buffer.len() {
                        break;
                    }
                }
                // What has been moved is reported; the next call finds the error, or waits.
                None if done > 0 => break,
                Some(Err(error)) if done > 0 => {
                    self.file.restore_error(error);
                    break;
                }
                other => return other,
            }
        }
        Some(Ok(done))
    }
}
