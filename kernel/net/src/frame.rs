//! Parses just enough of a frame to find its endpoint, and drops what smoltcp must not get.
//!
//! All input is untrusted: this module uses smoltcp's checked packet views, and indexes only
//! arrays, by constants. It drops the following, because smoltcp would not:
//! - Fragments: without reassembly, smoltcp treats a fragment as a whole packet.
//! - IPv6 extension headers: a TCP segment behind one would be given to an empty socket set, and
//!   the resulting reset would end a live connection with the same addresses.
//! - Martians: a segment "from" our own address, or for `::1`, that arrives from the network.

use core::hash::{Hash, Hasher};
use core::net::Ipv4Addr;

use smoltcp::wire::{
    EthernetAddress, EthernetFrame, EthernetProtocol, IpAddress, IpEndpoint, IpProtocol,
    Ipv4Packet, Ipv6Packet, TcpPacket, TcpSeqNumber, UdpPacket,
};

use crate::checksum;

/// The two addresses of a connection, from this side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlowKey {
    pub(crate) local: IpEndpoint,
    pub(crate) remote: IpEndpoint,
}

impl Hash for FlowKey {
    /// The same as the derived one, in two words instead of eight pieces for IPv4.
    fn hash<H: Hasher>(&self, state: &mut H) {
        match (self.local.addr, self.remote.addr) {
            (IpAddress::Ipv4(local), IpAddress::Ipv4(remote)) => {
                state.write_u64(u64::from(local.to_bits()) << 32 | u64::from(remote.to_bits()));
            }
            (local, remote) => {
                local.hash(state);
                remote.hash(state);
            }
        }
        state.write_u32(u32::from(self.local.port) << 16 | u32::from(self.remote.port));
    }
}

/// The addresses and ports of a segment over IPv4 as they are in its frame: source, destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FlowWords {
    addresses: u64,
    ports: u32,
}

impl FlowWords {
    /// The port of the peer.
    pub(crate) fn remote_port(self) -> u16 {
        let [high, low, ..] = self.ports.to_ne_bytes();
        u16::from_be_bytes([high, low])
    }

    /// The last byte of the peer's address.
    pub(crate) fn remote_host(self) -> u8 {
        self.addresses.to_ne_bytes()[3]
    }

    /// The key.
    pub(crate) fn key(self) -> FlowKey {
        let [a, b, c, d, e, f, g, h] = self.addresses.to_ne_bytes();
        let [i, j, k, l] = self.ports.to_ne_bytes();
        FlowKey {
            local: IpEndpoint::new(IpAddress::v4(e, f, g, h), u16::from_be_bytes([k, l])),
            remote: IpEndpoint::new(IpAddress::v4(a, b, c, d), u16::from_be_bytes([i, j])),
        }
    }
}

impl FlowKey {
    /// The same, for IPv4.
    pub(crate) fn words(&self) -> Option<FlowWords> {
        let (IpAddress::Ipv4(local), IpAddress::Ipv4(remote)) = (self.local.addr, self.remote.addr)
        else {
            return None;
        };
        let ([a, b, c, d], [e, f, g, h]) = (remote.octets(), local.octets());
        let ([i, j], [k, l]) = (self.remote.port.to_be_bytes(), self.local.port.to_be_bytes());
        Some(FlowWords {
            addresses: u64::from_ne_bytes([a, b, c, d, e, f, g, h]),
            ports: u32::from_ne_bytes([i, j, k, l]),
        })
    }
}

/// The TCP header of a received segment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Segment<'a> {
    pub(crate) key: FlowKey,
    pub(crate) synchronize: bool,
    pub(crate) acknowledge: bool,
    pub(crate) finish: bool,
    pub(crate) reset: bool,
    pub(crate) sequence: TcpSeqNumber,
    pub(crate) acknowledgement: TcpSeqNumber,
    /// The window, as it is in the header.
    pub(crate) window: u16,
    /// Length of the data, without SYN and FIN.
    pub(crate) payload_length: usize,
    /// The whole segment, for its checksum.
    bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    /// The segment, from its header on.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
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

