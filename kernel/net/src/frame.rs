//! Parses just enough of a frame to find its endpoint, and drops what smoltcp must not get.
//!
//! All input is untrusted: this module uses smoltcp's checked packet views and no indexing. It
//! drops the following, because smoltcp would not:
//! - Fragments: without reassembly, smoltcp treats a fragment as a whole packet.
//! - IPv6 extension headers: a TCP segment behind one would be given to an empty socket set, and
//!   the resulting reset would end a live connection with the same addresses.
//! - Martians: a segment "from" our own address, or for `::1`, that arrives from the network.

use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, IpAddress, IpEndpoint, IpProtocol,
    Ipv4Packet, Ipv6Packet, TcpPacket, TcpSeqNumber, UdpPacket,
};

use crate::checksum;

/// The two addresses of a connection, from this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct FlowKey {
    pub(crate) local: IpEndpoint,
    pub(crate) remote: IpEndpoint,
}

/// The TCP header of a received segment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Segment<'a> {
    pub(crate) key: FlowKey,
    pub(crate) synchronize: bool,
    pub(crate) acknowledge: bool,
    pub(crate) finish: bool,
    pub(crate) reset: bool,
    pub(crate) sequence: TcpSeqNumber,
    pub(crate) acknowledgement: TcpSeqNumber,
    /// Length of the data, without SYN and FIN.
    pub(crate) payload_length: usize,
    /// The whole segment, for its checksum.
    bytes: &'a [u8],
}

impl Segment<'_> {
    /// The sequence number after this segment.
    pub(crate) fn end(&self) -> TcpSeqNumber {
        self.sequence
            + self.payload_length
            + usize::from(self.synchronize)
            + usize::from(self.finish)
    }

    /// Whether the checksum is correct. smoltcp does not check it (see `checksum`).
    pub(crate) fn checksum_is_right(&self) -> bool {
        checksum::tcp_is_right(self.key.remote.addr, self.key.local.addr, self.bytes)
    }
}

/// What a received packet contains, and for which endpoint.
#[derive(Debug)]
pub(crate) enum Inbound<'a> {
    Tcp(Segment<'a>),
    Udp {
        local: IpEndpoint,
        remote: IpEndpoint,
    },
    /// ARP or neighbour discovery: a neighbour may be known afterwards.
    Neighbour,
    /// ICMP and similar: smoltcp answers without a socket.
    Other,
    Drop(Reason),
}

/// The reason why a frame is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Malformed,
    NotForUs,
    Martian,
    Fragment,
    Unsupported,
}

impl From<smoltcp::wire::Error> for Reason {
    fn from(_: smoltcp::wire::Error) -> Reason {
        Reason::Malformed
    }
}

/// Classifies an Ethernet frame. `is_ours` tells whether an address belongs to the interface.
pub(crate) fn classify_ethernet<'a>(
    frame: &'a [u8],
    hardware_address: EthernetAddress,
    is_ours: impl Fn(IpAddress) -> bool,
) -> Inbound<'a> {
    ethernet(frame, hardware_address, is_ours).unwrap_or_else(Inbound::Drop)
}

/// Classifies a packet of the loopback interface. Its source and destination are always ours.
pub(crate) fn classify_loopback(packet: &[u8]) -> Inbound<'_> {
    let classified = match packet.first().map(|byte| byte >> 4) {
        Some(4) => ipv4(packet),
        Some(6) => ipv6(packet),
        _ => Err(Reason::Malformed),
    };
    classified.map_or_else(Inbound::Drop, |(_, inbound)| inbound)
}

/// Source and destination of an IP packet.
type Addresses = (IpAddress, IpAddress);

fn ethernet<'a>(
    frame: &'a [u8],
    hardware_address: EthernetAddress,
    is_ours: impl Fn(IpAddress) -> bool,
) -> Result<Inbound<'a>, Reason> {
    let view = EthernetFrame::new_checked(frame)?;
    let destination = view.dst_addr();
    if destination != hardware_address && !destination.is_multicast() && !destination.is_broadcast()
    {
        return Err(Reason::NotForUs);
    }
    if !view.src_addr().is_unicast() {
        return Err(Reason::Martian);
    }
    // The view returns a payload with the lifetime of the view; the slice has that of the frame.
    let payload = frame.get(EthernetFrame::<&[u8]>::header_len()..).ok_or(Reason::Malformed)?;
    let ((source, target), inbound) = match view.ethertype() {
        EthernetProtocol::Arp => return Ok(Inbound::Neighbour),
        EthernetProtocol::Ipv4 => ipv4(payload)?,
        EthernetProtocol::Ipv6 => ipv6(payload)?,
        EthernetProtocol::Unknown(_) => return Err(Reason::Unsupported),
    };
    if is_loopback(source) || is_loopback(target) || source.is_multicast() || source.is_broadcast()
    {
        return Err(Reason::Martian);
    }
    // Other hosts send duplicate address detection from the unspecified address; a reflected frame
    // of ours comes from our own.
    if !source.is_unspecified() && is_ours(source) {
        return Err(Reason::Martian);
    }
    match inbound {
        Inbound::Tcp(_) if !is_ours(target) => Err(Reason::NotForUs),
        Inbound::Tcp(_) if source.is_unspecified() => Err(Reason::Martian),
        inbound => Ok(inbound),
    }
}

