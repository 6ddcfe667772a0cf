//! The stack: its two interfaces, and the functions that the driver and timer coroutines call.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::IpAddr;
use core::sync::atomic::{AtomicBool, Ordering};
use core::task::{Context, Poll, Waker};

use cops_fallible::{List, Map, Table, try_arc};

use crate::addressing;
use crate::configuration::{Configuration, Lease};
use crate::device::{Clock, FrameDevice};
use crate::endpoint::{Endpoint, LinkKind};
use crate::error::Error;
use crate::frame::FlowKey;
use crate::link::{Link, LinkGuard, Remainder};
use crate::shared::Shared;
use crate::statistics::Statistics;
use crate::stream::Owner;
use crate::timers::Armed;
use crate::timers::earlier;

/// Maximum number of timers that one `poll` runs and frames that it moves, on both interfaces
/// together.
const STEPS_PER_POLL: u32 = 6;
/// Maximum number of connections of closed listeners that one `poll` resets.
const RESETS_PER_POLL: u32 = 4;
/// A batch of received frames should end when so many have been moved, answers included: four
/// expected segments with their answers, or two exits from the fast path.
const FRAMES_PER_BATCH: u64 = 8;

/// A TCP/IP stack with a loopback interface and, if there is a device, an Ethernet interface.
///
/// All harts share it; every method may be called on any hart, but never by an interrupt handler, a
/// [`FrameDevice`], a [`Clock`] or a waker's wake function.
pub struct Stack {
    pub(crate) shared: Arc<Shared>,
    loopback: Link,
    ethernet: Option<Link>,
    /// Which interface is first in the next `poll`: so neither uses up the other's steps for ever.
    ethernet_first: AtomicBool,
}

