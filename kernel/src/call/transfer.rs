//! Reads and writes of several buffers, or at a given offset.
//!
//! A write of several buffers is gathered into frames of the kernel first, so that it is one write:
//! its bytes appear together in a pipe and at the end of a file. A read fills one buffer after the
//! other. Both may move less than was asked for, as `read` and `write` may.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::errno::CallResult;
use cops_fallible::List;

use crate::fs::File;
use crate::mm::PinnedBuffer;
use crate::sched::Waiting;

/// A read or a write.
pub struct Transfer {
    /// The open file.
    pub file: Arc<File>,
    /// The buffers, in order.
    pub buffers: List<PinnedBuffer>,
    /// Where in the file; `None`: at its position, which moves.
    pub offset: Option<u64>,
    /// Whether it reads or writes.
    pub direction: Waiting,
}

impl Transfer {
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
                Some(Err(_)) | None if done > 0 => break,
                other => return other,
            }
        }
        Some(Ok(done))
    }
}
