//! Reads that stand: one call delivers what its connection receives, again and again, into the same
//! block of the program (decision 51).
//!
//! The protocol on the block's first word is `cops_abi::standing`'s. May touch: the socket, and the
//! program's block, which is pinned.
#![forbid(unsafe_code)]

use alloc::sync::Arc;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::standing::{BLOCK_BYTES_MAX, ENDED, HEADER_BYTES};
use cops_abi::standing::{fill, is_empty, result, want};

use crate::fs::{File, Object};
use crate::mm::PinnedBuffer;

/// A standing read.
pub struct StandingRead {
    /// The socket.
    pub file: Arc<File>,
    block: PinnedBuffer,
    /// It has waited once for room in the ring since its last result.
    has_waited: AtomicBool,
}

impl StandingRead {
    /// A standing read of `file` into `block`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if it is no TCP socket; `EINVAL` if the block is not aligned to its header, has
    /// no room behind it, or is larger than [`BLOCK_BYTES_MAX`].
    pub fn new(file: Arc<File>, block: PinnedBuffer) -> Result<Self, Errno> {
        if !matches!(file.object, Object::Socket(_)) {
            return Err(Errno::EOPNOTSUPP);
        }
        let has_room = block.len() > HEADER_BYTES && block.len() <= BLOCK_BYTES_MAX;
        if !has_room || block.first_word().is_none() {
            return Err(Errno::EINVAL);
        }
        Ok(Self { file, block, has_waited: AtomicBool::new(false) })
    }

    /// Maximum number of bytes that an attempt moves.
    pub fn bytes_max(&self) -> usize {
        self.block.len()
    }

    /// The ring has no room for a result. Whether the attempt is put off until the process, if it
    /// is ready, has had its turn: once for each result, so that a process that takes none is not
    /// waited for.
    pub fn waits_for_room(&self) -> bool {
        !self.has_waited.swap(true, Relaxed)
    }

    fn turn(&self) -> &AtomicU32 {
        self.block.first_word().expect("checked when the call was made")
    }

    /// Moves what has arrived into the block, if that is empty. Returns the result, and whether the
    /// connection will wake its queue for what arrives later. `None`: the block is not empty, or
    /// nothing has arrived. The result is one with which the call ends; without [`ENDED`] it is one
    /// after which the call stands.
    pub fn attempt(&self) -> (Option<CallResult>, bool) {
        let Object::Socket(socket) = &self.file.object else {
            return (Some(Err(Errno::EOPNOTSUPP)), false);
        };
        let turn = self.turn();
        if !is_empty(turn) {
            return (None, false);
        }
        let (moved, behind) = socket.attempt_read_and_listen(&self.block, HEADER_BYTES);
        if moved.is_some() {
            fill(turn);
            self.has_waited.store(false, Relaxed);
        }
        let mark = |count| if count == 0 { 0 } else { result(count, behind.bytes) | ENDED };
        (moved.map(|moved| moved.map(mark)), behind.wakes)
    }

    /// There may be more for the block. Whether the program asks for it; if not, the block is empty
    /// and the next attempt fills it.
    pub fn wants_more(&self) -> bool {
        want(self.turn())
    }
}
