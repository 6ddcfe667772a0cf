//! The receiving side of an interface: finds the endpoint of each frame.

use alloc::sync::Arc;

use smoltcp::iface::SocketSet;
use smoltcp::wire::{
    DHCP_CLIENT_PORT, DHCP_SERVER_PORT, EthernetAddress, EthernetFrame, EthernetProtocol,
    EthernetRepr, HardwareAddress, IpAddress, IpEndpoint, IpListenEndpoint, IpProtocol, IpRepr,
    TcpControl, TcpPacket, TcpRepr,
};

use crate::device::Transport;
use crate::endpoint::{Endpoint, LinkKind};
use crate::frame::{self, FlowWords, Inbound, Plain, Reason, Segment};
use crate::link_core::{Arrival, LinkCore};
use crate::shared::Shared;
use crate::statistics::Counters;
use crate::stream::Owner;
use crate::time_wait::{FinalNumbers, Reuse, Verdict};

impl LinkCore {
    /// Processes one received frame (Ethernet) or packet (loopback). `is_verified`: the device
    /// vouches for TCP's checksum, whatever is in its field.
    pub(crate) fn receive(&mut self, shared: &Arc<Shared>, frame: &[u8], is_verified: bool) {
        let inbound = match self.kind {
            LinkKind::Loopback => frame::classify_loopback(frame),
            LinkKind::Ethernet => {
                shared.counters.frames_received.add(1);
                shared.counters.bytes_received.add(frame.len() as u64);
                if self.receive_expected(shared, frame, is_verified) {
                    return;
                }
                return self.receive_other(shared, frame, is_verified);
            }
        };
        // Packets of the loopback interface have no checksums, because they cannot be damaged.
        self.receive_inbound(shared, frame, inbound, true);
    }

    /// Processes a frame without an expected segment.
    #[inline(never)]
    fn receive_other(&mut self, shared: &Arc<Shared>, frame: &[u8], is_verified: bool) {
        if self.receive_directly(shared, frame, is_verified) {
            return;
        }
        let inbound = frame::classify_ethernet(frame, self.hardware_address(), |address| {
            self.interface.has_ip_addr(address)
        });
        self.receive_inbound(shared, frame, inbound, is_verified);
    }

    fn receive_inbound(
        &mut self,
        shared: &Arc<Shared>,
        frame: &[u8],
        inbound: Inbound<'_>,
        is_verified: bool,
    ) {
        match inbound {
            Inbound::Tcp(segment) if !is_verified && !segment.checksum_is_right() => {
                shared.counters.dropped_checksum.add(1);
            }
            Inbound::Tcp(segment) => self.receive_segment(shared, frame, &segment),
            Inbound::Udp { local, remote } => self.receive_datagram(shared, frame, local, remote),
            Inbound::Neighbour => {
                self.answer_without_endpoint(shared, frame);
                self.note_news(frame);
                self.neighbour_appeared();
            }
            Inbound::Other => self.answer_without_endpoint(shared, frame),
            Inbound::Drop(reason) => dropped(&shared.counters, reason),
        }
    }

    /// Processes the expected segment of a connection on the fast path. Returns `false` if the
    /// frame is anything else, and then has done nothing.
    fn receive_expected(&mut self, shared: &Arc<Shared>, frame: &[u8], is_verified: bool) -> bool {
        let Some(plain) = Plain::new(frame, self.hardware) else { return false };
        let words = plain.words();
        let Some(endpoint) = self.recent.get(words).cloned().or_else(|| self.find(words)) else {
            return false;
        };
        let now = self.batch_time();
        let mut state = endpoint.state.lock();
        state.fast.is_some()
            && self.path_is_valid(shared, &state, &plain, now)
            && (is_verified || plain.checksum_is_right())
            && self.receive_fast(shared, &endpoint, &mut state, &plain, now)
    }

    #[cold]
    fn find(&mut self, words: FlowWords) -> Option<Arc<Endpoint>> {
        let endpoint = self.flows.get(&words.key()).cloned()?;
        self.recent.insert(words, &endpoint);
        Some(endpoint)
    }