/// Reads a TCP segment in a frame of the usual form: to this hardware address, IPv4 without
/// options, not a fragment. `None` means only that the form is another one.
///
/// Checks everything that [`classify_ethernet`] and smoltcp check and that does not follow from the
/// two addresses and ports. So a frame for which this finds the addresses and ports of an accepted
/// segment would be accepted as well.
pub(crate) fn plain_segment(
    frame: &[u8],
    hardware_address: EthernetAddress,
) -> Option<Segment<'_>> {
    let head = frame.first_chunk::<PLAIN_HEADERS>()?;
    let number = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let [d0, d1, d2, d3, d4, d5, s0, ..] = *head;
    let for_us = [d0, d1, d2, d3, d4, d5] == hardware_address.0;
    let from_one_host = s0 & 1 == 0;
    let ipv4_without_options = number(12) == 0x0800 && head[14] == 0x45;
    // More fragments, or not the first one.
    let whole = number(20) & 0x3fff == 0;
    let tcp = head[23] == u8::from(IpProtocol::Tcp);
    if !(for_us && from_one_host && ipv4_without_options && whole && tcp) {
        return None;
    }
    let bytes = frame.get(34..14 + usize::from(number(16)))?;
    let header_length = usize::from(head[46] >> 4) * 4;
    let payload_length = bytes.len().checked_sub(header_length)?;
    let (remote_port, local_port, flags) = (number(34), number(36), head[47]);
    if header_length < 20 || remote_port == 0 || local_port == 0 {
        return None;
    }
    if !checksum::ipv4_header_is_right(head[14..].first_chunk()?) {
        return None;
    }
    let address = |at| IpAddress::Ipv4(Ipv4Addr::from_bits(word(at)));
    Some(Segment {
        key: FlowKey {
            local: IpEndpoint::new(address(30), local_port),
            remote: IpEndpoint::new(address(26), remote_port),
        },
        synchronize: flags & 0x02 != 0,
        acknowledge: flags & 0x10 != 0,
        finish: flags & 0x01 != 0,
        reset: flags & 0x04 != 0,
        sequence: TcpSeqNumber(word(38) as i32),
        acknowledgement: TcpSeqNumber(word(42) as i32),
        window: number(48),
        payload_length,
        bytes,
    })
}

/// A hardware address in a word, by which it is compared.
#[inline(always)]
pub(crate) fn hardware_word([a, b, c, d, e, f]: [u8; 6]) -> u64 {
    u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
}

/// A frame with a segment of the usual form, as [`plain_segment`] finds it, that moreover has no
/// options of TCP and no flags but ACK and perhaps PSH.
///
/// Several fields are compared at once, in words.
pub(crate) struct Plain<'a> {
    head: &'a [u8; PLAIN_HEADERS],
    /// The segment, from its header on.
    segment: &'a [u8],
}

