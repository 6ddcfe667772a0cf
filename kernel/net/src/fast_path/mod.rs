//! The fast path: connections of which all is as usual have no socket of smoltcp.
//!
//! Such a connection has a [`FastPath`] in its endpoint: a few numbers, a template of the headers
//! that it sends, and two queues of bytes. A segment that is the expected one is appended to a
//! queue; an answer is written with the template. At anything else the connection *leaves* the
//! fast path: it gets a socket of smoltcp in the same state, and what is unusual happens to that.
//! So this module decides only whether a segment is the expected one, and has no rule for any
//! other. [Decision 54](../../../../docs/decisions/0054-the-fast-path-of-a-connection.md).
//!
//! | module | contents |
//! |---|---|
//! | `enter` | which connections enter, and what is known about their numbers |
//! | `receive`, `send` | the expected segment; data, acknowledgements |
//! | `template` | the headers of what is sent |
//! | `leave` | a socket of smoltcp in the state of the connection |

mod enter;
mod leave;
mod receive;
mod send;
mod template;

pub(crate) use enter::Tracking;
use template::Template;

use crate::bytes::ByteQueue;
use crate::shared::QueueCharge;
use crate::window::Room;
use cops_fallible::OutOfMemory;

/// After this time without an acknowledgement the connection leaves the fast path, and smoltcp
/// sends again: smoltcp's first and shortest retransmission timeout.
const RETRANSMISSION_MICROSECONDS: u64 = 1_000_000;

/// The state of a connection on the fast path: established, open in both directions, nothing
/// missing. Protected by the endpoint's lock. All numbers are those of the segments.
#[derive(Debug)]
pub(crate) struct FastPath {
    /// The next number expected from the peer (RCV.NXT).
    next_expected: u32,
    /// The first number that the peer has not acknowledged (SND.UNA), and the next number to be
    /// sent (SND.NXT).
    unacknowledged: u32,
    next_to_send: u32,
    /// The window that the peer has announced, as in its last segment.
    peer_window: u16,
    /// Received, and not yet read by the program.
    received: ByteQueue,
    /// Bytes of the program from the number `unacknowledged` on: in flight, then not yet sent.
    outgoing: ByteQueue,
    /// What is charged for both.
    charge: QueueCharge,
    memory: Memory,
    /// The sizes of the receive and transmit buffers that a socket would have.
    receive_capacity: usize,
    transmit_capacity: usize,
    /// Whether small segments wait while data is in flight (Nagle's algorithm).
    nagle: bool,
    /// When the first bytes in flight were sent or the peer last made progress.
    sent_at: u64,
    /// Number of segments received on this stay.
    segments: u32,
    template: Template,
}

/// Whether a write has found no memory. It is to be made again when there is some: nothing tells
/// when memory is freed, so the connection looks for it from time to time, and wakes the writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    Enough,
    /// A write has failed since the connection was last served.
    Missing,
    /// It looks again at this time, after such a pause.
    LooksAt(u64, u64),
}

impl FastPath {
    fn in_flight(&self) -> usize {
        self.next_to_send.wrapping_sub(self.unacknowledged) as usize
    }

    fn unsent(&self) -> usize {
        self.outgoing.len().saturating_sub(self.in_flight())
    }

    /// How much more may be received.
    fn window(&self) -> usize {
        self.receive_capacity.saturating_sub(self.received.len())
    }

    /// The same, for announcements to a peer of which whole segments have `largest` bytes.
    #[inline(always)]
    pub(crate) fn receive_room(&self, largest: usize) -> Room {
        Room { free: self.window(), capacity: self.receive_capacity, largest }
    }

    /// Whether there are bytes to read.
    pub(crate) fn unread(&self) -> usize {
        self.received.len()
    }

    /// Number of bytes that the peer has not acknowledged, sent or not.
    pub(crate) fn queued(&self) -> usize {
        self.outgoing.len()
    }