    /// Processes a segment of an established connection of which the path is known. Returns `false`
    /// if it is something else, and then has done nothing.
    fn receive_directly(&mut self, shared: &Arc<Shared>, frame: &[u8], is_verified: bool) -> bool {
        let Some(segment) = frame::plain_segment(frame, self.hardware_address()) else {
            return false;
        };
        let Some(endpoint) = self.flows.get(&segment.key).cloned() else { return false };
        let now = self.now(shared);
        let mut state = endpoint.state.lock();
        let Some(header) = self.path_of(&mut state, now) else { return false };
        if is_verified || segment.checksum_is_right() {
            let arrival = Arrival { frame, segment: Some(&segment), direct: Some(header) };
            self.serve_locked(shared, &endpoint, state, Some(arrival), now);
        } else {
            shared.counters.dropped_checksum.add(1);
        }
        true
    }

    fn receive_segment(&mut self, shared: &Arc<Shared>, frame: &[u8], segment: &Segment<'_>) {
        if let Some(endpoint) = self.flows.get(&segment.key).cloned() {
            let arrival = Arrival::complete(frame, Some(segment));
            return self.serve(shared, &endpoint, Some(arrival));
        }
        let now = self.now(shared);
        let listening = || {
            let registry = shared.registry.lock();
            registry.listener(segment.key.local.addr.into(), segment.key.local.port).cloned()
        };
        if self.time_wait.contains(&segment.key) {
            let reuse = match self.kind {
                _ if !segment.synchronize || listening().is_none() => Reuse::Never,
                LinkKind::Ethernet => Reuse::IfHigher,
                // Its queue is in order.
                LinkKind::Loopback => Reuse::Always,
            };
            let verdict = self.time_wait.judge(segment, now, reuse);
            self.note_time_wait(shared);
            match verdict {
                Some(Verdict::Acknowledge(numbers)) => {
                    return self.acknowledge(shared, frame, segment, numbers);
                }
                Some(Verdict::Reopen) | None => {}
                Some(Verdict::Ignore) => return,
            }
        }
        let opens =
            segment.synchronize && !segment.acknowledge && !segment.reset && !segment.finish;
        match listening() {
            Some(backlog) if opens => {
                // Drop the SYN; the client repeats it later.
                if !backlog.has_room() {
                    return shared.counters.dropped_backlog_full.add(1);
                }
                let owner = Owner::Listener(backlog.clone());
                if self.flows.reserve_one().is_err() {
                    return shared.counters.dropped_no_room.add(1);
                }
                let Ok(endpoint) = Endpoint::stream(shared, self.kind, segment.key, owner, now)
                else {
                    return shared.counters.dropped_no_room.add(1);
                };
                if !backlog.admit(&endpoint) {
                    return shared.counters.dropped_backlog_full.add(1);
                }
                self.open_passively(shared, &endpoint, frame, segment);
            }
            // Without an endpoint, smoltcp answers with a reset where one is required.
            _ => self.answer_without_endpoint(shared, frame),
        }
    }

    fn open_passively(
        &mut self,
        shared: &Arc<Shared>,
        endpoint: &Arc<Endpoint>,
        frame: &[u8],
        segment: &Segment<'_>,
    ) {
        let IpEndpoint { addr, port } = segment.key.local;
        if let Some((socket, stream)) = endpoint.state.lock().stream() {
            // Cannot fail: the socket is closed and the port is not 0.
            if socket.listen(IpListenEndpoint { addr: Some(addr), port }).is_ok() {
                stream.in_table = true;
            }
        }
        // There is room: it was reserved before the endpoint was created.
        let _ = self.flows.try_insert(segment.key, endpoint.clone());
        self.serve(shared, endpoint, Some(Arrival::complete(frame, Some(segment))));
    }

