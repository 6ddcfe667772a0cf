//! Which connections enter the fast path.
//!
//! smoltcp's numbers cannot be read. They are counted along here, from the handshake on, by what
//! each step changes in the socket's buffers. So a segment that smoltcp rejects changes nothing.

use alloc::sync::Arc;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::socket::tcp::{Socket, State};
use smoltcp::wire::{TcpPacket, TcpRepr, TcpSeqNumber};

use super::{FastPath, Memory, RETRANSMISSION_MICROSECONDS, Template, grow};
use crate::bytes::ByteQueue;
use crate::endpoint::{Endpoint, EndpointState, INITIAL_WINDOW_BYTES, LinkKind, Protocol};
use crate::frame::Segment;
use crate::link_core::{LinkCore, instant};
use crate::script::{DATA_BYTES_MAX, FRAMES_OF_A_SCRIPT, Script};
use crate::shared::{IDLE_MICROSECONDS, QueueCharge, Shared};
use crate::stream::{Owner, Snapshot, Stream};

/// Number of usual exchanges before a connection enters for the first time, and at most.
const EXCHANGES_MIN: u32 = 3;
const EXCHANGES_MAX: u32 = 192;
/// A stay with fewer segments was short.
const SHORT_STAY_SEGMENTS: u32 = 64;
/// Calls of smoltcp for what it has not got acknowledged, besides those for whole segments: for the
/// last segment, an acknowledgement that is due before, and a segment that is sent twice; and one.
const OTHER_POLLS_OF_A_COPY: usize = 4;
/// The largest segment over Ethernet, as smoltcp computes it from the interface's packet size.
const SEGMENT_BYTES_DEFAULT: u16 = 536;

/// The options of the peer's SYN. Timestamps that it offers do not matter: our sockets never use
/// them, so the peer does not either.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PeerOptions {
    pub(super) segment_bytes_max: Option<u16>,
    pub(super) window_scale: Option<u8>,
    pub(super) sack_permitted: bool,
}

/// What has to be known about a connection for it to enter and to leave the fast path. While it is
/// on it, the numbers are in [`FastPath`].
#[derive(Debug)]
pub(crate) struct Tracking {
    pub(super) options: Option<PeerOptions>,
    pub(super) next_expected: u32,
    pub(super) unacknowledged: u32,
    /// The end of the data that was received furthest ahead: if that is not `next_expected`, some
    /// is missing.
    furthest: u32,
    pub(super) peer_window: u16,
    /// The next number to be sent, if it is known. It is not if smoltcp may have left some of its
    /// bytes for later.
    next_to_send: Option<u32>,
    /// Our largest segment.
    segment_bytes: u16,
    /// Usual exchanges since it last left, and how many are required.
    exchanges: u32,
    required: u32,
}

impl Default for Tracking {
    fn default() -> Self {
        Tracking {
            options: None,
            next_expected: 0,
            unacknowledged: 0,
            furthest: 0,
            peer_window: 0,
            next_to_send: None,
            segment_bytes: SEGMENT_BYTES_DEFAULT,
            exchanges: 0,
            required: EXCHANGES_MIN,
        }
    }
}

/// Whether `number` is behind `other`.
fn is_behind(number: u32, other: u32) -> bool {
    (number.wrapping_sub(other) as i32) < 0
}

impl Tracking {
    /// The most bytes of a segment that is sent.
    pub(crate) fn segment_bytes_max(&self) -> usize {
        usize::from(self.segment_bytes)
    }

    /// The bytes that the peer has room for, from the first one on that it has not acknowledged.
    pub(crate) fn peer_room(&self) -> usize {
        self.scaled(self.peer_window)
    }

    /// The bytes of a window that the peer has announced.
    pub(super) fn scaled(&self, window: u16) -> usize {
        let scale = self.options.and_then(|options| options.window_scale).unwrap_or(0);
        usize::from(window) << scale
    }

    /// The numbers of the peer's next segment, if it is empty: what it acknowledges, its own, its
    /// window.
    pub(crate) fn last(&self) -> (u32, u32, u16) {
        (self.unacknowledged, self.next_expected, self.peer_window)
    }

