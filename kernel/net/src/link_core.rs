//! What an interface's lock protects: smoltcp's interface, the device, the tables and the lists.
//!
//! Only `serve` passes an endpoint to smoltcp: at most one received frame in, then frames out until
//! there are no more, then the bookkeeping. Its cost does not depend on the number of other
//! endpoints. Finding the endpoint of a received frame is in `ingress`, addresses and DHCP are in
//! `addressing`.

use alloc::boxed::Box;
use alloc::sync::Arc;

use cops_fallible::{Cursor, List, Map, Table};
use cops_lock::MutexGuard;
use smoltcp::iface::{Interface, SocketSet};
use smoltcp::time::Instant;
use smoltcp::wire::IpAddress;

use crate::chain::{BLOCKED, Chain, TURN};
use crate::device::{Adapter, Transport};
use crate::egress::Egress;
use crate::endpoint::{Endpoint, EndpointState, LinkKind, Protocol};
use crate::frame::{FlowKey, Segment};
use crate::neighbours::Hops;
use crate::path::EthernetHeader;
use crate::recent::Recent;
use crate::shared::Shared;
use crate::time_wait::TimeWaitTable;
use crate::timers::{TimerQueue, earlier};

/// If smoltcp asks to be polled "now" but sends nothing, it is polled again after this time. So no
/// state of a socket can make the poller a busy loop.
const IDLE_RETRY_MICROSECONDS: u64 = 1_000;
/// How long the queue of a UDP socket, or a reset, waits for an unknown neighbour: smoltcp asks for
/// the address each second, so three requests. A reset waits as long for room in the device.
pub(crate) const NEIGHBOUR_MICROSECONDS: u64 = 3_000_000;

/// The part of an interface that its lock protects.
pub(crate) struct LinkCore {
    pub(crate) kind: LinkKind,
    pub(crate) interface: Interface,
    /// The interface for segments of connections of which the path is known (see `path`), and the
    /// number of the present epoch of those paths.
    pub(crate) direct: Option<Box<Interface>>,
    pub(crate) epoch: u64,
    pub(crate) hops: Hops,
    pub(crate) transport: Transport,
    /// For frames that are changed or made up (see `fast_path`).
    pub(crate) memory: List<u8>,
    /// Our hardware address, as [`Plain`](crate::frame::Plain) compares it.
    pub(crate) hardware: u64,
    pub(crate) recent: Recent,
    /// TCP endpoints by their pair of addresses.
    pub(crate) flows: Table<FlowKey, Arc<Endpoint>>,
    /// Where the search for connections of an address that is gone continues in that table.
    pub(crate) homeless_from: Option<Cursor>,
    /// UDP endpoints by local port.
    pub(crate) datagrams: Table<u16, List<Arc<Endpoint>>>,
    pub(crate) dhcp: Option<Arc<Endpoint>>,
    pub(crate) time_wait: TimeWaitTable,
    pub(crate) timers: TimerQueue,
    /// The endpoints that wait for a neighbour's hardware address, by number: exactly those with
    /// `awaiting_neighbour` set.
    pub(crate) awaiting_neighbour: Map<u64, Arc<Endpoint>>,
    /// How many of these are to try again because a neighbour may have become known, and the number
    /// from which to continue.
    pub(crate) to_retry: usize,
    pub(crate) retry_from: u64,
    pub(crate) blocked: Chain<BLOCKED>,
    /// Endpoints that were taken out of the outbox and not yet served, and those that have work
    /// left after their turn.
    pub(crate) turns: Chain<TURN>,
    /// Frames that smoltcp received or sent, and what takes as long as some frames. This bounds a
    /// portion of work.
    pub(crate) frames_moved: u64,
    /// The latest time used, so that time never goes back for smoltcp.
    latest: u64,
    /// This interface's contribution to the counter of TIME-WAIT records.
    counted_time_wait: u64,
}

/// A received frame for an endpoint.
pub(crate) struct Arrival<'a> {
    pub(crate) frame: &'a [u8],
    /// `Some` for TCP.
    pub(crate) segment: Option<&'a Segment<'a>>,
    /// The Ethernet header for the reply, if the segment goes the direct way.
    pub(crate) direct: Option<EthernetHeader>,
}

