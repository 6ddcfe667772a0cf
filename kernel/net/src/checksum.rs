//! TCP's checksum, computed eight bytes at a time.
//!
//! smoltcp adds two bytes at a time, the largest single cost of a long segment. So the stack
//! declares to smoltcp that the device computes TCP's checksum, and this module does it. For
//! segments that go the direct way (see `path`) it also does that for the header of IPv4.

use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket,
};

/// Whether the checksum of a received segment is correct.
pub(crate) fn tcp_is_right(source: IpAddress, target: IpAddress, segment: &[u8]) -> bool {
    tcp_sum(source, target, segment) == 0xffff
}

/// The same for a segment over IPv4. `addresses`: both, as they are in the header.
#[inline]
pub(crate) fn plain_tcp_is_right(addresses: u64, segment: &[u8]) -> bool {
    let length = u64::from((segment.len() as u16).to_be());
    let addresses = (addresses >> 32) + (addresses & 0xffff_ffff);
    fold(addresses + u64::from(6u16.to_be()) + length + native_sum(segment)) == 0xffff
}

/// Whether the checksum of an IPv4 header without options is correct.
#[inline]
pub(crate) fn ipv4_header_is_right(header: &[u8; 20]) -> bool {
    ipv4_header_sum(header) == 0xffff
}

/// Writes the checksum into the header of an IPv4 packet without options. The field must be zero.
pub(crate) fn complete_ipv4_header(packet: &mut [u8]) {
    if let Some(header) = packet.first_chunk_mut() {
        let sum = !ipv4_header_sum(header);
        header[10..12].copy_from_slice(&sum.to_ne_bytes());
    }
}

/// The sum in the byte order of this processor.
fn ipv4_header_sum(header: &[u8; 20]) -> u16 {
    let (words, _) = header.as_chunks::<4>();
    fold(words.iter().map(|&word| u64::from(u32::from_ne_bytes(word))).sum())
}

/// Completes a checksum that covers `frame` from `start` on, of which the field, `field` bytes
/// behind that, contains the sum of what else it covers: as a device that sends would do it. Does
/// nothing if one of these is beyond the frame.
pub fn complete_checksum(frame: &mut [u8], start: usize, field: usize) {
    let Some(covered) = frame.get_mut(start..) else { return };
    let sum = !fold(native_sum(covered));
    // To UDP, zero says that there is none (RFC 768); all ones are the same sum.
    let sum = if sum == 0 { u16::MAX } else { sum };
    if let Some(place) = field.checked_add(2).and_then(|end| covered.get_mut(field..end)) {
        place.copy_from_slice(&sum.to_ne_bytes());
    }
}

/// Writes the checksum into a complete frame, if it contains TCP.
pub(crate) fn complete_tcp(frame: &mut [u8]) {
    if complete_plain_tcp(frame).is_some() {
        return;
    }
    let Ok(mut frame) = EthernetFrame::new_checked(frame) else { return };
    match frame.ethertype() {
        EthernetProtocol::Ipv4 => {
            let Ok(mut packet) = Ipv4Packet::new_checked(frame.payload_mut()) else { return };
            let (source, target) = (packet.src_addr().into(), packet.dst_addr().into());
            if packet.next_header() == IpProtocol::Tcp {
                complete_segment(source, target, packet.payload_mut());
            }
        }
        EthernetProtocol::Ipv6 => {
            let Ok(mut packet) = Ipv6Packet::new_checked(frame.payload_mut()) else { return };
            let (source, target) = (packet.src_addr().into(), packet.dst_addr().into());
            if packet.next_header() == IpProtocol::Tcp {
                complete_segment(source, target, packet.payload_mut());
            }
        }
        _ => {}
    }
}

/// The same for a frame of the usual form: IPv4 without options. `None` if the form is another one.
fn complete_plain_tcp(frame: &mut [u8]) -> Option<()> {
    let head = frame.first_chunk::<54>()?;
    if head[12..15] != [8, 0, 0x45] || head[23] != u8::from(IpProtocol::Tcp) {
        return None;
    }
    let length = usize::from(u16::from_be_bytes([head[16], head[17]]));
    let address = |at| IpAddress::v4(head[at], head[at + 1], head[at + 2], head[at + 3]);
    let (source, target) = (address(26), address(30));
    complete_segment(source, target, frame.get_mut(34..14 + length)?);
    Some(())
}

fn complete_segment(source: IpAddress, target: IpAddress, segment: &mut [u8]) {
    let Ok(mut packet) = TcpPacket::new_checked(&mut *segment) else { return };
    packet.set_checksum(0);
    let sum = tcp_sum(source, target, segment);
    TcpPacket::new_unchecked(segment).set_checksum(!sum);
}

/// The sum over pseudo header and segment. It is all ones if the segment's checksum is correct.
fn tcp_sum(source: IpAddress, target: IpAddress, segment: &[u8]) -> u16 {
    let address = |address| match address {
        IpAddress::Ipv4(address) => native_sum(&address.octets()),
        IpAddress::Ipv6(address) => native_sum(&address.octets()),
    };
    // Two words of the pseudo header: the protocol's number and the length, which is below 64 KiB.
    let protocol = u64::from(u16::from(u8::from(IpProtocol::Tcp)).to_be());
    let length = u64::from((segment.len() as u16).to_be());
    let total = address(source) + address(target) + protocol + length + native_sum(segment);
    u16::from_be(fold(total))
}

