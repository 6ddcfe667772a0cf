//! Leaving the fast path: a socket of smoltcp in the state of the connection.

use alloc::sync::Arc;

use smoltcp::iface::{Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, RxToken, TxToken};
use smoltcp::socket::tcp::{Socket, State};
use smoltcp::time::Instant;
use smoltcp::wire::{
    IpListenEndpoint, IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber,
};

use super::FastPath;
use super::enter::PeerOptions;
use crate::endpoint::{Endpoint, EndpointState, Protocol};
use crate::error::Error;
use crate::frame::FlowKey;
use crate::link_core::{LinkCore, instant};
use crate::shared::Shared;

/// The most data of a segment that is made up, and the largest receive buffer of a connection that
/// enters.
pub(super) const DATA_BYTES_MAX: usize = 4096;
static ZEROS: [u8; DATA_BYTES_MAX] = [0; DATA_BYTES_MAX];
/// Calls of smoltcp: at least two segments in and two attempts to send.
const POLLS_OF_A_SCRIPT: u64 = 4;
/// The most bytes of a packet that is made up: with all options.
pub(crate) const MADE_UP_BYTES_MAX: usize = DATA_BYTES_MAX + 20 + 60;

/// A conversation with smoltcp of which nothing reaches the device.
struct Script<'a> {
    interface: &'a mut Interface,
    capabilities: DeviceCapabilities,
    sockets: &'a mut SocketSet<'static>,
    key: FlowKey,
    /// Memory for a packet to smoltcp and one from it.
    memory: &'a mut [u8],
}

/// A device that has received at most one packet and keeps the last one that was sent.
struct Page<'a> {
    capabilities: DeviceCapabilities,
    received: Option<&'a [u8]>,
    sent: &'a mut [u8],
    /// Number of packets sent, and the sequence number of the last one.
    count: usize,
    sequence: TcpSeqNumber,
}

struct Received<'a>(&'a [u8]);

struct Room<'p, 'a>(&'p mut Page<'a>);

impl RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(self.0)
    }
}

impl TxToken for Room<'_, '_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, write: F) -> R {
        let Room(page) = self;
        let packet = &mut page.sent[..length];
        let result = write(packet);
        page.count += 1;
        // smoltcp writes no options of IPv4.
        page.sequence = TcpPacket::new_unchecked(&packet[20..]).seq_number();
        result
    }
}

