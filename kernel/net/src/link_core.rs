//! What an interface's lock guards: smoltcp's interface, the device, the tables and the lists.
//!
//! `serve` is the one place where an endpoint meets smoltcp: at most one received frame in, then as
//! many frames out as there are, then the bookkeeping. Its cost does not depend on how many other
//! endpoints there are. The receiving side (which endpoint is it?) is in `ingress`, addresses and
//! DHCP in `addressing`.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use hashbrown::HashMap;
use smoltcp::iface::{Interface, SocketSet};
use smoltcp::socket::tcp::State;
use smoltcp::time::Instant;

use crate::device::{Adapter, EgressReport, Transport};
use crate::endpoint::{Endpoint, EndpointState, LinkKind, Protocol};
use crate::error::Error;
use crate::frame::{FlowKey, Segment};
use crate::link::Outbox;
use crate::shared::Shared;
use crate::stream::{Owner, Snapshot};
use crate::time_wait::{TIME_WAIT_MICROSECONDS, TimeWaitTable};
use crate::timers::TimerQueue;

/// Frames one endpoint may send before the others get their turn.
const FRAMES_PER_TURN: u32 = 32;
/// If smoltcp wants to be polled "now" but sends nothing, it is asked again after this time: no
/// state of a socket may turn the poller into a busy loop.
const IDLE_RETRY_MICROSECONDS: u64 = 1_000;
/// How long a UDP socket's queue waits for an unknown neighbour: three requests for its address.
const STUCK_DATAGRAM_MICROSECONDS: u64 = 3_000_000;

/// An interface's guarded part.
pub(crate) struct LinkCore {
    pub(crate) kind: LinkKind,
    pub(crate) interface: Interface,
    pub(crate) transport: Transport,
    /// TCP endpoints by their pair of addresses.
    pub(crate) flows: HashMap<FlowKey, Arc<Endpoint>>,
    /// UDP endpoints by local port.
    pub(crate) datagrams: HashMap<u16, Vec<Arc<Endpoint>>>,
    pub(crate) dhcp: Option<Arc<Endpoint>>,
    pub(crate) time_wait: TimeWaitTable,
    timers: TimerQueue,
    /// By number; exactly the endpoints whose state says so.
    awaiting_neighbour: BTreeMap<u64, Arc<Endpoint>>,
    blocked: VecDeque<Arc<Endpoint>>,
    /// Taken out of the outbox and not yet served, and those whose turn ended before their work.
    taken: VecDeque<Arc<Endpoint>>,
    /// The outbox is drained into this; kept for its capacity.
    scratch: Vec<Arc<Endpoint>>,
    /// The latest time seen, so that smoltcp never sees time go back.
    latest: u64,
    /// This interface's share of the counter of TIME-WAIT records.
    counted_time_wait: u64,
}

/// A received frame on its way to the endpoint it belongs to.
pub(crate) struct Arrival<'a> {
    pub(crate) frame: &'a [u8],
    /// Set for TCP.
    pub(crate) segment: Option<&'a Segment<'a>>,
}

impl LinkCore {
    pub(crate) fn new(kind: LinkKind, interface: Interface, transport: Transport) -> LinkCore {
        LinkCore {
            kind,
            interface,
            transport,
            flows: HashMap::new(),
            datagrams: HashMap::new(),
            dhcp: None,
            time_wait: TimeWaitTable::default(),
            timers: TimerQueue::default(),
            awaiting_neighbour: BTreeMap::new(),
            blocked: VecDeque::new(),
            taken: VecDeque::new(),
            scratch: Vec::new(),
            latest: 0,
            counted_time_wait: 0,
        }
    }

    /// The time: monotone for this interface even if the harts' clocks differ a little.
    pub(crate) fn now(&mut self, shared: &Shared) -> u64 {
        self.latest = self.latest.max(shared.clock.now_microseconds());
        self.latest
    }