/// The sum of `bytes` as 16-bit words in the byte order of this processor, not yet folded to 16
/// bits: less than 2^36. An odd last byte is the first of a word (RFC 1071).
///
/// The sum depends neither on how the words are grouped nor, except for a final swap, on their byte
/// order (RFC 1071, section 2). Loads at odd addresses are not slower (decision 25).
#[inline]
pub(crate) fn native_sum(bytes: &[u8]) -> u64 {
    let (words, tail) = bytes.as_chunks::<8>();
    let mut total = 0u64;
    for &word in words {
        let (added, carry) = total.overflowing_add(u64::from_ne_bytes(word));
        total = added + u64::from(carry);
    }
    (total >> 32) + (total & 0xffff_ffff) + few(tail)
}

/// The same for fewer than eight bytes.
#[inline]
fn few(bytes: &[u8]) -> u64 {
    let (four, rest) = bytes.as_chunks::<4>();
    let (two, one) = rest.as_chunks::<2>();
    let four = four.first().map_or(0, |&four| u32::from_ne_bytes(four));
    let two = two.first().map_or(0, |&two| u16::from_ne_bytes(two));
    let one = one.first().map_or(0, |&one| u16::from_ne_bytes([one, 0]));
    u64::from(four) + u64::from(two) + u64::from(one)
}

/// Adds the carries until 16 bits remain.
pub(crate) fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn sum(bytes: &[u8]) -> u16 {
        u16::from_be(fold(native_sum(bytes)))
    }

    /// The sum as RFC 1071 defines it.
    fn plain(bytes: &[u8]) -> u16 {
        let mut total = 0u64;
        for pair in bytes.chunks(2) {
            total += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
        }
        while total > 0xffff {
            total = (total >> 16) + (total & 0xffff);
        }
        total as u16
    }

    proptest! {
        #[test]
        fn every_length_and_alignment_sums_up_right(bytes: Vec<u8>, start in 0usize..16) {
            let bytes = bytes.get(start..).unwrap_or(&[]);
            prop_assert_eq!(sum(bytes), plain(bytes));
        }
    }

    #[test]
    fn carries_are_all_added_back() {
        for length in 0..200 {
            for fill in [0, 1, 0xff] {
                let bytes = alloc::vec![fill; length];
                assert_eq!(sum(&bytes), plain(&bytes), "{length} bytes of {fill}");
            }
        }
    }

    /// A datagram of which the sender has only summed up the pseudo header.
    #[test]
    fn a_partial_checksum_is_completed() {
        let (source, target) = (IpAddress::v4(10, 0, 2, 2), IpAddress::v4(10, 0, 2, 15));
        for length in 0..40u8 {
            let mut frame: Vec<u8> = (0..34 + 8 + length).collect();
            let bytes = u16::from(8 + length).to_be_bytes();
            frame[38..40].copy_from_slice(&bytes);
            let pseudo = [10, 0, 2, 2, 10, 0, 2, 15, 0, 17, bytes[0], bytes[1]];
            frame[40..42].copy_from_slice(&fold(native_sum(&pseudo)).to_ne_bytes());
            complete_checksum(&mut frame, 34, 6);
            let datagram = smoltcp::wire::UdpPacket::new_checked(&frame[34..]).unwrap();
            assert!(datagram.verify_checksum(&source, &target), "{length} bytes");
            assert_ne!(datagram.checksum(), 0);
        }
    }

    #[test]
    fn a_sum_of_zero_is_written_as_ones() {
        let mut frame = [0, 0, 0xff, 0xff];
        complete_checksum(&mut frame, 0, 0);
        assert_eq!(frame, [0xff, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn a_checksum_beyond_the_frame_is_left_alone() {
        for (start, field) in [(5, 0), (0, 3), (2, 1), (usize::MAX, 0), (0, usize::MAX), (4, 0)] {
            let mut frame = [1, 2, 3, 4];
            complete_checksum(&mut frame, start, field);
            assert_eq!(frame, [1, 2, 3, 4], "{start}, {field}");
        }
    }

    #[test]
    fn a_changed_bit_is_noticed() {
        let (source, target) = (IpAddress::v4(10, 0, 2, 2), IpAddress::v4(10, 0, 2, 15));
        let mut segment = [0u8; 33];
        segment[12] = 0x50;
        segment[32] = 7;
        complete_segment(source, target, &mut segment);
        assert!(TcpPacket::new_unchecked(&segment[..]).verify_checksum(&source, &target));
        assert!(tcp_is_right(source, target, &segment));
        for bit in 0..segment.len() * 8 {
            segment[bit / 8] ^= 1 << (bit % 8);
            assert!(!tcp_is_right(source, target, &segment), "bit {bit}");
            segment[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
