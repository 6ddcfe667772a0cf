//! Sends and receives with flags, on a socket: `sendto` and `recvfrom` of Linux programs.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;

use crate::fs::{File, Object};
use crate::mm::PinnedBuffer;
use crate::sched::Waiting;

/// A send or a receive.
pub struct Message {
    /// The socket.
    pub file: Arc<File>,
    /// The bytes.
    pub buffer: PinnedBuffer,
    /// Whether it receives or sends.
    pub direction: Waiting,
    /// What is received can be received again.
    pub peeks: bool,
    /// It fails with `EAGAIN` rather than wait.
    pub is_non_blocking: bool,
}

impl Message {
    /// The number of the operation for measurements.
    pub fn number(&self) -> u32 {
        if self.direction == Waiting::ToRead { 1 } else { 2 }
    }

    /// The file and the direction.
    pub fn file(&self) -> (&File, Waiting) {
        (&self.file, self.direction)
    }

    /// Moves what can be moved now; `None` if that is nothing, and the call has to wait.
    pub fn attempt(&self) -> Option<CallResult> {
        match (self.direction, &self.file.object) {
            (Waiting::ToWrite, _) => self.file.attempt_write(&self.buffer),
            (Waiting::ToRead, Object::Socket(socket)) if self.peeks => {
                socket.attempt_peek(&self.buffer)
            }
            (Waiting::ToRead, _) if self.peeks => Some(Err(Errno::EOPNOTSUPP)),
            (Waiting::ToRead, _) => self.file.attempt_read(&self.buffer),
        }
    }
}
