//! TCP's checksum, computed eight bytes at a time.
//!
//! smoltcp adds two bytes at a time and loads each byte separately. On a processor without
//! efficient unaligned access that costs three instructions per byte, the largest single cost of a
//! long segment. So the stack declares to smoltcp that the device computes TCP's checksum, and this
//! module does it.

use smoltcp::wire::{
    EthernetFrame, EthernetProtocol, IpAddress, IpProtocol, Ipv4Packet, Ipv6Packet, TcpPacket,
};

/// Whether the checksum of a received segment is correct.
pub(crate) fn tcp_is_right(source: IpAddress, target: IpAddress, segment: &[u8]) -> bool {
    tcp_sum(source, target, segment) == 0xffff
}

/// Writes the checksum into a complete frame, if it contains TCP.
pub(crate) fn complete_tcp(frame: &mut [u8]) {
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

fn complete_segment(source: IpAddress, target: IpAddress, segment: &mut [u8]) {
    let Ok(mut packet) = TcpPacket::new_checked(&mut *segment) else { return };
    packet.set_checksum(0);
    let sum = tcp_sum(source, target, segment);
    TcpPacket::new_unchecked(segment).set_checksum(!sum);
}

/// The sum over pseudo header and segment. It is all ones if the segment's checksum is correct.
fn tcp_sum(source: IpAddress, target: IpAddress, segment: &[u8]) -> u16 {
    let address = |address| match address {
        IpAddress::Ipv4(address) => u64::from(address.to_bits()),
        IpAddress::Ipv6(address) => u64::from(sum(&address.octets())),
    };
    // The protocol's number and the length, which is below 64 KiB.
    let rest = u64::from(u8::from(IpProtocol::Tcp)) + segment.len() as u64;
    fold(address(source) + address(target) + u64::from(sum(segment)) + rest)
}

/// The sum of `bytes` as big-endian 16-bit words, with the carries added back (RFC 1071). An odd
/// last byte is the upper half of a word.
fn sum(bytes: &[u8]) -> u16 {
    let (head, words, tail) = bytemuck::pod_align_to::<u8, u64>(bytes);
    let mut total = few(tail);
    for &word in words {
        // The sum depends neither on how the words are grouped nor, except for a final swap, on
        // their byte order (RFC 1071, section 2).
        let (added, carry) = total.overflowing_add(word);
        total = added + u64::from(carry);
    }
    let rest = fold(total);
    // After a head of odd length, all later bytes are in the other halves of their words.
    let rest = if head.len() % 2 == 1 { rest.swap_bytes() } else { rest };
    u16::from_be(fold(few(head) + u64::from(rest)))
}

/// The sum of fewer than eight bytes, as 16-bit words in memory order.
fn few(bytes: &[u8]) -> u64 {
    let (pairs, last) = bytes.as_chunks::<2>();
    let last = last.first().map_or(0, |&last| u16::from_ne_bytes([last, 0]));
    pairs.iter().map(|&pair| u64::from(u16::from_ne_bytes(pair))).sum::<u64>() + u64::from(last)
}

/// Adds the carries until 16 bits remain.
fn fold(sum: u64) -> u16 {
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