fn is_loopback(address: IpAddress) -> bool {
    core::net::IpAddr::from(address).is_loopback()
}

fn ipv4(packet: &[u8]) -> Result<(Addresses, Inbound<'_>), Reason> {
    let view = Ipv4Packet::new_checked(packet)?;
    if view.version() != 4 {
        return Err(Reason::Malformed);
    }
    if view.more_frags() || view.frag_offset() != 0 {
        return Err(Reason::Fragment);
    }
    let addresses = (IpAddress::Ipv4(view.src_addr()), IpAddress::Ipv4(view.dst_addr()));
    let payload = packet
        .get(usize::from(view.header_len())..usize::from(view.total_len()))
        .ok_or(Reason::Malformed)?;
    let inbound = match view.next_header() {
        IpProtocol::Tcp => tcp(addresses, payload)?,
        IpProtocol::Udp => udp(addresses, payload)?,
        _ => Inbound::Other,
    };
    Ok((addresses, inbound))
}

fn ipv6(packet: &[u8]) -> Result<(Addresses, Inbound<'_>), Reason> {
    /// Neighbour discovery messages are the ICMPv6 types 133 to 137 (RFC 4861, section 4).
    const NEIGHBOUR_DISCOVERY: core::ops::RangeInclusive<u8> = 133..=137;

    let view = Ipv6Packet::new_checked(packet)?;
    if view.version() != 6 {
        return Err(Reason::Malformed);
    }
    let addresses = (IpAddress::Ipv6(view.src_addr()), IpAddress::Ipv6(view.dst_addr()));
    let header_length = view.header_len();
    let payload = packet
        .get(header_length..header_length + usize::from(view.payload_len()))
        .ok_or(Reason::Malformed)?;
    let inbound = match view.next_header() {
        IpProtocol::Tcp => tcp(addresses, payload)?,
        IpProtocol::Udp => udp(addresses, payload)?,
        IpProtocol::Icmpv6 => match payload.first() {
            None => return Err(Reason::Malformed),
            Some(kind) if NEIGHBOUR_DISCOVERY.contains(kind) => Inbound::Neighbour,
            Some(_) => Inbound::Other,
        },
        IpProtocol::Ipv6Frag => return Err(Reason::Fragment),
        IpProtocol::HopByHop | IpProtocol::Ipv6Route | IpProtocol::Ipv6Opts => {
            return Err(Reason::Unsupported);
        }
        _ => Inbound::Other,
    };
    Ok((addresses, inbound))
}

fn tcp((source, target): Addresses, bytes: &[u8]) -> Result<Inbound<'_>, Reason> {
    let view = TcpPacket::new_checked(bytes)?;
    if view.src_port() == 0 || view.dst_port() == 0 {
        return Err(Reason::Malformed);
    }
    if target.is_multicast() || target.is_broadcast() || target.is_unspecified() {
        return Err(Reason::Martian);
    }
    let key = FlowKey {
        local: IpEndpoint::new(target, view.dst_port()),
        remote: IpEndpoint::new(source, view.src_port()),
    };
    Ok(Inbound::Tcp(Segment {
        key,
        synchronize: view.syn(),
        acknowledge: view.ack(),
        finish: view.fin(),
        reset: view.rst(),
        sequence: view.seq_number(),
        acknowledgement: view.ack_number(),
        payload_length: bytes.len().saturating_sub(usize::from(view.header_len())),
        bytes,
    }))
}

fn udp((source, target): Addresses, bytes: &[u8]) -> Result<Inbound<'_>, Reason> {
    let view = UdpPacket::new_checked(bytes)?;
    if view.dst_port() == 0 {
        return Err(Reason::Malformed);
    }
    Ok(Inbound::Udp {
        local: IpEndpoint::new(target, view.dst_port()),
        remote: IpEndpoint::new(source, view.src_port()),
    })
}
