//! A pair of connected sockets, as `socketpair` makes it: two pipes, one for each direction.

use cops_abi::Errno;
use cops_abi::errno::CallResult;
use cops_abi::poll::bits_if;
use cops_abi::poll::event::{ERROR, HANG_UP, READ_HANG_UP, READABLE, WRITABLE};

use super::pipe::{PipeReader, PipeWriter, pipe};
use crate::mm::PinnedBuffer;
use crate::mm::quota::Family;
use crate::net::Timeouts;
use crate::sched::{WaitQueue, Waiting};

/// One end of the pair.
pub struct Paired {
    reader: PipeReader,
    writer: PipeWriter,
    /// How long synchronous calls wait.
    pub timeouts: Timeouts,
}

/// Both ends; bytes on their way are charged to `family`.
///
/// # Errors
/// `ENOMEM`.
pub fn pair(family: Family) -> Result<[Paired; 2], Errno> {
    let (first, second) = (pipe(family)?, pipe(family)?);
    let end = |reader, writer| Paired { reader, writer, timeouts: Timeouts::none() };
    Ok([end(first.0, second.1), end(second.0, first.1)])
}

impl Paired {
    /// As for a pipe.
    pub fn attempt_read(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        self.reader.attempt(buffer)
    }

    /// As for a pipe.
    pub fn attempt_peek(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        self.reader.attempt_peek(buffer)
    }

    /// As for a pipe, but an empty write finds out, too, that the other end is closed.
    pub fn attempt_write(&self, buffer: &PinnedBuffer) -> Option<CallResult> {
        if buffer.len() == 0 && self.writer.is_broken() {
            return Some(Err(Errno::EPIPE));
        }
        self.writer.attempt(buffer)
    }

    /// Number of bytes that a read finds.
    pub fn unread_bytes(&self) -> usize {
        self.reader.unread_bytes()
    }

    /// Closes one direction or both. The other end sees it, after the bytes that were written.
    pub fn shut_down(&self, reading: bool, writing: bool) {
        if reading {
            self.reader.shut_down();
        }
        if writing {
            self.writer.shut_down();
        }
    }

    /// The events of `ppoll` that it has.
    pub fn readiness(&self) -> u32 {
        let (reading, writing) = (self.reader.readiness(), self.writer.readiness());
        let (has_ended, is_broken) = (reading & HANG_UP != 0, writing & ERROR != 0);
        reading & READABLE
            | writing & WRITABLE
            | bits_if(has_ended, READABLE | READ_HANG_UP)
            | bits_if(is_broken, WRITABLE)
            | bits_if(has_ended && is_broken, HANG_UP)
    }

    /// The calls that wait for a direction, and whether an attempt would succeed now.
    pub fn queue(&self, waiting: Waiting) -> (&WaitQueue, bool) {
        match waiting {
            Waiting::ToRead => self.reader.queue(),
            Waiting::ToWrite => self.writer.queue(),
        }
    }

    /// The calls that wait for a direction.
    pub fn waiters(&self, waiting: Waiting) -> &WaitQueue {
        match waiting {
            Waiting::ToRead => self.reader.waiters(),
            Waiting::ToWrite => self.writer.waiters(),
        }
    }
}