impl<'a> Plain<'a> {
    /// `None` means only that the form is another one. `hardware` is from [`hardware_word`].
    #[inline(always)]
    pub(crate) fn new(frame: &'a [u8], hardware: u64) -> Option<Plain<'a>> {
        let head = frame.first_chunk::<PLAIN_HEADERS>()?;
        let eight = |at: usize| u64::from_le_bytes(core::array::from_fn(|index| head[at + index]));
        // To us, and not from a group: the lowest bit of the first byte of the source.
        let to_us = eight(0) & 0x0001_ffff_ffff_ffff == hardware;
        // IPv4, and its header of 20 bytes; then its length.
        let network = eight(12);
        let is_ipv4 = network & 0x00ff_ffff == 0x0045_0008;
        let length = usize::from(((network >> 32) as u16).swap_bytes());
        // Not a fragment; TCP.
        let is_tcp = eight(20) & 0xff00_ff3f == 0x0600_0000;
        // The length of its header is 20 bytes; ACK and perhaps PSH.
        let is_plain = eight(46) & 0xf7ff == 0x1050;
        if !(to_us && is_ipv4 && is_tcp && is_plain) {
            return None;
        }
        let segment = frame.get(34..14 + length)?;
        let is_right = checksum::ipv4_header_is_right(head[14..].first_chunk()?);
        (segment.len() >= 20 && is_right).then_some(Plain { head, segment })
    }

    /// The hardware address of the sender, as [`hardware_word`] has it.
    pub(crate) fn source_hardware(&self) -> u64 {
        hardware_word(core::array::from_fn(|index| self.head[6 + index]))
    }

    /// A frame with an echo reply of the same sender to the same receiver, which was not asked for.
    pub(crate) fn echo_reply(&self) -> [u8; 42] {
        let mut frame = [0; 42];
        frame[..34].copy_from_slice(&self.head[..34]);
        frame[16..18].copy_from_slice(&28_u16.to_be_bytes());
        frame[23] = u8::from(IpProtocol::Icmp);
        frame[24..26].fill(0);
        let sum = checksum::fold(checksum::native_sum(&frame[14..34]));
        frame[24..26].copy_from_slice(&(!sum).to_ne_bytes());
        // All else is 0, and so is the sum.
        frame[36..38].fill(0xff);
        frame
    }

    fn four(&self, at: usize) -> [u8; 4] {
        core::array::from_fn(|index| self.head[at + index])
    }

    /// The addresses and ports.
    #[inline]
    pub(crate) fn words(&self) -> FlowWords {
        let addresses = core::array::from_fn(|index| self.head[26 + index]);
        FlowWords {
            addresses: u64::from_ne_bytes(addresses),
            ports: u32::from_ne_bytes(self.four(34)),
        }
    }

    #[inline]
    pub(crate) fn sequence(&self) -> u32 {
        u32::from_be_bytes(self.four(38))
    }

    #[inline]
    pub(crate) fn acknowledgement(&self) -> u32 {
        u32::from_be_bytes(self.four(42))
    }

    #[inline]
    pub(crate) fn window(&self) -> u16 {
        u16::from_be_bytes([self.head[48], self.head[49]])
    }

    /// The data.
    #[inline]
    pub(crate) fn data(&self) -> &'a [u8] {
        self.segment.get(20..).unwrap_or(&[])
    }

    /// Whether TCP's checksum is correct.
    #[inline]
    pub(crate) fn checksum_is_right(&self) -> bool {
        checksum::plain_tcp_is_right(self.words().addresses, self.segment)
    }
}

