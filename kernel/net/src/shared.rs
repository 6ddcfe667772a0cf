//! What both interfaces and all handles share: settings, time, counters, ports, the poll deadline.

use alloc::sync::Arc;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use core::task::Waker;

use cops_fallible::{OutOfMemory, try_arc};
use cops_lock::Mutex;

use crate::backlog::ClosedListeners;
use crate::configuration::{Configuration, Lease};
use crate::device::Clock;
use crate::endpoint::Endpoint;
use crate::error::Error;
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
    /// Bytes charged for connections and their buffers.
    charged_bytes: AtomicUsize,
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
        let limit = configuration.maximum_connection_bytes;
        if !charge(&shared.charged_bytes, CONNECTION_BYTES, limit) {
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

/// Permission to have the socket or the queues of one TCP connection. Dropped when they are freed.
pub(crate) struct BufferSlot(Arc<Shared>);

impl BufferSlot {
    fn bytes(shared: &Shared) -> usize {
        let configuration = &shared.configuration;
        configuration.receive_buffer_bytes
            + configuration.transmit_buffer_bytes
            + Endpoint::socket_bytes()
    }

    #[cold]
    pub(crate) fn take(shared: &Arc<Shared>) -> Result<BufferSlot, OutOfMemory> {
        let limit = shared.configuration.maximum_connection_bytes;
        let charged = charge(&shared.charged_bytes, Self::bytes(shared), limit);
        charged.then(|| BufferSlot(shared.clone())).ok_or(OutOfMemory)
    }
}

impl Drop for BufferSlot {
    fn drop(&mut self) {
        self.0.charged_bytes.fetch_sub(Self::bytes(&self.0), Ordering::Relaxed);
    }
}

/// Coordinates code that arms timers with the coroutine that calls `poll`.
///
/// `promised` is the time at which that coroutine will call `poll` without being woken. Code that
/// arms an earlier deadline wakes it. No wake is lost: `poll` first promises "never" (so that any
/// deadline armed meanwhile wakes it), then reads the timers under the interface's lock, then
/// promises the earliest one. A deadline armed before the read is found by it. Code that arms a
/// deadline after the read sees, through the interface's lock, "never" or the new promise, and
/// compares with that. The waker is registered before `poll`; `poll` itself does not announce the
/// deadlines it arms, because its read finds them.
pub(crate) struct Deadline {
    promised: AtomicU64,
    waker: Mutex<Option<Waker>>,
}

/// The promise "never".
const NEVER: u64 = u64::MAX;

impl Default for Deadline {
    fn default() -> Self {
        Deadline { promised: AtomicU64::new(NEVER), waker: Mutex::new(None) }
    }
}

impl Deadline {
    pub(crate) fn register(&self, waker: &Waker) {
        let mut slot = self.waker.lock();
        if !slot.as_ref().is_some_and(|current| current.will_wake(waker)) {
            *slot = Some(waker.clone());
        }
    }

    /// Called at the beginning of `poll`.
    pub(crate) fn begin(&self) {
        self.promised.store(NEVER, Ordering::SeqCst);
    }

    /// Called at the end of `poll`, which will be called again at `deadline`.
    pub(crate) fn promise(&self, deadline: Option<u64>) {
        self.promised.store(deadline.unwrap_or(NEVER), Ordering::SeqCst);
    }

    /// There is work at `deadline`: wakes the polling coroutine if it would be too late.
    pub(crate) fn wake_poller_by(&self, deadline: u64) {
        // After one wake it will call `poll`; until then, further wakes are unnecessary.
        if self.promised.load(Ordering::SeqCst) > deadline
            && self.promised.swap(0, Ordering::SeqCst) > deadline
        {
            let waker = self.waker.lock().clone();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}