    /// smoltcp has processed `segment`.
    pub(crate) fn observe(&mut self, before: Snapshot, after: Snapshot, segment: &Segment<'_>) {
        if segment.synchronize
            && matches!(before.state, State::Listen | State::SynSent)
            && matches!(after.state, State::SynReceived | State::Established)
        {
            self.options = options_of(segment);
            // smoltcp does not take data of a SYN.
            self.next_expected = (segment.sequence.0 as u32).wrapping_add(1);
            self.furthest = self.next_expected;
        }
        let was_opening = matches!(before.state, State::SynSent | State::SynReceived);
        if was_opening && matches!(after.state, State::Established | State::CloseWait) {
            // smoltcp accepts exactly the number after its own SYN.
            self.unacknowledged = segment.acknowledgement.0 as u32;
        } else {
            let acknowledged = before.unacknowledged.saturating_sub(after.unacknowledged);
            self.unacknowledged = self.unacknowledged.wrapping_add(acknowledged as u32);
        }
        let received = after.received.saturating_sub(before.received);
        let has_ended = after.has_received_fin() && !before.has_received_fin();
        let expected = segment.sequence.0 as u32 == self.next_expected;
        // A FIN has a number, too.
        self.next_expected =
            self.next_expected.wrapping_add(received as u32 + u32::from(has_ended));
        let end = segment.end().0 as u32;
        // What is further ahead than any window is not kept.
        let ahead = end.wrapping_sub(self.next_expected);
        if ahead <= 1 << 17 && is_behind(self.furthest, end) {
            self.furthest = end;
        }
        if (expected || segment.synchronize)
            && segment.acknowledgement.0 as u32 == self.unacknowledged
        {
            // That of a SYN is not scaled.
            let scale = self.options.and_then(|options| options.window_scale).unwrap_or(0);
            self.peer_window = segment.window >> if segment.synchronize { scale } else { 0 };
        }
    }

    /// smoltcp has sent what it wants to of the bytes of `socket`; `has_more`: it wants to go on.
    pub(crate) fn note_sent(&mut self, socket: &Socket<'_>, has_more: bool) {
        let queued = socket.send_queue();
        let all = queued == 0
            || !(has_more || socket.nagle_enabled()) && queued <= self.scaled(self.peer_window);
        self.next_to_send = all.then(|| self.unacknowledged.wrapping_add(queued as u32));
    }

    /// The next number to be sent of a socket with `queued` bytes, if it is known and smoltcp would
    /// send all of them.
    fn next_to_send(&self, queued: usize) -> Option<u32> {
        if queued == 0 {
            return Some(self.unacknowledged);
        }
        let in_flight = |number: u32| number.wrapping_sub(self.unacknowledged) as usize;
        self.next_to_send.filter(|&number| {
            in_flight(number) <= queued && queued <= self.scaled(self.peer_window)
        })
    }

    /// An exchange was usual. Returns whether there were enough.
    pub(crate) fn count_exchange(&mut self) -> bool {
        self.exchanges += 1;
        self.exchanges >= self.required
    }

    /// The connection leaves.
    pub(super) fn leave(&mut self, fast: &FastPath) {
        self.next_expected = fast.next_expected;
        self.furthest = fast.next_expected;
        self.unacknowledged = fast.unacknowledged;
        self.peer_window = fast.peer_window;
        self.next_to_send = None;
        self.exchanges = 0;
        self.required = if fast.segments < SHORT_STAY_SEGMENTS {
            (2 * self.required).min(EXCHANGES_MAX)
        } else {
            EXCHANGES_MIN
        };
    }
}

fn options_of(segment: &Segment<'_>) -> Option<PeerOptions> {
    let packet = TcpPacket::new_checked(segment.bytes()).ok()?;
    let (remote, local) = (segment.key.remote.addr, segment.key.local.addr);
    let ignored = ChecksumCapabilities::ignored();
    let repr = TcpRepr::parse(&packet, &remote, &local, &ignored).ok()?;
    Some(PeerOptions {
        segment_bytes_max: repr.max_seg_size,
        window_scale: repr.window_scale,
        sack_permitted: repr.sack_permitted,
    })
}

/// Whether everything is usual about a connection with this socket.
fn may_enter(shared: &Shared, socket: &Socket<'_>, stream: &Stream) -> bool {
    let configuration = &shared.configuration;
    let tracking = &stream.tracking;
    configuration.fast_path
        && stream.is_open_for_its_handle()
        && socket.state() == State::Established
        && tracking.furthest == tracking.next_expected
        && configuration.transmit_buffer_bytes <= INITIAL_WINDOW_BYTES
        && configuration.receive_buffer_bytes <= DATA_BYTES_MAX
        && tracking.options.is_some_and(|options| {
            options.segment_bytes_max.is_some_and(|bytes| bytes >= SEGMENT_BYTES_DEFAULT)
        })
}

impl Script<'_> {
    /// Copies the bytes that smoltcp has not got acknowledged to `queue`, which has room for them:
    /// smoltcp cannot be asked for them, but sends them again when its timer expires. The first of
    /// them has the number `first` there. Returns whether all were copied.
    fn copy_unacknowledged(
        &mut self,
        first: TcpSeqNumber,
        length: usize,
        queue: &mut ByteQueue,
        now: u64,
    ) -> bool {
        // No peer on the fast path has smaller segments.
        let whole = length / usize::from(SEGMENT_BYTES_DEFAULT);
        for _ in 0..whole + OTHER_POLLS_OF_A_COPY {
            let at = self.interface.poll_at(instant(now), self.sockets);
            let at = at.and_then(|at| u64::try_from(at.total_micros()).ok());
            let Some((sequence, data)) = self.send_data(at.map_or(now, |at| at.max(now))) else {
                continue;
            };
            let offset = (sequence.0 as u32).wrapping_sub(first.0 as u32) as usize;
            let new = queue.len().checked_sub(offset).and_then(|known| data.get(known..));
            if new.is_some_and(|new| queue.try_append(new).is_err()) {
                return false;
            }
            if queue.len() >= length {
                return queue.len() == length;
            }
        }
        false
    }
}