impl<'a> Device for Page<'a> {
    type RxToken<'t>
        = Received<'t>
    where
        Self: 't;
    type TxToken<'t>
        = Room<'t, 'a>
    where
        Self: 't;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Room<'_, 'a>)> {
        let packet = self.received.take()?;
        Some((Received(packet), Room(self)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_, 'a>> {
        Some(Room(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        self.capabilities.clone()
    }
}

impl Script<'_> {
    /// smoltcp receives a segment of the peer. The caller gives what differs from one without
    /// options.
    fn receive(&mut self, segment: TcpRepr<'_>, at: u64) {
        let key = &self.key;
        let length = segment.buffer_len();
        let ip = IpRepr::new(key.remote.addr, key.local.addr, IpProtocol::Tcp, length, 64);
        let (packet, sent) = self.memory.split_at_mut(MADE_UP_BYTES_MAX);
        let Some(packet) = packet.get_mut(..ip.buffer_len()) else { return };
        let ignored = ChecksumCapabilities::ignored();
        ip.emit(&mut *packet, &ignored);
        let mut view = TcpPacket::new_unchecked(&mut packet[ip.header_len()..]);
        segment.emit(&mut view, &key.remote.addr, &key.local.addr, &ignored);
        let mut page = Page {
            capabilities: self.capabilities.clone(),
            received: Some(packet),
            sent,
            count: 0,
            sequence: TcpSeqNumber(0),
        };
        self.interface.poll_ingress_single(instant(at), &mut page, self.sockets);
    }

    /// smoltcp sends a segment, if it has one. Returns its sequence number.
    fn send(&mut self, at: u64) -> Option<TcpSeqNumber> {
        let (_, sent) = self.memory.split_at_mut(MADE_UP_BYTES_MAX);
        let mut page = Page {
            capabilities: self.capabilities.clone(),
            received: None,
            sent,
            count: 0,
            sequence: TcpSeqNumber(0),
        };
        self.interface.poll_egress(instant(at), &mut page, self.sockets);
        (page.count > 0).then_some(page.sequence)
    }

    fn segment(&self) -> TcpRepr<'static> {
        TcpRepr {
            src_port: self.key.remote.port,
            dst_port: self.key.local.port,
            control: TcpControl::None,
            seq_number: TcpSeqNumber(0),
            ack_number: None,
            window_len: 0,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: &[],
        }
    }

    /// Brings the listening socket into the state of `fast`. Returns the number of its first byte
    /// to be sent.
    ///
    /// `waiting` of the received bytes are not acknowledged, since `waiting_since`. The
    /// conversation begins before them, also if the program has read them: what replaces these is
    /// read here. The window that the socket then knows is at least the one that was announced.
    fn play(
        &mut self,
        handle: SocketHandle,
        fast: &FastPath,
        options: PeerOptions,
        (waiting, waiting_since): (usize, u64),
    ) -> Option<TcpSeqNumber> {
        let unread = fast.received.as_slice();
        let read = waiting.saturating_sub(unread.len());
        let replayed = (read + unread.len()) as u32;
        let mut next = TcpSeqNumber(fast.next_expected.wrapping_sub(replayed) as i32);
        self.receive(
            TcpRepr {
                control: TcpControl::Syn,
                seq_number: next - 1,
                window_len: fast.peer_window,
                window_scale: options.window_scale,
                max_seg_size: options.segment_bytes_max,
                sack_permitted: options.sack_permitted,
                ..self.segment()
            },
            fast.sent_at,
        );
        let first = self.send(fast.sent_at)? + 1;
        let plain =
            TcpRepr { ack_number: Some(first), window_len: fast.peer_window, ..self.segment() };
        self.receive(TcpRepr { seq_number: next, ..plain }, fast.sent_at);
        // Everything in flight was sent at once, whatever Nagle's algorithm says.
        let (in_flight, unsent) = fast.outgoing.as_slice().split_at_checked(fast.in_flight())?;
        let queue = |socket: &mut Socket<'_>, bytes: &[u8]| {
            socket.send_slice(bytes).is_ok_and(|queued| queued == bytes.len())
        };
        let socket = self.sockets.get_mut::<Socket<'static>>(handle);
        socket.set_nagle_enabled(false);
        if socket.state() != State::Established || !queue(socket, in_flight) {
            return None;
        }
        if !in_flight.is_empty() {
            while self.send(fast.sent_at).is_some() {}
        }
        // After that, since what was in flight did not acknowledge these bytes.
        if read > 0 {
            let payload = ZEROS.get(..read)?;
            self.receive(TcpRepr { seq_number: next, payload, ..plain }, waiting_since);
            next += read;
            let socket = self.sockets.get_mut::<Socket<'static>>(handle);
            socket.recv(|bytes| (bytes.len(), ())).ok()?;
        }
        for payload in unread.chunks(DATA_BYTES_MAX) {
            self.receive(TcpRepr { seq_number: next, payload, ..plain }, waiting_since);
            next += payload.len();
        }
        let socket = self.sockets.get_mut::<Socket<'static>>(handle);
        let complete = queue(socket, unsent) && socket.recv_queue() == unread.len();
        socket.set_nagle_enabled(fast.nagle);
        complete.then_some(first)
    }
}

impl LinkCore {
    /// Replaces the fast path of a connection by a socket in the same state. Does nothing for a
    /// connection that has a socket.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; the connection is as it was.
    pub(crate) fn leave_fast_path(
        &mut self,
        shared: &Arc<Shared>,
        endpoint: &Arc<Endpoint>,
        state: &mut EndpointState,
        now: u64,
    ) -> Result<(), Error> {
        if state.fast.is_none() {
            return Ok(());
        }
        let (mut sockets, handle) =
            Endpoint::socket_set(Endpoint::stream_socket(shared, endpoint.link)?)?;
        let EndpointState { fast, protocol: Protocol::Stream(stream), .. } = state else {
            return Ok(());
        };
        let (Some(fast), Some(interface)) = (fast.take(), &mut self.direct) else { return Ok(()) };
        let key = stream.key;
        let listening = IpListenEndpoint { addr: Some(key.local.addr), port: key.local.port };
        // Cannot fail: the socket is closed and the port is not 0.
        let _ = sockets.get_mut::<Socket<'static>>(handle).listen(listening);
        let capabilities = self.transport.direct_capabilities();
        let mut script = Script {
            interface,
            capabilities,
            sockets: &mut sockets,
            key,
            memory: &mut self.memory,
        };
        let options = stream.tracking.options;
        let waiting = stream.acknowledgements.waiting(now);
        let first = options.and_then(|options| script.play(handle, &fast, options, waiting));
        shared.counters.socket_polls.add(POLLS_OF_A_SCRIPT);
        debug_assert!(first.is_some(), "smoltcp does not take part in a handshake: {fast:?}");
        match first {
            Some(first) => state.shift = fast.unacknowledged.wrapping_sub(first.0 as u32),
            // Nothing is known that would bring this about. It is not worth a panic.
            None => {
                stream.fail(Error::ConnectionAborted);
                sockets.get_mut::<Socket<'static>>(handle).abort();
                stream.receivers.wake_all();
                stream.senders.wake_all();
            }
        }
        stream.tracking.leave(&fast);
        state.sockets = sockets;
        state.handle = Some(handle);
        shared.counters.fast_path_left.add(1);
        Ok(())
    }
}
