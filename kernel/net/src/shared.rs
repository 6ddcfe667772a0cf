//! What both interfaces and all handles share: settings, time, counters, ports, the poll deadline.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::task::Waker;

use cops_fallible::{OutOfMemory, try_arc};
use cops_lock::Mutex;

use crate::backlog::ClosedListeners;
use crate::bytes::BYTES_MIN;
use crate::configuration::{Configuration, Lease};
use crate::device::Clock;
use crate::endpoint::Endpoint;
use crate::error::Error;
use crate::next_poll::NextPoll;
use crate::registry::Registry;
use crate::statistics::Counters;
use crate::wakers::WakerSet;

/// The common part of a stack.
pub(crate) struct Shared {
    pub(crate) configuration: Configuration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) counters: Counters,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) deadline: Deadline,
    pub(crate) network: Mutex<Network>,
    pub(crate) closed_listeners: ClosedListeners,
    /// Source of endpoint numbers.
    next_number: AtomicU64,
    connections: AtomicUsize,
    /// Bytes charged for connections and their buffers, and beyond how many memory is short.
    charged_bytes: AtomicUsize,
    short_beyond: usize,
}

/// The current IPv4 configuration, and the coroutines that wait for one.
#[derive(Default)]
pub(crate) struct Network {
    pub(crate) lease: Option<Lease>,
    pub(crate) waiters: WakerSet,
}

impl Shared {
    pub(crate) fn new(
        configuration: Configuration,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Shared>, OutOfMemory> {
        try_arc(Shared {
            short_beyond: eighths(SHORT_EIGHTHS, &configuration),
            registry: Mutex::new(Registry::new(&configuration.random_seeds)),
            configuration,
            clock,
            counters: Counters::default(),
            deadline: Deadline::default(),
            network: Mutex::default(),
            closed_listeners: ClosedListeners::default(),
            next_number: AtomicU64::new(1),
            connections: AtomicUsize::new(0),
            charged_bytes: AtomicUsize::new(0),
        })
    }

    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }
}

/// A connection without traffic for this time enters the fast path, and frees its queues.
pub(crate) const IDLE_MICROSECONDS: u64 = 1_000_000;
/// The same while memory is short: longer than most programs take for an answer.
pub(crate) const IDLE_WHEN_SHORT_MICROSECONDS: u64 = 20_000;
/// While memory is used up, a connection ends if its peer has acknowledged none of the bytes that
/// wait for it for this time, or has not ended a connection without an owner.
pub(crate) const STALLED_MICROSECONDS: u64 = 30_000_000;

/// Parts of what all connections may have, in eighths. Beyond the first, memory is short: buffers
/// that were in use before may be kept for a second. Beyond the second, peers that take nothing are
/// not waited for. The others are for new connections; for the queues of those that there are; and
/// for their sockets, so a connection can still be closed in an orderly way.
const SHORT_EIGHTHS: usize = 2;
const USED_UP_EIGHTHS: usize = 5;
const OF_NEW_EIGHTHS: usize = 6;
const OF_QUEUES_EIGHTHS: usize = 7;
const OF_SOCKETS_EIGHTHS: usize = 8;

fn eighths(number: usize, configuration: &Configuration) -> usize {
    configuration.maximum_connection_bytes / 8 * number
}

impl Shared {
    /// Whether connections are to free memory early.
    #[inline(always)]
    pub(crate) fn is_memory_short(&self) -> bool {
        self.charged_bytes.load(Ordering::Relaxed) > self.short_beyond
    }

    /// Whether new connections will soon find no memory.
    pub(crate) fn is_memory_used_up(&self) -> bool {
        let limit = eighths(USED_UP_EIGHTHS, &self.configuration);
        self.charged_bytes.load(Ordering::Relaxed) > limit
    }

    /// Whether a connection on the fast path may have a larger queue.
    pub(crate) fn has_memory_for_queues(&self) -> bool {
        let limit = eighths(OF_QUEUES_EIGHTHS, &self.configuration);
        self.charged_bytes.load(Ordering::Relaxed) + BYTES_MIN <= limit
    }

    /// Charges `bytes` unless more than so many eighths would be used.
    fn charge_bytes(&self, bytes: usize, part: usize) -> bool {
        charge(&self.charged_bytes, bytes, eighths(part, &self.configuration))
    }

    /// After how long without traffic a connection frees its buffers.
    #[inline(always)]
    pub(crate) fn idle_microseconds(&self) -> u64 {
        if self.is_memory_short() { IDLE_WHEN_SHORT_MICROSECONDS } else { IDLE_MICROSECONDS }
    }
}

/// What a TCP connection costs without a socket and buffers: the endpoint, and what its owner needs
/// for it.
const CONNECTION_BYTES: usize = 2560;