impl Stack {
    /// Creates a stack. Without a device, or with one without a unicast MAC address, it has only
    /// the loopback interface.
    ///
    /// A coroutine must call [`poll`](Self::poll) from then on.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn new(
        configuration: Configuration,
        clock: Arc<dyn Clock>,
        device: Option<Box<dyn FrameDevice>>,
    ) -> Result<Arc<Stack>, Error> {
        let shared = Shared::new(configuration, clock)?;
        let loopback = Link::new(shared.clone(), addressing::loopback(&shared)?);
        let ethernet = match device {
            Some(device) => addressing::ethernet(&shared, device)?,
            None => None,
        };
        let ethernet = ethernet.map(|core| Link::new(shared.clone(), core));
        Ok(try_arc(Stack { shared, loopback, ethernet, ethernet_first: AtomicBool::new(false) })?)
    }

    /// Processes one received Ethernet frame (without frame check sequence): wakes readers,
    /// answers, acknowledges.
    ///
    /// The frame is untrusted; at worst it is dropped and counted.
    pub fn receive(&self, frame: &[u8]) {
        self.receive_batch().receive(frame);
    }

    /// Processes several frames under one hold of the interface, with one notification of the
    /// device. Keep the batch short (a few frames, and until one says that it should end), then
    /// yield: other harts cannot use the interface meanwhile.
    pub fn receive_batch(&self) -> ReceiveBatch<'_> {
        self.batch(self.ethernet.as_ref().map(Link::lock))
    }

    /// As [`receive_batch`](Self::receive_batch), but does not wait for another hart: `None` if one
    /// has the interface. Then the caller's waker is woken when it is free. For one caller at a
    /// time: of several, only the last one is woken.
    pub fn try_receive_batch(&self, context: &Context<'_>) -> Option<ReceiveBatch<'_>> {
        let guard = match &self.ethernet {
            Some(link) => Some(link.lock_or_wait(context.waker())?),
            None => None,
        };
        Some(self.batch(guard))
    }

    fn batch<'a>(&'a self, mut guard: Option<LinkGuard<'a>>) -> ReceiveBatch<'a> {
        let mut begun_at = 0;
        if let Some(guard) = &mut guard {
            guard.now(&self.shared);
            begun_at = guard.frames_moved;
        }
        ReceiveBatch { shared: &self.shared, guard, begun_at }
    }

    /// The device has room again: continues egress that stopped because the device was full. Cheap
    /// if none did.
    pub fn transmit_ready(&self) {
        if let Some(link) = &self.ethernet
            && link.is_blocked()
        {
            drop(link.lock_or_ask());
        }
    }

    /// Whether egress waits for the device. While it does, `transmit_ready` must be called when the
    /// device has room, so a driver that suppresses completion interrupts must enable them.
    pub fn transmit_blocked(&self) -> bool {
        self.ethernet.as_ref().is_some_and(Link::is_blocked)
    }

    /// Runs due timers and pending work, in a bounded portion; those of an interface that another
    /// hart uses are left to that hart. Returns when it must be called again, in the clock's
    /// microseconds. A time not in the future means that there is more work, to be done after other
    /// coroutines have run; `None` means not before the waker is woken.
    ///
    /// The polling coroutine registers its waker, calls `poll`, and sleeps until the deadline or
    /// the wake.
    pub fn poll(&self) -> Option<u64> {
        self.shared.deadline.next.begin();
        let mut earliest = self.reset_some().then_some(0);
        let mut steps = STEPS_PER_POLL;
        let mut links = [Some(&self.loopback), self.ethernet.as_ref()];
        if self.ethernet_first.fetch_not(Ordering::Relaxed) {
            links.reverse();
        }
        for link in links.into_iter().flatten() {
            let Some(mut guard) = link.lock_or_ask() else { continue };
            let due = guard.run_timers(&self.shared, &mut steps);
            let Remainder { deadline, more } = guard.release(&mut steps);
            let deadline = if due || more { Some(0) } else { deadline };
            earliest = earlier(earliest, deadline);
        }
        self.shared.deadline.next.promise(earliest);
        earliest
    }

    /// Resets a few connections that a closed listener has not returned. Returns `true` if there
    /// are more.
    fn reset_some(&self) -> bool {
        for _ in 0..RESETS_PER_POLL {
            let Some(endpoint) = self.shared.closed_listeners.take_connection() else {
                return false;
            };
            if let Some((socket, stream)) = endpoint.state.lock().stream() {
                stream.owner = Owner::None;
                stream.abort(socket, Error::ConnectionAborted, &self.shared.counters);
            }
            if let Some(link) = self.link(endpoint.link) {
                link.enqueue(&endpoint);
            }
        }
        true
    }

    /// Registers the polling coroutine's waker; only the last one registered counts. It is woken
    /// when there is work earlier than the last `poll` returned. Register it before calling `poll`.
    pub fn register_poll_waker(&self, waker: &Waker) {
        self.shared.deadline.register(waker);
    }

    /// The IPv4 configuration of the Ethernet interface; `None` if it has none yet.
    pub fn lease(&self) -> Option<Lease> {
        self.shared.network.lock().lease.clone()
    }

    /// Waits for the Ethernet interface's IPv4 configuration. Cancel-safe: nothing is consumed.
    pub fn poll_configured(&self, context: &mut Context<'_>) -> Poll<Lease> {
        let mut network = self.shared.network.lock();
        match &network.lease {
            Some(lease) => Poll::Ready(lease.clone()),
            None => {
                network.waiters.register(context.waker());
                Poll::Pending
            }
        }
    }

    /// The Ethernet interface's addresses with their prefix lengths in bits.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn addresses(&self) -> Result<List<(IpAddr, u8)>, Error> {
        let Some(link) = &self.ethernet else { return Ok(List::new()) };
        let link = link.lock();
        let addresses = link.interface.ip_addrs().iter();
        Ok(List::try_from_iter(addresses.map(|cidr| (cidr.address().into(), cidr.prefix_len())))?)
    }

    /// A snapshot of the counters.
    pub fn statistics(&self) -> Statistics {
        self.shared.counters.snapshot()
    }

    /// Bytes that one TCP connection costs: this crate's state, its share of the tables, at their
    /// average fill, and with `socket`, smoltcp's socket and its buffers. An idle connection over
    /// Ethernet and IPv4 has no socket.
    pub fn memory_per_connection(&self, socket: bool) -> usize {
        let configuration = &self.shared.configuration;
        let table_entry = Table::<FlowKey, Arc<Endpoint>>::ENTRY_BYTES;
        let neighbour_entry = Map::<u64, Arc<Endpoint>>::ENTRY_BYTES;
        let socket_bytes = if socket {
            configuration.receive_buffer_bytes
                + configuration.transmit_buffer_bytes
                + Endpoint::socket_bytes()
        } else {
            0
        };
        socket_bytes
            + Endpoint::overhead_bytes()
            + table_entry
            + Armed::ENTRY_BYTES
            + neighbour_entry
    }

    /// Number of entries for sockets in the timer queues of both interfaces. An entry may outlive
    /// its socket by 130 ms.
    pub fn timers_armed(&self) -> usize {
        let ethernet = self.ethernet.as_ref().map_or(0, |link| link.lock().timers_armed());
        self.loopback.lock().timers_armed() + ethernet
    }

    pub(crate) fn link(&self, kind: LinkKind) -> Option<&Link> {
        match kind {
            LinkKind::Loopback => Some(&self.loopback),
            LinkKind::Ethernet => self.ethernet.as_ref(),
        }
    }

    pub(crate) fn has_ethernet(&self) -> bool {
        self.ethernet.is_some()
    }

    /// Makes sure that `endpoint` is served, without waiting for the interface.
    pub(crate) fn kick(&self, endpoint: &Arc<Endpoint>) {
        if let Some(link) = self.link(endpoint.link) {
            link.kick(endpoint);
        }
    }

    /// Whether `address` belongs to the Ethernet interface.
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        self.ethernet.as_ref().is_some_and(|link| link.lock().interface.has_ip_addr(address))
    }
}

/// The Ethernet interface, locked for a batch of received frames. Dropping it sends the replies.
pub struct ReceiveBatch<'a> {
    shared: &'a Arc<Shared>,
    guard: Option<LinkGuard<'a>>,
    /// The number of frames moved before.
    begun_at: u64,
}

impl ReceiveBatch<'_> {
    /// Like [`Stack::receive`]. Returns whether the batch should go on: some frames take several
    /// times as long as others.
    pub fn receive(&mut self, frame: &[u8]) -> bool {
        self.pass(frame, false)
    }

    /// The same for a frame for which the device vouches: it has verified TCP's checksum, or the
    /// segment comes from a sender on the same host, and has only the sum of the pseudo header in
    /// that field. A frame may have up to 64 KiB then: several segments that the device has joined,
    /// or that were never divided (receive offload).
    pub fn receive_verified(&mut self, frame: &[u8]) -> bool {
        self.pass(frame, true)
    }

    #[inline(always)]
    fn pass(&mut self, frame: &[u8], is_verified: bool) -> bool {
        let Some(guard) = &mut self.guard else { return true };
        let core = &mut **guard;
        core.receive(self.shared, frame, is_verified);
        core.frames_moved.wrapping_sub(self.begun_at) < FRAMES_PER_BATCH
    }
}