    /// Gives `arrival` to `endpoint`, sends what it has to send, and brings its state up to date.
    pub(crate) fn serve(
        &mut self,
        shared: &Arc<Shared>,
        endpoint: &Arc<Endpoint>,
        arrival: Option<Arrival<'_>>,
    ) {
        let now = self.now(shared);
        let mut guard = endpoint.state.lock();
        let state = &mut *guard;
        match state.protocol {
            Protocol::Stream(_) => self.serve_stream(shared, endpoint, state, arrival, now),
            Protocol::Datagram(_) => self.serve_datagram(shared, endpoint, state, arrival, now),
            Protocol::Dhcp => {
                if let Some(arrival) = arrival {
                    self.ingress(shared, &mut state.sockets, arrival.frame, now);
                }
                self.egress(shared, endpoint, state, now);
                self.rearm(shared, endpoint, state, None, now);
                drop(guard);
                self.apply_lease(shared, endpoint);
            }
        }
    }

    fn serve_stream(
        &mut self,
        shared: &Arc<Shared>,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        arrival: Option<Arrival<'_>>,
        now: u64,
    ) {
        let counters = &shared.counters;
        let Some((socket, stream)) = state.stream() else { return };
        if !stream.in_table {
            return;
        }
        if let Some(Arrival { frame, segment }) = arrival {
            let before = Snapshot::of(socket);
            self.ingress(shared, &mut state.sockets, frame, now);
            let Some((socket, stream)) = state.stream() else { return };
            stream.observe(socket, before, segment, now, counters);
        }

        let Some((socket, stream)) = state.stream() else { return };
        if stream.silence_deadline(socket, &shared.configuration, now).is_some_and(|deadline| deadline <= now)
        {
            counters.timeouts.add(1);
            stream.abort(socket, Error::TimedOut, counters);
        }
        if matches!(stream.owner, Owner::Nobody) && socket.can_recv() && socket.is_open() {
            // Bytes that nobody will ever read: the peer must learn that (RFC 1122, 4.2.2.13).
            stream.abort(socket, Error::ConnectionAborted, counters);
        }
        if stream.holds_unread_past_time_wait(socket, now) {
            return;
        }
        let before = Snapshot::of(socket);
        self.egress(shared, endpoint, state, now);
        let Some((socket, stream)) = state.stream() else { return };
        stream.observe(socket, before, None, now, counters);

        self.hand_to_listener(shared, endpoint, state);
        self.finish_stream(shared, endpoint, state, now);
    }

    /// Moves a connection that is complete, or has failed, out of its listener's half-open ones.
    fn hand_to_listener(&mut self, shared: &Shared, endpoint: &Arc<Endpoint>, state: &mut EndpointState) {
        let Some((socket, stream)) = state.stream() else { return };
        let Owner::Listener(backlog) = &stream.owner else { return };
        if stream.established {
            if backlog.complete(endpoint) {
                shared.counters.connections_established_passive.add(1);
            }
        } else if !matches!(socket.state(), State::SynReceived) {
            backlog.forget(endpoint);
            // A listening socket that did not like its SYN, or was reset, has nothing to say.
            stream.owner = Owner::Nobody;
            if socket.is_listening() {
                socket.close();
            }
        }
    }

    /// Ends a connection that is at its end; arms the timer of one that is not.
    fn finish_stream(
        &mut self,
        shared: &Arc<Shared>,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        now: u64,
    ) {
        let Some((socket, stream)) = state.stream() else { return };
        if socket.state() == State::Closed {
            // The reset, if there was one to send, had its chance. It is not repeated: should it be
            // lost, the peer's next segment meets no connection and draws another.
            return self.retire(endpoint, state);
        }
        if let (State::TimeWait, Owner::Nobody, Some((numbers, entered_at))) =
            (socket.state(), &stream.owner, stream.time_wait)
        {
            let key = stream.key;
            let now_instant = instant(now);
            let next = self.interface.poll_at(now_instant, &state.sockets);
            // Nothing earlier than the end of TIME-WAIT: the ACK of the FIN is out.
            if next.is_none_or(|next| next >= instant(entered_at + TIME_WAIT_MICROSECONDS)) {
                let maximum = shared.configuration.maximum_time_wait;
                let evicted = self.time_wait.insert(key, numbers, now, maximum);
                shared.counters.time_wait_evicted.add(evicted);
                self.note_time_wait(shared);
                return self.retire(endpoint, state);
            }
        }
        let Some((socket, stream)) = state.stream() else { return };
        let silence = stream.silence_deadline(socket, &shared.configuration, now);
        self.rearm(shared, endpoint, state, silence, now);
    }