/// Adds to a counter as long as it stays within `limit`. Returns whether it did.
fn charge(counter: &AtomicUsize, amount: usize, limit: usize) -> bool {
    let add = |now: usize| now.checked_add(amount).filter(|&sum| sum <= limit);
    counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
}

/// Permission to have one TCP connection. Dropped together with the connection, so the counters
/// always match the memory.
pub(crate) struct ConnectionSlot(Arc<Shared>);

impl ConnectionSlot {
    pub(crate) fn take(shared: &Arc<Shared>) -> Result<ConnectionSlot, Error> {
        let configuration = &shared.configuration;
        if !charge(&shared.connections, 1, configuration.maximum_connections) {
            return Err(Error::TooManyConnections);
        }
        if !shared.charge_bytes(CONNECTION_BYTES, OF_NEW_EIGHTHS) {
            shared.connections.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::TooManyConnections);
        }
        shared.counters.connections_now.add(1);
        shared.counters.connections_opened.add(1);
        Ok(ConnectionSlot(shared.clone()))
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.0.connections.fetch_sub(1, Ordering::Relaxed);
        self.0.charged_bytes.fetch_sub(CONNECTION_BYTES, Ordering::Relaxed);
        self.0.counters.connections_now.subtract(1);
    }
}

/// Permission to have the socket of one TCP connection. Dropped when it is freed.
pub(crate) struct BufferSlot {
    shared: Arc<Shared>,
    bytes: usize,
}

impl BufferSlot {
    fn bytes(shared: &Shared) -> usize {
        let configuration = &shared.configuration;
        configuration.receive_buffer_bytes
            + configuration.transmit_buffer_bytes
            + Endpoint::socket_bytes()
    }

    /// For a connection that there is.
    #[cold]
    pub(crate) fn take(shared: &Arc<Shared>) -> Result<BufferSlot, OutOfMemory> {
        Self::within(shared, OF_SOCKETS_EIGHTHS)
    }

    /// For a new connection, which leaves some to the others.
    pub(crate) fn take_new(shared: &Arc<Shared>) -> Result<BufferSlot, OutOfMemory> {
        Self::within(shared, OF_NEW_EIGHTHS)
    }

    fn within(shared: &Arc<Shared>, part: usize) -> Result<BufferSlot, OutOfMemory> {
        let bytes = Self::bytes(shared);
        let charged = shared.charge_bytes(bytes, part);
        charged.then(|| BufferSlot { shared: shared.clone(), bytes }).ok_or(OutOfMemory)
    }

    /// For a closed socket with the queue that `charge` is for, also beyond the limit.
    pub(crate) fn of_queue(mut charge: QueueCharge) -> BufferSlot {
        charge.resume(Endpoint::socket_bytes());
        let bytes = core::mem::take(&mut charge.bytes);
        BufferSlot { shared: charge.shared.clone(), bytes }
    }
}

impl Drop for BufferSlot {
    fn drop(&mut self) {
        self.shared.charged_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// What is charged for the queues of a connection on the fast path. Dropped together with them.
pub(crate) struct QueueCharge {
    shared: Arc<Shared>,
    bytes: usize,
}

impl QueueCharge {
    pub(crate) fn new(shared: &Arc<Shared>) -> QueueCharge {
        QueueCharge { shared: shared.clone(), bytes: 0 }
    }

    /// # Errors
    /// [`OutOfMemory`]; the charge is as it was.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), OutOfMemory> {
        if !self.shared.charge_bytes(bytes, OF_QUEUES_EIGHTHS) {
            return Err(OutOfMemory);
        }
        self.bytes += bytes;
        Ok(())
    }

    pub(crate) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.shared.charged_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Charges nothing any more. Returns what was charged, to [`resume`](Self::resume) that.
    pub(crate) fn suspend(&mut self) -> usize {
        let bytes = self.bytes;
        self.shrink(bytes);
        bytes
    }

    /// Charges `bytes`, also beyond the limit: they are in use.
    pub(crate) fn resume(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.shared.charged_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for QueueCharge {
    fn drop(&mut self) {
        self.shrink(self.bytes);
    }
}

impl core::fmt::Debug for QueueCharge {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(formatter, "{} bytes", self.bytes)
    }
}

/// Wakes the coroutine that calls `poll`, if that would come too late (see `next_poll`).
#[derive(Default)]
pub(crate) struct Deadline {
    pub(crate) next: NextPoll,
    waker: Mutex<Option<Waker>>,
}

impl Deadline {
    pub(crate) fn register(&self, waker: &Waker) {
        let mut slot = self.waker.lock();
        if !slot.as_ref().is_some_and(|current| current.will_wake(waker)) {
            *slot = Some(waker.clone());
        }
    }

    /// There is work at `deadline`.
    pub(crate) fn wake_poller_by(&self, deadline: u64) {
        if self.next.claim_wake(deadline) {
            let waker = self.waker.lock().clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}