impl LinkCore {
    /// Lets the connection enter the fast path if all about it is usual. Returns whether it has.
    pub(crate) fn enter_fast_path(
        &mut self,
        shared: &Arc<Shared>,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        now: u64,
    ) -> bool {
        if endpoint.link != LinkKind::Ethernet || self.direct.is_none() {
            return false;
        }
        let (header, shift) = (state.path.header(), state.shift);
        let packet_bytes = self.transport.direct_capabilities().max_transmission_unit;
        let Some((socket, stream)) = state.stream() else { return false };
        if !may_enter(shared, socket, stream) {
            return false;
        }
        let Some(template) = Template::new(&header, &stream.key) else { return false };
        let (unread, queued) = (socket.recv_queue(), socket.send_queue());
        let Some(next_to_send) = stream.tracking.next_to_send(queued) else { return false };
        // If the peer has owed an acknowledgement for long, smoltcp sends again.
        let sent_at = stream.waiting_since().filter(|_| queued > 0).unwrap_or(now);
        if sent_at + RETRANSMISSION_MICROSECONDS <= now {
            return false;
        }
        let (mut received, mut outgoing) = (ByteQueue::default(), ByteQueue::default());
        let mut charge = QueueCharge::new(shared);
        if unread > 0 && grow(&mut received, &mut charge, unread).is_err()
            || queued > 0 && grow(&mut outgoing, &mut charge, queued).is_err()
        {
            return false;
        }
        let (first, key) = (stream.tracking.unacknowledged.wrapping_sub(shift), stream.key);
        if queued > 0 {
            self.frames_moved += FRAMES_OF_A_SCRIPT;
            let capabilities = self.transport.direct_capabilities();
            let Some(interface) = &mut self.direct else { return false };
            let (sockets, memory) = (&mut state.sockets, &mut self.memory);
            let mut script = Script { interface, capabilities, sockets, key, memory };
            let first = TcpSeqNumber(first as i32);
            if !script.copy_unacknowledged(first, queued, &mut outgoing, now) {
                debug_assert!(false, "smoltcp does not send again");
                return false;
            }
        }
        let Some((socket, stream)) = state.stream() else { return false };
        while socket.can_recv() {
            // Cannot fail: there is room for all.
            let moved = socket.recv(|bytes| {
                let moved = received.try_append(bytes).is_ok();
                (if moved { bytes.len() } else { 0 }, moved)
            });
            if moved != Ok(true) {
                return false;
            }
        }
        let tracking = &mut stream.tracking;
        let options = tracking.options.and_then(|options| options.segment_bytes_max);
        let largest = (packet_bytes - 40).min(usize::from(u16::MAX)) as u16;
        tracking.segment_bytes = options.unwrap_or(SEGMENT_BYTES_DEFAULT).min(largest);
        let fast = FastPath {
            next_expected: tracking.next_expected,
            unacknowledged: tracking.unacknowledged,
            next_to_send,
            peer_window: tracking.peer_window,
            received,
            outgoing,
            charge,
            memory: Memory::Enough,
            receive_capacity: socket.recv_capacity(),
            transmit_capacity: socket.send_capacity(),
            nagle: socket.nagle_enabled(),
            sent_at,
            segments: 0,
            template,
        };
        shared.counters.fast_path_entered.add(1);
        stream.note_entered(fast.window());
        state.fast = Some(fast);
        state.free_socket();
        if let EndpointState {
            fast: Some(fast), protocol: Protocol::Stream(stream), armed, ..
        } = state
        {
            Self::rearm_fast(&mut self.timers, shared, endpoint, fast, stream, armed, now);
        }
        true
    }

    /// When a connection that has nothing to do enters the fast path; `None` if it cannot. One that
    /// waits to be accepted is asked again, as rarely as if memory were not short.
    pub(crate) fn idle_deadline(
        &self,
        shared: &Shared,
        endpoint: &Endpoint,
        state: &mut EndpointState,
    ) -> Option<u64> {
        if endpoint.link != LinkKind::Ethernet {
            return None;
        }
        let (socket, stream) = state.stream()?;
        let waits = matches!(stream.owner, Owner::Listener(_)) && stream.established;
        if waits {
            return Some(stream.last_heard() + IDLE_MICROSECONDS);
        }
        let may_enter = socket.send_queue() == 0 && may_enter(shared, socket, stream);
        may_enter.then(|| stream.last_heard() + shared.idle_microseconds())
    }
}