    /// How much more the program may queue.
    pub(crate) fn room(&self) -> usize {
        self.transmit_capacity.saturating_sub(self.outgoing.len())
    }

    pub(crate) fn set_nagle(&mut self, nagle: bool) {
        self.nagle = nagle;
    }

    /// Lets `take` read the received bytes, and removes those that it has consumed. Returns their
    /// number and the result of `take`.
    pub(crate) fn read<R>(&mut self, take: impl FnOnce(&[u8]) -> (usize, R)) -> (usize, R) {
        let before = self.received.len();
        let (count, result) = take(self.received.as_slice());
        let count = count.min(before);
        self.received.consume(count);
        (count, result)
    }

    /// Lets `fill` write at most `length` bytes to be sent: fewer if there is no memory for all.
    ///
    /// # Errors
    /// [`OutOfMemory`], and then `fill` was not called. The next time that the connection is served
    /// is the beginning of a wait for memory.
    pub(crate) fn write<R>(
        &mut self,
        length: usize,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Result<(usize, R), OutOfMemory> {
        let length = length.min(self.room());
        match self
            .make_room_to_send(length)
            .and_then(|length| self.outgoing.try_append_with(length, fill))
        {
            Ok(written) => {
                self.memory = Memory::Enough;
                Ok(written)
            }
            Err(error) => {
                if self.memory == Memory::Enough {
                    self.memory = Memory::Missing;
                }
                Err(error)
            }
        }
    }

    /// Makes room for `length` bytes to be sent, or for as many as there is memory for.
    ///
    /// # Errors
    /// [`OutOfMemory`]: for none.
    #[inline(always)]
    fn make_room_to_send(&mut self, length: usize) -> Result<usize, OutOfMemory> {
        match make_room(&mut self.outgoing, &mut self.charge, length) {
            Ok(()) => Ok(length),
            Err(error) => self.make_some_room_to_send(length).ok_or(error),
        }
    }

    #[cold]
    #[inline(never)]
    fn make_some_room_to_send(&mut self, length: usize) -> Option<usize> {
        let mut some = length;
        while some > 1 {
            some /= 2;
            if make_room(&mut self.outgoing, &mut self.charge, some).is_ok() {
                return Some(some);
            }
        }
        None
    }

    /// Whether a write waits for memory.
    pub(crate) fn lacks_memory(&self) -> bool {
        self.memory != Memory::Enough
    }

    /// Whether a write waits for memory and the connection was not served since.
    pub(crate) fn begins_to_wait(&self) -> bool {
        self.memory == Memory::Missing
    }

    /// Appends what was received.
    ///
    /// # Errors
    /// [`OutOfMemory`]; the queue is as it was.
    #[inline(always)]
    fn append_received(&mut self, data: &[u8]) -> Result<(), OutOfMemory> {
        make_room(&mut self.received, &mut self.charge, data.len())?;
        self.received.try_append(data)
    }

    /// Frees the memory of the queues that are empty.
    fn release_queues(&mut self) {
        let freed = self.received.release() + self.outgoing.release();
        self.charge.shrink(freed);
    }
}

/// Makes room for `length` more bytes in `queue`.
///
/// # Errors
/// [`OutOfMemory`]; queue and charge are as they were.
#[inline(always)]
fn make_room(
    queue: &mut ByteQueue,
    charge: &mut QueueCharge,
    length: usize,
) -> Result<(), OutOfMemory> {
    if queue.has_room(length) { Ok(()) } else { grow(queue, charge, length) }
}

#[cold]
#[inline(never)]
fn grow(queue: &mut ByteQueue, charge: &mut QueueCharge, length: usize) -> Result<(), OutOfMemory> {
    let missing = queue.missing(length);
    // The bytes may only have to be moved.
    if missing > 0 {
        charge.grow(missing)?;
    }
    queue.grow(length).inspect_err(|_| charge.shrink(missing))
}