    fn receive_datagram(
        &mut self,
        shared: &Arc<Shared>,
        frame: &[u8],
        local: IpEndpoint,
        remote: IpEndpoint,
    ) {
        if let Some(dhcp) = self.dhcp.clone()
            && (remote.port, local.port) == (DHCP_SERVER_PORT, DHCP_CLIENT_PORT)
        {
            return self.serve(shared, &dhcp, Some(Arrival::complete(frame, None)));
        }
        let bound_to = |endpoint: &&Arc<Endpoint>| {
            let mut state = endpoint.state.lock();
            state.datagram().is_some_and(|(socket, datagram)| {
                let address = socket.endpoint().addr;
                // Broadcasts and multicasts go to the socket that is bound to the port.
                let is_for_it =
                    address.is_none_or(|address| address == local.addr) || !is_unicast(local.addr);
                is_for_it && datagram.accepts(remote)
            })
        };
        let endpoint =
            self.datagrams.get(&local.port).and_then(|bound| bound.iter().find(bound_to)).cloned();
        match endpoint {
            Some(endpoint) => self.serve(shared, &endpoint, Some(Arrival::complete(frame, None))),
            None => self.answer_without_endpoint(shared, frame),
        }
    }

    /// Processes a frame that belongs to no endpoint: ARP, echo requests, segments for unknown
    /// connections.
    fn answer_without_endpoint(&mut self, shared: &Shared, frame: &[u8]) {
        let now = self.now(shared);
        self.ingress(shared, &mut SocketSet::new(&mut [][..]), frame, None, 0, now);
    }

    /// Answers a segment of a connection in TIME-WAIT with an empty ACK in the opposite direction.
    fn acknowledge(
        &mut self,
        shared: &Shared,
        frame: &[u8],
        segment: &Segment<'_>,
        numbers: FinalNumbers,
    ) {
        let capabilities = self.transport.capabilities().checksum;
        let (source, target) = (segment.key.local, segment.key.remote);
        let reply = TcpRepr {
            src_port: source.port,
            dst_port: target.port,
            control: TcpControl::None,
            seq_number: numbers.next_to_send,
            ack_number: Some(numbers.next_expected),
            window_len: 0,
            window_scale: None,
            max_seg_size: None,
            sack_permitted: false,
            sack_ranges: [None; 3],
            timestamp: None,
            payload: &[],
        };
        let ip = IpRepr::new(source.addr, target.addr, IpProtocol::Tcp, reply.buffer_len(), 64);
        let ethernet = match self.kind {
            LinkKind::Loopback => None,
            LinkKind::Ethernet => {
                let Ok(received) = EthernetFrame::new_checked(frame) else { return };
                Some(EthernetRepr {
                    src_addr: self.hardware_address(),
                    dst_addr: received.src_addr(),
                    ethertype: match source.addr {
                        IpAddress::Ipv4(_) => EthernetProtocol::Ipv4,
                        IpAddress::Ipv6(_) => EthernetProtocol::Ipv6,
                    },
                })
            }
        };
        let ethernet_length = ethernet.map_or(0, |repr| repr.buffer_len());
        let write = &mut |buffer: &mut [u8]| {
            let (head, packet) = buffer.split_at_mut(ethernet_length);
            if let Some(repr) = ethernet {
                repr.emit(&mut EthernetFrame::new_unchecked(head));
            }
            ip.emit(&mut *packet, &capabilities);
            let mut segment = TcpPacket::new_unchecked(&mut packet[ip.header_len()..]);
            reply.emit(&mut segment, &source.addr, &target.addr, &capabilities);
        };
        let length = ethernet_length + ip.buffer_len();
        if !self.transport.has_room()
            || self.transport.transmit(&shared.counters, length, write).is_err()
        {
            shared.counters.dropped_device_full.add(1);
        }
    }

    fn hardware_address(&self) -> EthernetAddress {
        match (&self.transport, self.kind) {
            (Transport::Ethernet(..), LinkKind::Ethernet) => match self.interface.hardware_addr() {
                HardwareAddress::Ethernet(address) => address,
                HardwareAddress::Ip => EthernetAddress::default(),
            },
            _ => EthernetAddress::default(),
        }
    }
}

fn is_unicast(address: IpAddress) -> bool {
    !address.is_multicast() && !address.is_broadcast()
}

fn dropped(counters: &Counters, reason: Reason) {
    let counter = match reason {
        Reason::Malformed => &counters.dropped_malformed,
        Reason::NotForUs => &counters.dropped_not_for_us,
        Reason::Martian => &counters.dropped_martian,
        Reason::Fragment => &counters.dropped_fragment,
        Reason::Unsupported => &counters.dropped_unsupported,
    };
    counter.add(1);
}