    /// Takes a connection out of every table. Its memory goes with the last reference.
    fn retire(&mut self, endpoint: &Arc<Endpoint>, state: &mut EndpointState) {
        self.timers.disarm(endpoint, &mut state.armed);
        self.stop_awaiting(endpoint, state);
        let Some((_, stream)) = state.stream() else { return };
        stream.in_table = false;
        let key = stream.key;
        if self.flows.get(&key).is_some_and(|current| Arc::ptr_eq(current, endpoint)) {
            self.flows.remove(&key);
        }
        if self.flows.capacity() > 64 && self.flows.len() < self.flows.capacity() / 8 {
            self.flows.shrink_to(self.flows.len() * 2);
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
        let (received, queued) = (socket.recv_queue(), socket.send_queue());
        if let Some(arrival) = arrival {
            self.ingress(shared, &mut state.sockets, arrival.frame, now);
        }
        self.egress(shared, endpoint, state, now);
        self.unblock_datagrams(endpoint, state, now);
        if let Some((socket, datagram)) = state.datagram() {
            if socket.recv_queue() > received {
                datagram.receivers.wake_all();
            }
            if socket.send_queue() < queued {
                datagram.senders.wake_all();
            }
        }
        self.rearm(shared, endpoint, state, None, now);
    }

    /// A neighbour that does not exist must not keep the datagrams behind from leaving. smoltcp can
    /// only empty both queues; datagrams may get lost.
    fn unblock_datagrams(&mut self, endpoint: &Endpoint, state: &mut EndpointState, now: u64) {
        let awaiting = state.awaiting_neighbour;
        let Some((socket, datagram)) = state.datagram() else { return };
        if !awaiting {
            datagram.stuck_since = None;
        } else if now >= *datagram.stuck_since.get_or_insert(now) + STUCK_DATAGRAM_MICROSECONDS {
            datagram.stuck_since = None;
            let bound = socket.endpoint();
            socket.close();
            // Cannot fail: it was bound to this before.
            let _ = socket.bind(bound);
            self.stop_awaiting(endpoint, state);
        }
    }

    /// Shows `frame` to smoltcp together with `sockets`.
    pub(crate) fn ingress(
        &mut self,
        shared: &Shared,
        sockets: &mut SocketSet<'static>,
        frame: &[u8],
        now: u64,
    ) {
        let mut adapter = Adapter::new(&mut self.transport, &shared.counters, Some(frame));
        self.interface.poll_ingress_single(instant(now), &mut adapter, sockets);
        shared.counters.socket_polls.add(1);
    }

    /// Sends what the endpoint has to send, until it has no more, the device is full, a neighbour
    /// is unknown, or its turn is over.
    fn egress(&mut self, shared: &Shared, endpoint: &Arc<Endpoint>, state: &mut EndpointState, now: u64) {
        let mut report = EgressReport::default();
        let mut turns = 0;
        while turns < FRAMES_PER_TURN {
            let mut adapter = Adapter::new(&mut self.transport, &shared.counters, None);
            self.interface.poll_egress(instant(now), &mut adapter, &mut state.sockets);
            shared.counters.socket_polls.add(1);
            report = adapter.report;
            if report.delivered == 0 {
                break;
            }
            turns += 1;
        }
        if turns > 0 {
            self.stop_awaiting(endpoint, state);
        }
        if turns == FRAMES_PER_TURN {
            self.taken.push_back(endpoint.clone());
        }
        if report.device_full && !state.blocked {
            shared.counters.transmit_blocked.add(1);
            state.blocked = true;
            self.blocked.push_back(endpoint.clone());
        }
        if report.wanted > report.delivered && !state.awaiting_neighbour {
            state.awaiting_neighbour = true;
            self.awaiting_neighbour.insert(endpoint.number, endpoint.clone());
        }
    }

    fn stop_awaiting(&mut self, endpoint: &Endpoint, state: &mut EndpointState) {
        if core::mem::take(&mut state.awaiting_neighbour) {
            self.awaiting_neighbour.remove(&endpoint.number);
        }
    }

    /// Sets the endpoint's timer: smoltcp's wish, or `also`, whichever is earlier.
    fn rearm(
        &mut self,
        shared: &Shared,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        also: Option<u64>,
        now: u64,
    ) {
        shared.counters.socket_polls.add(1);
        let wish = self.interface.poll_at(instant(now), &state.sockets);
        let wish = wish.map(|wish| u64::try_from(wish.total_micros()).unwrap_or(0));
        let wish = match wish {
            // It waits for the device: not for time.
            Some(at) if at <= now && state.blocked => None,
            Some(at) if at <= now => Some(now + IDLE_RETRY_MICROSECONDS),
            wish => wish,
        };
        if let Some(deadline) = [wish, also].into_iter().flatten().min() {
            self.timers.arm(endpoint, &mut state.armed, deadline);
        }
    }

    /// A neighbour may have become known: serves those that wait for one. smoltcp holds back, at
    /// little cost, those whose neighbour is still unknown.
    pub(crate) fn neighbour_appeared(&mut self, shared: &Arc<Shared>) {
        let waiting: Vec<_> = self.awaiting_neighbour.values().cloned().collect();
        for endpoint in waiting {
            self.serve(shared, &endpoint, None);
        }
    }

    /// Runs the timers that are due, at most `limit` of them; `true` if there are more.
    pub(crate) fn run_timers(&mut self, shared: &Arc<Shared>, limit: u32) -> bool {
        let now = self.now(shared);
        self.time_wait.expire(now);
        self.note_time_wait(shared);
        for _ in 0..limit {
            let Some(endpoint) = self.timers.pop_due(now) else { return false };
            endpoint.state.lock().armed = None;
            shared.counters.timers_fired.add(1);
            self.serve(shared, &endpoint, None);
        }
        self.timers.earliest().is_some_and(|deadline| deadline <= now)
    }

    /// Serves loopback packets, endpoints that wait for the device, and the outbox, until there is
    /// nothing left or `steps` are used up; `true` in the latter case.
    pub(crate) fn settle(
        &mut self,
        shared: &Arc<Shared>,
        outbox: &Outbox,
        blocked: &AtomicBool,
        steps: &mut u32,
    ) -> bool {
        loop {
            while *steps > 0 {
                let progress = self.receive_loopback(shared)
                    || self.serve_blocked(shared)
                    || self.serve_outbox(shared, outbox);
                if !progress {
                    break;
                }
                *steps -= 1;
            }
            self.transport_flush();
            // First the mark, then the question: should the device become free in between, either
            // it sees the mark and calls `transmit_ready`, or this sees the room.
            blocked.store(!self.blocked.is_empty(), Ordering::SeqCst);
            let unblocked = !self.blocked.is_empty() && self.transport.has_room();
            if *steps == 0 {
                return true;
            }
            if !unblocked {
                return false;
            }
        }
    }

    fn transport_flush(&mut self) {
        if let Transport::Ethernet(device) = &mut self.transport {
            device.flush();
        }
    }

    fn receive_loopback(&mut self, shared: &Arc<Shared>) -> bool {
        let Transport::Loopback(queue) = &mut self.transport else { return false };
        let Some(packet) = queue.pop() else { return false };
        self.receive(shared, &packet);
        if let Transport::Loopback(queue) = &mut self.transport {
            queue.recycle(packet);
        }
        true
    }

    fn serve_blocked(&mut self, shared: &Arc<Shared>) -> bool {
        if self.blocked.is_empty() || !self.transport.has_room() {
            return false;
        }
        let Some(endpoint) = self.blocked.pop_front() else { return false };
        endpoint.state.lock().blocked = false;
        self.serve(shared, &endpoint, None);
        true
    }

    fn serve_outbox(&mut self, shared: &Arc<Shared>, outbox: &Outbox) -> bool {
        if self.taken.is_empty() {
            outbox.drain(&mut self.scratch);
            self.taken.extend(self.scratch.drain(..));
        }
        let Some(endpoint) = self.taken.pop_front() else { return false };
        // Cleared before the state is looked at: see `Outbox::push`.
        endpoint.dirty.swap(false, Ordering::AcqRel);
        self.serve(shared, &endpoint, None);
        true
    }

    /// The next deadline of this interface.
    pub(crate) fn earliest_deadline(&self) -> Option<u64> {
        [self.timers.earliest(), self.time_wait.earliest()].into_iter().flatten().min()
    }

    /// How many endpoints have a timer running.
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

/// smoltcp's form of a time in microseconds.
pub(crate) fn instant(microseconds: u64) -> Instant {
    Instant::from_micros(i64::try_from(microseconds).unwrap_or(i64::MAX))
}