impl<'a> Arrival<'a> {
    /// A frame that goes the complete way.
    pub(crate) fn complete(frame: &'a [u8], segment: Option<&'a Segment<'a>>) -> Arrival<'a> {
        Arrival { frame, segment, direct: None }
    }
}

impl LinkCore {
    pub(crate) fn new(
        shared: &Shared,
        kind: LinkKind,
        interface: Interface,
        transport: Transport,
    ) -> LinkCore {
        let seed = shared.configuration.random_seeds.tables;
        LinkCore {
            kind,
            interface,
            direct: None,
            epoch: 1,
            hops: Hops::new(seed),
            transport,
            memory: List::new(),
            hardware: u64::MAX,
            recent: Recent::default(),
            flows: Table::new(seed),
            homeless_from: None,
            datagrams: Table::new(seed),
            dhcp: None,
            time_wait: TimeWaitTable::new(seed),
            timers: TimerQueue::default(),
            awaiting_neighbour: Map::new(),
            to_retry: 0,
            retry_from: 0,
            blocked: Chain::default(),
            turns: Chain::default(),
            frames_moved: 0,
            latest: 0,
            counted_time_wait: 0,
        }
    }

    /// The time, monotone for this interface even if the harts' clocks differ a little.
    pub(crate) fn now(&mut self, shared: &Shared) -> u64 {
        self.latest = self.latest.max(shared.clock.now_microseconds());
        self.latest
    }

    /// The time that was used last: for the frames of a batch, the time at which it began.
    pub(crate) fn batch_time(&self) -> u64 {
        self.latest
    }

    /// The paths of all connections are to be found anew (see `path`).
    pub(crate) fn begin_epoch(&mut self) {
        self.epoch += 1;
    }

    /// Passes `arrival` to `endpoint`, sends what the endpoint has to send, and updates its state.
    pub(crate) fn serve(
        &mut self,
        shared: &Arc<Shared>,
        endpoint: &Arc<Endpoint>,
        arrival: Option<Arrival<'_>>,
    ) {
        let now = self.now(shared);
        let mut state = endpoint.state.lock();
        if arrival.is_none()
            && state.fast.is_some()
            && self.serve_fast(shared, endpoint, &mut state, now)
        {
            return;
        }
        self.serve_locked(shared, endpoint, state, arrival, now);
    }

    /// The Ethernet header for replies to a segment of `endpoint`, if the segment may go the direct
    /// way.
    pub(crate) fn path_of(&self, state: &mut EndpointState, now: u64) -> Option<EthernetHeader> {
        let header = state.path.to_receive(self.epoch, now).filter(|_| self.direct.is_some())?;
        let key = state.record().filter(|stream| stream.established)?.key;
        // So smoltcp sees a segment of each neighbour often enough.
        let IpAddress::Ipv4(remote) = key.remote.addr else { return None };
        let is_due = state.path.hop_to_renew(self.epoch, remote, None, now).is_some();
        (!is_due).then_some(header)
    }

    /// Like [`serve`](Self::serve), with the endpoint's lock held.
    pub(crate) fn serve_locked(
        &mut self,
        shared: &Arc<Shared>,
        endpoint: &Arc<Endpoint>,
        mut guard: MutexGuard<'_, EndpointState>,
        arrival: Option<Arrival<'_>>,
        now: u64,
    ) {
        let state = &mut *guard;
        match state.protocol {
            Protocol::Stream(_) => self.serve_stream(shared, endpoint, state, arrival, now),
            Protocol::Datagram(_) => self.serve_datagram(shared, endpoint, state, arrival, now),
            Protocol::Dhcp => {
                if let Some(arrival) = arrival {
                    self.ingress(shared, &mut state.sockets, arrival.frame, None, 0, now);
                }
                let Egress { wish, .. } = self.egress(shared, endpoint, state, now, true);
                self.rearm(endpoint, state, wish, None, now);
                drop(guard);
                self.apply_lease(shared, endpoint);
            }
        }
    }

    fn serve_datagram(
        &mut self,
        shared: &Arc<Shared>,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        arrival: Option<Arrival<'_>>,
        now: u64,
    ) {
        let Some((socket, datagram)) = state.datagram() else { return };
        if datagram.closed {
            self.timers.disarm(endpoint, &mut state.armed);
            self.stop_awaiting(endpoint, state);
            return;
        }
        let (queued, had_room) = (socket.send_queue(), socket.can_send());
        let may_have_received = arrival.is_some();
        if let Some(arrival) = arrival {
            self.ingress(shared, &mut state.sockets, arrival.frame, None, 0, now);
        }
        self.egress(shared, endpoint, state, now, true);
        self.unblock_datagrams(endpoint, state, now);
        let wish = self.wish(shared, state, now);
        if let Some((socket, datagram)) = state.datagram() {
            // Numbers of bytes are not enough: a datagram may have none.
            if may_have_received && socket.can_recv() {
                datagram.receivers.wake_all();
            }
            if socket.send_queue() < queued || !had_room && socket.can_send() {
                datagram.senders.wake_all();
            }
        }
        self.rearm(endpoint, state, wish, None, now);
    }