/// Length of the headers of Ethernet, IPv4 and TCP without options.
pub(crate) const PLAIN_HEADERS: usize = 14 + 20 + 20;

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
        window: view.window_len(),
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

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;

    const OURS: EthernetAddress = EthernetAddress([2, 0, 0, 0, 0, 1]);
    const LOCAL: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
    const REMOTE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

    /// A segment of the usual form.
    fn plain(ports: (u16, u16), numbers: (i32, i32), flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = Vec::from([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        frame.resize(PLAIN_HEADERS, 0);
        frame.extend_from_slice(payload);
        let mut packet = Ipv4Packet::new_unchecked(&mut frame[14..]);
        packet.set_version(4);
        packet.set_header_len(20);
        packet.set_total_len(40 + payload.len() as u16);
        packet.set_dont_frag(true);
        packet.set_hop_limit(64);
        packet.set_next_header(IpProtocol::Tcp);
        packet.set_src_addr(REMOTE);
        packet.set_dst_addr(LOCAL);
        packet.fill_checksum();
        let mut segment = TcpPacket::new_unchecked(&mut frame[34..]);
        segment.set_src_port(ports.0);
        segment.set_dst_port(ports.1);
        segment.set_seq_number(TcpSeqNumber(numbers.0));
        segment.set_ack_number(TcpSeqNumber(numbers.1));
        segment.set_header_len(20);
        frame[47] = flags;
        frame
    }

    /// What the complete checks and smoltcp say about a frame between the two hosts.
    fn completely(frame: &[u8]) -> Option<Segment<'_>> {
        let is_ours = |address| address == IpAddress::Ipv4(LOCAL);
        let Inbound::Tcp(segment) = classify_ethernet(frame, OURS, is_ours) else { return None };
        let between_the_two =
            segment.key.local.addr == LOCAL.into() && segment.key.remote.addr == REMOTE.into();
        let packet = Ipv4Packet::new_checked(frame.get(14..)?).ok()?;
        (between_the_two && packet.verify_checksum()).then_some(segment)
    }

    fn same_addresses<'a>(segment: &Segment<'a>) -> Option<Segment<'a>> {
        let (local, remote) = (segment.key.local.addr, segment.key.remote.addr);
        (local == LOCAL.into() && remote == REMOTE.into()).then_some(*segment)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        /// For a connection of two hosts, the short check and the complete ones accept the same
        /// frames, except for the forms that only the complete ones know.
        #[test]
        fn the_short_check_is_the_complete_one(
            ports in (1..=u16::MAX, 1..=u16::MAX),
            numbers: (i32, i32),
            flags in 0..64u8,
            payload in prop::collection::vec(any::<u8>(), 0..40),
            changes in prop::collection::vec((0..70usize, any::<u8>(), any::<bool>()), 0..4),
            length in 0..120usize,
            keep_length: bool,
            repair: bool,
        ) {
            let mut frame = plain(ports, numbers, flags, &payload);
            prop_assert_eq!(plain_segment(&frame, OURS), completely(&frame));
            prop_assert!(plain_segment(&frame, OURS).is_some());
            for (at, value, flip) in changes {
                if let Some(byte) = frame.get_mut(at) {
                    *byte = if flip { *byte ^ (1 << (value % 8)) } else { value };
                }
            }
            if !keep_length {
                frame.resize(length, 0xee);
            }
            if repair && let Some(header) = frame.get_mut(14..34) {
                header[10..12].fill(0);
                checksum::complete_ipv4_header(header);
            }
            let short = plain_segment(&frame, OURS);
            let plain = Plain::new(&frame, hardware_word(OURS.0));
            match (&short, &plain) {
                (Some(segment), Some(plain)) => {
                    prop_assert_eq!(plain.words().key(), segment.key);
                    prop_assert_eq!(segment.key.words(), Some(plain.words()));
                    prop_assert_eq!(plain.sequence(), segment.sequence.0 as u32);
                    prop_assert_eq!(plain.acknowledgement(), segment.acknowledgement.0 as u32);
                    prop_assert_eq!(plain.window(), segment.window);
                    prop_assert_eq!(plain.data().len(), segment.payload_length);
                    prop_assert_eq!(plain.checksum_is_right(), segment.checksum_is_right());
                    prop_assert_eq!(plain.words().remote_port(), segment.key.remote.port);
                }
                (Some(_), None) => prop_assert!(frame[46] != 0x50 || frame[47] & !8 != 0x10),
                // A port that is 0 is not the port of any connection.
                (None, Some(plain)) => {
                    let key = plain.words().key();
                    prop_assert!(key.local.port == 0 || key.remote.port == 0);
                }
                (None, None) => {}
            }
            let short = short.as_ref().and_then(same_addresses);
            let complete = completely(&frame);
            if short.is_some() {
                prop_assert_eq!(short, complete);
            } else if complete.is_some() {
                // Options of IPv4, or a broadcast or multicast frame.
                prop_assert!(frame[14] != 0x45 || frame[0] & 1 == 1);
            }
        }
    }
}
