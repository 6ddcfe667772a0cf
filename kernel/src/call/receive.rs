//! Receives with flags, on a socket: `recvfrom` of Linux programs.
#![forbid(unsafe_code)]

use alloc::sync::Arc;

use cops_abi::Errno;
use cops_abi::errno::CallResult;

use crate::fs::{File, Object};
use crate::mm::PinnedBuffer;

/// A receive.
pub struct Receive {
    /// The socket.
    pub file: Arc<File>,
    /// Where the bytes go.
    pub buffer: PinnedBuffer,
    /// What is received can be received again.
    pub peeks: bool,
    /// It fails with `EAGAIN` rather than wait.
    pub is_non_blocking: bool,
}

impl Receive {
    /// Moves what can be moved now; `None` if that is nothing, and the call has to wait.
    pub fn attempt(&self) -> Option<CallResult> {
        match &self.file.object {
            Object::Socket(socket) if self.peeks => socket.attempt_peek(&self.buffer),
            Object::Paired(paired) if self.peeks => paired.attempt_peek(&self.buffer),
            _ if self.peeks => Some(Err(Errno::ENOTSOCK)),
            _ => self.file.attempt_read(&self.buffer),
        }
    }
}