    /// A neighbour that does not exist must not block the datagrams behind it. smoltcp can only
    /// empty both queues, so datagrams may be lost.
    fn unblock_datagrams(&mut self, endpoint: &Endpoint, state: &mut EndpointState, now: u64) {
        let awaiting = state.awaiting_neighbour;
        let Some((socket, datagram)) = state.datagram() else { return };
        if !awaiting {
            datagram.stuck_since = None;
        } else if now >= *datagram.stuck_since.get_or_insert(now) + NEIGHBOUR_MICROSECONDS {
            datagram.stuck_since = None;
            let bound = socket.endpoint();
            socket.close();
            // Cannot fail: it was bound to the same address before.
            let _ = socket.bind(bound);
            self.stop_awaiting(endpoint, state);
        }
    }

    /// Passes `frame` to smoltcp together with `sockets`, the direct way if there is a header for
    /// the reply. `shift` is that of the endpoint's socket. Returns whether there was a reply.
    pub(crate) fn ingress(
        &mut self,
        shared: &Shared,
        sockets: &mut SocketSet<'static>,
        frame: &[u8],
        direct: Option<EthernetHeader>,
        shift: u32,
        now: u64,
    ) -> bool {
        let (transport, counters) = (&mut self.transport, &shared.counters);
        self.frames_moved += 1;
        let frame = match shift {
            0 => frame,
            _ => match shifted(frame, &mut self.memory, shift) {
                Some(frame) => frame,
                None => return false,
            },
        };
        counters.socket_polls.add(1);
        if let (Some(header), Some(interface)) = (direct, &mut self.direct) {
            counters.frames_direct.add(1);
            let packet = frame.get(header.len()..);
            let mut adapter = Adapter::direct(transport, counters, packet, header, shift);
            interface.poll_ingress_single(instant(now), &mut adapter, sockets);
            adapter.report.delivered > 0
        } else {
            let mut adapter = Adapter::new(transport, counters, Some(frame), shift);
            self.interface.poll_ingress_single(instant(now), &mut adapter, sockets);
            adapter.report.delivered > 0
        }
    }

    pub(crate) fn stop_awaiting(&mut self, endpoint: &Endpoint, state: &mut EndpointState) {
        if core::mem::take(&mut state.awaiting_neighbour)
            && let Some((_, room)) = self.awaiting_neighbour.take(&endpoint.number)
        {
            state.neighbour_room = Some(room);
        }
    }

    /// Sets the endpoint's timer to smoltcp's `wish` or to `also`, whichever is earlier.
    pub(crate) fn rearm(
        &mut self,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        wish: Option<u64>,
        also: Option<u64>,
        now: u64,
    ) {
        let wish = match wish {
            // It waits for the device, not for a time.
            Some(at) if at <= now && state.blocked => None,
            Some(at) if at <= now => Some(now + IDLE_RETRY_MICROSECONDS),
            wish => wish,
        };
        self.timers.arm(endpoint, &mut state.armed, earlier(wish, also), now);
    }

    /// The next deadline of this interface.
    pub(crate) fn earliest_deadline(&self) -> Option<u64> {
        earlier(self.timers.earliest(), self.time_wait.earliest())
    }

    /// Number of entries in the timer queue.
    pub(crate) fn timers_armed(&self) -> usize {
        self.timers.len()
    }

    pub(crate) fn note_time_wait(&mut self, shared: &Shared) {
        let count = self.time_wait.len() as u64;
        if count != self.counted_time_wait {
            let counter = &shared.counters.time_wait_now;
            counter.add(count.wrapping_sub(self.counted_time_wait));
            self.counted_time_wait = count;
        }
    }
}

/// A copy in `memory` of a frame with a segment over IPv4, with the acknowledgement that the socket
/// of a connection with this shift expects. `None` if it is too long.
fn shifted<'a>(frame: &[u8], memory: &'a mut [u8], shift: u32) -> Option<&'a [u8]> {
    let copy = memory.get_mut(..frame.len())?;
    copy.copy_from_slice(frame);
    let at = 14 + usize::from(copy.get(14)? & 0x0f) * 4 + 8;
    let number = copy.get_mut(at..at + 4)?.first_chunk_mut::<4>()?;
    *number = u32::from_be_bytes(*number).wrapping_sub(shift).to_be_bytes();
    Some(copy)
}

/// Converts a time in microseconds for smoltcp.
pub(crate) fn instant(microseconds: u64) -> Instant {
    Instant::from_micros(i64::try_from(microseconds).unwrap_or(i64::MAX))
}
