//! The headers of the segments of one connection, of which only numbers differ.

use smoltcp::wire::IpAddress;

use crate::checksum::{fold, native_sum};
use crate::frame::{FlowKey, PLAIN_HEADERS};
use crate::path::EthernetHeader;

/// What differs between two segments of a connection, besides their data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fields {
    pub(crate) sequence: u32,
    pub(crate) acknowledgement: u32,
    pub(crate) flags: u8,
    pub(crate) window: u16,
}

/// The flags of TCP.
pub(crate) const RESET: u8 = 0x04;
pub(crate) const PUSH: u8 = 0x08;
pub(crate) const ACKNOWLEDGE: u8 = 0x10;

/// The headers of Ethernet, IPv4 and TCP, and the sums of what never differs in them.
#[derive(Debug)]
pub(crate) struct Template {
    head: [u8; PLAIN_HEADERS],
    /// Of the header of IPv4.
    ipv4_sum: u64,
    /// Of the pseudo header without the length.
    pseudo_sum: u64,
}

impl Template {
    /// `None` for IPv6.
    pub(crate) fn new(ethernet: &EthernetHeader, key: &FlowKey) -> Option<Template> {
        let (IpAddress::Ipv4(local), IpAddress::Ipv4(remote)) = (key.local.addr, key.remote.addr)
        else {
            return None;
        };
        let mut head = [0; PLAIN_HEADERS];
        head[..14].copy_from_slice(ethernet);
        // Version and length of the header; then: not to be fragmented, 64 hops, TCP. As smoltcp.
        head[14] = 0x45;
        head[20] = 0x40;
        head[22] = 64;
        head[23] = 6;
        head[26..30].copy_from_slice(&local.octets());
        head[30..34].copy_from_slice(&remote.octets());
        head[34..36].copy_from_slice(&key.local.port.to_be_bytes());
        head[36..38].copy_from_slice(&key.remote.port.to_be_bytes());
        head[46] = 0x50;
        let pseudo_sum = native_sum(&head[26..34]) + native_sum(&[0, 6]);
        Some(Template { ipv4_sum: native_sum(&head[14..34]), pseudo_sum, head })
    }

    /// Writes a frame with `data`. `frame` has exactly its length.
    pub(crate) fn write(&self, frame: &mut [u8], fields: Fields, data: &[u8]) {
        self.write_with(frame, fields, data, |head, pseudo_sum| {
            !fold(pseudo_sum + native_sum(&head[34..]) + native_sum(data))
        });
    }

    /// The same for a device that divides the segment and completes its checksum.
    pub(crate) fn write_divided(&self, frame: &mut [u8], fields: Fields, data: &[u8]) {
        self.write_with(frame, fields, data, |_, pseudo_sum| fold(pseudo_sum));
    }

    /// `checksum` computes that of TCP from the headers, in which its field is zero, and the sum of
    /// the pseudo header.
    #[inline(always)]
    fn write_with(
        &self,
        frame: &mut [u8],
        fields: Fields,
        data: &[u8],
        checksum: impl FnOnce(&[u8; PLAIN_HEADERS], u64) -> u16,
    ) {
        let Some((head, payload)) = frame.split_first_chunk_mut::<PLAIN_HEADERS>() else { return };
        let segment_length = (20 + data.len()) as u16;
        *head = self.head;
        head[16..18].copy_from_slice(&(20 + segment_length).to_be_bytes());
        head[38..42].copy_from_slice(&fields.sequence.to_be_bytes());
        head[42..46].copy_from_slice(&fields.acknowledgement.to_be_bytes());
        head[47] = fields.flags;
        head[48..50].copy_from_slice(&fields.window.to_be_bytes());
        // The field of the checksum is zero in the template.
        let ipv4_sum = self.ipv4_sum + u64::from((20 + segment_length).to_be());
        head[24..26].copy_from_slice(&(!fold(ipv4_sum)).to_ne_bytes());
        payload.copy_from_slice(data);
        let sum = checksum(head, self.pseudo_sum + u64::from(segment_length.to_be()));
        head[50..52].copy_from_slice(&sum.to_ne_bytes());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use smoltcp::phy::ChecksumCapabilities;
    use smoltcp::wire::*;

    use super::*;

    proptest! {
        /// The frame that smoltcp writes.
        #[test]
        fn a_template_writes_the_frame_that_smoltcp_writes(
            ethernet: [u8; 12],
            addresses: (u32, u32),
            ports: (u16, u16),
            numbers: (u32, u32),
            window: u16,
            push: bool,
            data in prop::collection::vec(any::<u8>(), 0..1461),
        ) {
            let addresses = (Ipv4Address::from_bits(addresses.0), Ipv4Address::from_bits(addresses.1));
            let local = IpEndpoint::new(addresses.0.into(), ports.0);
            let remote = IpEndpoint::new(addresses.1.into(), ports.1);
            let mut header = [8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0];
            header[..12].copy_from_slice(&ethernet);

            let segment = TcpRepr {
                src_port: ports.0,
                dst_port: ports.1,
                control: if push { TcpControl::Psh } else { TcpControl::None },
                seq_number: TcpSeqNumber(numbers.0 as i32),
                ack_number: Some(TcpSeqNumber(numbers.1 as i32)),
                window_len: window,
                window_scale: None,
                max_seg_size: None,
                sack_permitted: false,
                sack_ranges: [None; 3],
                timestamp: None,
                payload: &data,
            };
            let ip = IpRepr::new(local.addr, remote.addr, IpProtocol::Tcp, segment.buffer_len(), 64);
            let mut expected = alloc::vec![0xa5; 14 + ip.buffer_len()];
            expected[..14].copy_from_slice(&header);
            let capabilities = ChecksumCapabilities::default();
            ip.emit(&mut expected[14..], &capabilities);
            let mut view = TcpPacket::new_unchecked(&mut expected[34..]);
            segment.emit(&mut view, &local.addr, &remote.addr, &capabilities);

            let template = Template::new(&header, &FlowKey { local, remote }).unwrap();
            let mut frame = alloc::vec![0x5a; 54 + data.len()];
            let fields = Fields {
                sequence: numbers.0,
                acknowledgement: numbers.1,
                flags: ACKNOWLEDGE | if push { PUSH } else { 0 },
                window,
            };
            template.write(&mut frame, fields, &data);
            prop_assert_eq!(frame, expected);
        }
    }
}
